"""Errors of calls between processes: servers and workers."""

from __future__ import annotations

from tilth.base.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnknownOutcomeError,
)


class BadTokenError(InvalidInputError):
    """the service token cannot be used"""

    code = "BAD_SERVICE_TOKEN"


class TokenRefusedError(InvalidInputError):
    """the service token is missing or is another one than the server's"""

    code = "SERVICE_TOKEN_REFUSED"


class TokenNotSetError(InvalidInputError):
    """this server takes no workers: it has no service token"""

    code = "SERVICE_TOKEN_NOT_SET"


class WorkerNameTakenError(ConflictError):
    """a worker of this name is there and alive"""

    code = "WORKER_NAME_TAKEN"


class NoTilthServerError(UnavailableError):
    """what answers at this address is no Tilth server that takes workers"""

    code = "NO_TILTH_SERVER"


class PeerAnswerUnreadableError(UnknownOutcomeError):
    """the other process has answered in a form that this version cannot read; it may have acted on the call"""

    code = "PEER_ANSWER_UNREADABLE"


class PeerAnswerTooLargeError(UnknownOutcomeError):
    """the other process answers with more than is read of it; it may have acted on the call"""

    code = "PEER_ANSWER_TOO_LARGE"


class PeerAwayError(UnavailableError):
    """the other process cannot be reached"""

    code = "PEER_AWAY"


class PeerAnswerLostError(UnknownOutcomeError):
    """the other process did not answer; it may have acted on the call"""

    code = "PEER_ANSWER_LOST"


class BadBodyError(InvalidInputError):
    """the body of the request cannot be read"""

    code = "BAD_BODY"


class RouteNotFoundError(NotFoundError):
    """nothing is served under this path"""

    code = "ROUTE_NOT_FOUND"
