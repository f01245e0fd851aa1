"""A table at one commit timestamp, as the catalog hands it to storage."""

from __future__ import annotations

import msgspec

from tilth.model.part import Part
from tilth.model.table import TableDef


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader at `ts` sees."""

    table: TableDef
    ts: int
    #: The table's commit counter at that time; equal counters mean equal content.
    version: int
    #: In the order of their names.
    parts: tuple[Part, ...]
    #: Parts that the predicates ruled out, for EXPLAIN and metrics.
    pruned: int = 0

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)
