"""Other servers of the catalog, with the calls that statements need.

Covers: the protocol; a server that is alone; notices about servers that did not answer. Does not cover: calls
(http_peers.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import pyarrow as pa

from tilth.catalog import NotHostedError
from tilth.model.pushdown import EVERYTHING, Pushdown
from tilth.model.server import ServerRecord
from tilth.model.service import ServiceKind
from tilth.query.results.answer import Outcome

_unanswered: ContextVar[set[str] | None] = ContextVar("unanswered", default=None)


class Peers(Protocol):
    """The other servers."""

    def run(self, error: NotHostedError, text: str, *, database: str, settings: Mapping[str, str]) -> Outcome:
        """Run a statement on the server that hosts what the error is about. Raises what that server raises, and the
        error where nobody hosts it now.
        """

    def tables(self, name: str, schema: pa.Schema, wanted: Pushdown = EVERYTHING) -> list[pa.Table]:
        """Return the rows that the others have of a system table of servers, as many as are wanted at least; who does
        not answer is noted, and who has other columns.
        """

    def wait_stopped(self, service: ServiceKind, table: str) -> None:
        """Wait until the others have stopped a service of one table or of ALL_TABLES, as the catalog says; who does not
        say that it has is noted.
        """

    def servers(self) -> tuple[ServerRecord, ...]:
        """Return all servers that live, this one among them."""

    def hosts(self, thing: str) -> str:
        """Return the name of the server that hosts it; empty: nobody does now."""


class NoPeers:
    """A server alone."""

    def run(self, error: NotHostedError, text: str, *, database: str, settings: Mapping[str, str]) -> Outcome:
        raise error

    def tables(self, name: str, schema: pa.Schema, wanted: Pushdown = EVERYTHING) -> list[pa.Table]:
        return []

    def wait_stopped(self, service: ServiceKind, table: str) -> None:
        """There is nobody to wait for."""

    def servers(self) -> tuple[ServerRecord, ...]:
        return ()

    def hosts(self, thing: str) -> str:
        return ""


@contextmanager
def noting_unanswered() -> Iterator[set[str]]:
    """Collect what is noted about servers that did not answer, while the block runs in this thread."""
    token = _unanswered.set(set())
    try:
        found = _unanswered.get()
        assert found is not None
        yield found
    finally:
        _unanswered.reset(token)


def note_unanswered(text: str) -> None:
    """Say what a server has not answered, and why."""
    found = _unanswered.get()
    if found is not None:
        found.add(text)
