"""Cache of the visible parts of tables in use, so that a hot table's entries are not read for every snapshot.

Covers: the cache, and carrying it from one commit to the next. Does not cover: the rules of visibility
(rules/visibility.py).
Always holds: a cached entry belongs to one stored version of the table, and only a reader of that very version gets it.
Every commit that changes what is visible writes the version; GC removes only what is hidden.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tilth.catalog.rules.changes import TableChange
from tilth.catalog.rules.visibility import visible
from tilth.model.part import Part

#: Parts cached for all tables together; those of the least recently read table are evicted first.
PARTS_MAX = 50_000

_Parts = tuple[Part, ...]


@dataclass(slots=True)
class _Table:
    #: The store's sequence number of the table's version.
    stored: int
    #: Visible parts by partition.
    parts: dict[str, _Parts] = field(default_factory=dict)
    count: int = 0


class VisiblePartsCache:
    """Visible parts by table and partition, in the order of their names."""

    def __init__(self, *, parts_max: int = PARTS_MAX, history: Callable[[], object] = lambda: None) -> None:
        """`history` returns an identifier of the store's incarnation; when it changes, the cache is emptied."""
        self._parts_max = parts_max
        self._history = history
        self._known_history = history()
        self._lock = threading.Lock()
        #: Least recently read table first.
        self._tables: OrderedDict[str, _Table] = OrderedDict()
        self._count = 0

    def find(self, table: str, partition: str, *, stored: int) -> _Parts | None:
        """Return the parts that are visible in a stored version of the table; None: not known."""
        with self._lock:
            self._follow_history()
            known = self._tables.get(table)
            if known is None or known.stored != stored:
                return None
            self._tables.move_to_end(table)
            return known.parts.get(partition)

    def keep(self, table: str, partition: str, parts: _Parts, *, stored: int) -> None:
        with self._lock:
            self._follow_history()
            known = self._tables.get(table)
            if known is None or known.stored < stored:
                self._drop(table)
                self._tables[table] = known = _Table(stored)
            if known.stored == stored:
                self._put(known, partition, parts)
            self._evict()

    def apply(self, table: str, change: TableChange, *, before: int, after: int) -> None:
        """Apply a commit that made the stored version `after` from `before`."""
        if change.is_empty:
            return
        with self._lock:
            self._follow_history()
            known = self._tables.get(table)
            if known is None or known.stored != before:
                return
            known.stored = after
            touched = {entry.name.partition for entry in change.added} | {name.partition for name in change.accepted}
            undropped = {entry.name.partition for entry in change.removed}
            undropped |= {part.name.partition for part in change.restored}
            for partition in (touched | undropped) & known.parts.keys():
                if partition in undropped:
                    self._put(known, partition, ())
                    del known.parts[partition]
                    continue
                self._put(known, partition, _after(known.parts[partition], partition, change))
            self._evict()

    def _follow_history(self) -> None:
        now = self._history()
        if now != self._known_history:
            self._known_history, self._count = now, 0
            self._tables.clear()

    def _put(self, known: _Table, partition: str, parts: _Parts) -> None:
        more = len(parts) - len(known.parts.get(partition, ()))
        known.parts[partition] = parts
        known.count += more
        self._count += more

    def _evict(self) -> None:
        while self._count > self._parts_max:
            self._drop(next(iter(self._tables)))

    def _drop(self, table: str) -> None:
        known = self._tables.pop(table, None)
        if known is not None:
            self._count -= known.count


def _after(shown: _Parts, partition: str, change: TableChange) -> _Parts:
    added = [entry for entry in change.added if entry.name.partition == partition]
    fresh = tuple(entry for entry in added if isinstance(entry, Part) and entry.name.level == 0)
    if len(fresh) == len(added) and not change.accepted:
        # New blocks lie behind all others.
        return (*shown, *fresh)
    return tuple(visible(change.accepted.get(entry.name, entry) for entry in (*shown, *added)))
