"""Formats, error modes, virtual columns, Kafka transactions: what a message may be."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event, events
from tilth.model.service import ServiceStats
from tilth.model.types import Kind
from tools.broker import Broker


def test_csv(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("forms-csv")
    kafka = world.kafka("k", "forms-csv", kafka_format="CSV")
    target = world.table("t", EVENTS, "id")
    world.send("forms-csv", [b'1,"a, b",1.5', b"2,b\n3,c,2.5", b"4,d,\\N\n5,,0", b"6,f,x"])
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 3)
    world.wait_rows(world.catalog.tables.get("default", "k_dead_letters"), 2)  # type: ignore[arg-type]  # a TableDef
    assert world.rows(target).to_pylist() == [
        {"id": 1, "name": "a, b", "price": 1.5},
        {"id": 4, "name": "d", "price": None},
        {"id": 5, "name": "", "price": 0.0},
    ]
    reasons = sorted(world.rows("k_dead_letters")["reason"].to_pylist())
    assert reasons == [
        "a row has another number of values than the first one, row 2, values 3, first 2",
        "column `price`: expected a number, given 'x'",
    ]
    world.verify(target)


def test_raw_and_virtual_columns(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("forms-raw", 2)
    kafka = world.kafka("k", "forms-raw", {"line": Kind.BINARY}, kafka_format="RawBLOB")
    columns = {"line": Kind.BINARY, "place": Kind.STRING, "at": Kind.INT64, "sent": Kind.TIMESTAMP, "key": Kind.STRING}
    target = world.table("t", columns, "at")
    world.send("forms-raw", [b"\x00\xff", b"two\nlines", b"three"], partitions=2)
    place = "concat(_topic, '/', _partition) AS place"
    select = f"SELECT line, {place}, _offset AS at, _timestamp_ms AS sent, _key AS key FROM k"
    world.view("v", kafka, target, select)
    world.wait_rows(target, 3)
    rows = {(row["place"], row["at"]): row for row in world.rows(target).to_pylist()}
    assert {where: row["line"] for where, row in rows.items()} == {
        ("forms-raw/0", 0): b"\x00\xff",
        ("forms-raw/0", 1): b"three",
        ("forms-raw/1", 0): b"two\nlines",
    }
    assert [rows[where]["key"] for where in sorted(rows)] == ["k0", "k2", "k1"]
    assert all(abs(row["sent"].timestamp() - world.clock.now_ms() / 1000) < 600 for row in rows.values())


def test_stream_mode_makes_rows_of_broken_messages(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("forms-stream")
    kafka = world.kafka("k", "forms-stream", kafka_handle_error_mode="stream")
    target = world.table("t", {"id": Kind.INT64, "error": Kind.STRING, "raw": Kind.STRING})
    world.send("forms-stream", [event(1), b"{broken", event(2)])
    world.view("v", kafka, target, "SELECT id, _error AS error, _raw_message AS raw FROM k")
    world.wait_rows(target, 3)
    rows = world.rows(target).to_pylist()
    assert [row["id"] for row in rows] == [1, None, 2]
    assert [row["raw"] for row in rows] == [None, "{broken", None]
    assert rows[1]["error"].startswith("not JSON, row 1: Expecting property name")
    # The table is there for what views cannot take; this message is a row.
    assert world.rows("k_dead_letters").num_rows == 0


def test_throw_mode_stops_and_names_the_message(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("forms-throw")
    kafka = world.kafka("k", "forms-throw", kafka_handle_error_mode="throw")
    target = world.table("t")
    world.send("forms-throw", [event(1), b"{broken", event(2)])
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: "forms-throw/0@1" in world.stats(kafka).last_exception, "the message is named")
    assert world.count(target) == 0
    world.catalog.tables.modify_settings(kafka.uuid, {"kafka_skip_broken_messages": "1"})
    world.manager.wake(kafka.uuid)
    world.wait_rows(target, 2)
    world.verify(target)


def test_open_and_aborted_transactions_are_not_read(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("forms-txn")
    kafka = world.kafka("k", "forms-txn")
    target = world.table("t", EVENTS, "id")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "forms"})
    producer.init_transactions(30)
    for first, is_kept in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for value in events(first, first + 10):
            producer.produce("forms-txn", value)
        producer.flush(30)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
    producer.begin_transaction()
    for value in events(40, 50):
        producer.produce("forms-txn", value)
    producer.flush(30)
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 20)
    assert world.ids(target) == [*range(10), *range(20, 30)]
    # Everything before the open transaction was passed, markers included.
    world.wait(lambda: max(world.catalog.offsets.of(kafka.uuid).values()) == 44, "past the markers")
    producer.commit_transaction(30)
    world.wait_rows(target, 30)
    world.verify(target)


@pytest.mark.parametrize(
    ("select", "told"),
    [
        ("SELECT id, nope FROM k", "nope"),
        ("SELECT id AS other FROM k", "column=other"),
        ("SELECT name AS id FROM k", "CAST(id AS bigint)"),
        ("SELECT * FROM elsewhere", "reads from its Kafka table default.k"),
    ],
)
def test_a_view_that_does_not_fit_is_named(world: IngestWorld, broker: Broker, select: str, told: str) -> None:
    topic = f"forms-view-{abs(hash(select)) % 10_000}"
    broker.create_topic(topic)
    kafka = world.kafka("k", topic)
    target = world.table("t")
    world.view("v", kafka, target, select)

    def is_told(stats: ServiceStats) -> bool:
        return told in stats.last_exception and "default.v" in stats.last_exception

    world.wait(lambda: is_told(world.stats(kafka)), "the reason")
