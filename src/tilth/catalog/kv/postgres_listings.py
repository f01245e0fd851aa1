"""Permits for listings of the catalog: long reads get only a part of the connections.

Covers: waiting for a permit, the error when there is none. Does not cover: connections (postgres.py).
Always holds: commits and brief reads find a connection whatever the number of listings; a thread that reads within its
own listing needs no second permit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tilth.base.errors import UnavailableError

#: Longest wait for a permit. It is longer than a commit's wait for a connection, because listings last longer.
WAIT_SECONDS = 30.0


class CatalogBusyError(UnavailableError):
    """too many reads of the catalog are under way on this server"""

    code = "CATALOG_BUSY"


class Listings:
    """The permits of one store. Safe to use from several threads."""

    def __init__(self, permits: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._permits = permits
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        #: Number of open listings by thread.
        self._under_way: Counter[int] = Counter()

    @contextmanager
    def permit(self) -> Iterator[None]:
        """Hold a permit. Raises CatalogBusyError."""
        thread = threading.get_ident()
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._is_free_for(thread), self._wait_seconds)
            if not is_free:
                hint = "try again, or run fewer queries at the same time: system tables and lists of parts read much"
                raise CatalogBusyError(under_way=len(self._under_way), seconds=self._wait_seconds, hint=hint)
            self._under_way[thread] += 1
        try:
            yield
        finally:
            with self._changed:
                # The key is the thread that began: an iterator that is not read to its end is closed on any thread.
                self._under_way[thread] -= 1
                if not self._under_way[thread]:
                    del self._under_way[thread]
                    self._changed.notify()

    def _is_free_for(self, thread: int) -> bool:
        return thread in self._under_way or len(self._under_way) < self._permits
