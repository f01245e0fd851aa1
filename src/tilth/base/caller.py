"""Who made the call that this thread works for: the address of the client, for tables that name readers.

Covers: one value for each call, carried along by the context. Does not cover: how calls come in (server).
Always holds: without a client it is empty; nothing is decided by it.
"""

from __future__ import annotations

from contextvars import ContextVar

#: A longer text is cut: a client chooses its own name.
CALLER_CHARACTERS_MAX = 120

_caller: ContextVar[str] = ContextVar("caller", default="")


def caller() -> str:
    """Return `address:port`, with the client's name in parentheses where it gave one; empty without a client."""
    return _caller.get()


def set_caller(address: str, name: str = "") -> None:
    """Set the client of the call at hand; threads that the call starts through the context see it."""
    shown = "".join(letter for letter in name if letter.isprintable())
    _caller.set((f"{address} ({shown})" if shown else address)[:CALLER_CHARACTERS_MAX])
