"""What a commit needs to know, read from one view and pinned by preconditions.

Covers: the state that updates are folded over. Does not cover: folding (fold.py), writing (commit.py).
Always holds: what a fold may look at is either unchanged when the batch lands, or the batch does not land. The table's
version pins all that only its commits change: entries, offsets, gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilth.catalog import codec
from tilth.catalog.change import read_all, unchanged
from tilth.catalog.errors import TableNotFoundError, WrongEngineError
from tilth.catalog.fold import CommitState, KafkaState, TableState
from tilth.catalog.keys import Space, pack, span, unpack
from tilth.catalog.kv import Precondition, ReadView
from tilth.catalog.records import TableVersion
from tilth.catalog.requirements import FenceHeld, PartsVisible, Requirement, check_fences, required_tables
from tilth.catalog.updates import (
    DropPartition,
    InsertPart,
    ReplaceParts,
    TruncateTable,
    Update,
    kafka_tables_of,
    tables_of,
)
from tilth.model.lease import Lease
from tilth.model.offset import TopicPartition
from tilth.model.table import KafkaDef, Relation, TableDef, full_name
from tilth.model.txn import Txn


@dataclass(slots=True, kw_only=True)
class Batch:
    """What a commit has read and will write."""

    preconditions: list[Precondition] = field(default_factory=list)
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: list[bytes] = field(default_factory=list)


def pin_fences(view: ReadView, batch: Batch, txn: Txn, requirements: Iterable[Requirement]) -> None:
    """Raises FencedError unless all fences of the transaction and the requirements are held."""
    fences = [*txn.fences, *(each.fence for each in requirements if isinstance(each, FenceHeld))]
    leases: dict[str, Lease | None] = {}
    for fence in fences:
        key = pack(Space.LEASE, fence.name)
        found = view.get(key)
        batch.preconditions.append(unchanged(key, found))
        leases[fence.name] = None if found is None else codec.LEASES.decode(key, found.value)
    check_fences(leases, fences)


def load_state(
    view: ReadView, batch: Batch, updates: Sequence[Update], requirements: Sequence[Requirement]
) -> CommitState:
    """What the fold needs, each key that matters pinned by a precondition; raises TableNotFoundError."""
    tables: dict[str, TableState] = {}
    for table in sorted(tables_of(updates) | required_tables(requirements)):
        definition = _load_relation(view, batch, table)
        if not isinstance(definition, TableDef):
            raise WrongEngineError("not a table of rows", table=full_name(definition), engine=definition.engine)
        tables[table] = TableState(
            definition=definition,
            version=_load_version(view, batch, table),
            entries={
                partition: tuple(read_all(view, codec.ENTRIES, Space.ENTRY, table, partition))
                for partition in sorted(_partitions_needed(view, table, updates, requirements))
            },
            known=_known_partitions(view, batch, table, updates),
        )
    kafka: dict[str, KafkaState] = {}
    for table in sorted(kafka_tables_of(updates)):
        definition = _load_relation(view, batch, table)
        if not isinstance(definition, KafkaDef):
            raise WrongEngineError("not a Kafka table", table=full_name(definition), engine=definition.engine)
        gaps = read_all(view, codec.GAPS, Space.GAP, table)
        kafka[table] = KafkaState(
            definition=definition,
            version=_load_version(view, batch, table),
            offsets=load_offsets(view, table),
            open_gaps=tuple(gap for gap in gaps if not gap.resolution),
        )
    return CommitState(tables=tables, kafka=kafka)


def load_offsets(view: ReadView, kafka_table: str) -> dict[TopicPartition, int]:
    """The stored offsets of a Kafka table: the next to read of each topic partition."""
    start, end = span(Space.OFFSET, kafka_table)
    offsets: dict[TopicPartition, int] = {}
    for key, found in view.scan(start, end):
        _, topic, partition = unpack(key, "ssi")
        offsets[TopicPartition(str(topic), int(partition))] = codec.INTEGERS.decode(key, found.value)
    return offsets


def _load_relation(view: ReadView, batch: Batch, uuid: str) -> Relation:
    key = pack(Space.RELATION, uuid)
    found = view.get(key)
    if found is None:
        raise TableNotFoundError(uuid=uuid, hint="it was dropped")
    batch.preconditions.append(unchanged(key, found))
    return codec.RELATIONS.decode(key, found.value)


def _load_version(view: ReadView, batch: Batch, uuid: str) -> TableVersion:
    """Pinning the version pins everything that only commits to the table change: entries, offsets, gaps."""
    key = pack(Space.VERSION, uuid)
    found = view.get(key)
    batch.preconditions.append(unchanged(key, found))
    return TableVersion() if found is None else codec.VERSIONS.decode(key, found.value)


def _partitions_needed(
    view: ReadView, table: str, updates: Iterable[Update], requirements: Iterable[Requirement]
) -> set[str]:
    """The partitions whose entries the fold looks into. Inserts need none."""
    needed: set[str] = set()
    for update in updates:
        match update:
            case ReplaceParts() if update.table == table:
                needed.update(source.partition for source in update.sources)
            case DropPartition() if update.table == table:
                needed.add(update.partition)
            case TruncateTable() if update.table == table:
                needed.update(each.partition for each in read_all(view, codec.PARTITIONS, Space.PARTITION, table))
            case _:
                pass
    for requirement in requirements:
        if isinstance(requirement, PartsVisible) and requirement.table == table:
            needed.update(name.partition for name in requirement.names)
    return needed


def _known_partitions(view: ReadView, batch: Batch, table: str, updates: Iterable[Update]) -> frozenset[str]:
    """Which of the partitions that get parts have a record; pinned, for GC removes the records of empty ones."""
    known: set[str] = set()
    written = (
        update.written for update in updates if isinstance(update, InsertPart | ReplaceParts) and update.table == table
    )
    for partition in sorted({each.partition for each in written if each is not None}):
        key = pack(Space.PARTITION, table, partition)
        found = view.get(key)
        batch.preconditions.append(unchanged(key, found))
        if found is not None:
            known.add(partition)
    return frozenset(known)
