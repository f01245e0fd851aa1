"""Folding a ledger: what it proves before, it proves after, with fewer entries."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tilth.catalog import AddLedger, Catalog, HideEverything, HidePartition, RestorePartition
from tilth.model.offset import FOLDED, REPLAYED, LedgerEntry, LedgerRange, TopicPartition
from tilth.verify.ledgers import follow_ledger

P0, P1 = TopicPartition("x", 0), TopicPartition("x", 1)
#: Later than any commit of a test.
LATER = 1 << 62


@pytest.fixture
def world() -> World:
    return World()


def ranged(partition: int, start: int, end: int) -> LedgerRange:
    return LedgerRange(
        topic="x", partition=partition, start=start, end=end, messages=end - start, rows=2, dead=1, refused=3
    )


def add(world: World, kafka: str, *ranges: LedgerRange, consumer: int = 0) -> None:
    stored = {} if consumer < 0 else {world.t: 10}
    world.commit(
        AddLedger(entry=LedgerEntry(txn=0, kafka_table=kafka, consumer=consumer, ranges=ranges, stored=stored))
    )


def described(catalog: Catalog, kafka: str) -> tuple[object, ...]:
    """What VERIFY takes from the ledger."""
    entries = sorted(catalog.offsets.ledger(kafka), key=lambda each: each.commit_ts)
    reached, wrong = follow_ledger(entries)
    ranges = [each for entry in entries for each in entry.ranges]
    stored = sum(rows for entry in entries for rows in entry.stored.values())
    sums = [sum(getattr(each, name) for each in ranges) for name in ("messages", "rows", "dead", "refused")]
    return reached, [each.rsplit(", at", 1)[0] for each in wrong], stored, sums


def test_replays_stay_and_stand_in_no_round_s_way(world: World) -> None:
    kafka = world.kafka()
    for start in range(0, 20, 5):
        add(world, kafka, ranged(0, start, start + 5))
        add(world, kafka, ranged(0, 1, start + 1), ranged(1, 7, 9), consumer=REPLAYED)
    before = described(world.catalog, kafka)
    assert before[:2] == ({P0: 20}, [])
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=100) == 3
    assert described(world.catalog, kafka) == before
    kinds = [each.consumer for each in world.catalog.offsets.ledger(kafka)]
    assert sorted(kinds) == [REPLAYED] * 4 + [FOLDED]


def test_contiguous_rounds_become_one_entry_that_says_the_same(world: World) -> None:
    kafka, other = world.kafka(), world.kafka("k2")
    for start in range(0, 50, 5):
        add(world, kafka, ranged(0, start, start + 5), ranged(1, 2 * start, 2 * start + 10))
    add(world, other, ranged(0, 0, 1))
    before = described(world.catalog, kafka)
    last = list(world.catalog.offsets.ledger(kafka))[-1]
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=100) == 9
    assert described(world.catalog, kafka) == before
    [entry] = world.catalog.offsets.ledger(kafka)
    assert (entry.consumer, entry.txn, entry.commit_ts) == (FOLDED, last.txn, last.commit_ts)
    assert entry.ranges == (
        LedgerRange(topic="x", partition=0, start=0, end=50, messages=50, rows=20, dead=10, refused=30),
        LedgerRange(topic="x", partition=1, start=0, end=100, messages=100, rows=20, dead=10, refused=30),
    )
    assert entry.stored == {world.t: 100}
    # Later rounds join it; the other table is left alone; again there is nothing to do.
    add(world, kafka, ranged(0, 50, 60))
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=100) == 1
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=100) == 0
    assert [each.ranges[0].end for each in world.catalog.offsets.ledger(kafka)] == [60]
    assert [each.consumer for each in world.catalog.offsets.ledger(other)] == [0]


def test_only_old_entries_and_those_beyond_the_number_are_folded(world: World) -> None:
    kafka = world.kafka()
    for start in range(10):
        add(world, kafka, ranged(0, start, start + 1))
    stamps = [each.commit_ts for each in world.catalog.offsets.ledger(kafka)]
    fold = world.catalog.offsets.fold_ledger
    assert fold(kafka, before_ts=0, settled_ts=LATER, kept_max=10) == 0
    assert fold(kafka, before_ts=LATER, settled_ts=stamps[0], kept_max=0) == 0
    assert fold(kafka, before_ts=stamps[3], settled_ts=LATER, kept_max=10) == 2
    assert fold(kafka, before_ts=0, settled_ts=LATER, kept_max=5) == 2
    assert [each.consumer for each in world.catalog.offsets.ledger(kafka)] == [FOLDED] + [0] * 5


def test_rounds_before_and_after_a_truncate_are_not_joined(world: World) -> None:
    kafka = world.kafka()
    world.insert()
    for start in (0, 5):
        add(world, kafka, ranged(0, start, start + 5))
    world.commit(HideEverything(table=world.t))
    for start in (10, 15):
        add(world, kafka, ranged(0, start, start + 5))
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=0) == 2
    assert [[r.end for r in each.ranges] for each in world.catalog.offsets.ledger(kafka)] == [[10], [20]]


def test_a_truncate_is_remembered_until_rows_come_back(world: World) -> None:
    world.insert("a", "b")
    world.commit(HideEverything(table=world.t))
    emptied_ts = world.catalog.parts.version(world.t).emptied_ts
    assert emptied_ts == world.catalog.parts.version(world.t).last_commit_ts
    world.insert("b")
    world.commit(HidePartition(table=world.t, partition="b"))
    world.commit(RestorePartition(table=world.t, partition="b"))
    assert world.catalog.parts.version(world.t).emptied_ts == emptied_ts
    world.commit(RestorePartition(table=world.t, partition="a"))
    assert world.catalog.parts.version(world.t).emptied_ts == 0


def test_rounds_into_other_tables_and_of_other_topics_are_not_joined(world: World) -> None:
    kafka = world.kafka()
    for number, (target, topic_id) in enumerate([("t", "x"), ("t", "x"), ("u", "x"), ("u", "y"), ("u", "y")]):
        one = msgspec.structs.replace(ranged(0, number, number + 1), topic_id=topic_id)
        entry = LedgerEntry(txn=0, kafka_table=kafka, consumer=0, ranges=(one,), stored={}, targets=(target,))
        world.commit(AddLedger(entry=entry))
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=0) == 3
    found = [
        (each.targets, [(r.start, r.end, r.topic_id) for r in each.ranges])
        for each in world.catalog.offsets.ledger(kafka)
    ]
    assert found == [(("t",), [(0, 2, "x")]), (("u",), [(2, 3, "x"), (3, 5, "y")])]


def test_holes_and_moves_stay_where_they_are(world: World) -> None:
    kafka = world.kafka()
    for start, end in ((0, 5), (5, 9), (11, 12), (12, 14)):
        add(world, kafka, ranged(0, start, end))
    add(world, kafka, LedgerRange(topic="x", partition=0, start=14, end=2, messages=0, rows=0, dead=0), consumer=-1)
    for start in (2, 4, 6):
        add(world, kafka, ranged(0, start, start + 2))
    before = described(world.catalog, kafka)
    assert before[:2] == ({P0: 8}, ["x/0: 9 to 11 missing"])
    assert world.catalog.offsets.fold_ledger(kafka, before_ts=LATER, settled_ts=LATER, kept_max=0) == 5
    assert described(world.catalog, kafka) == before
    spans = [[(r.start, r.end) for r in each.ranges] for each in world.catalog.offsets.ledger(kafka)]
    assert spans == [[(0, 9), (11, 14)], [(14, 2)], [(2, 8)]]


def test_an_entry_of_a_version_that_did_not_count_refused_messages() -> None:
    old = {"topic": "x", "partition": 0, "start": 0, "end": 5, "messages": 5, "rows": 4, "dead": 1}
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=LedgerRange)
    assert decoded.refused == 0
    joined = decoded.joined(ranged(0, 5, 9))
    assert (joined.end, joined.messages, joined.rows, joined.dead, joined.refused) == (9, 9, 6, 2, 3)
