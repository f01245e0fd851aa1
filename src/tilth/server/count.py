"""Counts every answer, those of unknown paths and of defects too.

Tests: tests/unit/server/test_maintenance_page.py.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind
from tilth.server.errors import STATUS
from tilth.server.stats import Answered, HttpCounters

#: Key in the request's scope under which an endpoint leaves the pattern of its path.
ROUTE_KEY = "tilth.route"
#: Stands for a route or a method that is not ours; what clients invent must not grow the list of counters.
OTHER = "-"
#: Status that is counted when the connection broke before there was one.
NO_STATUS = 499


class Counted:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, clock: Clock, counters: HttpCounters, methods: Collection[str]) -> None:
        self._app = app
        self._clock = clock
        self._counters = counters
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = NO_STATUS

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        begun = self._clock.monotonic()
        self._counters.begin()
        try:
            await self._app(scope, receive, noted)
        except Exception:
            if status == NO_STATUS:
                # The layer around this one answers the error.
                status = STATUS[ErrorKind.INTERNAL]
            raise
        finally:
            method = scope["method"] if scope["method"] in self._methods else OTHER
            answered = Answered(method, scope.get(ROUTE_KEY, OTHER), status)
            self._counters.end(answered, self._clock.monotonic() - begun)
