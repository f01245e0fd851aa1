"""A store that counts what is read of it: one for each key, scan or view, as a database counts the questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager

from tilth.catalog import DelegatingKV, KeyValue, MemoryKV
from tilth.catalog.kv import ReadView, Versioned, ViewUse
from tilth.catalog.records.keys import describe


class CountedKV(DelegatingKV):
    """Counts by kind of record; a view counts once, as `view`."""

    def __init__(self, inner: KeyValue | None = None) -> None:
        super().__init__(inner or MemoryKV())
        self.counts: Counter[str] = Counter()

    def taken(self) -> Counter[str]:
        """Return the counts since the last call."""
        counts, self.counts = self.counts, Counter()
        return counts

    def get(self, key: bytes) -> Versioned | None:
        self.counts[describe(key).partition("/")[0]] += 1
        return super().get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self.counts[describe(start).partition("/")[0]] += 1
        return super().scan(start, end, limit=limit, reverse=reverse)

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:
        self.counts["view"] += 1
        return super().view(keys, use)
