"""Concurrent small commits: a change that was computed from a record is applied only while that record is unchanged.

`Racing` lets somebody else commit between the view and the write.
"""

from __future__ import annotations

import msgspec

from tests.catalog_world import Racing, World
from tilth.catalog import SetOffsets, Subscribe
from tilth.model.copy_note import CopyNote
from tilth.model.offset import StoredOffset, Subscription, TopicPartition
from tilth.model.part import DataFile
from tilth.model.warehouse import Warehouse

P0 = TopicPartition("x", 0)


def test_what_is_kept_of_a_dropped_kafka_table_takes_no_subscription_that_another_one_has_taken_over() -> None:
    kv = Racing()
    world = World(kv)
    former, heir = world.kafka("k1"), world.kafka("k2")
    subscription = Subscription(
        cluster="c", topic_id="id", group="g", topic="x", kafka_table=former, name="k1", brokers="b", since_ms=1
    )
    first = SetOffsets(kafka_table=former, offsets={P0: StoredOffset(5, "id", 3)}, before={})
    world.commit(Subscribe(subscription=subscription, before=None), first)
    world.catalog.tables.drop(former)
    # Without rows, the subscription is released with the table.
    [free] = world.catalog.offsets.subscriptions()
    assert (free.released is not None, free.targets) == (True, ())
    late = world.reopened()

    def taken_over() -> None:
        new = msgspec.structs.replace(subscription, kafka_table=heir, name="k2")
        with late.transactions.open("heir") as handle:
            handle.commit([Subscribe(subscription=new, before=free)])

    # The first commit marks the table as removed, the second one keeps its ledger.
    def then() -> None:
        kv.before = taken_over

    kv.before = then
    world.catalog.tables.forget(former)
    [kept] = world.catalog.offsets.subscriptions()
    assert (kept.kafka_table, kept.released) == (heir, None)


def test_two_who_alter_a_warehouse_lose_nothing() -> None:
    kv = Racing()
    world = World(kv)
    late = world.reopened()

    def setting(name: str) -> None:
        def step(known: Warehouse | None) -> Warehouse:
            found = known or Warehouse(name="w", created_ms=1)
            return msgspec.structs.replace(found, settings={**found.settings, name: "1"})

        (late if name == "a" else world.catalog).warehouses.change("w", step)

    kv.before = lambda: setting("a")
    setting("b")
    found = world.catalog.warehouses.find("w")
    assert found is not None
    assert found.settings == {"a": "1", "b": "1"}


def test_a_copy_that_failed_brings_back_no_note_whose_copy_is_there() -> None:
    kv = Racing()
    world = World(kv)
    late = world.reopened()
    note = CopyNote(table=world.t, replica=1, file=DataFile(name="f", size=1, checksum=1), since_ms=1, reason="away")
    world.catalog.copies.note([note])
    kv.before = lambda: late.copies.settle([note], storage="s", replica_ids=())
    world.catalog.copies.fail([(note, "the replica is full")])
    assert world.catalog.copies.of(world.t) == []
    # A note that was written anew meanwhile keeps its own count of failures.
    world.catalog.copies.note([msgspec.structs.replace(note, since_ms=2)])
    world.catalog.copies.fail([(note, "the replica is full")])
    assert [each.failures for each in world.catalog.copies.of(world.t)] == [0]
