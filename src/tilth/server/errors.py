"""Errors in requests, and errors as answers: the kind decides the status, the body has the rest.

Tests: tests/unit/server/test_app.py.
"""

from __future__ import annotations

import os

import msgspec
from starlette.responses import Response

from tilth.base.errors import ErrorKind, InvalidInputError, TilthError
from tilth.base.full import full_error
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.error_numbers import number_of
from tilth.model.wire import ErrorAnswer, ErrorBody
from tilth.warehouse import SparkRestartingError
from tilth.warehouse.remote.errors import TokenNotSetError, TokenRefusedError

#: The status of an answer, by the kind of its error.
STATUS = {
    ErrorKind.INVALID: 400,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.CONFLICT: 409,
    ErrorKind.FENCED: 409,
    ErrorKind.RETRY: 503,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.UNKNOWN_OUTCOME: 504,
    ErrorKind.CORRUPT: 500,
    ErrorKind.INTERNAL: 500,
}
#: Time after which the caller may repeat the call.
RETRY_AFTER_SECONDS = "1"
#: Longer waits, by the error's code.
_RETRY_AFTER_OF_CODE = {SparkRestartingError.code: "5"}

_log = Log("server")


class BadRequestError(InvalidInputError):
    """the request cannot be read"""

    code = "BAD_REQUEST"


class BodyTooLargeError(InvalidInputError):
    """the body of the request is larger than allowed"""

    code = "BODY_TOO_LARGE"


class MethodNotAllowedError(InvalidInputError):
    """this path does not accept this method"""

    code = "METHOD_NOT_ALLOWED"


class HostRefusedError(InvalidInputError):
    """unknown host"""

    code = "HOST_REFUSED"


class OriginRefusedError(InvalidInputError):
    """pages of this origin cannot call the node"""

    code = "ORIGIN_REFUSED"


class ContentTypeRefusedError(InvalidInputError):
    """browsers must send a content type that needs a preflight request"""

    code = "CONTENT_TYPE_REFUSED"


#: Header with the error's number, which ClickHouse's drivers read.
NUMBER_HEADER = "X-ClickHouse-Exception-Code"
#: Statuses of errors for which HTTP has a status of its own.
_STATUS_OF_CODE = {
    BodyTooLargeError.code: 413,
    MethodNotAllowedError.code: 405,
    HostRefusedError.code: 403,
    OriginRefusedError.code: 403,
    ContentTypeRefusedError.code: 403,
    TokenNotSetError.code: 401,
    TokenRefusedError.code: 401,
}


def status_of(error: TilthError | type[TilthError]) -> int:
    return _STATUS_OF_CODE.get(error.code, STATUS[error.kind])


def _status_of(body: ErrorBody) -> int:
    return _STATUS_OF_CODE.get(body.code, STATUS[ErrorKind(body.kind)])


def error_response(error: Exception, ids: IdSource) -> Response:
    """Answer a call that failed; log the error under the id that the body carries."""
    body = logged_error(error, ids)
    status = _status_of(body)
    headers = {NUMBER_HEADER: str(body.number)}
    if status == STATUS[ErrorKind.RETRY]:
        headers["Retry-After"] = _RETRY_AFTER_OF_CODE.get(body.code, RETRY_AFTER_SECONDS)
    return Response(
        msgspec.json.encode(ErrorAnswer(body)), status_code=status, media_type="application/json", headers=headers
    )


def logged_error(error: Exception, ids: IdSource) -> ErrorBody:
    """Return the error as clients see it, after logging it under the id that it carries."""
    cause_id = ids()[:12]
    body = error_body(error, cause_id)
    if _status_of(body) == STATUS[ErrorKind.INTERNAL]:
        _log.error("request_failed", cause_id=cause_id, error=error, code=body.code)
    else:
        _log.warning("request_refused", cause_id=cause_id, code=body.code, message=body.message)
    return body


def error_body(error: Exception, cause_id: str) -> ErrorBody:
    """Return the error as clients see it; what is no text in it, for instance a file's name, becomes question marks."""
    error = full_error(error, folder=os.sep) or error
    known = error if isinstance(error, TilthError) else _defect(error, cause_id)
    return ErrorBody(
        code=known.code,
        kind=known.kind.value,
        message=_as_text(known.message),
        hint=_as_text(known.hint),
        id=cause_id,
        number=number_of(known),
        page=known.page,
    )


def _defect(error: Exception, cause_id: str) -> TilthError:
    hint = f"please report it with the lines of the log that have cause_id={cause_id}"
    return TilthError(f"a defect of Tilth: {type(error).__name__}: {error}", hint=hint)


def _as_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
