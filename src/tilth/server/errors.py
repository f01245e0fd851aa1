"""An error as an HTTP answer: the kind decides the status, the body tells the rest."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from tilth.base.errors import ErrorKind, TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.wire import ErrorAnswer, ErrorBody

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
#: What the caller is asked to wait before the same call may succeed.
RETRY_AFTER_SECONDS = "1"

_log = Log("server")


def error_response(error: Exception, ids: IdSource) -> Response:
    """The answer to a call that failed; logs it under the id that the body carries."""
    cause_id = ids()[:12]
    if isinstance(error, TilthError):
        status = STATUS[error.kind]
        body = ErrorBody(
            code=error.code, kind=error.kind.value, message=error.message, hint=error.hint, id=cause_id
        )
        _log.warning("request_refused", cause_id=cause_id, code=error.code, message=error.message)
    else:
        status = STATUS[ErrorKind.INTERNAL]
        body = ErrorBody(
            code="INTERNAL_ERROR",
            kind=ErrorKind.INTERNAL.value,
            message=f"a defect of Tilth: {type(error).__name__}: {error}",
            hint=f"please report it with what the log says under cause_id={cause_id}",
            id=cause_id,
        )
        _log.error("request_failed", cause_id=cause_id, error=error)
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status == STATUS[ErrorKind.RETRY] else {}
    content = msgspec.json.encode(ErrorAnswer(body))
    return Response(content, status_code=status, media_type="application/json", headers=headers)
