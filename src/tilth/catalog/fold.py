"""Updates folded over a state: what a commit writes, or why it must not. Pure.

Covers: the meaning of each update. Does not cover: loading the state and writing the changes (commit.py). Always
holds: the same updates over the same state give the same changes, so a commit that met a conflict is folded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.catalog.errors import BadMergeError, OffsetsMovedError
from tilth.catalog.records import PartitionRecord, TableVersion
from tilth.catalog.requirements import check_visible
from tilth.catalog.updates import (
    AddGap,
    AddLedger,
    AdvanceOffsets,
    ClearOffsets,
    DropPartition,
    InsertPart,
    ReplaceParts,
    ResolveGaps,
    SetOffsets,
    TruncateTable,
    Update,
)
from tilth.catalog.visibility import visible
from tilth.model.offset import IngestGap, LedgerEntry, TopicPartition
from tilth.model.part import (
    Entry,
    Mark,
    Part,
    PartEvent,
    PartName,
    WrittenPart,
    drop_range,
    mark_of,
)
from tilth.model.table import KafkaDef, TableDef, full_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What is known of a table when the commit is folded."""

    definition: TableDef
    version: TableVersion
    #: By partition, of those that the updates look into.
    entries: Mapping[str, tuple[Entry, ...]]
    #: Partitions that have a record, of those that the updates look into.
    known: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaState:
    """What is known of a Kafka table when the commit is folded."""

    definition: KafkaDef
    version: TableVersion
    offsets: Mapping[TopicPartition, int]
    #: Those without a resolution.
    open_gaps: tuple[IngestGap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    tables: Mapping[str, TableState]
    kafka: Mapping[str, KafkaState]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """The hybrid times that a commit has drawn: its block ids, and behind them its timestamp."""

    txn: int
    first_block: int
    commit_ts: int
    now_ms: int


@dataclass(slots=True, kw_only=True)
class TableChange:
    """What a commit adds to one table."""

    version: TableVersion
    added: list[Entry] = field(default_factory=list)
    new_partitions: list[PartitionRecord] = field(default_factory=list)
    #: Partitions whose record was there and must still be there.
    used_partitions: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class KafkaChange:
    """What a commit changes of one Kafka table."""

    version: TableVersion
    #: All offsets after the commit.
    offsets: dict[TopicPartition, int]
    ledger: list[LedgerEntry] = field(default_factory=list)
    #: New ones, and old ones with their resolution.
    gaps: list[IngestGap] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    commit_ts: int
    tables: Mapping[str, TableChange]
    kafka: Mapping[str, KafkaChange]
    events: Sequence[PartEvent]
    #: Table and part, for each part made.
    parts: Sequence[tuple[str, Part]]


def fold(state: CommitState, updates: Iterable[Update], times: CommitTimes) -> Changes:
    """What the updates make of the state, one after the other; raises the error that refuses the commit."""
    work = _Fold(state, times)
    for update in updates:
        work.apply(update)
    return work.changes()


class _Fold:
    """A fold half-way. Lives for one call of `fold`."""

    def __init__(self, state: CommitState, times: CommitTimes) -> None:
        self._state = state
        self._times = times
        self._next_block = times.first_block
        self._tables = {
            uuid: TableChange(version=_raised(table.version, times.commit_ts)) for uuid, table in state.tables.items()
        }
        self._kafka = {
            uuid: KafkaChange(version=_raised(kafka.version, times.commit_ts), offsets=dict(kafka.offsets))
            for uuid, kafka in state.kafka.items()
        }
        self._events: list[PartEvent] = []
        self._parts: list[tuple[str, Part]] = []

    def changes(self) -> Changes:
        return Changes(
            commit_ts=self._times.commit_ts,
            tables=self._tables,
            kafka=self._kafka,
            events=self._events,
            parts=self._parts,
        )

    def apply(self, update: Update) -> None:
        match update:
            case InsertPart():
                self._insert(update)
            case ReplaceParts():
                self._replace(update)
            case DropPartition(table=table, partition=partition):
                self._drop(table, partition)
            case TruncateTable(table=table):
                added = {entry.name.partition for entry in self._tables[table].added}
                for partition in sorted(added.union(self._state.tables[table].entries)):
                    self._drop(table, partition)
            case AdvanceOffsets():
                self._advance(update)
            case SetOffsets(kafka_table=kafka_table, offsets=offsets):
                self._kafka[kafka_table].offsets.update(offsets)
            case ClearOffsets(kafka_table=kafka_table):
                self._kafka[kafka_table].offsets.clear()
            case AddLedger(entry=entry):
                stamped = msgspec.structs.replace(entry, txn=self._times.txn, commit_ts=self._times.commit_ts)
                self._kafka[entry.kafka_table].ledger.append(stamped)
            case AddGap(gap=gap):
                self._kafka[gap.kafka_table].gaps.append(gap)
            case ResolveGaps(kafka_table=kafka_table, resolution=resolution):
                self._resolve(kafka_table, resolution)
            case _:
                assert_never(update)

    def _insert(self, update: InsertPart) -> None:
        written, commit_ts = update.written, self._times.commit_ts
        block = self._next_block
        self._next_block += 1
        assert block < commit_ts
        definition = self._state.tables[update.table].definition
        part = _part(
            PartName(written.partition, block, block, 0, self._times.txn),
            written,
            schema_version=definition.schema_version,
            min_row_ts=commit_ts,
            max_row_ts=commit_ts,
            commit_ts=commit_ts,
            columns_commit_ts=definition.columns_commit_ts,
        )
        self._add_part(update.table, part, written)
        self._count(update.table, inserted=written.rows)
        self._tell("new", update.table, part.name, rows=part.rows, size=part.bytes)

    def _replace(self, update: ReplaceParts) -> None:
        table = self._state.tables[update.table]
        name = _merged_name(update, txn=self._times.txn, table=full_name(table.definition))
        sources = check_visible(table.definition, self._entries(update.table, name.partition), update.sources)
        written, commit_ts = update.written, self._times.commit_ts
        if len({(part.schema_version, part.columns_commit_ts) for part in sources}) > 1:
            raise BadMergeError("parts of different columns cannot be merged", table=full_name(table.definition))
        marks = [mark_of(part.name, txn=self._times.txn) for part in sources]
        added = self._tables[update.table].added
        added.extend(msgspec.structs.replace(mark, commit_ts=commit_ts) for mark in marks)
        if written is None:
            added.append(Mark(name=name, commit_ts=commit_ts))
        else:
            part = _part(
                name,
                written,
                schema_version=sources[0].schema_version,
                min_row_ts=min(source.min_row_ts for source in sources),
                max_row_ts=max(source.max_row_ts for source in sources),
                commit_ts=commit_ts,
                columns_commit_ts=sources[0].columns_commit_ts,
                mutation_ts=max(source.mutation_ts for source in sources),
            )
            self._add_part(update.table, part, written)
        rows, size = (0, 0) if written is None else (written.rows, written.file.size)
        self._count(update.table, removed=sum(source.rows for source in sources) - rows)
        self._tell(
            "merge",
            update.table,
            name,
            rows=rows,
            size=size,
            sources=len(sources),
            duration_ms=update.duration_ms,
            reason=update.reason,
        )

    def _drop(self, table: str, partition: str) -> None:
        parts = visible(self._entries(table, partition))
        if not parts:
            return
        last = max(part.name.max_block for part in parts)
        hidden = drop_range(partition, max_block=last, txn=self._times.txn)
        self._tables[table].added.append(msgspec.structs.replace(hidden, commit_ts=self._times.commit_ts))
        rows = sum(part.rows for part in parts)
        self._count(table, removed=rows)
        size = sum(part.bytes for part in parts)
        self._tell("hide", table, hidden.name, rows=rows, size=size, sources=len(parts))

    def _advance(self, update: AdvanceOffsets) -> None:
        change = self._kafka[update.kafka_table]
        for each in update.ranges:
            if not 0 <= each.start <= each.end:
                raise InvalidInputError("not a range of offsets", range=each)
            position = TopicPartition(each.topic, each.partition)
            stored = change.offsets.get(position, each.start)
            if stored != each.start:
                raise OffsetsMovedError(
                    kafka_table=full_name(self._state.kafka[update.kafka_table].definition),
                    topic=each.topic,
                    partition=each.partition,
                    started_from=each.start,
                    stored=stored,
                    hint="drop this round and start from the stored offset",
                )
            change.offsets[position] = each.end

    def _resolve(self, kafka_table: str, resolution: str) -> None:
        change = self._kafka[kafka_table]
        fresh = [gap for gap in change.gaps if not gap.resolution]
        change.gaps = [gap for gap in change.gaps if gap.resolution]
        for gap in (*self._state.kafka[kafka_table].open_gaps, *fresh):
            change.gaps.append(msgspec.structs.replace(gap, resolution=resolution))

    def _entries(self, table: str, partition: str) -> list[Entry]:
        """Those before the commit, and those that it has added so far."""
        added = [entry for entry in self._tables[table].added if entry.name.partition == partition]
        return [*self._state.tables[table].entries.get(partition, ()), *added]

    def _add_part(self, table: str, part: Part, written: WrittenPart) -> None:
        change = self._tables[table]
        change.added.append(part)
        self._parts.append((table, part))
        partition = part.name.partition
        change.version = msgspec.structs.replace(change.version, parts_added=change.version.parts_added + 1)
        if partition in self._state.tables[table].known:
            change.used_partitions.add(partition)
        elif all(record.partition != partition for record in change.new_partitions):
            record = PartitionRecord(partition=partition, values=written.values, created_ts=self._times.commit_ts)
            change.new_partitions.append(record)

    def _count(self, table: str, *, inserted: int = 0, removed: int = 0) -> None:
        change = self._tables[table]
        change.version = msgspec.structs.replace(
            change.version,
            inserted_rows=change.version.inserted_rows + inserted,
            removed_rows=change.version.removed_rows + removed,
        )

    def _tell(
        self,
        event: str,
        table: str,
        name: PartName,
        *,
        rows: int,
        size: int,
        sources: int = 0,
        duration_ms: int = 0,
        reason: str = "",
    ) -> None:
        self._events.append(
            PartEvent(
                event=event,
                at_ms=self._times.now_ms,
                table=table,
                part=str(name),
                rows=rows,
                bytes=size,
                sources=sources,
                duration_ms=duration_ms,
                reason=reason,
            )
        )


def _raised(version: TableVersion, commit_ts: int) -> TableVersion:
    assert commit_ts > version.last_commit_ts
    return msgspec.structs.replace(version, counter=version.counter + 1, last_commit_ts=commit_ts)


def _merged_name(update: ReplaceParts, *, txn: int, table: str) -> PartName:
    """POLICIES.md 1.1: min of the first, max of the last, one level above the highest."""
    sources = sorted(update.sources)
    if not sources:
        raise BadMergeError("nothing to merge", table=table)
    partitions = {source.partition for source in sources}
    if update.written is not None:
        partitions.add(update.written.partition)
    if len(partitions) > 1:
        raise BadMergeError("parts of one partition only can be merged", table=table, partitions=sorted(partitions))
    if len(set(sources)) < len(sources):
        raise BadMergeError("a part is named twice", table=table)
    low, high = sources[0].min_block, max(source.max_block for source in sources)
    same = [source for source in sources if source.blocks == (low, high)]
    if same:
        # The result would be in one chain with that source's mark, and hidden by it.
        raise BadMergeError("the result would have the blocks of one source", table=table, source=same[0])
    level = max(source.level for source in sources) + 1
    return PartName(sources[0].partition, low, high, level, txn)


def _part(
    name: PartName,
    written: WrittenPart,
    *,
    schema_version: int,
    min_row_ts: int,
    max_row_ts: int,
    commit_ts: int,
    columns_commit_ts: int,
    mutation_ts: int = 0,
) -> Part:
    return Part(
        name=name,
        schema_version=schema_version,
        rows=written.rows,
        file=written.file,
        values=written.values,
        ranges=written.ranges,
        min_row_ts=min_row_ts,
        max_row_ts=max_row_ts,
        commit_ts=commit_ts,
        columns_commit_ts=columns_commit_ts,
        mutation_ts=mutation_ts,
    )
