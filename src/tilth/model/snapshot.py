"""A table at one commit timestamp, as the catalog hands it to storage."""

from __future__ import annotations

import msgspec

from tilth.model.delta import Delta
from tilth.model.part import Part
from tilth.model.table import TableDef


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a reader at `ts` sees."""

    table: TableDef
    ts: int
    #: The table's commit counter at that time; equal counters mean equal content.
    version: int
    #: Parts in the order of their names.
    parts: tuple[Part, ...]
    #: Deltas that change these parts, in the order in which they apply.
    deltas: tuple[Delta, ...] = ()
    #: Parts that the predicates ruled out, for EXPLAIN and metrics.
    pruned: int = 0

    @property
    def rows(self) -> int:
        """Number of rows without the deleted ones."""
        files = {part.file.name for part in self.parts}
        deleted = sum(target.deleted for delta in self.deltas for target in delta.targets if target.file in files)
        return sum(part.rows for part in self.parts) - deleted

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)
