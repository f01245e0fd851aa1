"""Runs the ASGI application on a socket, in a thread of its own or in the caller's.

Tests: tests/acceptance/test_http_server.py.
"""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.applications import Starlette

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError
from tilth.server.address import bind, closed_on_error
from tilth.server.protocol import BoundedHttpProtocol

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0
#: Grace period of running requests when the server stops.
FINISH_SECONDS_MAX = 5
#: Longer than clients keep idle connections, so that none of them sends into one that is being closed.
KEEP_ALIVE_SECONDS = 75
#: Connections that wait to be accepted.
BACKLOG = 128
_POLL_SECONDS = 0.02


class HttpServer:
    """An HTTP server that is listening; port 0 selects a free one."""

    def __init__(
        self, clock: Clock, app: Starlette, *, host: str, port: int, listener: socket.socket | None = None
    ) -> None:
        """`listener`: socket that `bind` returned for this address; none: it is bound here. Raises
        UnavailableError (ADDRESS_IN_USE).
        """
        self._clock = clock
        self._socket = bind(host, port) if listener is None else listener
        with closed_on_error(self._socket, host, port):
            self._socket.listen(BACKLOG)
        config = uvicorn.Config(
            app,
            http=BoundedHttpProtocol,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FINISH_SECONDS_MAX,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="tilth-http", daemon=True)
        bound_host, bound_port = self._socket.getsockname()[:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"http://{shown}:{bound_port}"

    def start(self) -> None:
        """Return once requests are answered."""
        self._thread.start()
        deadline = self._clock.monotonic() + START_SECONDS_MAX
        while not self._server.started:
            if self._clock.monotonic() > deadline or not self._thread.is_alive():
                raise UnavailableError("the HTTP server did not start", url=self.url)
            self._clock.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Let running requests end, for a while, and close the socket."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS_MAX)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
