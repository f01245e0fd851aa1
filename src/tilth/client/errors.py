"""Errors between a client and its server.

Tests: tests/unit/client/test_http.py.
"""

from __future__ import annotations

from tilth.base.errors import ErrorKind, InvalidInputError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.model.wire import ErrorAnswer

_KINDS = {kind.value: kind for kind in ErrorKind}


class ServerUnreachableError(UnavailableError):
    """the Tilth server does not answer"""

    code = "SERVER_UNREACHABLE"


class AnswerLostError(UnknownOutcomeError):
    """the connection broke before the answer arrived; the statement may have been applied"""

    code = "ANSWER_LOST"


class BadUrlError(InvalidInputError):
    """this is not the address of a server"""

    code = "BAD_URL"


class ServerError(TilthError):
    """the server refused the call"""

    def __init__(self, answer: ErrorAnswer) -> None:
        body = answer.error
        super().__init__(body.message, hint=body.hint)
        self._answer = answer
        #: Kind that the server reports, for programs. One of a newer server is treated as a defect.
        self.kind = _KINDS.get(body.kind, ErrorKind.INTERNAL)  # type: ignore[misc]  # the server's, not this class's
        self.code = body.code
        #: Id under which the server's log has the details.
        self.id = body.id
        #: Number of the error of ClickHouse or ByConity that is most like it; 0: not known, as where an answer broke
        #: off.
        self.number = body.number

    @property
    def page(self) -> str:
        """Page that the server names, which may be newer than this client; else the one of the code."""
        page = self._answer.error.page
        return page if page and page.isprintable() else super().page

    def __str__(self) -> str:
        """Return the server's message, with the code and the id to look it up in the documentation and in its log."""
        return f"{super().__str__()} [{self.code}, id {self.id}]"

    def _render_traceback_(self) -> list[str]:
        return [*super()._render_traceback_(), f"  id: {self.id}"]

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return ServerError, (self._answer,)
