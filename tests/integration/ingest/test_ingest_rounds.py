"""Rounds over a real broker, Spark and RocksDB: what was sent is in the tables exactly once."""

from __future__ import annotations

from collections import Counter

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event, events
from tilth.model.types import Kind
from tools.broker import Broker


def test_two_topics_two_views_three_consumers(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("rounds-a", 4)
    broker.create_topic("rounds-b", 2)
    kafka = world.kafka("k", "rounds-a,rounds-b", kafka_num_consumers="3", kafka_max_block_size="3000")
    target = world.table("t", EVENTS, "name", "id")
    summary = world.table("s", {"name": Kind.STRING, "total": Kind.INT64})
    broken = {5: b"no json", 700: b'{"id": "x"}', 701: b'{"id": 1', 1999: b"\xff"}
    values: list[bytes | None] = [broken.get(i) or event(i) for i in range(8000)]
    world.send("rounds-a", values, partitions=4)
    world.view("v", kafka, target, "SELECT id, name, price FROM default.k")
    world.view("w", kafka, summary, "SELECT name, count(*) AS total FROM k WHERE id >= 0 GROUP BY name")
    world.send("rounds-b", events(8000, 12_000), partitions=2)
    expected = [i for i in range(12_000) if i not in broken]
    world.wait_rows(target, len(expected))
    assert world.ids(target) == expected
    totals: Counter[str] = Counter()
    for row in world.rows(summary).to_pylist():
        totals[row["name"]] += row["total"]
    assert totals == Counter(f"n{i % 7}" for i in expected)
    dead = world.rows("k_dead_letters").to_pylist()
    assert sorted((row["partition"], row["offset"], row["raw"]) for row in dead) == sorted(
        (i % 4, i // 4, raw) for i, raw in broken.items()
    )
    assert any("column `id`" in row["reason"] for row in dead)
    world.verify(target, summary)
    consumers = world.manager.kafka_tables()
    assert len(consumers) == 3
    assert sum(each.dead for each in consumers) == len(broken)
    world.wait(lambda: sum(each.lag or 0 for each in world.manager.kafka_tables()) == 0, "no lag")


def test_what_a_full_round_left_does_not_wait(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("rounds-behind")
    kafka = world.kafka("k", "rounds-behind", kafka_max_block_size="500", stream_flush_interval_ms="1 hour")
    target = world.table("t", EVENTS, "id")
    world.send("rounds-behind", events(0, 1800))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 1800)

    def rounds() -> list[int]:
        return [each.messages for each in world.manager.log() if each.kind.name == "COMMIT"]

    # The event of a round comes a moment after its rows.
    world.wait(lambda: len(rounds()) == 4, "rounds")
    assert rounds() == [500, 500, 500, 300]
    # Messages that arrive now wait for the flush interval.
    world.send("rounds-behind", events(1800, 1810))
    world.wait(lambda: sum(each.lag or 0 for each in world.manager.kafka_tables()) == 10, "seen")
    assert world.count(target) == 1800
    world.verify(target)
