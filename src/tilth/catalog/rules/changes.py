"""State before a commit and the changes that it makes: nouns of a commit. Pure.

Does not cover: reading the state (commit/load.py), folding updates (fold.py), committing (commit/commit.py).
Always holds: counts of parts are known in a state (commit/load.py counts where a record does not), and a change
carries each record, entry and definition as it is after the commit.

Tests: tests/unit/catalog/rules/test_invariants.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilth.catalog.records.nouns import LabelRecord, PartitionRecord, StreamRecord, TableVersion
from tilth.model.delta import Delta
from tilth.model.loaded_file import LoadedFile
from tilth.model.mutation import Mutation
from tilth.model.offset import IngestGap, LedgerEntry, StoredOffset, Subscription, TopicPartition
from tilth.model.part import DropRange, Entry, Part, PartEvent, PartName, TrashItem
from tilth.model.table import KafkaDef, TableDef


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """State of a table before a commit is folded."""

    definition: TableDef
    version: TableVersion
    #: Entries by partition, where the updates need them.
    entries: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    #: Visible parts by partition, where the updates need nothing else.
    shown: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    #: The store's sequence number of the version.
    stored: int = 0
    #: Records of the partitions that the updates change; new partitions have none.
    partitions: Mapping[str, PartitionRecord] = field(default_factory=dict)
    #: Mutations in the order of their commits, if the updates need them.
    mutations: Sequence[Mutation] = ()
    #: Trash items that an UNDROP can bring back, by partition.
    trash: Mapping[str, tuple[TrashItem, ...]] = field(default_factory=dict)
    #: Deltas that have not ended, by partition, where the updates need them.
    deltas: Mapping[str, tuple[Delta, ...]] = field(default_factory=dict)
    #: Labels of the updates that are already used.
    labels: Mapping[str, LabelRecord] = field(default_factory=dict)
    #: Records of the updates' files that were loaded before, by address.
    loaded: Mapping[str, LoadedFile] = field(default_factory=dict)
    #: Last batches of the updates' streams.
    streams: Mapping[str, StreamRecord] = field(default_factory=dict)
    #: Number of streams of the table, where one of the updates' has no batch yet.
    streams_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaState:
    """State of a Kafka table before a commit is folded."""

    definition: KafkaDef
    version: TableVersion
    offsets: Mapping[TopicPartition, StoredOffset]
    #: Gaps without a resolution.
    open_gaps: tuple[IngestGap, ...]


#: Cluster id, topic id, group.
SubscriptionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitState:
    tables: Mapping[str, TableState]
    kafka: Mapping[str, KafkaState]
    #: Subscriptions that the updates concern; None: there is no subscription.
    subscriptions: Mapping[SubscriptionKey, Subscription | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTimes:
    """The hybrid times that a commit has drawn: its block ids, and behind them its timestamp."""

    txn: int
    first_block: int
    commit_ts: int
    now_ms: int


@dataclass(slots=True, kw_only=True)
class TableChange:
    """Changes that a commit makes to one table."""

    version: TableVersion
    #: None: as it was.
    definition: TableDef | None = None
    added: list[Entry] = field(default_factory=list)
    #: Parts that stay under their names, with a record of more facts.
    accepted: dict[PartName, Part] = field(default_factory=dict)
    #: Parts that leave the trash.
    restored: list[Part] = field(default_factory=list)
    #: Drop ranges that are removed.
    removed: list[DropRange] = field(default_factory=list)
    #: New ones, and those whose count changes.
    partitions: dict[str, PartitionRecord] = field(default_factory=dict)
    #: New ones, and those whose state or count changes, by id.
    mutations: dict[int, Mutation] = field(default_factory=dict)
    deltas_added: list[Delta] = field(default_factory=list)
    #: Deltas with the time at which they end.
    deltas_ended: list[Delta] = field(default_factory=list)
    labels: dict[str, LabelRecord] = field(default_factory=dict)
    #: Records of files that the commit loads, by address.
    loaded: dict[str, LoadedFile] = field(default_factory=dict)
    streams: dict[str, StreamRecord] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (
            self.added
            or self.accepted
            or self.restored
            or self.removed
            or self.mutations
            or self.deltas_added
            or self.deltas_ended
            or self.labels
            or self.loaded
            or self.streams
        )

    def entries_after(self, entries: Iterable[Entry]) -> list[Entry]:
        """All entries after the commit, given those before it; partitions may be left out of both."""
        removed = {entry.name for entry in self.removed}
        everything = [entry for entry in (*entries, *self.added, *self.restored) if entry.name not in removed]
        return [self.accepted.get(entry.name, entry) for entry in everything]

    def deltas_after(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return the deltas that are open after the commit, given those open before it."""
        over = {delta.file.name for delta in self.deltas_ended}
        return [delta for delta in (*deltas, *self.deltas_added) if delta.file.name not in over]


@dataclass(slots=True, kw_only=True)
class KafkaChange:
    """Changes that a commit makes to one Kafka table."""

    version: TableVersion
    #: All offsets after the commit.
    offsets: dict[TopicPartition, StoredOffset]
    ledger: list[LedgerEntry] = field(default_factory=list)
    #: New ones, and old ones with their resolution.
    gaps: list[IngestGap] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    commit_ts: int
    tables: Mapping[str, TableChange]
    kafka: Mapping[str, KafkaChange]
    #: Subscriptions after the commit; None: removed.
    subscriptions: Mapping[SubscriptionKey, Subscription | None]
    events: Sequence[PartEvent]
    #: Table and part, for each part made.
    parts: Sequence[tuple[str, Part]]
