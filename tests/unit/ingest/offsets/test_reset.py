"""Stored offsets against brokers that lose, cut and make topics anew: what is recorded, decided and closed."""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tests.unit.ingest.offsets_world import A0, A1, A2, FakeBroker, Reader
from tilth.catalog import AddGap, OffsetsMovedError, SetOffsets
from tilth.ingest.errors import BrokerUnavailableError, ResetError
from tilth.ingest.kafka.gaps import CLOSED, DELETED, RECREATED, REPLACED, TRUNCATED, gap_at
from tilth.ingest.offsets.reset import OffsetMark, ToMark, ToOffsets, ToTime
from tilth.model.offset import StoredOffset
from tilth.verify.ledgers import follow_ledger


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker()
    made.make("a", 100, 100, topic_id="x")
    return made


def verify(reader: Reader) -> None:
    """The ledger leads to what is stored."""
    entries = sorted(reader.world.catalog.offsets.ledger(reader.uuid), key=lambda each: each.commit_ts)
    reached, wrong = follow_ledger(entries)
    stored = reader.world.catalog.offsets.of(reader.uuid)
    assert wrong == []
    assert {partition: stored.get(partition) for partition in reached} == reached


def test_first_offsets_come_with_topic_and_epoch(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    assert reader.look() == {0: 0, 1: 0}
    assert world.catalog.offsets.stored(reader.uuid)[A0] == StoredOffset(0, "x", 0)
    late = Reader(world, broker, "late", kafka_auto_offset_reset="latest")
    broker.logs[A1].uncommitted = 7
    assert late.look() == {0: 100, 1: 93}


def test_a_reset_of_one_partition_decides_about_that_one_only(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    reader.read(A1, 50)
    broker.make("a", 200, 200, topic_id="y")
    assert reader.look() == {0: 50, 1: 50}
    assert {number: gap.reason for number, gap in reader.gaps().items()} == {0: RECREATED, 1: RECREATED}
    assert reader.move(ToOffsets({A0: 10})) == {A0: 10}
    # The other one waits on, however often it is looked at, and does not go on at 50 of another topic.
    for _ in range(2):
        assert reader.look() == {0: 10, 1: 50}
        assert list(reader.gaps()) == [1]
    assert reader.move(ToMark(OffsetMark.BEGIN)) == {A0: 0, A1: 0}
    reader.look()
    assert reader.gaps() == {}
    reader.read(A1, 60)
    verify(reader)


def test_offsets_of_a_vanished_partition_do_not_return(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 20)
    reader.read(A1, 50)
    broker.make("a", 30, topic_id="y")
    reader.look()
    assert sorted(reader.gaps()) == [0, 1]
    assert reader.move(ToOffsets({A0: 5})) == {A0: 5}
    assert (reader.look(), reader.gaps()) == ({0: 5}, {})
    broker.make("a", 30, 80, topic_id="y")
    assert (reader.look(), reader.gaps()) == ({0: 5, 1: 0}, {})
    reader.read(A1, 80)
    verify(reader)


def test_a_topic_made_anew_of_which_nothing_was_read_is_read_from_its_beginning(
    world: World, broker: FakeBroker
) -> None:
    reader = Reader(world, broker)
    broker.make("a", 0, 0, topic_id="x")
    reader.look()
    broker.make("a", 5, topic_id="y")
    assert (reader.look(), reader.gaps()) == ({0: 0}, {})
    assert world.catalog.offsets.stored(reader.uuid)[A0].topic_id == "y"
    reader.read(A0, 5)
    verify(reader)


def test_a_gap_in_a_former_topic_of_which_nothing_was_read_is_closed_with_it(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    broker.logs[A1].low = 3
    reader.look()
    assert reader.gaps()[1].reason == DELETED
    broker.make("a", 5, topic_id="y")
    assert (reader.look(), reader.gaps()) == ({0: 0}, {})
    (gap,) = world.catalog.offsets.gaps(reader.uuid)
    assert gap.resolution == RECREATED
    verify(reader)


def test_an_unclean_election_is_a_gap_also_when_the_log_has_grown_again(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 80)
    broker.truncate(A0, 60)
    reader.look()
    assert reader.gaps()[0].reason == TRUNCATED
    reader.move(ToOffsets({A0: 60}))
    reader.read(A0, 60)
    broker.truncate(A0, 40)
    broker.logs[A0].high = 90
    # Nothing in how far it reaches tells; a consumer that validates its offset does.
    assert (reader.look(), reader.gaps()) == ({0: 60, 1: 0}, {})
    reader.look(A0)
    gap = reader.gaps()[0]
    assert (gap.start, gap.end, gap.reason) == (60, 40, REPLACED)
    # A log that reaches the offset again does not close the gap.
    world.clock.advance(3600)
    reader.look()
    assert list(reader.gaps()) == [0]
    assert reader.move(ToOffsets({A0: 40})) == {A0: 40}
    reader.look(A0)
    assert reader.gaps() == {}
    verify(reader)


def test_a_suspicion_that_nothing_proves_is_no_gap(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.look(A0, A1, A2)
    assert (reader.gaps(), broker.asked) == ({}, [A0, A1])


def test_an_older_leader_is_waited_for(world: World, broker: FakeBroker) -> None:
    broker.logs[A0].epoch = 7
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 80)
    broker.logs[A0].epoch, broker.logs[A0].high = 6, 70
    with pytest.raises(BrokerUnavailableError, match="older"):
        reader.look()
    assert reader.gaps() == {}
    broker.logs[A0].epoch, broker.logs[A0].high = 7, 90
    reader.look()
    assert reader.gaps() == {}


def test_a_gap_that_was_none_closes_with_its_reason(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    stored = world.catalog.offsets.stored(reader.uuid)[A0]
    world.commit(AddGap(gap=gap_at(reader.uuid, A0, stored, end=30, reason=TRUNCATED, now_ms=1), stored=stored))
    reader.look()
    assert (reader.gaps(), reader.resolutions()) == ({}, [CLOSED])
    assert reader.notes == [f"gap in a/0 from 50 {CLOSED}"]


def test_a_gap_of_another_cluster_closes_when_the_topic_is_the_one_again(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    broker.cluster = "c2"
    broker.make("a", 10, 10, topic_id="y")
    reader.look()
    assert list(reader.gaps()) == [0]
    broker.cluster = "c1"
    broker.make("a", 100, 100, topic_id="x")
    assert reader.look() == {0: 50, 1: 0}
    assert reader.gaps() == {}


def test_without_an_epoch_only_a_decision_closes_a_truncation(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    first = world.catalog.offsets.stored(reader.uuid)
    world.commit(SetOffsets(kafka_table=reader.uuid, offsets={A0: StoredOffset(50, "x")}, before=first))
    broker.logs[A0].high = 30
    reader.look()
    broker.logs[A0].high = 90
    reader.look()
    assert (reader.gaps()[0].reason, broker.asked) == (TRUNCATED, [])


def test_a_log_is_not_asked_at_every_look(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    broker.truncate(A0, 20)
    reader.look()
    broker.logs[A0].high = 90
    for _ in range(5):
        reader.look()
    assert broker.asked == [A0]
    world.clock.advance(31)
    reader.look()
    assert broker.asked == [A0, A0]


def test_deleted_messages_are_passed_over_when_told_to_and_nothing_else_is(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker, kafka_enable_skip_offsets_hole="1")
    reader.look()
    reader.read(A0, 10)
    reader.read(A1, 10)
    broker.logs[A0].low = 40
    reader.look()
    assert (reader.stored(), reader.gaps()) == ({0: 40, 1: 10}, {})
    assert world.catalog.offsets.stored(reader.uuid)[A0].topic_id == "x"
    broker.make("a", 100, 100, topic_id="y")
    broker.logs[A0].low = broker.logs[A1].low = 60
    reader.look()
    assert (reader.stored(), sorted(reader.gaps())) == ({0: 40, 1: 10}, [0, 1])
    verify(reader)


def test_a_gap_is_not_recorded_for_an_offset_that_has_moved_on(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    old = world.catalog.offsets.stored(reader.uuid)[A0]
    reader.read(A0, 50)
    with pytest.raises(OffsetsMovedError):
        world.commit(AddGap(gap=gap_at(reader.uuid, A0, old, end=40, reason=DELETED, now_ms=1), stored=old))
    # A round is committed between the look at the offsets and the look at the topic.
    earliest = broker.earliest

    def late(partitions: object) -> object:
        if broker.logs[A0].low < 70:
            reader.read(A0, 90)
            broker.logs[A0].low = 70
        return earliest(partitions)  # type: ignore[arg-type]  # it is what was asked for

    broker.earliest = late  # type: ignore[method-assign, assignment]
    reader.look()
    assert (reader.gaps(), reader.stored()[0]) == ({}, 90)


def test_stored_says_where_each_partition_goes_on(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    assert reader.move(ToMark(OffsetMark.STORED)) == {A0: 50, A1: 0}
    broker.make("a", 200, 200, topic_id="y")
    reader.look()
    assert list(reader.gaps()) == [0]
    assert reader.move(ToMark(OffsetMark.STORED)) == {A0: 50, A1: 0}
    assert (reader.look(), reader.gaps()) == ({0: 50, 1: 0}, {})
    assert world.catalog.offsets.stored(reader.uuid)[A0].topic_id == "y"
    verify(reader)
    # Where the topic does not hold the offset there is nothing to go on with.
    broker.logs[A0].low = 120
    reader.look()
    with pytest.raises(ResetError, match="holds 120 to 200"):
        reader.move(ToMark(OffsetMark.STORED))
    assert list(reader.gaps()) == [0]


def test_a_decision_for_a_truncated_log_is_not_found_to_be_a_gap_again(world: World, broker: FakeBroker) -> None:
    reader = Reader(world, broker)
    reader.look()
    reader.read(A0, 50)
    broker.truncate(A0, 20)
    broker.logs[A0].high = 90
    reader.look(A0)
    assert list(reader.gaps()) == [0]
    assert reader.move(ToMark(OffsetMark.STORED)) == {A0: 50, A1: 0}
    reader.look(A0)
    assert reader.gaps() == {}
    assert reader.move(ToTime(5)) == {A0: 45, A1: 50}
