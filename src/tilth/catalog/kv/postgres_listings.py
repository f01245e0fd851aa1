"""Listings of the catalog: reads that may last, with a bounded part of the connections.

Covers: waiting for a permit, saying that there is none. Does not cover: connections (postgres.py).
Always holds: commits and brief reads find a connection however many listings there are; a thread that reads within a
listing of its own waits for no second permit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tilth.base.errors import UnavailableError

#: Listings wait longer for one another than commits for a connection: they last longer, too.
WAIT_SECONDS = 30.0


class CatalogBusyError(UnavailableError):
    """too many reads of the catalog are under way on this server"""

    code = "CATALOG_BUSY"


class Listings:
    """Permits. Safe to use from several threads."""

    def __init__(self, permits: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._permits = permits
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        #: Listings under way, by thread.
        self._under_way: Counter[int] = Counter()

    @contextmanager
    def permit(self) -> Iterator[None]:
        """Raises CatalogBusyError."""
        thread = threading.get_ident()
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._is_free_for(thread), self._wait_seconds)
            if not is_free:
                hint = "try again, or ask less at the same time: system tables and lists of parts read much"
                raise CatalogBusyError(under_way=len(self._under_way), seconds=self._wait_seconds, hint=hint)
            self._under_way[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                # A listing may end on another thread than its own, as an iterator does that nobody has read to its end.
                self._under_way[thread] -= 1
                if not self._under_way[thread]:
                    del self._under_way[thread]
                    self._changed.notify()

    def _is_free_for(self, thread: int) -> bool:
        return thread in self._under_way or len(self._under_way) < self._permits
