"""Parts of tables that are new to this server, as after a start, read for many tables at once.

Covers: which tables are read together, whether what was read still counts. Does not cover: what is made of it
(merge/op.py), the reading itself (tilth.catalog).
Always holds: each table's parts are given out once; not where something of the table was reported since the reading,
for its reader would take them for newer than that; tables with deltas or many parts are left to their own reads, and so
are those that come out of the catalog's order, so that memory holds one reading at most.

Tests: tests/unit/maintenance/manager/test_registry.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.catalog import Catalog, PartitionParts
from tilth.maintenance.table.watch import TableWatch

#: Visible parts, and tables, of one reading; entries that have ended come on top.
PARTS_MAX = 500
TABLES_MAX = 250

_log = Log("maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    #: The table's explanations of changes at the time of the reading.
    explanations: int
    partitions: Mapping[str, PartitionParts]


class FirstReads:
    """The parts of new tables. For the manager's thread alone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        #: The new tables that were not read yet, by uuid.
        self._new: dict[str, TableWatch] = {}
        #: All tables with commits, in the catalog's order, those of other servers among them.
        self._all: list[str] = []
        #: The last reading, and the last table in it.
        self._read: dict[str, _Read] = {}
        self._last = ""

    def announce(self, tables: Iterable[TableWatch], *, among: Iterable[str]) -> None:
        """Note new tables. `among`: all tables with commits of a part of the catalog, which follows the part before."""
        self._new |= {each.uuid: each for each in tables if _is_eligible(each)}
        ordered = sorted(among)
        if self._all and ordered and ordered[0] <= self._all[-1]:
            # Another pass over the catalog.
            self._all, self._last = [], ""
        self._all += ordered

    def pop(self, watch: TableWatch) -> Mapping[str, PartitionParts] | None:
        """Return the partitions of the table with their visible parts; None: it has to read them itself."""
        if watch.uuid in self._new and watch.uuid > self._last:
            self._read_batch(watch.uuid)
        self._new.pop(watch.uuid, None)
        found = self._read.pop(watch.uuid, None)
        return found.partitions if found is not None and found.explanations == watch.explanations else None

    def forget(self, uuid: str) -> None:
        """Forget a table that has left."""
        self._new.pop(uuid, None)
        self._read.pop(uuid, None)

    def _read_batch(self, first: str) -> None:
        """Read the new tables from this one on that stand close together."""
        batch = self._batch(first)
        for uuid in batch:
            del self._new[uuid]
        # Before the reading: what is reported meanwhile may not be in it.
        explanations = {uuid: watch.explanations for uuid, watch in batch.items()}
        self._read, self._last = {}, max(batch)
        try:
            found = self._catalog.parts.visible_of(list(batch))
        except TilthError as error:
            # One of them may be damaged: each table reads what is its own.
            _log.info("tables_not_read_together", tables=len(batch), reason=error)
            return
        self._read = {uuid: _Read(explanations=explanations[uuid], partitions=found[uuid]) for uuid in batch}

    def _batch(self, first: str) -> dict[str, TableWatch]:
        batch = {first: self._new[first]}
        parts, others = _size(batch[first]), 0
        for uuid in self._all[bisect_left(self._all, first) :]:
            watch = self._new.get(uuid)
            if uuid == first:
                continue
            if watch is None:
                others += 1
                if others > len(batch):
                    # More would be read in vain than for a purpose.
                    break
                continue
            parts += _size(watch)
            if parts > PARTS_MAX or len(batch) == TABLES_MAX:
                break
            batch[uuid] = watch
        return batch


def _size(watch: TableWatch) -> int:
    return watch.version.parts + watch.version.segments


def _is_eligible(watch: TableWatch) -> bool:
    left = watch.leftovers
    return left is not None and not left.has_deltas and 0 < _size(watch) <= PARTS_MAX
