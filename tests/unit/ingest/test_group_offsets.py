"""Offsets belong to the group on the topic: who goes on where, who waits for whom, and what is kept for how long."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tests.unit.ingest.offsets_world import A0, A1, FakeBroker, Reader
from tilth.catalog import SubscriptionMovedError
from tilth.catalog.records.keys import Space, pack
from tilth.ingest.errors import GroupInUseError
from tilth.ingest.offsets.reset import OffsetMark, ToMark
from tilth.ingest.policy.groups import addresses, check_group, pinned_group, reads_elsewhere
from tilth.model.offset import StoredOffset
from tilth.model.table import KafkaDef
from tilth.verify.ledgers import follow_ledger
from tilth.verify.twice import read_twice


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker()
    made.make("a", 100, 100, topic_id="x")
    return made


def groups(world: World) -> dict[tuple[str, str], bool]:
    """By topic id and group whether a Kafka table reads for it."""
    return {(each.topic_id, each.group): each.released is None for each in world.catalog.offsets.subscriptions()}


def test_a_table_made_anew_goes_on_where_its_group_stood(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker)
    first.look()
    first.read(A0, 50)
    first.drop()
    second = Reader(world, broker, kafka_auto_offset_reset="latest")
    assert second.look() == {0: 50, 1: 0}
    assert second.notes == ["goes on where group tilth.default.k stood: a/0 at 50, a/1 at 0; default.k read it last"]
    assert world.catalog.offsets.stored(second.uuid)[A0] == StoredOffset(50, "x", 0)
    second.read(A0, 70)
    ledgers = {uuid: list(world.catalog.offsets.ledger(uuid)) for uuid in world.catalog.offsets.ledgers()}
    assert len(ledgers) == 2
    assert read_twice(ledgers, world.t) == []
    # Said once.
    second.look()
    assert len(second.notes) == 1
    # Partitions that are added later are read from their first message.
    broker.make("a", 100, 100, 9, topic_id="x")
    assert second.look() == {0: 70, 1: 0, 2: 0}


def test_a_group_that_nobody_has_read_for_begins_as_the_setting_says(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker)
    first.look()
    first.read(A0, 50)
    first.drop()
    assert Reader(world, broker, kafka_group_name="other").look() == {0: 0, 1: 0}


def test_a_second_live_table_waits_and_is_told_for_whom(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker, "k1", kafka_group_name="g")
    first.look()
    first.read(A0, 50)
    second = Reader(world, broker, "k2", kafka_group_name="g", kafka_broker_list="another:1")
    with pytest.raises(GroupInUseError) as caught:
        second.look()
    assert caught.value.facts["read_by"] == "default.k1"
    assert second.stored() == {}
    with pytest.raises(GroupInUseError):
        second.move(ToMark(OffsetMark.BEGIN))
    world.catalog.tables.rename(first.uuid, "default", "renamed")
    with pytest.raises(GroupInUseError, match=r"default\.renamed"):
        second.look()
    first.drop()
    assert second.look() == {0: 50, 1: 0}


def test_two_that_subscribe_at_once(world: World, broker: FakeBroker) -> None:
    first, second = Reader(world, broker, "k1", kafka_group_name="g"), Reader(world, broker, "k2", kafka_group_name="g")
    seen = world.catalog.offsets.subscription

    def too_early(cluster: str, topic_id: str, group: str) -> object:
        """The other one subscribes between the look and the commit."""
        found = seen(cluster, topic_id, group)
        if found is None and group == "g" and not first.stored():
            world.catalog.offsets.subscription = seen  # type: ignore[method-assign]
            first.look()
        return found

    world.catalog.offsets.subscription = too_early  # type: ignore[method-assign, assignment]
    with pytest.raises(SubscriptionMovedError):
        second.look()
    assert second.stored() == {}
    with pytest.raises(GroupInUseError):
        second.look()


def test_undrop_goes_on_where_the_group_stands(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker)
    first.look()
    first.read(A0, 50)
    first.drop()
    first.undrop()
    assert first.look() == {0: 50, 1: 0}
    first.drop()
    second = Reader(world, broker, "k2", kafka_group_name="tilth.default.k")
    second.look()
    second.read(A0, 80)
    first.undrop()
    # The group has moved on: two would read the same messages.
    with pytest.raises(GroupInUseError, match=r"default\.k2"):
        first.look()
    second.drop()
    assert first.look() == {0: 80, 1: 0}
    entries = sorted(world.catalog.offsets.ledger(first.uuid), key=lambda each: each.commit_ts)
    assert follow_ledger(entries) == ({A0: 80}, [])


def test_a_drop_fences_consumers_that_are_on_their_way(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    lease = world.catalog.leases.take(f"consumer/{reader.uuid}/0", "s1")
    reader.drop()
    reader.undrop()
    now = world.catalog.leases.get(lease.name)
    assert now is not None
    assert now.epoch > lease.epoch


def test_a_change_of_group_keeps_the_place_unless_the_group_stands_elsewhere(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker, kafka_group_name="g1")
    reader.look()
    reader.read(A0, 50)
    reader.alter(kafka_group_name="g2")
    assert reader.look() == {0: 50, 1: 0}
    assert groups(world) == {("x", "g1"): False, ("x", "g2"): True}
    reader.read(A0, 60)
    reader.alter(kafka_group_name="g1")
    assert reader.look() == {0: 50, 1: 0}
    assert reader.notes == ["goes on where group g1 stood: a/0 at 50, a/1 at 0; default.k read it last"]
    entries = sorted(world.catalog.offsets.ledger(reader.uuid), key=lambda each: each.commit_ts)
    assert follow_ledger(entries) == ({A0: 50}, [])
    # Another table may have the group that was given up.
    assert Reader(world, broker, "k2", kafka_group_name="g2").look() == {0: 60, 1: 0}


def test_a_topic_made_anew_has_none_of_the_groups_offsets(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker)
    first.look()
    first.read(A0, 50)
    first.drop()
    broker.make("a", 100, 100, topic_id="y")
    second = Reader(world, broker)
    assert (second.look(), second.notes, second.gaps()) == ({0: 0, 1: 0}, [], {})


def test_a_gap_that_waits_for_a_decision_survives_drop_and_undrop(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    broker.make("a", 100, 100, topic_id="y")
    reader.look()
    assert groups(world) == {("y", "tilth.default.k"): True}
    reader.drop()
    reader.undrop()
    assert reader.look()[0] == 50
    assert list(reader.gaps()) == [0]


def test_offsets_stay_as_long_as_a_table_is_there_that_they_brought_rows_to(world: World, broker: FakeBroker) -> None:
    first = Reader(world, broker)
    first.look()
    first.read(A0, 50)
    first.drop()
    world.catalog.tables.forget(first.uuid)
    former = world.catalog.offsets.former()
    assert (former[first.uuid].database, former[first.uuid].name) == ("default", "k")
    assert [len(entry.ranges) for entry in world.catalog.offsets.ledger(first.uuid)] == [1]
    assert world.catalog.offsets.of(first.uuid) == {}
    # One that reads nothing itself passes on where the group stands.
    second = Reader(world, broker)
    assert second.look() == {0: 50, 1: 0}
    second.drop()
    # It may come back.
    world.catalog.tables.drop(world.t)
    world.catalog.tables.forget(second.uuid)
    assert (world.catalog.offsets.ledgers(), list(world.catalog.offsets.former())) == ([first.uuid], [first.uuid])
    third = Reader(world, broker)
    assert third.look() == {0: 50, 1: 0}
    third.drop()
    world.catalog.tables.forget(world.t)
    assert (world.catalog.offsets.ledgers(), world.catalog.offsets.former()) == ([], {})
    world.catalog.tables.forget(third.uuid)
    assert groups(world) == {}
    assert Reader(world, broker).look() == {0: 0, 1: 0}


def test_forgetting_a_target_keeps_what_other_tables_need(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    first, world.t = world.t, world.table("t2")
    reader.read(A0, 60)
    reader.drop()
    world.catalog.tables.forget(reader.uuid)
    world.catalog.tables.drop(first)
    world.catalog.tables.forget(first)
    assert world.catalog.offsets.former()[reader.uuid].targets == (world.t,)
    assert Reader(world, broker).look() == {0: 60, 1: 0}


def old_offsets(world: World, reader: Reader, offset: int) -> None:
    """As a program before groups had offsets stored them."""
    for place in (A0, A1):
        key = pack(Space.OFFSET, reader.uuid, place.topic, place.partition)
        world.kv.commit([], {key: b"\x01" + msgspec.msgpack.encode(offset)}, [])


def test_tables_that_shared_a_group_before_go_on_each_with_offsets_of_its_own(world: World, broker: FakeBroker) -> None:
    one, two = Reader(world, broker, "k1", kafka_group_name="g"), Reader(world, broker, "k2", kafka_group_name="g")
    old_offsets(world, one, 50)
    old_offsets(world, two, 70)
    for _ in range(2):
        assert (one.look(), two.look()) == ({0: 50, 1: 50}, {0: 70, 1: 70})
    two.read(A0, 80)
    assert (one.look()[0], two.look()[0]) == (50, 80)
    # A third one has no offsets from then, and waits.
    with pytest.raises(GroupInUseError):
        Reader(world, broker, "k3", kafka_group_name="g").look()
    two.alter(kafka_group_name="own")
    assert two.look() == {0: 80, 1: 70}
    assert ("x", "own") in groups(world)


def test_what_can_be_known_without_a_broker(world: World) -> None:
    broker = FakeBroker()
    one = Reader(world, broker, "k1", kafka_group_name="g", kafka_broker_list="h1:9092,h2:9092", kafka_topic_list="a,b")
    relations = world.catalog.tables.list()

    def rival(**settings: str) -> KafkaDef:
        given = {"kafka_broker_list": "H2, h3:1", "kafka_topic_list": "b,c", "kafka_group_name": "g"} | settings
        return msgspec.structs.replace(one.kafka, uuid="u", name="k2", settings=one.kafka.settings | given)

    with pytest.raises(GroupInUseError, match=r"read_by=default\.k1"):
        check_group(rival(), relations)
    check_group(rival(kafka_group_name="h"), relations)
    check_group(rival(kafka_topic_list="c"), relations)
    check_group(rival(kafka_broker_list="h3:1"), relations)
    check_group(rival(kafka_broker_list="h2:9093"), relations)
    check_group(one.kafka, relations)
    assert addresses("localhost:1, PLAINTEXT://127.0.0.1:1 ,[::1]:1,h") == {"127.0.0.1:1", "h:9092"}


def test_what_a_group_depends_on(world: World) -> None:
    reader = Reader(world, FakeBroker())
    assert pinned_group(reader.kafka) == {"kafka_group_name": "tilth.default.k"}
    larger = msgspec.structs.replace(reader.kafka, settings=reader.kafka.settings | {"kafka_max_block_size": "7"})
    assert not reads_elsewhere(reader.kafka, larger)
    other = msgspec.structs.replace(reader.kafka, settings=reader.kafka.settings | {"kafka_group_name": "h"})
    assert reads_elsewhere(reader.kafka, other)
