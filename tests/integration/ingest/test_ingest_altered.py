"""A target that is altered while its consumer works: the same offsets are read again at once, nothing counts as a
failure; and a target with too many parts slows its consumer and loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, events
from tilth.catalog import CommitOutcome, Committed, Requirement, StartMutation, Update
from tilth.ingest import ConsumeEventKind
from tilth.model.mutation import MutationKind
from tilth.model.table import Column, Schema, TableDef
from tilth.model.txn import LeftoverNote, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import data_folder, read_part
from tools.broker import Broker


def alteration(world: IngestWorld, table: TableDef) -> StartMutation:
    """`price` is called `cost`, and a column comes before it."""
    now = world.catalog.tables.by_id(table.uuid)
    assert isinstance(now, TableDef)
    identity, name, price = now.schema.columns
    new = Column(id=4, name="seen", type=Simple(Kind.BOOLEAN))
    schema = Schema(columns=(identity, new, name, msgspec.structs.replace(price, name="cost")))
    return StartMutation(
        table=table.uuid,
        from_version=now.schema_version,
        kind=MutationKind.COLUMNS,
        command="RENAME COLUMN price TO cost, ADD COLUMN seen",
        schema=schema,
        next_column_id=5,
    )


def test_an_alter_in_the_middle_of_a_round(world: IngestWorld, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("altered")
    kafka, target = world.kafka("k", "altered"), world.table("t", EVENTS, "id")
    transactions = world.catalog.transactions
    commit = transactions.commit
    altered: list[int] = []

    def alter_first(
        txn: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        """The ALTER lands between the files of a later round and its commit."""
        if not altered and world.count(target) >= 100:
            altered.append(txn)
            begun = transactions.begin("alter")
            assert isinstance(commit(begun.id, [alteration(world, target)]), Committed)
        return commit(txn, updates, requirements, leftovers)

    monkeypatch.setattr(transactions, "commit", alter_first)
    view = world.view("v", kafka, target, "SELECT id, name, price FROM k")
    ids = tuple((column.name, column.id) for column in target.schema.columns)
    world.catalog.tables.drop(view.uuid)
    world.catalog.tables.create(msgspec.structs.replace(view, name="w", uuid="f" * 32, target_columns=ids))
    world.manager.wake()
    world.send("altered", events(0, 100))
    world.wait_rows(target, 100)
    world.send("altered", events(100, 200))
    world.wait_rows(target, 200)
    parts = world.catalog.parts.snapshot(target.uuid).parts
    assert {part.schema_version for part in parts} == {target.schema_version, target.schema_version + 1}
    rows = [row for part in parts for row in read_part(data_folder(world.root, target.uuid), part.file).to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(200))
    assert sum("cost" in row for row in rows) == 100
    assert world.catalog.transactions.resolve(altered[0]) is TxnState.ABORTED
    assert world.stats(kafka).failures == 0
    assert [event for event in world.manager.log() if event.kind is ConsumeEventKind.EXCEPTION] == []


def test_a_full_partition_holds_its_consumer_back_and_loses_nothing(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("full")
    kafka, target = world.kafka("k", "full", kafka_max_block_size="10"), world.table("t", EVENTS, "id")
    limits = {"parts_to_delay_insert": "1", "parts_to_throw_insert": "2", "max_delay_to_insert": "0.05"}
    world.catalog.tables.modify_settings(target.uuid, limits, [])
    world.send("full", events(0, 50))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: "TOO_MANY_PARTS" in world.stats(kafka).last_exception, "the refusal")
    assert world.count(target) == 20
    assert sum(world.catalog.offsets.of(kafka.uuid).values()) == 20
    [consumer] = world.manager.kafka_tables()
    assert consumer.slowed.startswith("slowed: ")
    world.catalog.tables.modify_settings(target.uuid, {"parts_to_throw_insert": "3000"}, [])
    world.manager.wake(kafka.uuid)
    world.wait_rows(target, 50)
    assert world.ids(target) == list(range(50))
    world.verify(target)
