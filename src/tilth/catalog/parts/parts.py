"""Content of tables: versions, partitions, entries, deltas, snapshots; the move of ended entries into the trash.

Covers: reading, and phase 1 of GC. Does not cover: making parts (rules/fold.py), which entries have ended
(rules/visibility.py).
Always holds: partitions are known from their records, never by scanning parts; a snapshot is read from one view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.commit.load import load_visible
from tilth.catalog.commit.part_log import part_event, put_events
from tilth.catalog.commit.visible_parts import VisiblePartsCache
from tilth.catalog.errors import TableNotFoundError, WrongEngineError
from tilth.catalog.kv import KeyValue, Precondition, ReadView
from tilth.catalog.parts.totals import TableTotals, TotalsCache
from tilth.catalog.records import codec
from tilth.catalog.records.decoded import DecodedRecords
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space, delta_key, entry_key, pack, span, span_among, table_of, unpack
from tilth.catalog.records.nouns import PartitionRecord, TableVersion
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.rules import visibility
from tilth.catalog.rules.earlier_columns import columns_as_of
from tilth.catalog.rules.state import check_fence
from tilth.model.delta import Delta, applied_order
from tilth.model.lease import Fence
from tilth.model.part import DropRange, Entry, Mark, Part, PartEvent, PartName, TrashItem
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, full_name

#: Entries that move to the trash in one batch.
TRASH_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Tables, by uuid, that have records of a kind."""

    #: Deltas that current readers see, and deltas that have ended.
    deltas: frozenset[str]
    ended_deltas: frozenset[str]
    trash: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionParts:
    """The visible parts of a partition."""

    #: Number of parts where parts are limited.
    counted: int
    #: The parts in the order of their names.
    parts: tuple[Part, ...]


class Parts:
    """`catalog.parts`."""

    def __init__(
        self, clock: Clock, hybrid: HybridClock, kv: KeyValue, shown: VisiblePartsCache, totals: TotalsCache
    ) -> None:
        self._clock = clock
        self._hybrid = hybrid
        self._kv = kv
        self._shown = shown
        self._totals = totals
        self._versions = DecodedRecords(codec.VERSIONS, Space.VERSION)

    def version(self, table: str) -> TableVersion:
        """All zeros before the first commit."""
        return read(self._kv, pack(Space.VERSION, table), codec.VERSIONS) or TableVersion()

    def versions(self) -> dict[str, TableVersion]:
        """Return the versions of all tables, by uuid: one read, however many there are. Those that have not changed
        since the last call are the same objects.
        """
        return {table_of(key): version for key, version in self._versions.all(self._kv)}

    def versions_among(self, first: str, last: str) -> dict[str, TableVersion]:
        """Return the versions of these two tables and of those between them, by uuid: one read, as `versions`."""
        found = self._versions.among(self._kv, *span_among(Space.VERSION, first, last))
        return {table_of(key): version for key, version in found}

    def visible_of(self, tables: Sequence[str]) -> dict[str, dict[str, PartitionParts]]:
        """Return the partitions of each of these tables, which stand close together in the catalog, with their visible
        parts: a few reads, over the tables between them too.
        """
        wanted, first, last = frozenset(tables), min(tables), max(tables)
        records: list[tuple[str, PartitionRecord]] = []
        entries: dict[tuple[str, str], list[Entry]] = {}
        with self._kv.view() as view:
            for key, each in view.scan(*span_among(Space.PARTITION, first, last)):
                if (table := table_of(key)) in wanted:
                    records.append((table, codec.PARTITIONS.decode(key, each.value)))
            for key, each in view.scan(*span_among(Space.ENTRY, first, last)):
                if (table := table_of(key)) in wanted:
                    entry = codec.ENTRIES.decode(key, each.value)
                    entries.setdefault((table, entry.name.partition), []).append(entry)
        found: dict[str, dict[str, PartitionParts]] = {table: {} for table in tables}
        for table, record in records:
            parts = tuple(visibility.visible(entries.get((table, record.partition), ())))
            found[table][record.partition] = PartitionParts(counted=record.counted_parts, parts=parts)
        return found

    def leftovers_among(self, first: str, last: str) -> Leftovers:
        """Return which of these two tables and of those between them have something that collecting may be about: a few
        reads, and one for each such table.
        """

        def having(space: Space) -> frozenset[str]:
            return _tables_with(view, space, *span_among(space, first, last))

        with self._kv.view() as view:
            return Leftovers(
                deltas=having(Space.DELTA), ended_deltas=having(Space.ENDED_DELTA), trash=having(Space.TRASH)
            )

    def totals(self, tables: Collection[str] | None = None) -> dict[str, TableTotals]:
        """Return what readers of now see of each of the tables (None: of all), by uuid; a table without commits has
        none. Those that have not changed since the last call are not read again.
        """

        def stored() -> dict[str, int]:
            if tables is None:
                scan = self._kv.scan(*span(Space.VERSION))
                return {str(unpack(key, "s")[0]): found.version for key, found in scan}
            each = ((table, self._kv.get(pack(Space.VERSION, table))) for table in tables)
            return {table: found.version for table, found in each if found is not None}

        return self._totals.of(stored, self._snapshot_of_rows, is_all=tables is None)

    def _snapshot_of_rows(self, table: str) -> Snapshot | None:
        try:
            return self.snapshot(table)
        except (TableNotFoundError, WrongEngineError):
            # Kafka tables have versions, too.
            return None

    def partitions(self, table: str) -> list[str]:
        """Return the partitions in a stable order. A partition whose parts are all gone is among them until its record
        is dropped.
        """
        return [record.partition for record in read_all(self._kv, codec.PARTITIONS, Space.PARTITION, table)]

    def counts(self, table: str) -> dict[str, int]:
        """Return the number of visible parts of each partition that has a record; key ranges of one merge are one."""
        records = read_all(self._kv, codec.PARTITIONS, Space.PARTITION, table)
        return {record.partition: record.counted_parts for record in records}

    def entries(self, table: str, partition: str) -> list[Entry]:
        """Entries with ended ones, in the order of their names."""
        return list(read_all(self._kv, codec.ENTRIES, Space.ENTRY, table, partition))

    def entries_of(self, table: str, partitions: Collection[str], *, among: Iterable[str]) -> dict[str, list[Entry]]:
        """Return the `entries` of each of these partitions from one view. `among`: those that the table has, in the
        catalog's order; what stands side by side is one read.
        """
        found: dict[str, list[Entry]] = {partition: [] for partition in partitions}
        stretches = [list(each) for is_wanted, each in groupby(among, key=found.__contains__) if is_wanted]
        with nullcontext(self._kv) if len(stretches) == 1 else self._kv.view() as view:
            for stretch in stretches:
                start, end = span(Space.ENTRY, table, stretch[0])[0], span(Space.ENTRY, table, stretch[-1])[1]
                for key, each in view.scan(start, end):
                    entry = codec.ENTRIES.decode(key, each.value)
                    # A partition may be new since then.
                    if entry.name.partition in found:
                        found[entry.name.partition].append(entry)
        return found

    def all_entries(self, table: str) -> Iterator[Entry]:
        return read_all(self._kv, codec.ENTRIES, Space.ENTRY, table)

    def visible(self, table: str, partition: str, at: int | None = None) -> list[Part]:
        """Return the parts of a partition that a reader at `at` (None: now) sees, in the order of the names."""
        if at is not None:
            return visibility.visible(self.entries(table, partition), at)
        with self._kv.view() as view:
            found = view.get(pack(Space.VERSION, table))
            stored = 0 if found is None else found.version
            return list(load_visible(view, table, partition, self._shown, stored=stored))

    def snapshot(
        self,
        table_uuid: str,
        *,
        at: int | None = None,
        partitions: Collection[str] | None = None,
        keep: Callable[[Part], bool] | None = None,
    ) -> Snapshot:
        """A table as of its newest commit, or as of a hybrid time.

        Repeatable: nothing can commit at or before the snapshot's `ts` later, unless `at` lies after the newest commit.
        Its `version` is the commit counter; of an older snapshot it is `-ts`, which names its content just as well.
        Only the given partitions are read; `keep` selects the parts. An older snapshot has the columns that
        the table had then. Raises TableNotFoundError.
        """
        with self._kv.view() as view:
            definition = read(view, pack(Space.RELATION, table_uuid), codec.RELATIONS)
            if definition is None:
                raise TableNotFoundError(uuid=table_uuid, hint="it was dropped")
            if not isinstance(definition, TableDef):
                name = full_name(definition)
                raise WrongEngineError("only tables of rows have parts", table=name, engine=definition.engine)
            version_key = pack(Space.VERSION, table_uuid)
            found = view.get(version_key)
            version = TableVersion() if found is None else codec.VERSIONS.decode(version_key, found.value)
            # None where the newest content is read, for which what has ended is not read.
            past = at if at is not None and at < version.last_commit_ts else None
            shown: list[Part] = []
            pruned = 0
            by_partition: Iterable[Sequence[Part]]
            if past is None:
                by_partition = self._shown_by_partition(
                    view, table_uuid, partitions, stored=found.version if found else 0
                )
            else:
                by_partition = (
                    visibility.visible(each, past) for each in _entries_by_partition(view, table_uuid, partitions)
                )
            for parts in by_partition:
                wanted = list(parts) if keep is None else [part for part in parts if keep(part)]
                shown.extend(wanted)
                pruned += len(parts) - len(wanted)
            deltas = _deltas(view, table_uuid, partitions, at=past) if shown else []
        ts = version.last_commit_ts if at is None else at
        return Snapshot(
            table=definition if past is None else columns_as_of(definition, past),
            ts=ts,
            version=version.counter if past is None else -ts,
            parts=tuple(shown),
            deltas=tuple(visibility.deltas_of(shown, deltas)),
            pruned=pruned,
        )

    def deltas(
        self, table: str, partition: str | None = None, *, at: int | None = None, is_all: bool = False
    ) -> list[Delta]:
        """Return the deltas of a table or of one partition, in the order in which they apply: those that a reader of
        now sees, or one at a hybrid time, or with `is_all` also those that have ended. Deltas whose parts are hidden
        are among them.
        """
        partitions = None if partition is None else (partition,)
        if not is_all and at is None:
            return _deltas(self._kv, table, partitions, at=None)
        with self._kv.view() as view:
            if is_all:
                return applied_order(_stored_deltas(view, table, partitions, (Space.DELTA, Space.ENDED_DELTA)))
            return _deltas(view, table, partitions, at=at)

    def remove_deltas(self, table: str, deltas: Sequence[Delta], *, fence: Fence | None = None) -> int:
        """Forget deltas whose files are gone; return how many were there. In batches of bounded size, each carrying
        the fence; raises FencedError, then earlier batches stay removed.
        """
        removed = 0
        for first in range(0, len(deltas), TRASH_BATCH):
            removed += self._remove_deltas(table, deltas[first : first + TRASH_BATCH], fence)
        return removed

    def move_to_trash(
        self, table: str, moves: Sequence[tuple[Entry, int]], *, fence: Fence | None = None, now_ms: int
    ) -> int:
        """Remove entries from the table; parts become trash items with their end time. Returns how many went.

        What is not hidden any more, because an UNDROP came between, stays. In batches of bounded size, each carrying
        the fence; raises FencedError, then earlier batches stay moved.
        """
        moved = 0
        for first in range(0, len(moves), TRASH_BATCH):
            moved += self._move_batch(table, moves[first : first + TRASH_BATCH], fence=fence, now_ms=now_ms)
        return moved

    def drop_partition_record(self, table: str, partition: str) -> bool:
        """Remove the record of a partition without entries, trash and deltas; False when there still are some."""
        key, version_key = pack(Space.PARTITION, table, partition), pack(Space.VERSION, table)

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            if found is None:
                return Plan(result=True)
            for space in (Space.ENTRY, Space.TRASH, Space.DELTA, Space.ENDED_DELTA):
                start, end = span(space, table, partition)
                if any(True for _ in view.scan(start, end, limit=1)):
                    return Plan(result=False)
            # A commit that adds parts raises the version.
            pinned = [unchanged(key, found), unchanged(version_key, view.get(version_key))]
            return Plan(result=True, preconditions=pinned, deletes=[key])

        return change(self._kv, self._clock, plan)

    def _shown_by_partition(
        self, view: ReadView, table: str, partitions: Collection[str] | None, *, stored: int
    ) -> Iterator[Sequence[Part]]:
        if partitions is not None:
            for partition in sorted(set(partitions)):
                yield load_visible(view, table, partition, self._shown, stored=stored)
            return
        names = [record.partition for record in read_all(view, codec.PARTITIONS, Space.PARTITION, table)]
        known = [self._shown.find(table, partition, stored=stored) for partition in names]
        if all(each is not None for each in known):
            yield from (each for each in known if each is not None)
            return
        # One scan of all entries costs less than one of each partition.
        found = {entries[0].name.partition: entries for entries in _entries_by_partition(view, table, None)}
        for partition in names:
            parts = tuple(visibility.visible(found.get(partition, ())))
            self._shown.keep(table, partition, parts, stored=stored)
            yield parts

    def _remove_deltas(self, table: str, deltas: Sequence[Delta], fence: Fence | None) -> int:
        def plan(view: ReadView) -> Plan[int]:
            preconditions = _check_fence(view, fence)
            deletes: list[bytes] = []
            for delta in deltas:
                # It may have ended since it was read.
                for end_ts in (0, max(delta.end_ts, 1)):
                    key = delta_key(table, msgspec.structs.replace(delta, end_ts=end_ts))
                    found = view.get(key)
                    if found is not None:
                        preconditions.append(unchanged(key, found))
                        deletes.append(key)
            return Plan(result=len(deletes), preconditions=preconditions, deletes=deletes)

        return change(self._kv, self._clock, plan)

    def _move_batch(self, table: str, moves: Iterable[tuple[Entry, int]], *, fence: Fence | None, now_ms: int) -> int:
        batch = self._hybrid.new_id()

        def plan(view: ReadView) -> Plan[int]:
            preconditions = _check_fence(view, fence)
            puts: dict[bytes, bytes] = {}
            deletes: list[bytes] = []
            events: list[PartEvent] = []
            drops = _Drops(view, table)
            for entry, end_ts in moves:
                key = entry_key(table, entry.name)
                found = view.get(key)
                if found is None:
                    continue
                # The stored record: a mutation may have been written into the part's record since it was read.
                stored = codec.ENTRIES.decode(key, found.value)
                if isinstance(stored, Part):
                    hidden_by = drops.hiding(stored)
                    if hidden_by is None:
                        continue
                    item = TrashItem(part=stored, end_ts=end_ts, moved_ms=now_ms)
                    if isinstance(hidden_by, DropRange):
                        # An UNDROP removes the range: then the part is not moved.
                        preconditions.append(drops.precondition(hidden_by))
                        # Not if it ended earlier: then it was below a rewritten part that went before it.
                        if hidden_by.commit_ts == end_ts:
                            item = msgspec.structs.replace(item, is_dropped=True, dropped_parts=hidden_by.parts)
                    puts[entry_key(table, entry.name, space=Space.TRASH)] = codec.TRASH.encode(item)
                    events.append(part_event("trash", table, stored, now_ms))
                preconditions.append(unchanged(key, found))
                deletes.append(key)
            puts |= put_events(events, batch)
            return Plan(result=len(deletes), preconditions=preconditions, puts=puts, deletes=deletes)

        return change(self._kv, self._clock, plan)


def _check_fence(view: ReadView, fence: Fence | None) -> list[Precondition]:
    """Return the precondition that the fence is held; raises FencedError."""
    if fence is None:
        return []
    lease_key = pack(Space.LEASE, fence.name)
    check_fence(read(view, lease_key, codec.LEASES), fence)
    return [unchanged(lease_key, view.get(lease_key))]


def _deltas(view: ReadView, table: str, partitions: Collection[str] | None, *, at: int | None) -> list[Delta]:
    """Return the deltas that a reader at `at` (None: now) sees, in the order in which they apply."""
    spaces = (Space.DELTA,) if at is None else (Space.DELTA, Space.ENDED_DELTA)
    return visibility.open_deltas(_stored_deltas(view, table, partitions, spaces), at)


def _stored_deltas(
    view: ReadView, table: str, partitions: Collection[str] | None, spaces: Iterable[Space]
) -> Iterator[Delta]:
    for space in spaces:
        if partitions is None:
            yield from read_all(view, codec.DELTAS, space, table)
        else:
            for partition in sorted(set(partitions)):
                yield from read_all(view, codec.DELTAS, space, table, partition)


def _tables_with(view: ReadView, space: Space, start: bytes, end: bytes) -> frozenset[str]:
    """Return the tables that have keys in the range of the space, whose first field is a table."""
    found: set[str] = set()
    while first := next(iter(view.scan(start, end, limit=1)), None):
        table = table_of(first[0])
        found.add(table)
        start = span(space, table)[1]
    return frozenset(found)


def _entries_by_partition(view: ReadView, table: str, partitions: Collection[str] | None) -> Iterator[list[Entry]]:
    if partitions is not None:
        for partition in sorted(set(partitions)):
            yield list(read_all(view, codec.ENTRIES, Space.ENTRY, table, partition))
        return
    entries = read_all(view, codec.ENTRIES, Space.ENTRY, table)
    for _, in_partition in groupby(entries, key=lambda entry: entry.name.partition):
        yield list(in_partition)


class _Drops:
    """Entries that hide parts of one table, in one view."""

    def __init__(self, view: ReadView, table: str) -> None:
        self._view = view
        self._table = table
        self._ranges: dict[str, list[DropRange]] = {}
        self._pinned: dict[PartName, Precondition] = {}

    def hiding(self, part: Part) -> Entry | None:
        """Return the entry that ended the part: a mark or a rewritten part above it, else the oldest drop range over
        it. None: nothing hides it. A newer version that is no rewritten part shares the fate of the part, as in
        `end_times`.
        """
        name = part.name
        chain = read_all(self._view, codec.ENTRIES, Space.ENTRY, self._table, name.partition, *name.blocks)
        above = [each for each in chain if each.name.level > name.level]
        ending = next((each for each in above if isinstance(each, Mark) or _is_rewritten(each)), None)
        if ending is not None:
            return ending
        return next((each for each in self._ranges_of(name.partition) if each.name.max_block >= name.max_block), None)

    def precondition(self, each: DropRange) -> Precondition:
        return self._pinned[each.name]

    def _ranges_of(self, partition: str) -> list[DropRange]:
        known = self._ranges.get(partition)
        if known is None:
            known = []
            # Drop ranges, and nothing else, begin at block 0.
            for key, found in self._view.scan(*span(Space.ENTRY, self._table, partition, 0)):
                entry = codec.ENTRIES.decode(key, found.value)
                if isinstance(entry, DropRange):
                    known.append(entry)
                    self._pinned[entry.name] = unchanged(key, found)
            self._ranges[partition] = known
        return known


def _is_rewritten(entry: Entry) -> bool:
    return isinstance(entry, Part) and entry.is_rewritten
