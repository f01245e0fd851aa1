"""Updates that a commit may make: one small class for each. Pure.

Covers: the nouns and what each needs to be loaded. Does not cover: their meaning over a state (fold.py).

Tests: tests/unit/catalog/commit/test_transactions.py, tests/unit/catalog/rules/test_fold_deltas.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, assert_never

import msgspec

from tilth.model.delta import Seen, WrittenDelta
from tilth.model.loaded_file import LoadedFile
from tilth.model.mutation import MutationKind
from tilth.model.offset import IngestGap, LedgerEntry, OffsetRange, StoredOffset, Subscription, TopicPartition
from tilth.model.part import DataFile, PartName, WrittenPart
from tilth.model.table import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertPart:
    """A new part. Its block id is drawn inside the commit, so it lies behind every drop range decided before."""

    table: str
    written: WrittenPart
    #: Version of the columns of a file that a new catalog is made of; 0: the current ones.
    schema_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertLabel:
    """The insert of this commit has a label. Requires that no insert into the table had it."""

    table: str
    label: str
    #: Rows of the insert.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFile:
    """The rows of this commit come from a file, too. Requires that the table's ledger has what `before` says of it."""

    table: str
    loaded: LoadedFile
    #: Record of an earlier load of the file; None: there is none.
    before: LoadedFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertBatch:
    """The insert of this commit is a batch of a stream. Requires that neither the batch nor a later one of the stream
    is in the table, and that its query is the one that sent the last batch.
    """

    table: str
    #: Name of the stream; without one, the id of its query.
    stream: str
    #: Id of the query, which its checkpoint has.
    query: str
    batch: int
    #: Rows of the batch.
    rows: int
    #: `True` if another query may follow: the stream begins with a new checkpoint.
    is_new_checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDelta:
    """Changes of rows. Requires that every part that it changes is visible (it may be made by this commit) and has no
    newer changes than were seen, and for new values that it has the table's present columns.
    """

    table: str
    written: WrittenDelta
    #: Newest change of each changed data file that the writer knew of; none: no change.
    seen: Seen = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceDeltas:
    """A compaction: other deltas with the same changes. Requires that every source is in use, that each written one has
    a part, and that every part loses as many rows as before. Parts are those that are visible or may come back.
    """

    table: str
    partition: str
    #: Names of the deltas' files.
    sources: tuple[str, ...]
    written: tuple[WrittenDelta, ...]
    event: Literal["flush_deltas", "minor_delta", "major_delta"]
    duration_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceParts:
    """One part, or several key ranges, instead of one or several. Requires that every source is still visible and has
    no newer changes than were seen.
    """

    table: str
    sources: tuple[PartName, ...]
    #: None: no row was left.
    written: WrittenPart | None
    #: The key ranges that follow, where the merge was cut.
    more: tuple[WrittenPart, ...] = ()
    duration_ms: int = 0
    reason: str = ""
    #: Newest change of each source's data file that is in the result; none: it had no change.
    seen: Seen = ()
    #: Event name in the part log.
    event: Literal["merge", "flush", "remove_deleted"] = "merge"

    @property
    def made(self) -> tuple[WrittenPart, ...]:
        """The parts of the result."""
        return () if self.written is None else (self.written, *self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class HidePartition:
    """Hides what is visible in the partition now."""

    table: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePartition:
    """Hides these parts, all of whose rows have expired by the table's TTL. Requires that the partition has no other
    visible part up to their newest, and that the TTL is still the one they were judged by."""

    table: str
    partition: str
    parts: tuple[PartName, ...]
    ttl: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HideEverything:
    """Hides all that is visible now."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePartition:
    """Brings back what the newest drop of the partition hid, whether it is still in the table or in the trash."""

    table: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMutation:
    """ALTER: an entry in the list of mutations, whose id is the transaction's, and for COLUMNS the new columns."""

    table: str
    #: The schema version that the statement was checked against. Requires that it still holds.
    from_version: int
    kind: MutationKind
    #: SQL text, for display.
    command: str
    #: Column and Spark SQL expression of each assignment, for UPDATE.
    assignments: tuple[tuple[str, str], ...] = ()
    #: Spark SQL, for UPDATE and DELETE.
    predicate: str = ""
    #: New columns, for COLUMNS.
    schema: Schema | None = None
    #: Id of the next new column, for COLUMNS.
    next_column_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePart:
    """Replace a part by what a mutation made of it. Requires that the mutation is pending, and that the part is
    visible, needs it before any other, and has no newer changes than were seen.
    """

    table: str
    source: PartName
    #: None: no row was left.
    written: WrittenPart | None
    #: The mutation's id.
    mutation: int
    duration_ms: int = 0
    reason: str = ""
    #: Newest change of the source's data file that is in the result; none: it had no change.
    seen: Seen = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptMutation:
    """These parts have no row that an UPDATE or DELETE touches: they stay as they are and do not need it any more.

    Requires what RewritePart does, whatever has changed of their rows.
    """

    table: str
    parts: tuple[PartName, ...]
    #: The mutation's id.
    mutation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceOffsets:
    """The round's ranges are consumed. Requires that each starts at the stored offset, of the same topic and epoch."""

    kafka_table: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOffsets:
    """Sets stored offsets. Requires that each is still as in `before`, and that partitions missing there have no stored
    offset; raises InvalidInputError for an offset below 0.
    """

    kafka_table: str
    offsets: Mapping[TopicPartition, StoredOffset]
    #: The stored offsets from which the new ones were computed.
    before: Mapping[TopicPartition, StoredOffset]
    #: Topic partitions that have no offset any more.
    forgotten: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """The Kafka table reads the topic for the group from now on, and its offsets are the group's: where `before` keeps
    offsets, they become the Kafka table's. Requires that the stored subscription is `before`, that no other Kafka table
    has it, and that the offsets that are replaced are as given.
    """

    subscription: Subscription
    before: Subscription | None
    #: The Kafka table's stored offsets as they were read before the subscription.
    offsets: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The Kafka table does not read the topic for the group any more: the subscription keeps its offsets. Requires that
    the subscription is as given.
    """

    subscription: Subscription
    #: Uuids of the tables that the Kafka table has written to.
    targets: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """Forgets the subscription; the Kafka table's offsets stay. Requires that the subscription is as given."""

    subscription: Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLedger:
    """Record a round in the ledger; the commit fills in its commit_ts, and the ids of its topics from the stored
    offsets.
    """

    entry: LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AddGap:
    """Records offsets that could not be read. Requires that the stored offset is still the start of the gap."""

    gap: IngestGap
    stored: StoredOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveGaps:
    """Writes a decision, or the reason for none, into the open gaps of these topic partitions. Requires that those gaps
    are as in `known`, and the stored offsets as in `before`.
    """

    kafka_table: str
    resolution: str
    partitions: frozenset[TopicPartition]
    #: The open gaps of the Kafka table as they were read before the decision.
    known: tuple[IngestGap, ...]
    #: The stored offsets on which the decision is based.
    before: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)


TableUpdate = (
    InsertPart
    | InsertLabel
    | LoadFile
    | InsertBatch
    | AddDelta
    | ReplaceDeltas
    | ReplaceParts
    | HidePartition
    | ExpirePartition
    | HideEverything
    | RestorePartition
    | StartMutation
    | RewritePart
    | AcceptMutation
)
SubscriptionUpdate = Subscribe | Release | Unsubscribe
KafkaUpdate = AdvanceOffsets | SetOffsets | SubscriptionUpdate | AddLedger | AddGap | ResolveGaps
Update = TableUpdate | KafkaUpdate


def kafka_of(update: KafkaUpdate) -> str:
    match update:
        case AddLedger(entry=entry):
            return entry.kafka_table
        case AddGap(gap=gap):
            return gap.kafka_table
        case Subscribe(subscription=subscription) | Release(subscription=subscription):
            return subscription.kafka_table
        case Unsubscribe(subscription=subscription):
            return subscription.kafka_table
        case _:
            return update.kafka_table


def tables_of(updates: Iterable[Update]) -> set[str]:
    return {update.table for update in updates if isinstance(update, TableUpdate)}


def kafka_tables_of(updates: Iterable[Update]) -> set[str]:
    return {kafka_of(update) for update in updates if not isinstance(update, TableUpdate)}


def partitions_read(update: TableUpdate) -> set[str]:
    """Return the partitions whose entries the fold reads. Inserts need none; a TRUNCATE needs all."""
    match update:
        case ReplaceParts(sources=sources):
            return {source.partition for source in sources}
        case RewritePart(source=source):
            return {source.partition}
        case AcceptMutation(parts=parts):
            return {part.partition for part in parts}
        case AddDelta(written=written):
            return {written.partition}
        case (
            ReplaceDeltas(partition=partition)
            | HidePartition(partition=partition)
            | ExpirePartition(partition=partition)
            | RestorePartition(partition=partition)
        ):
            return {partition}
        case InsertPart() | InsertLabel() | LoadFile() | InsertBatch() | StartMutation() | HideEverything():
            return set()
        case _:
            assert_never(update)


def partitions_written(update: TableUpdate) -> set[str]:
    if isinstance(update, InsertPart | ReplaceParts | RewritePart) and update.written is not None:
        return {update.written.partition}
    return set()


def with_files(update: Update, change: Callable[[DataFile], DataFile]) -> Update:
    """Return the update with each of its files replaced by the result of `change`."""
    match update:
        case InsertPart():
            return replace(update, written=_with_file(update.written, change))
        case AddDelta():
            return replace(update, written=_with_file(update.written, change))
        case ReplaceParts(written=written, more=more) if written is not None:
            return replace(
                update, written=_with_file(written, change), more=tuple(_with_file(each, change) for each in more)
            )
        case RewritePart(written=written) if written is not None:
            return replace(update, written=_with_file(written, change))
        case ReplaceDeltas(written=deltas):
            return replace(update, written=tuple(_with_file(delta, change) for delta in deltas))
        case _:
            return update


_Written = TypeVar("_Written", WrittenPart, WrittenDelta)


def _with_file(written: _Written, change: Callable[[DataFile], DataFile]) -> _Written:
    return msgspec.structs.replace(written, file=change(written.file))


def files_in(update: Update) -> tuple[DataFile, ...]:
    """Return the files that the update adds to the catalog."""
    match update:
        case InsertPart(written=WrittenPart(file=file)) | AddDelta(written=WrittenDelta(file=file)):
            return (file,)
        case ReplaceParts():
            return tuple(written.file for written in update.made)
        case RewritePart(written=WrittenPart(file=file)):
            return (file,)
        case ReplaceDeltas(written=deltas):
            return tuple(delta.file for delta in deltas)
        case _:
            return ()


def files_of(updates: Iterable[Update]) -> Iterator[str]:
    """Names of the files that become true with the updates."""
    return (file.name for update in updates for file in files_in(update))


def blocks_of(updates: Iterable[Update]) -> int:
    """Count the blocks that the updates need: one for each insert and for each range of a merge that was cut."""
    return sum(_blocks_of(update) for update in updates)


def _blocks_of(update: Update) -> int:
    match update:
        case InsertPart():
            return 1
        case ReplaceParts(more=more) if more:
            return 1 + len(more)
        case _:
            return 0
