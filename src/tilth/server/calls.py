"""The route of calls between processes of Tilth: a server's from its workers, a worker's from its server.

Covers: the token, who calls, answers in MessagePack, calls that are sent twice. Does not cover: what a call does
(warehouse/remote). Always holds: without the right token nothing is read; a browser is refused whatever it carries; no
body is logged, for it may hold passwords.

Tests: tests/unit/warehouse/remote/test_channel.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tilth.base import tracing
from tilth.base.errors import ErrorKind, TilthError
from tilth.base.logs import Log
from tilth.base.units import GIB
from tilth.model.failure import failure_of
from tilth.server.count import ROUTE_KEY
from tilth.server.errors import (
    BadRequestError,
    BodyTooLargeError,
    OriginRefusedError,
    status_of,
)
from tilth.warehouse.remote.answers import Answers
from tilth.warehouse.remote.errors import BadBodyError, RouteNotFoundError, TokenNotSetError, TokenRefusedError
from tilth.warehouse.remote.token import HEADER, VARIABLE, is_token
from tilth.warehouse.remote.wire import CALL_HEADER, MEDIA_TYPE, PATH, WORKER_HEADER
from tilth.warehouse.remote.workers import Handler

#: Maximum body of one call: results of tasks are collected up to less than that.
BODY_BYTES_MAX = 1 * GIB
CALL_ID_CHARACTERS_MAX = 100
ROUTE = f"{PATH}{{call:path}}"
_TOKEN_HINT = f"give both processes the same one, in the environment as {VARIABLE} or in a file (--token-file)"
_SET_HINT = f"start the server with {VARIABLE} in its environment, or with --set server.token-file=FILE"

_log = Log("server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Calls that other processes may make here, and who may make them."""

    #: Empty: nobody may call.
    token: str = field(default="", repr=False)
    #: Handlers by the name of the call.
    handlers: Mapping[str, Handler] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)


def calls_route(calls: Calls) -> Route:
    """Return the route of all calls."""
    limiter = CapacityLimiter(math.inf)

    async def endpoint(request: Request) -> Response:
        request.scope[ROUTE_KEY] = ROUTE
        name = request.path_params["call"]
        try:
            _admit(request, calls.token)
            act = calls.handlers.get(name)
            if act is None:
                raise RouteNotFoundError(call=name, hint="both processes need the same version of tilth")
            caller, call_id = request.headers.get(WORKER_HEADER, ""), request.headers.get(CALL_HEADER, "")
            if not 0 < len(call_id) <= CALL_ID_CHARACTERS_MAX:
                raise BadRequestError("a call needs an id of its own", call=name)
            body = await _body(request)

            # A call outside of a span, such as a heartbeat, has none.
            trace = request.headers.get(tracing.TRACE_HEADER, tracing.UNTRACED)

            def run() -> bytes:
                with tracing.span(f"call {name}", parent=trace):
                    return calls.answers.once(f"{name} {caller} {call_id}", lambda: act(caller, body))

            content = await anyio.to_thread.run_sync(run, limiter=limiter)
            return Response(content, media_type=MEDIA_TYPE)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return _refused(name, error)

    route = Route(ROUTE, endpoint, methods=["POST"])
    route.methods = {"POST"}
    return route


def build_calls_app(calls: Calls) -> Starlette:
    """Build an ASGI application of calls alone: the endpoint of a worker."""
    return Starlette(routes=[calls_route(calls)])


def _admit(request: Request, token: str) -> None:
    """Raises OriginRefusedError, TokenNotSetError, TokenRefusedError."""
    if "origin" in request.headers or "sec-fetch-site" in request.headers:
        raise OriginRefusedError("browsers make no calls between processes")
    if not token:
        raise TokenNotSetError(hint=_SET_HINT)
    if not is_token(request.headers.get(HEADER, ""), token):
        raise TokenRefusedError(hint=_TOKEN_HINT)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLargeError(allowed=BODY_BYTES_MAX, hint="a result of a task is too large to travel")
    return bytes(body)


def _refused(name: str, error: Exception) -> Response:
    """Answer with the error; its facts are for the caller, the log has its message."""
    if isinstance(error, msgspec.MsgspecError):
        error = BadBodyError("the message of the call cannot be read", call=name, reason=str(error)[:500])
    if not isinstance(error, TilthError):
        _log.error("call_failed", call=name, error=error)
        error = TilthError(f"a defect of Tilth: {type(error).__name__}: {error}")
    elif error.kind is ErrorKind.INTERNAL:
        _log.error("call_failed", call=name, error=error, code=error.code)
    else:
        _log.info("call_refused", call=name, code=error.code, message=error.message)
    return Response(msgspec.msgpack.encode(failure_of(error)), status_code=status_of(error), media_type=MEDIA_TYPE)
