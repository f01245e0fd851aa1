"""State of a table within the fold of a commit: visible parts and counts after the updates that are folded. Pure.

Covers: reading the state with the changes already folded, and noting parts, counts and events. Does not cover: what
updates mean (fold_table.py). Always holds: the caller counts what it adds.

Tests: tests/unit/catalog/rules/test_fold_deltas.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tilth.catalog.records.nouns import PartitionRecord, TableVersion
from tilth.catalog.rules.changes import CommitTimes, TableChange, TableState
from tilth.catalog.rules.fold_deltas import OpenDeltas
from tilth.catalog.rules.visibility import lasting, visible
from tilth.model.part import Bound, ColumnRange, Entry, Part, PartEvent, PartName
from tilth.model.table import TableDef, full_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCounts:
    """Counts of what a line of the part log is about."""

    rows: int
    bytes: int
    #: Parts that went into it.
    sources: int = 0


class TableNow:
    """Lives for one call of `fold`."""

    def __init__(
        self,
        uuid: str,
        state: TableState,
        times: CommitTimes,
        *,
        events: list[PartEvent],
        parts: list[tuple[str, Part]],
    ) -> None:
        self.change = TableChange(version=raised(state.version, times.commit_ts))
        self.deltas = OpenDeltas(state.deltas)
        self._uuid = uuid
        self._state = state
        self._times = times
        self._events = events
        self._parts = parts
        #: Visible parts by partition, computed on demand.
        self._shown: dict[str, dict[PartName, Part]] = {}

    @property
    def definition(self) -> TableDef:
        return self.change.definition or self._state.definition

    @property
    def name(self) -> str:
        return full_name(self.definition)

    def entries(self, partition: str) -> list[Entry]:
        """Return the partition's entries before the commit and those that its folded updates have added."""
        everything = self.change.entries_after(self._state.entries.get(partition, ()))
        return [entry for entry in everything if entry.name.partition == partition]

    def _added(self, partition: str) -> list[Entry]:
        return [entry for entry in self.change.added if entry.name.partition == partition]

    def visible(self, partition: str) -> dict[PartName, Part]:
        """Return the parts that are visible now, in a dictionary that the caller may change."""
        shown = self._shown.get(partition)
        if shown is None:
            known = self._state.shown.get(partition)
            entries = self.entries(partition) if known is None else (*known, *self._added(partition))
            self._shown[partition] = shown = {part.name: part for part in visible(entries)}
        return shown

    def recompute_visible(self, partition: str) -> dict[PartName, Part]:
        """Return the parts that are visible after an entry was removed that hid parts."""
        self._shown.pop(partition, None)
        return self.visible(partition)

    def add_part(self, part: Part) -> None:
        self.change.added.append(part)
        self._parts.append((self._uuid, part))
        if part.name.partition in self._shown:
            self._shown[part.name.partition][part.name] = part
        version = self.change.version
        self.change.version = msgspec.structs.replace(version, parts_added=version.parts_added + 1)

    def count_parts(
        self, partition: str, *, added: Sequence[Part] = (), gone: Sequence[Part] = (), values: tuple[Bound, ...] = ()
    ) -> None:
        """Count parts that the visible ones have now, or have no more."""
        parts = segments = 0
        for part, step in (*((part, 1) for part in added), *((part, -1) for part in gone)):
            if part.is_segment:
                segments += step
            else:
                parts += step
        more = self._more_ranges(partition, added, gone)
        record = self.change.partitions.get(partition) or self._state.partitions.get(partition)
        if record is None:
            record = PartitionRecord(partition=partition, values=values, created_ts=self._times.commit_ts)
        self.change.partitions[partition] = msgspec.structs.replace(
            record,
            parts=record.parts + parts,
            # Servers of earlier releases write the record without it.
            more_ranges=max(0, record.more_ranges + more),
            segments=record.segments + segments,
        )
        version = self.change.version
        self.change.version = msgspec.structs.replace(
            version,
            parts=version.parts + parts,
            more_ranges=max(0, version.more_ranges + more),
            segments=version.segments + segments,
        )

    def _more_ranges(self, partition: str, added: Iterable[Part], gone: Iterable[Part]) -> int:
        """Return by how many the ranges rise that count as one with another; `visible` is what there is after it."""
        change = Counter(part.cut for part in added if part.cut)
        change.subtract(part.cut for part in gone if part.cut)
        if not change:
            return 0
        now = Counter(part.cut for part in self.visible(partition).values() if part.cut)
        return sum(max(0, now[cut] - 1) - max(0, now[cut] - count - 1) for cut, count in change.items())

    def count_rows(self, *, inserted: int = 0, removed: int = 0) -> None:
        version = self.change.version
        self.change.version = msgspec.structs.replace(
            version, inserted_rows=version.inserted_rows + inserted, removed_rows=version.removed_rows + removed
        )

    def log(
        self,
        event: str,
        name: PartName,
        counts: LoggedCounts,
        *,
        duration_ms: int = 0,
        reason: str = "",
        key: ColumnRange | None = None,
    ) -> None:
        self._events.append(
            PartEvent(
                event=event,
                at_ms=self._times.now_ms,
                table=self._uuid,
                part=str(name),
                rows=counts.rows,
                bytes=counts.bytes,
                sources=counts.sources,
                duration_ms=duration_ms,
                reason=reason,
                key=key,
            )
        )

    def shown_files(self, partition: str) -> dict[str, Part]:
        """Return the parts that are visible now, by the names of their files."""
        return {part.file.name: part for part in self.visible(partition).values()}

    def lasting_files(self, partition: str) -> dict[str, Part]:
        """Return the parts that are visible now, and those that an UNDROP may bring back, by the names of the files."""
        trash = (item.part for item in self._state.trash.get(partition, ()))
        return {part.file.name: part for part in (*lasting(self.entries(partition)), *trash)}


def raised(version: TableVersion, commit_ts: int) -> TableVersion:
    """The version after one more commit."""
    assert commit_ts > version.last_commit_ts
    return msgspec.structs.replace(version, counter=version.counter + 1, last_commit_ts=commit_ts)
