"""A new field in the events: the columns of a Kafka table are altered under a running consumer, over SQL."""

from __future__ import annotations

import json

import pytest

from tests.integration.ingest.ingest_world import IngestWorld
from tilth.base.errors import TilthError
from tilth.model.table import KafkaDef
from tools.broker import Broker


@pytest.fixture
def orders(world: IngestWorld, broker: Broker, request: pytest.FixtureRequest) -> str:
    """A Kafka table `k` over a topic of its own and a table `t`; no view yet. Returns the topic."""
    topic = f"columns-{request.node.name[:40]}"
    broker.create_topic(topic)
    world.sql("CREATE TABLE t (id BIGINT, name STRING) ENGINE = MergeTree ORDER BY id")
    world.sql(
        f"CREATE TABLE k (id BIGINT NOT NULL, name STRING) ENGINE = Kafka SETTINGS kafka_broker_list = "
        f"'{world.bootstrap}', kafka_topic_list = '{topic}', kafka_format = 'JSONEachRow', "
        "stream_flush_interval_ms = 100, kafka_max_block_size = 50"
    )
    return topic


def send(world: IngestWorld, topic: str, start: int, end: int) -> None:
    """Events with more fields than the table has."""
    world.send(
        topic,
        [
            json.dumps({"id": n, "name": f"n{n}", "grams": n * 10, "price": f"{n}.5"}).encode()
            for n in range(start, end)
        ],
    )


def kafka(world: IngestWorld) -> KafkaDef:
    found = world.catalog.tables.get("default", "k")
    assert isinstance(found, KafkaDef)
    return found


def refused(world: IngestWorld, text: str) -> TilthError:
    before = (kafka(world), world.catalog.tables.list())
    with pytest.raises(TilthError) as caught:
        world.sql(text)
    assert (kafka(world), world.catalog.tables.list()) == before
    return caught.value


def wait_ids(world: IngestWorld, end: int) -> None:
    """All of 0 .. end are in the table, each once."""
    world.wait_rows(world.catalog.tables.get("default", "t"), end)  # type: ignore[arg-type]  # it is a table
    assert sorted(world.rows("t")["id"].to_pylist()) == list(range(end))


def test_a_new_field_flows_through_a_view_of_every_column(world: IngestWorld, orders: str) -> None:
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k")
    send(world, orders, 0, 200)
    wait_ids(world, 200)
    error = refused(world, "ALTER TABLE k ADD COLUMN grams INT")
    assert (error.code, error.facts["view"]) == ("TABLE_IN_USE", "default.v")
    assert "ALTER TABLE default.t ADD COLUMN grams" in error.hint
    # The refused ALTER has not disturbed anybody.
    send(world, orders, 200, 250)
    wait_ids(world, 250)
    world.sql("ALTER TABLE t ADD COLUMN grams BIGINT")
    message = world.sql("ALTER TABLE k ADD COLUMN IF NOT EXISTS grams INT COMMENT 'with its box' FIRST")
    assert message.startswith("columns changed: default.k")
    send(world, orders, 250, 500)
    wait_ids(world, 500)
    grams = {row["id"]: row["grams"] for row in world.rows("t").to_pylist()}
    assert grams == {n: n * 10 if n >= 250 else None for n in range(500)}
    assert [column.id for column in kafka(world).schema.columns] == [3, 1, 2]
    assert world.stats(kafka(world)).failures == 0
    world.verify(world.catalog.tables.get("default", "t"))  # type: ignore[arg-type]  # it is a table


def test_what_a_view_needs_stays(world: IngestWorld, orders: str) -> None:
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT id, upper(name) AS name FROM k")
    for text, why in (
        ("ALTER TABLE k DROP COLUMN name", "name"),
        ("ALTER TABLE k RENAME COLUMN name TO title", "name"),
        ("ALTER TABLE k MODIFY COLUMN id STRING", "wrong type of a column"),
    ):
        error = refused(world, text)
        assert (error.code, error.facts["view"]) == ("TABLE_IN_USE", "default.v")
        assert why in error.message
        assert "DROP VIEW" in error.hint
    for text, code in (
        ("ALTER TABLE k DROP COLUMN nothing", "UNKNOWN_COLUMN"),
        ("ALTER TABLE k ADD COLUMN id INT", "BAD_ALTER"),
        ("ALTER TABLE k ADD COLUMN c DOUBLE DEFAULT rand()", "BAD_DEFAULT"),
        ("ALTER TABLE k ADD COLUMN c INT DEFAULT 'x'", "BAD_VALUE"),
        ("ALTER TABLE k ADD COLUMN c INT, DROP COLUMN nothing", "UNKNOWN_COLUMN"),
        ("ALTER TABLE k MODIFY SETTING kafka_num_consumers = 0", "BAD_SETTING"),
    ):
        assert refused(world, text).code == code
    world.sql(
        "ALTER TABLE k ADD COLUMN grams INT DEFAULT 3 + 4 AFTER id, ADD COLUMN IF NOT EXISTS name INT, "
        "MODIFY COLUMN grams STRING DEFAULT 'none', RENAME COLUMN grams TO price, DROP COLUMN IF EXISTS grams, "
        "COMMENT COLUMN price 'as text'"
    )
    shown = [(column.id, column.name, column.default, column.comment) for column in kafka(world).schema.columns]
    assert shown == [(1, "id", None, ""), (3, "price", "'none'", "as text"), (2, "name", None, "")]
    audit = world.sql_rows("SELECT verb, outcome FROM system.audit_log WHERE table = 'default.k' ORDER BY time")
    assert (audit[0]["verb"], audit[0]["outcome"][:12]) == ("ALTER .. DROP COLUMN", "TABLE_IN_USE")
    done = "ALTER .. ADD COLUMN, MODIFY COLUMN, RENAME COLUMN, DROP COLUMN"
    assert (audit[-1]["verb"], audit[-1]["outcome"]) == (done, "done")


def test_nothing_is_lost_or_read_twice_while_columns_change_and_a_renamed_one_reads_another_field(
    world: IngestWorld, orders: str
) -> None:
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT id, 'x' AS name FROM k")
    send(world, orders, 0, 600)
    world.sql("ALTER TABLE k ADD COLUMN grams INT, MODIFY COLUMN name INT NULL, ADD COLUMN a INT NOT NULL DEFAULT 1")
    send(world, orders, 600, 900)
    world.sql("ALTER TABLE k DROP COLUMN name, RENAME COLUMN a TO b, MODIFY COLUMN grams BIGINT")
    send(world, orders, 900, 1_000)
    world.wait(lambda: sum(world.catalog.offsets.of(kafka(world).uuid).values()) == 1_000, "all is read")
    # While `name` was a number, messages with a text in it were broken: they are dead letters, none is lost.
    target = world.catalog.tables.get("default", "t")
    dead = world.rows("k_dead_letters")
    stored = world.rows("t")["id"].to_pylist()
    assert sorted(stored + [json.loads(raw)["id"] for raw in dead["raw"].to_pylist()]) == list(range(1_000))
    assert set(range(900, 1_000)) <= set(stored)
    world.verify(target)  # type: ignore[arg-type]  # it is a table
    # Ids of columns are not used again.
    world.sql("ALTER TABLE k ADD COLUMN name STRING")
    assert [(column.id, column.name) for column in kafka(world).schema.columns] == [
        (1, "id"),
        (3, "grams"),
        (4, "b"),
        (5, "name"),
    ]


def test_the_statement_of_a_default_that_is_no_constant_is_refused_at_once(world: IngestWorld) -> None:
    with pytest.raises(TilthError) as caught:
        world.sql(
            "CREATE TABLE k (id BIGINT, c STRING DEFAULT uuid()) ENGINE = Kafka SETTINGS "
            "kafka_broker_list = 'h:1', kafka_topic_list = 'x', kafka_format = 'JSONEachRow'"
        )
    assert caught.value.code == "BAD_DEFAULT"
    assert world.catalog.tables.find("default", "k") is None
    assert world.catalog.tables.find("default", "k_dead_letters") is None
