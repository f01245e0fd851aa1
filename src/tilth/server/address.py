"""Binds the address of the HTTP server, before anything else is started."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tilth.base.errors import UnavailableError


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket without listening yet. Raises UnavailableError (ADDRESS_IN_USE) when this fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol left open asyncio does not see TCP and leaves Nagle's algorithm on: 40 ms for every answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with closed_on_error(listener, host, port):
        listener.bind((host, port))
    return listener


@contextmanager
def closed_on_error(listener: socket.socket, host: str, port: int) -> Iterator[None]:
    """Close the socket where the block fails. Raises UnavailableError (ADDRESS_IN_USE)."""
    try:
        yield
    except OSError as error:
        listener.close()
        hint = "stop what listens there, or choose another address with --listen"
        raise UnavailableError.coded(
            "ADDRESS_IN_USE",
            "the HTTP server cannot listen on this address",
            address=f"{host}:{port}",
            reason=error.strerror,
            hint=hint,
        ) from error


def reachable_url(url: str) -> str:
    """Return the URL by which others reach the server: with the machine's name instead of "all addresses"."""
    for every in ("//0.0.0.0:", "//[::]:"):
        url = url.replace(every, f"//{socket.gethostname()}:")
    return url
