"""Rounds into tables with a unique key: over a real broker, Spark and catalog."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event
from tilth.catalog import InsertPart
from tilth.ingest.consumer.calls import SnapshotTables, TableSnapshots
from tilth.model.table import KafkaDef, TableDef, Transform, TransformKind
from tilth.model.txn import TxnOutput
from tilth.model.types import Kind
from tilth.storage import layout_of, write_segments
from tools.broker import Broker

VERSIONED = {"id": Kind.INT64, "name": Kind.STRING, "ver": Kind.INT64}


def told(world: IngestWorld, table: TableDef) -> list[tuple[Any, ...]]:
    """The rows, in order."""
    return sorted((tuple(row.values()) for row in world.rows(table).to_pylist()), key=str)


def message(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_a_key_has_the_row_that_came_last(world: IngestWorld, broker: Broker) -> None:
    topic = "upserts-plain"
    broker.create_topic(topic, 2)
    kafka = world.kafka("k", topic)
    table = world.table("t", EVENTS, unique_key=("id",))
    world.view("v", kafka, table, "SELECT * FROM default.k")
    world.send(topic, [event(i % 50, price=float(i)) for i in range(400)], partitions=2)
    world.wait(lambda: _consumed(world, kafka) == 400, "all messages")
    world.send(topic, [event(7, name="again", price=1.5)])
    world.wait(lambda: _consumed(world, kafka) == 401, "the last message")
    rows = {row[0]: row[1:] for row in told(world, table)}
    assert len(rows) == world.count(table) == 50
    assert rows[7] == ("again", 1.5)
    assert rows[8] == ("n1", 358.0)
    world.verify(table)


def test_versions_deletes_and_messages_without_a_key(world: IngestWorld, broker: Broker) -> None:
    topic = "upserts-versions"
    broker.create_topic(topic, 1)
    columns = VERSIONED | {"gone": Kind.STRING}
    kafka = world.kafka("k", topic, columns)
    table = world.table("t", VERSIONED, unique_key=("id",), version_column="ver")
    world.view("v", kafka, table, "SELECT id, name, ver, gone AS _op FROM default.k")
    first = [message(id=1, name="a", ver=5), message(id=2, name="b", ver=5), message(id=3, name="c", ver=5)]
    world.send(topic, [*first, message(name="no key"), message(id=4, name="d", gone="perhaps")])
    world.wait(lambda: _consumed(world, kafka) == 5, "the first messages")
    assert [row[0] for row in told(world, table)] == [1, 2, 3]
    late = [message(id=1, name="late", ver=4), message(id=2, name="newer", ver=6), message(id=3, gone="delete", ver=9)]
    world.send(topic, [*late, message(id=9, gone="d")])
    world.wait(lambda: _consumed(world, kafka) == 9, "the later ones")
    assert told(world, table) == [(1, "a", 5), (2, "newer", 6)]
    letters = world.rows("k_dead_letters").to_pylist()
    assert [letter["offset"] for letter in letters] == [3, 4]
    assert "`id`: None, but it is in the unique key" in letters[0]["reason"]
    assert "perhaps" in letters[1]["reason"]
    world.verify(table)


def test_debezium_events_by_all_columns_and_by_a_query(world: IngestWorld, broker: Broker) -> None:
    topic = "upserts-debezium"
    broker.create_topic(topic, 1)
    kafka = world.kafka("k", topic, {"id": Kind.INT64, "name": Kind.STRING}, kafka_envelope="debezium")
    copy = world.table("copy", {"id": Kind.INT64, "name": Kind.STRING}, unique_key=("id",))
    shout = world.table("shout", {"id": Kind.INT64, "name": Kind.STRING, "at": Kind.INT64}, unique_key=("id",))
    log = world.table("log", {"id": Kind.INT64, "op": Kind.STRING})
    world.view("v1", kafka, copy, "SELECT * FROM default.k")
    world.view("v2", kafka, shout, "SELECT id, upper(name) AS name, _ts_ms AS at, _op FROM default.k")
    world.view("v3", kafka, log, "SELECT id, _op AS op FROM default.k")
    made = [{"before": None, "after": {"id": i, "name": f"n{i}"}, "op": "r", "ts_ms": 100 + i} for i in range(4)]
    changed = {"before": {"id": 1, "name": "n1"}, "after": {"id": 1, "name": "new"}, "op": "u", "ts_ms": 200}
    gone = {"schema": {}, "payload": {"before": {"id": 2}, "after": None, "op": "d", "ts_ms": 300}}
    world.send(topic, [*(json.dumps(each).encode() for each in (*made, changed, gone)), None, b'{"op": "t"}'])
    world.wait(lambda: _consumed(world, kafka) == 8, "all messages")
    assert told(world, copy) == [(0, "n0"), (1, "new"), (3, "n3")]
    assert told(world, shout) == [(0, "N0", 100), (1, "NEW", 200), (3, "N3", 103)]
    assert [op for _, op in sorted(told(world, log), key=str)].count("d") == 1
    assert world.count(log) == 6
    [letter] = world.rows("k_dead_letters").to_pylist()
    assert "`op` is t" in letter["reason"]
    world.verify(copy, shout, log)


def test_keys_of_the_whole_table_and_rows_that_give_some_values(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("upserts-global", 1)
    broker.create_topic("upserts-partial", 1)
    columns = {"id": Kind.INT64, "part": Kind.INT64, "name": Kind.STRING}
    by_part = (Transform(kind=TransformKind.IDENTITY, column="part"),)
    kafka, kafka_partial = world.kafka("k", "upserts-global", columns), world.kafka("kp", "upserts-partial")
    table = world.table(
        "t", columns, unique_key=("id",), partition_by=by_part, settings={"partition_level_unique_keys": "0"}
    )
    partial = world.table("tp", EVENTS, unique_key=("id",), settings={"enable_unique_partial_update": "1"})
    world.view("v", kafka, table, "SELECT * FROM default.k")
    world.view("vp", kafka_partial, partial, "SELECT * FROM default.kp")
    world.send("upserts-global", [message(id=1, part=p, name=f"p{p}") for p in (1, 2, 1)])
    world.send("upserts-partial", [event(1), message(id=1, name="named"), message(id=2, price=2.0)])
    world.wait(lambda: _consumed(world, kafka) == 3 and _consumed(world, kafka_partial) == 3, "the first messages")
    assert told(world, table) == [(1, 1, "p1")]
    assert told(world, partial) == [(1, "named", 0.5), (2, None, 2.0)]
    world.send("upserts-global", [message(id=1, part=3, name="moved")])
    world.send("upserts-partial", [message(id=1, price=9.0), message(id=2, name="two")])
    world.wait(lambda: _consumed(world, kafka) == 4 and _consumed(world, kafka_partial) == 5, "the later ones")
    assert told(world, table) == [(1, 3, "moved")]
    assert told(world, partial) == [(1, "named", 9.0), (2, "two", 2.0)]
    world.verify(table, partial)


def test_what_others_commit_between_is_looked_up_again(
    world: IngestWorld, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "upserts-conflict"
    broker.create_topic(topic, 1)
    kafka = world.kafka("k", topic)
    table = world.table("t", EVENTS, unique_key=("id",))
    requests: list[SnapshotTables] = []
    snapshot_tables = world.manager.snapshot_tables

    def snapshot_and_insert(call: SnapshotTables) -> TableSnapshots:
        """Between the first snapshot of a round and its commit the same keys come in another way."""
        now = snapshot_tables(call)
        requests.append(call)
        if len(requests) == 1:
            txn = world.catalog.transactions.open("other", outputs=[TxnOutput(table=table.uuid, tasks=1)])
            rows = pa.table({"id": [1, 2], "name": ["other", "other"], "price": [0.0, 0.0]})
            [written] = write_segments(layout_of(table, world.root), rows, txn=txn.id, task=0, attempt=0)
            txn.commit([InsertPart(table=table.uuid, written=written)], [])
        return now

    monkeypatch.setattr(world.manager, "snapshot_tables", snapshot_and_insert)
    world.view("v", kafka, table, "SELECT * FROM default.k")
    world.send(topic, [event(1), event(3), event(1, name="twice")])
    world.wait(lambda: _consumed(world, kafka) == 3, "the messages")
    assert len(requests) >= 2
    assert told(world, table) == [(1, "twice", 0.5), (2, "other", 0.0), (3, "n3", 1.5)]
    assert world.stats(kafka).failures == 0
    # The change segment of the refused try goes behind the commit; what stays belongs to what is visible.
    snapshot = world.catalog.parts.snapshot(table.uuid)
    named = {part.file.name for part in snapshot.parts} | {delta.file.name for delta in snapshot.deltas}
    folder = world.folder / "tables" / table.uuid / "data"
    world.wait(lambda: {path.name for path in folder.iterdir()} == named, "files of the refused try are left")
    world.verify(table)


def test_a_restart_takes_no_row_twice(world: IngestWorld, broker: Broker) -> None:
    topic = "upserts-restart"
    broker.create_topic(topic, 1)
    kafka = world.kafka("k", topic)
    table = world.table("t", EVENTS, unique_key=("id",))
    world.view("v", kafka, table, "SELECT * FROM default.k")
    for wave in range(3):
        world.send(topic, [event(i, price=float(wave)) for i in range(30)])
        world.manager.restart(kafka.uuid)
    world.wait(lambda: _consumed(world, kafka) == 90, "all messages")
    assert told(world, table) == sorted(((i, f"n{i % 7}", 2.0) for i in range(30)), key=str)
    world.verify(table)


def _consumed(world: IngestWorld, kafka: KafkaDef) -> int:
    return sum(world.catalog.offsets.of(kafka.uuid).values())
