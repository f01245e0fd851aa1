"""Subscriptions: one Kafka table reads a topic for a group, and the group's offsets are stored once at a time.

Modules: catalog/offsets/offsets.py, catalog/rules/fold.py.
"""

from __future__ import annotations

import pytest

from tests.catalog_world import Racing, World
from tilth.base.errors import InvalidInputError
from tilth.catalog import (
    AddLedger,
    AdvanceOffsets,
    OffsetsMovedError,
    Release,
    SetOffsets,
    Subscribe,
    SubscriptionMovedError,
    TableNotFoundError,
    Unsubscribe,
    Update,
)
from tilth.model.offset import LedgerEntry, OffsetRange, StoredOffset, Subscription, TopicPartition

P0, P1, OTHER = TopicPartition("x", 0), TopicPartition("x", 1), TopicPartition("y", 0)


@pytest.fixture
def world() -> World:
    return World()


def wanted(kafka: str, group: str = "g", topic_id: str = "id") -> Subscription:
    return Subscription(
        cluster="c", topic_id=topic_id, group=group, topic="x", kafka_table=kafka, name="k", brokers="b", since_ms=1
    )


def stored(world: World, group: str = "g") -> Subscription | None:
    return world.catalog.offsets.subscription("c", "id", group)


def at(**offsets: int) -> dict[TopicPartition, StoredOffset]:
    return {TopicPartition("x", int(name[1:])): StoredOffset(offset, "id", 3) for name, offset in offsets.items()}


def test_what_is_no_offset_is_not_stored(world: World) -> None:
    kafka = world.kafka()
    for wrong in (-1, -1001):
        with pytest.raises(InvalidInputError):
            world.commit(SetOffsets(kafka_table=kafka, offsets={P0: StoredOffset(wrong, "")}, before={}))
    world.commit(SetOffsets(kafka_table=kafka, offsets=at(p0=5), before={}))
    with pytest.raises(OffsetsMovedError):
        world.commit(SetOffsets(kafka_table=kafka, offsets=at(p0=9), before=at(p0=4)))
    world.commit(SetOffsets(kafka_table=kafka, offsets=at(p0=9), before=at(p0=5)))
    assert world.catalog.offsets.stored(kafka) == at(p0=9)


def test_a_round_keeps_the_topic_and_brings_the_epoch(world: World) -> None:
    kafka = world.kafka()
    world.commit(SetOffsets(kafka_table=kafka, offsets=at(p0=5), before={}))
    moved = OffsetRange(topic="x", partition=0, start=5, end=9, topic_id="id", epoch=3, end_epoch=8)
    world.commit(AdvanceOffsets(kafka_table=kafka, ranges=(moved,)))
    assert world.catalog.offsets.stored(kafka)[P0] == StoredOffset(9, "id", 8)


def test_a_released_subscription_is_taken_with_its_offsets(world: World) -> None:
    first, second = world.kafka("k1"), world.kafka("k2")
    offsets = at(p0=5, p1=6) | {OTHER: StoredOffset(7, "other"), TopicPartition("x", 2): StoredOffset(1, "older")}
    world.commit(
        Subscribe(subscription=wanted(first), before=None), SetOffsets(kafka_table=first, offsets=offsets, before={})
    )
    held = stored(world)
    assert held is not None
    assert held.released is None
    with pytest.raises(SubscriptionMovedError):
        world.commit(Subscribe(subscription=wanted(second), before=held))
    with pytest.raises(SubscriptionMovedError):
        world.commit(Subscribe(subscription=wanted(second), before=None))
    world.commit(Release(subscription=held, targets=frozenset({"t"})))
    free = stored(world)
    assert free is not None
    # The offsets are those of its topic only, without the topic that had its name before.
    assert free.released == ((0, StoredOffset(5, "id", 3)), (1, StoredOffset(6, "id", 3)))
    assert free.targets == ("t",)
    mine = {P0: StoredOffset(90, "id"), TopicPartition("x", 3): StoredOffset(91, "id"), OTHER: StoredOffset(2, "other")}
    world.commit(SetOffsets(kafka_table=second, offsets=mine, before={}))
    with pytest.raises(OffsetsMovedError):
        world.commit(Subscribe(subscription=wanted(second), before=free, offsets=mine | {P0: StoredOffset(89, "id")}))
    world.commit(Subscribe(subscription=wanted(second), before=free, offsets=mine))
    assert world.catalog.offsets.stored(second) == at(p0=5, p1=6) | {OTHER: StoredOffset(2, "other")}
    taken = stored(world)
    assert taken is not None
    assert (taken.kafka_table, taken.released) == (second, None)
    world.commit(Unsubscribe(subscription=taken))
    assert stored(world) is None
    assert world.catalog.offsets.stored(second)[P0] == StoredOffset(5, "id", 3)


def test_a_drop_keeps_the_offsets_of_a_round_that_was_committed_just_before() -> None:
    kv = Racing()
    world = World(kv)
    kafka = world.kafka()
    world.commit(
        Subscribe(subscription=wanted(kafka), before=None), SetOffsets(kafka_table=kafka, offsets=at(p0=5), before={})
    )
    late = world.reopened()
    moved = OffsetRange(topic="x", partition=0, start=5, end=9, topic_id="id", epoch=3, end_epoch=4)
    entry = LedgerEntry(txn=0, kafka_table=kafka, consumer=0, ranges=(), stored={world.t: 3})

    def a_round() -> None:
        txn = late.transactions.open("round")
        updates: list[Update] = [AdvanceOffsets(kafka_table=kafka, ranges=(moved,)), AddLedger(entry=entry)]
        txn.commit(updates)

    kv.before = a_round
    world.catalog.tables.drop(kafka)
    free = stored(world)
    assert free is not None
    assert free.released == ((0, StoredOffset(9, "id", 4)),)
    assert free.targets == (world.t,)
    # From then on nobody moves them.
    with pytest.raises(TableNotFoundError):
        world.commit(AdvanceOffsets(kafka_table=kafka, ranges=(OffsetRange(topic="x", partition=0, start=9, end=10),)))
