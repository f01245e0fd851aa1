"""Offsets, ledger and gaps: they change with the rows, in one commit, and from where the round started only."""

from __future__ import annotations

import pytest

from tests.catalog_world import World
from tilth.base.errors import InvalidInputError
from tilth.catalog import (
    AddGap,
    AddLedger,
    AdvanceOffsets,
    InsertPart,
    OffsetsMovedError,
    ResolveGaps,
    SetOffsets,
    TableNotFoundError,
    WrongEngineError,
)
from tilth.model.offset import IngestGap, LedgerEntry, LedgerRange, OffsetRange, StoredOffset, TopicPartition

P0, P1 = TopicPartition("x", 0), TopicPartition("x", 1)


@pytest.fixture
def world() -> World:
    return World()


def first(kafka: str, *offsets: int) -> SetOffsets:
    """Store the first offsets of the partitions of `x`."""
    found = {TopicPartition("x", number): StoredOffset(offset, "") for number, offset in enumerate(offsets)}
    return SetOffsets(kafka_table=kafka, offsets=found, before={})


def advance(kafka: str, partition: int, start: int, end: int) -> AdvanceOffsets:
    return AdvanceOffsets(
        kafka_table=kafka, ranges=(OffsetRange(topic="x", partition=partition, start=start, end=end),)
    )


def gap(kafka: str, start: int) -> IngestGap:
    return IngestGap(kafka_table=kafka, topic="x", partition=0, start=start, end=-1, reason="truncated", at_ms=1)


def test_a_round_moves_offsets_with_its_rows(world: World) -> None:
    kafka = world.kafka()
    world.commit(first(kafka, 5))
    done = LedgerRange(topic="x", partition=0, start=5, end=9, messages=4, rows=4, dead=0)
    entry = LedgerEntry(txn=0, kafka_table=kafka, consumer=0, ranges=(done,), stored={world.t: 10})
    [part] = world.commit(
        InsertPart(table=world.t, written=world.written()), advance(kafka, 0, 5, 9), AddLedger(entry=entry)
    )
    assert world.catalog.offsets.of(kafka) == {P0: 9}
    [stored] = world.catalog.offsets.ledger(kafka)
    assert (stored.txn, stored.commit_ts, stored.ranges) == (part.name.mutation, part.commit_ts, (done,))
    assert world.catalog.parts.version(kafka).last_commit_ts == part.commit_ts


def test_a_round_that_started_elsewhere_is_refused_whole(world: World) -> None:
    kafka = world.kafka()
    world.commit(first(kafka, 0, 0), advance(kafka, 0, 0, 9), advance(kafka, 1, 0, 3))
    for start in (0, 8, 10):
        with pytest.raises(OffsetsMovedError) as caught:
            world.commit(
                InsertPart(table=world.t, written=world.written()),
                advance(kafka, 1, 3, 4),
                advance(kafka, 0, start, 20),
            )
        assert caught.value.facts["stored"].startswith("9 ")
    assert world.catalog.offsets.of(kafka) == {P0: 9, P1: 3}
    assert world.names() == []


def test_the_same_range_twice_in_one_commit_is_refused(world: World) -> None:
    kafka = world.kafka()
    world.commit(first(kafka, 0))
    with pytest.raises(OffsetsMovedError):
        world.commit(advance(kafka, 0, 0, 9), advance(kafka, 0, 0, 9))
    with pytest.raises(InvalidInputError):
        world.commit(advance(kafka, 0, 9, 8))


def test_offsets_can_be_set_and_cleared(world: World) -> None:
    kafka, other = world.kafka(), world.kafka("k2")
    world.commit(first(kafka, 0, 0), first(other, 0))
    world.commit(advance(kafka, 0, 0, 9), advance(kafka, 1, 0, 3), advance(other, 0, 0, 1))
    world.commit(SetOffsets(kafka_table=kafka, offsets={P0: StoredOffset(2, "")}, before={P0: StoredOffset(9, "")}))
    assert world.catalog.offsets.of(kafka) == {P0: 2, P1: 3}
    with pytest.raises(OffsetsMovedError):
        world.commit(advance(kafka, 0, 9, 12))
    seen = {P0: StoredOffset(2, ""), P1: StoredOffset(3, "")}
    world.commit(SetOffsets(kafka_table=kafka, offsets={}, forgotten=(P0, P1), before=seen))
    assert world.catalog.offsets.of(kafka) == {}
    assert world.catalog.offsets.of(other) == {P0: 1}
    # A round cannot start at an offset that is not stored.
    with pytest.raises(OffsetsMovedError):
        world.commit(advance(kafka, 0, 100, 101))
    assert world.catalog.offsets.of(kafka) == {}


@pytest.mark.parametrize(
    "seen", [{}, {P0: StoredOffset(5, "", 3)}, {P0: StoredOffset(5, "id", 4)}, {P0: StoredOffset(4, "id", 3)}]
)
def test_offsets_move_from_where_they_were_seen_only(world: World, seen: dict[TopicPartition, StoredOffset]) -> None:
    """Topic and leader epoch are compared with the offset: without them its number has no meaning."""
    kafka = world.kafka()
    now = {P0: StoredOffset(5, "id", 3)}
    world.commit(SetOffsets(kafka_table=kafka, offsets=now, before={}))
    with pytest.raises(OffsetsMovedError):
        world.commit(SetOffsets(kafka_table=kafka, offsets={P0: StoredOffset(1, "")}, before=seen))
    with pytest.raises(OffsetsMovedError):
        world.commit(SetOffsets(kafka_table=kafka, offsets={}, forgotten=(P0,), before=seen))
    with pytest.raises(OffsetsMovedError):
        # A stored offset that was read must still be stored, even where it is not changed.
        world.commit(SetOffsets(kafka_table=kafka, offsets={}, before={P1: StoredOffset(0, "")}))
    for stored in seen.values():
        moved = OffsetRange(
            topic="x", partition=0, start=stored.offset, end=9, topic_id=stored.topic_id, epoch=stored.epoch
        )
        with pytest.raises(OffsetsMovedError):
            world.commit(AdvanceOffsets(kafka_table=kafka, ranges=(moved,)))
        with pytest.raises(OffsetsMovedError):
            world.commit(AddGap(gap=gap(kafka, stored.offset), stored=stored))
    assert world.catalog.offsets.stored(kafka) == now


def test_gaps_stay_until_somebody_decides(world: World) -> None:
    kafka, other = world.kafka(), world.kafka("k2")
    at7, at3 = {P0: StoredOffset(7, "")}, {P0: StoredOffset(3, "")}
    world.commit(first(kafka, 7), first(other, 1))
    world.commit(AddGap(gap=gap(kafka, 7), stored=at7[P0]), AddGap(gap=gap(other, 1), stored=StoredOffset(1, "")))
    seen = tuple(world.catalog.offsets.gaps(kafka))
    world.commit(SetOffsets(kafka_table=kafka, offsets=at3, before=at7), AddGap(gap=gap(kafka, 3), stored=at3[P0]))
    everything = tuple(world.catalog.offsets.gaps(kafka))
    assert [each.start for each in everything] == [3, 7]

    def decision(text: str, *known: IngestGap, **more: dict[TopicPartition, StoredOffset]) -> ResolveGaps:
        return ResolveGaps(kafka_table=kafka, resolution=text, partitions=frozenset({P0}), known=known, **more)

    # A decision that does not know every gap is refused, and so is one about another offset.
    for wrong in (decision("reset", *seen), decision("reset"), decision("reset", *everything, before=at7)):
        with pytest.raises(OffsetsMovedError):
            world.commit(wrong)
    world.commit(decision("reset to begin", *everything, before=at3))
    assert [each.resolution for each in world.catalog.offsets.gaps()] == ["reset to begin", "reset to begin", ""]
    world.commit(decision("again"))
    assert {each.resolution for each in world.catalog.offsets.gaps(kafka)} == {"reset to begin"}


def test_only_kafka_tables_have_offsets(world: World) -> None:
    kafka = world.kafka()
    with pytest.raises(WrongEngineError):
        world.commit(advance(world.t, 0, 0, 1))
    world.catalog.tables.drop(kafka)
    with pytest.raises(TableNotFoundError):
        world.commit(advance(kafka, 0, 0, 1))
