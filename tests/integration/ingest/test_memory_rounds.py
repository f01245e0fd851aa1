"""Rounds into tables with a memory buffer: over a real broker, Spark and catalog."""

from __future__ import annotations

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, events
from tools.broker import Broker


def test_rounds_write_segments_and_nothing_is_lost(world: IngestWorld, broker: Broker) -> None:
    topic = "memory-rounds"
    broker.create_topic(topic, 2)
    kafka = world.kafka("k", topic)
    buffered = world.table("buffered", EVENTS, "id", settings={"memory_buffer": "1"})
    sorted_at_once = world.table("sorted", EVENTS, "id")
    world.view("v1", kafka, buffered, "SELECT * FROM default.k")
    world.view("v2", kafka, sorted_at_once, "SELECT id, upper(name) AS name, price FROM default.k")
    for start in range(0, 600, 200):
        world.send(topic, [*events(start, start + 199), b"{"], partitions=2)
        world.wait_rows(buffered, (start // 200 + 1) * 199)
    segments = world.catalog.parts.snapshot(buffered.uuid).parts
    assert all(part.is_segment and part.file.name.endswith(".arrow") for part in segments)
    assert not any(part.is_segment for part in world.catalog.parts.snapshot(sorted_at_once.uuid).parts)
    expected = [number for start in range(0, 600, 200) for number in range(start, start + 199)]
    assert world.ids(buffered) == world.ids(sorted_at_once) == expected
    assert world.rows("k_dead_letters").num_rows == 3
    # Within a segment rows stand as they came, not by the sort key.
    world.send(topic, [*events(2000, 2001), *events(1000, 1001)])
    world.wait_rows(buffered, 599)
    assert [id_ for id_ in world.rows(buffered)["id"].to_pylist() if id_ >= 1000] == [2000, 1000]
    world.verify(buffered, sorted_at_once)
