"""Rows, bytes and parts of many tables at once, each counted once for each of its versions.

Covers: the cache. Does not cover: what readers see of a table (parts.py).
Always holds: what is kept belongs to one stored version of the table in one incarnation of the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilth.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Everything in a table that a reader sees."""

    #: Rows without the deleted ones.
    rows: int
    #: Size of the files of parts and segments.
    bytes: int
    #: Parts that are no segments.
    parts: int
    segments: int


#: Totals of a table without commits.
NO_ROWS = TableTotals(rows=0, bytes=0, parts=0, segments=0)


class TotalsCache:
    """Totals by table, for the version that they were counted in."""

    def __init__(self, *, history: Callable[[], object] = lambda: None) -> None:
        """`history` returns an identifier of the store's incarnation; when it changes, the cache is emptied."""
        self._history = history
        self._lock = threading.Lock()
        self._known: tuple[object, dict[str, tuple[int, TableTotals]]] = (history(), {})

    def of(
        self,
        read_versions: Callable[[], Mapping[str, int]],
        read: Callable[[str], Snapshot | None],
        *,
        is_all: bool,
    ) -> dict[str, TableTotals]:
        """Return the totals of tables by the stored versions that they have now, as `read_versions` returns them;
        `read` reads a table that has changed, None: it is gone. `is_all`: there are no other tables, so that others are
        forgotten.
        """
        # Before the versions: those of an incarnation that has ended must not be kept for the next one.
        history = self._history()
        with self._lock:
            before = self._known[1] if self._known[0] == history else {}
        counted: dict[str, tuple[int, TableTotals]] = {}
        for table, version in read_versions().items():
            known = before.get(table)
            if known is None or known[0] != version:
                snapshot = read(table)
                if snapshot is None:
                    continue
                # It may be of a later version already; then it is counted once more.
                known = (version, totals_of(snapshot))
            counted[table] = known
        with self._lock:
            self._known = (history, counted if is_all else before | counted)
        return {table: totals for table, (_, totals) in counted.items()}


def totals_of(snapshot: Snapshot) -> TableTotals:
    segments = sum(part.is_segment for part in snapshot.parts)
    return TableTotals(
        rows=snapshot.rows, bytes=snapshot.bytes, parts=len(snapshot.parts) - segments, segments=segments
    )
