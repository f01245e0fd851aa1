"""Which offsets two Kafka tables have read into one table: ledgers in, overlaps out."""

from __future__ import annotations

from itertools import count

from tilth.ingest.offsets.reset import MOVED
from tilth.model.offset import FOLDED, REPLAYED, LedgerEntry, LedgerRange
from tilth.verify.twice import Twice, read_twice

_stamps = count(1)


def entry(
    *spans: tuple[int, int], topic_id: str = "x", target: str = "t", consumer: int = 0, partition: int = 0
) -> LedgerEntry:
    ranges = tuple(
        LedgerRange(topic="a", partition=partition, start=start, end=end, messages=0, rows=0, dead=0, topic_id=topic_id)
        for start, end in spans
    )
    stamp = next(_stamps)
    return LedgerEntry(
        txn=stamp, kafka_table="k", consumer=consumer, ranges=ranges, stored={}, commit_ts=stamp, targets=(target,)
    )


def found(table: str = "t", **ledgers: list[LedgerEntry]) -> list[str]:
    return [str(each) for each in read_twice(ledgers, table)]


def test_overlapping_rounds_of_two_kafka_tables_are_named_once() -> None:
    one = [entry((0, 5)), entry((5, 9))]
    two = [entry((3, 6)), entry((6, 20))]
    assert read_twice({"k1": one, "k2": two}, "t") == [Twice("a", 0, 3, 9, ("k1", "k2"))]
    assert found(k1=one, k2=two) == ["a/0: 3 to 9 by k1 and k2"]
    assert found(k1=one, k2=[entry((9, 20))]) == []


def test_only_the_same_topic_partition_and_table_count() -> None:
    one = [entry((0, 9))]
    assert found(k1=one, k2=[entry((0, 9), topic_id="y")]) == []
    assert found(k1=one, k2=[entry((0, 9), partition=1)]) == []
    assert found(k1=one, k2=[entry((0, 9), target="other")]) == []
    assert found("other", k1=one, k2=[entry((0, 9), target="other")]) == []


def test_what_was_moved_back_by_decision_is_no_fault() -> None:
    one = [entry((0, 50))]
    again = [entry((50, 0), consumer=MOVED), entry((0, 30)), entry((30, 60))]
    assert found(k1=one, k2=again) == []
    # A third one, without a decision, is one.
    assert found(k1=one, k2=again, k3=[entry((55, 58))]) == ["a/0: 55 to 58 by k2 and k3"]


def test_replayed_letters_are_a_decision_and_part_no_rounds() -> None:
    one = [entry((0, 50)), entry((3, 40), consumer=REPLAYED, topic_id="")]
    again = [entry((0, 5)), entry((60, 61), consumer=REPLAYED, topic_id=""), entry((5, 9))]
    assert found(k1=one, k2=[entry((50, 60)), entry((10, 20), consumer=REPLAYED)]) == []
    assert found(k1=one, k2=again) == ["a/0: 0 to 9 by k1 and k2"]


def test_rounds_before_a_truncate_do_not_count() -> None:
    one, again = entry((0, 9)), entry((0, 9))
    ledgers = {"k1": [one], "k2": [again]}
    assert len(read_twice(ledgers, "t")) == 1
    assert read_twice(ledgers, "t", emptied_ts=one.commit_ts) == []
    assert len(read_twice(ledgers, "t", emptied_ts=one.commit_ts - 1)) == 1


def test_folded_entries_prove_the_same() -> None:
    assert found(k1=[entry((0, 50), consumer=FOLDED)], k2=[entry((40, 60))]) == ["a/0: 40 to 50 by k1 and k2"]
