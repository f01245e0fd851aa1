"""State that a commit needs, read from one view and pinned by preconditions.

Covers: the state that updates are folded over. Does not cover: folding (rules/fold.py), writing (commit.py).
Always holds: what a fold may read is either unchanged when the batch lands, or the batch does not land. The table's
version pins all that only its commits change: entries, offsets, gaps.

Tests: tests/unit/catalog/commit/test_transactions.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tilth.catalog.commit.visible_parts import VisiblePartsCache
from tilth.catalog.errors import TableNotFoundError, WrongEngineError
from tilth.catalog.kv import Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.codec import Codec
from tilth.catalog.records.keys import Space, loaded_file_key, pack, span, unpack
from tilth.catalog.records.nouns import PartitionRecord, TableVersion
from tilth.catalog.records.small_commit import read_all, unchanged
from tilth.catalog.rules.changes import CommitState, KafkaState, SubscriptionKey, TableState
from tilth.catalog.rules.fold_streams import STREAMS_MAX
from tilth.catalog.rules.requirements import NoRowsSince, Requirement, check_fences, required_tables
from tilth.catalog.rules.updates import (
    AcceptMutation,
    AddDelta,
    ExpirePartition,
    HideEverything,
    HidePartition,
    InsertBatch,
    InsertLabel,
    InsertPart,
    LoadFile,
    ReplaceDeltas,
    RestorePartition,
    RewritePart,
    StartMutation,
    SubscriptionUpdate,
    TableUpdate,
    Update,
    kafka_tables_of,
    partitions_read,
    partitions_written,
    tables_of,
)
from tilth.catalog.rules.visibility import visible
from tilth.model.delta import Delta
from tilth.model.lease import Lease
from tilth.model.mutation import Mutation
from tilth.model.offset import StoredOffset, Subscription, TopicPartition
from tilth.model.part import Entry, Part, TrashItem
from tilth.model.table import KafkaDef, Relation, TableDef, full_name
from tilth.model.txn import Txn

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Batch:
    """Preconditions and writes of a commit, collected while it is loaded and folded."""

    preconditions: list[Precondition] = field(default_factory=list)
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: list[bytes] = field(default_factory=list)


def pin_fences(view: ReadView, batch: Batch, txn: Txn) -> None:
    """Raises FencedError unless all fences of the transaction are held."""
    leases: dict[str, Lease | None] = {}
    for fence in txn.fences:
        key = pack(Space.LEASE, fence.name)
        found = view.get(key)
        batch.preconditions.append(unchanged(key, found))
        leases[fence.name] = None if found is None else codec.LEASES.decode(key, found.value)
    check_fences(leases, txn.fences)


def keys_of(updates: Sequence[Update]) -> list[bytes]:
    """Return the keys of single records that a commit of these updates reads in any case."""
    tables = tables_of(updates)
    spaces = (Space.RELATION, Space.VERSION, Space.COMMIT_LOCK)
    keys = [pack(space, table) for table in tables for space in spaces]
    keys += [pack(space, table) for table in kafka_tables_of(updates) - tables for space in spaces[:2]]
    written = {
        (each.table, partition)
        for each in updates
        if isinstance(each, TableUpdate)
        for partition in partitions_written(each)
    }
    keys += [pack(Space.PARTITION, table, partition) for table, partition in written]
    return keys + [key for table in tables for known in _known_keys(table, updates) for key in known.values()]


def load_state(
    view: ReadView,
    batch: Batch,
    updates: Sequence[Update],
    requirements: Sequence[Requirement],
    shown: VisiblePartsCache,
    *,
    is_checking: bool = False,
) -> CommitState:
    """Load the state that the fold needs, each key that matters pinned by a precondition; raises TableNotFoundError.

    `is_checking`: also load what only the invariants need.
    """
    tables: dict[str, TableState] = {}
    for table in sorted(tables_of(updates) | required_tables(requirements)):
        mine = [update for update in updates if isinstance(update, TableUpdate) and update.table == table]
        tables[table] = _load_table(view, batch, table, mine, requirements, shown, is_checking=is_checking)
    kafka: dict[str, KafkaState] = {}
    for table in sorted(kafka_tables_of(updates)):
        definition = _load_relation(view, batch, table)
        if not isinstance(definition, KafkaDef):
            raise WrongEngineError("not a Kafka table", table=full_name(definition), engine=definition.engine)
        gaps = read_all(view, codec.GAPS, Space.GAP, table)
        kafka[table] = KafkaState(
            definition=definition,
            version=_load_version(view, batch, table)[0],
            offsets=load_offsets(view, table),
            open_gaps=tuple(gap for gap in gaps if not gap.resolution),
        )
    subscriptions = _load_subscriptions(view, batch, updates)
    return CommitState(tables=tables, kafka=kafka, subscriptions=subscriptions)


def load_offsets(view: ReadView, kafka_table: str) -> dict[TopicPartition, StoredOffset]:
    start, end = span(Space.OFFSET, kafka_table)
    offsets: dict[TopicPartition, StoredOffset] = {}
    for key, found in view.scan(start, end):
        _, topic, partition = unpack(key, "ssi")
        offsets[TopicPartition(str(topic), int(partition))] = codec.OFFSETS.decode(key, found.value)
    return offsets


def _load_subscriptions(
    view: ReadView, batch: Batch, updates: Iterable[Update]
) -> dict[SubscriptionKey, Subscription | None]:
    found: dict[SubscriptionKey, Subscription | None] = {}
    for update in updates:
        if isinstance(update, SubscriptionUpdate):
            key = pack(Space.SUBSCRIPTION, *update.subscription.key)
            stored = view.get(key)
            batch.preconditions.append(unchanged(key, stored))
            decoded = None if stored is None else codec.SUBSCRIPTIONS.decode(key, stored.value)
            found[update.subscription.key] = decoded
    return found


def load_visible(
    view: ReadView, table: str, partition: str, shown: VisiblePartsCache, *, stored: int
) -> tuple[Part, ...]:
    """Return the visible parts of a partition, in the order of their names, and cache them. `stored`: the view's
    number of the table's version.
    """
    known = shown.find(table, partition, stored=stored)
    if known is None:
        known = tuple(visible(read_all(view, codec.ENTRIES, Space.ENTRY, table, partition)))
        shown.keep(table, partition, known, stored=stored)
    return known


def _load_table(
    view: ReadView,
    batch: Batch,
    table: str,
    updates: Sequence[TableUpdate],
    requirements: Iterable[Requirement],
    shown: VisiblePartsCache,
    *,
    is_checking: bool,
) -> TableState:
    definition = _load_relation(view, batch, table)
    if not isinstance(definition, TableDef):
        raise WrongEngineError("not a table of rows", table=full_name(definition), engine=definition.engine)
    version, stored = _load_version(view, batch, table)
    changed = {update.written.partition for update in updates if isinstance(update, AddDelta)}
    others = [update for update in updates if not isinstance(update, AddDelta)]
    needed: set[str] = set().union(*(partitions_read(update) for update in others))
    if any(isinstance(update, HideEverything) for update in updates):
        needed.update(each.partition for each in read_all(view, codec.PARTITIONS, Space.PARTITION, table))
    counted = needed.union(*(partitions_written(update) for update in updates))
    # Changes of rows and requirements only need what is visible.
    required = (changed | _partitions_required(view, table, version, requirements)) - needed
    undropped = {update.partition for update in updates if isinstance(update, RestorePartition)}
    compacted = {update.partition for update in updates if isinstance(update, ReplaceDeltas)}
    sources = {name for update in updates if isinstance(update, ReplaceDeltas) for name in update.sources}
    everything = sorted(needed | counted | required)
    labels, loaded, streams = _known_keys(table, updates)
    return TableState(
        definition=definition,
        version=version,
        stored=stored,
        entries={
            partition: tuple(_load_entries(view, batch, table, partition, is_pinned=partition in undropped))
            for partition in (everything if is_checking else sorted(needed))
        },
        shown={partition: load_visible(view, table, partition, shown, stored=stored) for partition in sorted(required)},
        deltas={
            partition: tuple(_load_deltas(view, batch, table, partition, sources))
            for partition in (everything if is_checking else sorted(needed | changed))
        },
        labels=_load_known(view, batch, labels, codec.LABELS),
        loaded=_load_known(view, batch, loaded, codec.LOADED_FILES),
        streams=(last_batches := _load_known(view, batch, streams, codec.STREAMS)),
        streams_count=_count_streams(view, table) if streams.keys() - last_batches.keys() else 0,
        partitions=_load_partitions(view, batch, table, counted),
        mutations=_load_mutations(view, batch, table, updates),
        trash={
            partition: tuple(_load_trash(view, batch, table, partition, is_pinned=partition in undropped))
            for partition in sorted(undropped | compacted)
        },
    )


def _partitions_required(
    view: ReadView, table: str, version: TableVersion, requirements: Iterable[Requirement]
) -> set[str]:
    required: set[str] = set()
    for requirement in requirements:
        if isinstance(requirement, NoRowsSince) and requirement.table == table:
            # Without a commit since then no rows can have been added: nothing is read.
            if version.last_commit_ts <= requirement.ts:
                continue
            every = (each.partition for each in read_all(view, codec.PARTITIONS, Space.PARTITION, table))
            required.update(every if requirement.partitions is None else requirement.partitions)
    return required


def _load_relation(view: ReadView, batch: Batch, uuid: str) -> Relation:
    key = pack(Space.RELATION, uuid)
    found = view.get(key)
    if found is None:
        raise TableNotFoundError(uuid=uuid, hint="it was dropped")
    batch.preconditions.append(unchanged(key, found))
    return codec.RELATIONS.decode(key, found.value)


def _load_version(view: ReadView, batch: Batch, uuid: str) -> tuple[TableVersion, int]:
    """Load the table's version, with the store's number of it. Pinning the version pins everything that only commits to
    the table change: entries, offsets, gaps.
    """
    key = pack(Space.VERSION, uuid)
    found = view.get(key)
    batch.preconditions.append(unchanged(key, found))
    return (TableVersion(), 0) if found is None else (codec.VERSIONS.decode(key, found.value), found.version)


def _load_entries(view: ReadView, batch: Batch, table: str, partition: str, *, is_pinned: bool) -> Iterator[Entry]:
    """Only an UNDROP pins them one by one: GC removes what is hidden without raising the version, and that is just
    what it brings back.
    """
    for key, found in view.scan(*span(Space.ENTRY, table, partition)):
        if is_pinned:
            batch.preconditions.append(unchanged(key, found))
        yield codec.ENTRIES.decode(key, found.value)


def _load_deltas(view: ReadView, batch: Batch, table: str, partition: str, pinned: Collection[str]) -> Iterator[Delta]:
    """Yield the deltas that have not ended. GC removes those whose parts are gone without raising the version."""
    for key, found in view.scan(*span(Space.DELTA, table, partition)):
        delta = codec.DELTAS.decode(key, found.value)
        if delta.file.name in pinned:
            batch.preconditions.append(unchanged(key, found))
        yield delta


def _known_keys(table: str, updates: Iterable[Update]) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """Return the keys of what updates of the table may store a second time: of labels, of loaded files, of the last
    batches of streams, each by its name.
    """
    labels: dict[str, bytes] = {}
    loaded: dict[str, bytes] = {}
    streams: dict[str, bytes] = {}
    for update in updates:
        match update:
            case InsertLabel(table=name, label=label) if name == table:
                labels[label] = pack(Space.LABEL, table, label)
            case LoadFile(table=name, loaded=file) if name == table:
                loaded[file.file] = loaded_file_key(table, file.file)
            case InsertBatch(table=name, stream=stream) if name == table:
                streams[stream] = pack(Space.STREAM, table, stream)
            case _:
                pass
    return labels, loaded, streams


def _load_known(view: ReadView, batch: Batch, keys: Mapping[str, bytes], of: Codec[T]) -> dict[str, T]:
    """Load the records that exist under these keys, by their names. Pinned, because the cleaner forgets old ones."""
    known: dict[str, T] = {}
    for name, key in keys.items():
        found = view.get(key)
        batch.preconditions.append(unchanged(key, found))
        if found is not None:
            known[name] = of.decode(key, found.value)
    return known


def _count_streams(view: ReadView, table: str) -> int:
    """Count the streams of the table, up to their limit."""
    return sum(1 for _ in view.scan(*span(Space.STREAM, table), limit=STREAMS_MAX))


def _load_trash(view: ReadView, batch: Batch, table: str, partition: str, *, is_pinned: bool) -> Iterator[TrashItem]:
    """Yield the parts that a drop hid and whose files are all there; GC changes an item before it removes its file.
    Pinned if they are to be brought back.
    """
    for key, found in view.scan(*span(Space.TRASH, table, partition)):
        item = codec.TRASH.decode(key, found.value)
        if item.is_dropped and not item.is_going:
            if is_pinned:
                batch.preconditions.append(unchanged(key, found))
            yield item


def _load_partitions(view: ReadView, batch: Batch, table: str, partitions: Iterable[str]) -> dict[str, PartitionRecord]:
    """Load the records. Pinned, because GC removes those of empty partitions."""
    records: dict[str, PartitionRecord] = {}
    for partition in sorted(partitions):
        key = pack(Space.PARTITION, table, partition)
        found = view.get(key)
        batch.preconditions.append(unchanged(key, found))
        if found is not None:
            records[partition] = codec.PARTITIONS.decode(key, found.value)
    return records


def _load_mutations(view: ReadView, batch: Batch, table: str, updates: Sequence[TableUpdate]) -> tuple[Mutation, ...]:
    """Load the mutations in the order of their commits. Those that an update relies on or revives are pinned: they end
    without raising the version.
    """
    without = (
        InsertPart
        | InsertLabel
        | LoadFile
        | InsertBatch
        | AddDelta
        | ReplaceDeltas
        | HidePartition
        | ExpirePartition
        | HideEverything
        | StartMutation
    )
    if all(isinstance(update, without) for update in updates):
        return ()
    is_undrop = any(isinstance(update, RestorePartition) for update in updates)
    relied = {update.mutation for update in updates if isinstance(update, RewritePart | AcceptMutation)}
    mutations: list[Mutation] = []
    for key, found in view.scan(*span(Space.MUTATION, table)):
        mutation = codec.MUTATIONS.decode(key, found.value)
        mutations.append(mutation)
        if is_undrop or mutation.id in relied:
            batch.preconditions.append(unchanged(key, found))
    return tuple(sorted(mutations, key=lambda each: each.commit_ts))
