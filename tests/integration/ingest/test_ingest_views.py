"""Views that Spark may run in unexpected ways: what is committed as read was read, all of it and once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event, events
from tilth.base.ids import random_id
from tilth.catalog import StartMutation
from tilth.ingest import ViewError, check_view
from tilth.model.mutation import MutationKind
from tilth.model.table import Column, Schema, TableDef, ViewDef
from tilth.model.types import Kind, Simple
from tilth.storage import data_folder, read_part
from tilth.warehouse import QUERY_WAREHOUSE, WorkerSession
from tools.broker import Broker

#: Enough for a round of more than one Spark task.
MANY = 40_000


@pytest.mark.parametrize(
    "select",
    [
        "SELECT id, name, price FROM k WHERE id % 3 = 0 UNION ALL SELECT id, name, price FROM k WHERE id % 3 <> 0",
        "SELECT /*+ COALESCE(1) */ id, name, price FROM k WHERE id >= 0",
        "SELECT a.id, a.name, b.price FROM k a JOIN k b ON a.id = b.id",
    ],
    ids=["union", "coalesce", "self join"],
)
def test_a_view_gets_every_message_of_a_round_of_several_tasks(
    world: IngestWorld, broker: Broker, select: str, request: pytest.FixtureRequest
) -> None:
    topic = f"views-{request.node.callspec.id.replace(' ', '-')}"
    broker.create_topic(topic, 2)
    kafka = world.kafka("k", topic, kafka_max_block_size="1000000", kafka_round_tasks_max="4")
    target = world.table("t", EVENTS, "id")
    world.send(topic, events(0, MANY), partitions=2)
    world.view("v", kafka, target, select)
    world.wait_rows(target, MANY)
    assert world.ids(target) == list(range(MANY))
    world.verify(target)


def test_a_view_that_leaves_messages_out_commits_nothing(world: IngestWorld, broker: Broker) -> None:
    """Not only CREATE refuses it: its consumer checks it, too, and says what to do."""
    broker.create_topic("views-limit")
    kafka = world.kafka("k", "views-limit")
    target = world.table("t", EVENTS, "id")
    world.send("views-limit", events(0, 100))
    world.view("v", kafka, target, "SELECT id, name, price FROM k LIMIT 3")
    world.wait(lambda: "leave LIMIT, OFFSET and TABLESAMPLE out" in world.stats(kafka).last_exception, "refusal")
    assert world.count(target) == 0
    assert not list(world.catalog.offsets.ledger(kafka.uuid))


def test_the_view_of_the_readme_with_a_broken_message(world: IngestWorld, broker: Broker) -> None:
    """The only view computes, so nothing but the reading itself has dead letters to write."""
    broker.create_topic("views-readme", 2)
    kafka = world.kafka("k", "views-readme")
    target = world.table("t", EVENTS, "id")
    values: list[bytes | None] = [*events(1, 1000), b"{", b'{"id": "x"}']
    world.send("views-readme", values, partitions=2)
    world.view("v", kafka, target, "SELECT * FROM k WHERE price > 0")
    world.wait_rows(target, 999)
    assert world.ids(target) == list(range(1, 1000))
    assert sorted(world.rows("k_dead_letters")["raw"].to_pylist()) == [b"{", b'{"id": "x"}']
    assert world.rows("k_dead_letters")["view"].to_pylist() == [None, None]
    assert world.stats(kafka).failures == 0
    assert [each.view_choices for each in world.manager.kafka_tables()] == [{"default.v": "kernels"}]
    world.verify(target, world.catalog.tables.get("default", "k_dead_letters"))  # type: ignore[arg-type]  # a TableDef


def test_a_message_that_one_view_cannot_take(world: IngestWorld, broker: Broker) -> None:
    """From a broker, through the services, with a restart of the node's consumers in between."""
    broker.create_topic("views-refuse", 2)
    kafka = world.kafka("k", "views-refuse", kafka_max_block_size="400")
    copy = world.table("copy", EVENTS, "id")
    halves = world.table("halves", {"id": Kind.INT64, "half": Kind.INT32}, "id")
    world.view("v1", kafka, copy, "SELECT * FROM k")
    world.view("v2", kafka, halves, "SELECT id, CAST(name AS INT) AS half FROM k WHERE price >= 0")
    bad = {number for number in range(2000) if number % 97 == 5}
    values = [event(n, name="x" if n in bad else str(n // 2)) for n in range(2000)]
    world.send("views-refuse", values[:1200], partitions=2)
    world.wait_rows(copy, 400)
    world.manager.restart(kafka.uuid)
    world.send("views-refuse", values[1200:], partitions=2)
    world.wait_rows(copy, 2000)
    assert world.ids(copy) == list(range(2000))
    assert world.ids(halves) == sorted(set(range(2000)) - bad)
    letters = world.rows("k_dead_letters").to_pylist()
    assert sorted(letter["raw"] for letter in letters) == sorted(values[n] for n in bad)
    assert {letter["view"] for letter in letters} == {"default.v2"}
    assert all("column `half`: The value 'x'" in letter["reason"] for letter in letters)
    assert world.stats(kafka).failures == 0
    assert sum(each.refused for each in world.manager.kafka_tables()) <= len(bad)
    ledger = [each for entry in world.catalog.offsets.ledger(kafka.uuid) for each in entry.ranges]
    assert (sum(e.messages for e in ledger), sum(e.dead for e in ledger)) == (2000, 0)
    assert sum(e.refused for e in ledger) == len(bad)
    world.verify(copy, halves, world.catalog.tables.get("default", "k_dead_letters"))  # type: ignore[arg-type]  # a TableDef


def test_the_deepest_message_is_one_dead_letter(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("views-deep")
    kafka = world.kafka("k", "views-deep")
    target = world.table("t", EVENTS, "id")
    deep = b'{"id": 7, "other": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    world.send("views-deep", [event(1), deep, event(2)])
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 2)
    assert world.ids(target) == [1, 2]
    assert [row["offset"] for row in world.rows("k_dead_letters").to_pylist()] == [1]


def test_latest_holds_for_the_partitions_of_every_consumer(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("views-latest", 4)
    world.send("views-latest", events(0, 400), partitions=4)
    kafka = world.kafka("k", "views-latest", kafka_num_consumers="4", kafka_auto_offset_reset="latest")
    target = world.table("t", EVENTS, "id")
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: world.stats(kafka).running_tasks == 4, "four consumers")
    world.send("views-latest", events(400, 440), partitions=4)
    world.wait_rows(target, 40)
    assert world.ids(target) == list(range(400, 440))


@pytest.mark.parametrize("select", ["SELECT id FROM k", "SELECT id + 1 AS id FROM k"])
def test_a_not_null_target_is_not_filled_from_what_may_be_null(
    world: IngestWorld, spark: WorkerSession, select: str
) -> None:
    kafka = world.kafka("k", "views-null", {"id": Kind.INT64})
    target = _target_not_null()
    with pytest.raises(ViewError, match="may get NULL"):
        check_view(spark.new_session(pool=QUERY_WAREHOUSE), kafka, target, select, view="v")
    check_view(spark.new_session(pool=QUERY_WAREHOUSE), kafka, target, "SELECT coalesce(id, 0) AS id FROM k", view="v")


@pytest.mark.parametrize("mode", ["dead_letter", "stream"])
@pytest.mark.parametrize(
    ("virtual", "is_never_null"),
    [("_offset", True), ("CAST(_PARTITION AS BIGINT)", True), ("unix_micros(_timestamp)", False)],
)
def test_a_not_null_target_is_filled_from_what_every_message_has(
    world: IngestWorld, spark: WorkerSession, mode: str, virtual: str, is_never_null: bool
) -> None:
    kafka = world.kafka("k", "views-virtual", {"id": Kind.INT64}, kafka_handle_error_mode=mode)
    session = spark.new_session(pool=QUERY_WAREHOUSE)
    for key in ((), ("id",)):
        target = msgspec.structs.replace(_target_not_null(), unique_key=key)
        for select in (f"SELECT {virtual} AS id FROM k", f"SELECT {virtual} + 1 AS id FROM k WHERE id > 0"):
            if is_never_null:
                check_view(session, kafka, target, select, view="v")
            elif not key:
                with pytest.raises(ViewError, match="may get NULL"):
                    check_view(session, kafka, target, select, view="v")


def test_a_view_is_read_by_characters_not_by_code_units(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("views-emoji")
    kafka = world.kafka("k", "views-emoji")
    target = world.table("t", EVENTS, "id")
    world.send("views-emoji", events(0, 10))
    world.view("v", kafka, target, "SELECT id, concat('🛫🛬', name) AS name, price FROM default.k WHERE id < 5")
    world.wait_rows(target, 5)
    names: Sequence[str] = world.rows(target)["name"].to_pylist()
    assert all(name.startswith("🛫🛬n") for name in names)


def test_a_view_finds_the_columns_of_its_target_by_id(world: IngestWorld, broker: Broker, spark: WorkerSession) -> None:
    broker.create_topic("views-renamed")
    kafka = world.kafka("k", "views-renamed")
    target = world.table("t", EVENTS, "id")
    session = spark.new_session(pool=QUERY_WAREHOUSE)
    filled = check_view(session, kafka, target, "SELECT price, Name, id FROM k").outputs
    assert filled == (("price", 3), ("Name", 2), ("id", 1))
    view = ViewDef(
        uuid=random_id(),
        database="default",
        name="v",
        source=kafka.uuid,
        target=target.uuid,
        select="SELECT price, Name, id FROM k",
        target_columns=filled,
    )
    world.catalog.tables.create(view)
    world.send("views-renamed", events(0, 10))
    world.manager.wake()
    world.wait_rows(target, 10)
    # The old name goes to a column that the view knows nothing of.
    added = Column(id=4, name="name", type=Simple(Kind.STRING), default="'new'", is_default_computed=False)
    columns = [added, *target.schema.columns]
    columns[2] = Column(id=2, name="label", type=Simple(Kind.STRING))
    after = Schema(columns=tuple(columns))
    txn = world.catalog.transactions.open("alter")
    change = StartMutation(
        table=target.uuid,
        from_version=1,
        kind=MutationKind.COLUMNS,
        command="RENAME COLUMN name TO label, ADD COLUMN name string DEFAULT 'new' FIRST",
        schema=after,
        next_column_id=5,
    )
    txn.commit([change])
    world.manager.wake(kafka.uuid)
    world.send("views-renamed", events(10, 20))
    world.wait_rows(target, 20)
    parts = world.catalog.parts.snapshot(target.uuid).parts
    newer = [read_part(data_folder(world.root, target.uuid), p.file) for p in parts if p.schema_version == 2]
    rows = [row for part in newer for row in part.to_pylist()]
    assert sorted(row["id"] for row in rows) == list(range(10, 20))
    assert {row["name"] for row in rows} == {"new"}
    assert all(row["label"] == f"n{row['id'] % 7}" for row in rows)
    changed = world.catalog.tables.by_id(target.uuid)
    assert isinstance(changed, TableDef)
    assert changed.schema == after
    for select in ("SELECT price, Name, id FROM k", "SELECT price + 1 AS price, Name, id FROM k"):
        plan = check_view(session, kafka, changed, select, target_columns=filled)
        assert plan.outputs == filled, plan
    gone = msgspec.structs.replace(changed, schema=Schema(columns=after.columns[:-1]))
    with pytest.raises(ViewError, match="no such column"):
        check_view(session, kafka, gone, view.select, target_columns=filled)


def test_defaults_of_the_target_are_computed_for_each_round(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("views-defaults")
    kafka = world.kafka("k", "views-defaults")
    columns = (
        Column(id=1, name="id", type=Simple(Kind.INT64)),
        Column(id=2, name="at", type=Simple(Kind.TIMESTAMP), default="now()", is_default_computed=True),
        Column(id=3, name="u", type=Simple(Kind.STRING), default="uuid()", is_default_computed=True),
        Column(id=4, name="n", type=Simple(Kind.INT8), default="CAST(7 AS TINYINT)", is_default_computed=False),
    )
    target = world.table("t", EVENTS, "id", schema=Schema(columns=columns))
    began = datetime.now(UTC)
    world.send("views-defaults", events(0, 50))
    world.view("v", kafka, target, "SELECT id FROM k")
    world.wait_rows(target, 50)
    rows = world.rows(target)
    assert {part["n"] for part in rows.to_pylist()} == {7}
    assert len(set(rows["u"].to_pylist())) == 50
    assert all(began - timedelta(seconds=1) <= at <= datetime.now(UTC) for at in rows["at"].to_pylist())


def _target_not_null() -> TableDef:
    column = Column(id=1, name="id", type=Simple(Kind.INT64), nullable=False)
    return TableDef(uuid="0" * 32, database="default", name="t", schema=Schema(columns=(column,)))
