"""A transport that calls an ASGI application in this process: real requests and answers, no socket."""

from __future__ import annotations

import anyio
import httpx
from starlette.applications import Starlette


class AppTransport(httpx.BaseTransport):
    """Each request runs in an event loop of its own, to its end."""

    def __init__(self, app: Starlette) -> None:
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return anyio.run(self._handle, request)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)


def client_of(app: Starlette) -> httpx.Client:
    """A client whose requests go to the application."""
    return httpx.Client(transport=AppTransport(app), base_url="http://tilth.test")
