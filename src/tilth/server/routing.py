"""The application: a request gets to the handler of its route, or an answer that there is none.

Covers: the application, answers to whatever is raised in it. Does not cover: which routes there are (app.py), which
requests are refused before (origin.py).
Always holds: every request gets one answer, also where its handler or a layer is broken.

Tests: tests/unit/server/test_app.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.server.count import ROUTE_KEY
from tilth.server.errors import BadRequestError, MethodNotAllowedError, error_response
from tilth.warehouse.remote.errors import RouteNotFoundError

_log = Log("server")


class App(Starlette):
    """Starlette without its layers for errors, each of which costs as much as a route; `Answering` replaces them."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return app


class Answering:
    """ASGI middleware that answers what the application in it raises: errors of handlers, paths without a route,
    defects of other layers.
    """

    def __init__(self, app: ASGIApp, *, ids: IdSource, headers: Collection[tuple[bytes, bytes]] = ()) -> None:
        """`headers` are those of every answer; one that has a header of that name keeps it."""
        self._app = app
        self._ids = ids
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if self._headers and message["type"] == "http.response.start":
                given = message.get("headers", ())
                names = {name for name, _ in given}
                message["headers"] = [*given, *(header for header in self._headers if header[0] not in names)]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if has_begun:
                raise
            await _answer_of(error, scope, self._ids)(scope, receive, noted)


def _answer_of(error: Exception, scope: Scope, ids: IdSource) -> Response:
    if isinstance(error, ClientDisconnect):
        _log.info("client_left", route=scope.get(ROUTE_KEY))
        return Response(status_code=400)
    if not isinstance(error, HTTPException):
        return error_response(error, ids)
    path = scope["path"]
    if error.status_code == 405:
        hint = f"this path accepts {dict(error.headers or {}).get('Allow', 'another method')}"
        answer = error_response(MethodNotAllowedError(method=scope["method"], path=path, hint=hint), ids)
        answer.headers.update(error.headers or {})
        return answer
    if error.status_code == 404:
        return error_response(RouteNotFoundError(path=path, hint="GET / lists what is served"), ids)
    return error_response(BadRequestError(reason=error.detail), ids)


class Endpoint:
    """ASGI application of one route."""

    def __init__(self, path: str, handler: Callable[[Request], Awaitable[Response]]) -> None:
        self._path = path
        self._handler = handler
        self.__doc__ = handler.__doc__

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE_KEY] = self._path
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)
