"""Runs the ASGI application on a socket, in a thread of its own or in the caller's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError

START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0
#: What running requests have when the server stops.
FINISH_SECONDS_MAX = 5
#: Longer than clients keep idle connections, so that none of them sends into one that is being closed.
KEEP_ALIVE_SECONDS = 75
#: Connections that wait to be accepted.
BACKLOG = 128
_POLL_SECONDS = 0.02


class PortTakenError(UnavailableError):
    """the HTTP server cannot listen on this address"""

    code = "ADDRESS_IN_USE"


class HttpServer:
    """An HTTP server that is listening; port 0 takes a free one."""

    def __init__(
        self, clock: Clock, app: Starlette, *, host: str, port: int, door: socket.socket | None = None
    ) -> None:
        """`door`: what `bind` gave for this address, none: it is bound here. Raises PortTakenError."""
        self._clock = clock
        self._socket = bind(host, port) if door is None else door
        with _closed_if_taken(self._socket, host, port):
            self._socket.listen(BACKLOG)
        config = uvicorn.Config(
            app,
            http="h11",
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


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket without listening yet. Raises PortTakenError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol left open asyncio does not see TCP and leaves Nagle's algorithm on: 40 ms for every answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _closed_if_taken(listener, host, port):
        listener.bind((host, port))
    return listener


@contextmanager
def _closed_if_taken(listener: socket.socket, host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        listener.close()
        hint = "stop what listens there, or choose another address with --listen"
        raise PortTakenError(address=f"{host}:{port}", reason=error.strerror, hint=hint) from error
