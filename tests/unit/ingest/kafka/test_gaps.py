"""What is a gap, when an open one closes, and what an answer of a broker must be: values in, values out."""

from __future__ import annotations

import pytest

from tilth.ingest.consumer.position import ConsumerPosition
from tilth.ingest.errors import BrokerUnavailableError, LeaderChangedError, OffsetGapError
from tilth.ingest.kafka.gaps import DELETED, RECREATED, TRUNCATED, Closing, Observed, closing, find_gaps
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, offset_of, offset_or_none, topic_id_of
from tilth.model.offset import IngestGap, OffsetRange, StoredOffset, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def end_at(high: int, *, stable: int | None = None, epoch: int = -1) -> PartitionEnd:
    return PartitionEnd(stable=Offset(high if stable is None else stable), high=Offset(high), epoch=epoch)


def observed(*, low: int = 5, high: int = 10, epoch: int = -1, topic_id: str = "x") -> Observed:
    return Observed(ids={"a": topic_id}, earliest={A: Offset(low)}, ends={A: end_at(high, epoch=epoch)})


def reason(stored: StoredOffset, seen: Observed) -> str:
    found = find_gaps("k", stored={A: stored}, observed=seen, now_ms=1).gaps
    return found[0].reason if found else ""


@pytest.mark.parametrize("answer", [-1001, -1, -2, -1000])
def test_a_number_below_zero_is_no_offset(answer: int) -> None:
    with pytest.raises(ValueError, match=str(answer)):
        offset_of(answer)
    if answer == -1:
        assert offset_or_none(answer) is None
    else:
        with pytest.raises(ValueError, match=str(answer)):
            offset_or_none(answer)


def test_topic_ids_have_one_spelling_and_brokers_without_them_have_names() -> None:
    assert topic_id_of("F6u26ZQGTc2aAPDORQdRsw", "t") == "F6u26ZQGTc2aAPDORQdRsw"
    assert topic_id_of("teX/nw7PT8u+TU0GBMfR5A", "t") == topic_id_of("teX_nw7PT8u-TU0GBMfR5A", "t")
    assert [topic_id_of(each, "t") for each in (None, "", "AAAAAAAAAAAAAAAAAAAAAA")] == ["name:t"] * 3


def test_an_offset_inside_of_what_the_topic_holds_is_no_gap() -> None:
    assert [reason(StoredOffset(n, "x"), observed()) for n in (5, 7, 10)] == ["", "", ""]
    assert reason(StoredOffset(4, "x"), observed()) == DELETED
    assert reason(StoredOffset(11, "x"), observed()) == TRUNCATED


def test_what_is_behind_an_open_transaction_is_there() -> None:
    seen = Observed(ids={"a": "x"}, earliest={A: Offset(0)}, ends={A: end_at(10, stable=3)})
    assert reason(StoredOffset(8, "x"), seen) == ""


def test_an_older_leader_proves_nothing() -> None:
    findings = find_gaps("k", stored={A: StoredOffset(20, "x", 7)}, observed=observed(epoch=6), now_ms=1)
    assert (findings.gaps, findings.stale) == ([], [A])
    assert reason(StoredOffset(20, "x", 6), observed(epoch=6)) == TRUNCATED


def test_a_topic_made_anew_holds_none_of_the_offsets_of_the_old_one() -> None:
    assert reason(StoredOffset(7, "old"), observed()) == RECREATED
    # Nothing was read of the topic before, so nothing can be missing: reading begins with the new one.
    findings = find_gaps("k", stored={A: StoredOffset(0, "old", 4)}, observed=observed(low=0, epoch=1), now_ms=1)
    assert (findings.gaps, findings.anew) == ([], {A: StoredOffset(0, "x", 1)})


def test_a_partition_that_the_topic_made_anew_does_not_have() -> None:
    stored = {A: StoredOffset(7, "old"), B: StoredOffset(3, "old")}
    gaps = find_gaps("k", stored=stored, observed=observed(), now_ms=1).gaps
    assert [(gap.partition, gap.start, gap.end, gap.reason) for gap in gaps] == [
        (0, 7, 5, RECREATED),
        (1, 3, -1, RECREATED),
    ]
    findings = find_gaps("k", stored={B: StoredOffset(0, "old")}, observed=observed(), now_ms=1)
    assert (findings.gaps, findings.vanished) == ([], [B])
    # Metadata that is older than the partition proves nothing.
    assert find_gaps("k", stored={B: StoredOffset(3, "x")}, observed=observed(), now_ms=1).gaps == []


def gap(reason: str, *, start: int = 7, end: int = 5) -> IngestGap:
    return IngestGap(kafka_table="k", topic="a", partition=0, start=start, end=end, reason=reason, at_ms=1)


@pytest.mark.parametrize(
    ("open_gap", "stored", "seen", "verdict"),
    [
        # The topic is the one that was read again.
        (gap(RECREATED), StoredOffset(7, "x"), observed(), Closing.CLOSES),
        (gap(RECREATED), StoredOffset(7, "old"), observed(), Closing.STAYS),
        (gap(RECREATED), StoredOffset(7, "x"), observed(high=6), Closing.STAYS),
        # Other messages may stand there: only the leader epoch can tell.
        (gap(TRUNCATED), StoredOffset(7, "x", 2), observed(epoch=3), Closing.IF_LOG_HOLDS),
        (gap(DELETED), StoredOffset(7, "x", 2), observed(epoch=3), Closing.IF_LOG_HOLDS),
        (gap(TRUNCATED), StoredOffset(7, "x"), observed(epoch=3), Closing.STAYS),
        (gap(TRUNCATED), StoredOffset(7, "x", 4), observed(epoch=3), Closing.STAYS),
        (gap(DELETED), StoredOffset(4, "x", 2), observed(epoch=3), Closing.STAYS),
        # It is about another offset than the one that is stored.
        (gap(RECREATED), StoredOffset(8, "x"), observed(), Closing.STAYS),
        (gap(RECREATED), None, observed(), Closing.STAYS),
    ],
)
def test_when_a_gap_closes(open_gap: IngestGap, stored: StoredOffset | None, seen: Observed, verdict: Closing) -> None:
    assert closing(open_gap, stored, seen) is verdict


def test_a_consumer_reads_with_the_epochs_of_its_log() -> None:
    standing = ConsumerPosition("db.k", {A: StoredOffset(5, "x", 1), B: StoredOffset(0, "x", -1)})
    ends = {A: end_at(9, epoch=2), B: end_at(0, epoch=2)}
    standing.check_ends(ends)
    (planned,) = standing.plan(ends, messages_max=3)
    assert planned == OffsetRange(topic="a", partition=0, start=5, end=8, topic_id="x", epoch=1, end_epoch=2)
    standing.check_same([planned], ids={"a": "x"}, ends=ends)
    standing.advance([planned])
    assert standing.offsets == {A: 8, B: 0}
    (following,) = standing.plan(ends, messages_max=3)
    assert (following.start, following.epoch) == (8, 2)


def test_a_round_that_may_be_of_two_logs_is_refused() -> None:
    standing = ConsumerPosition("db.k", {A: StoredOffset(5, "x", 1)})
    ranges = standing.plan({A: end_at(9, epoch=2)}, messages_max=3)
    with pytest.raises(LeaderChangedError):
        standing.check_same(ranges, ids={"a": "x"}, ends={A: end_at(9, epoch=3)})
    with pytest.raises(OffsetGapError):
        standing.check_same(ranges, ids={"a": "y"}, ends={A: end_at(9, epoch=2)})


def test_a_topic_that_ends_before_the_offset_is_a_gap_unless_an_older_leader_says_so() -> None:
    standing = ConsumerPosition("db.k", {A: StoredOffset(5, "x", 2)})
    standing.check_ends({A: end_at(5, stable=3)})
    with pytest.raises(OffsetGapError) as caught:
        standing.check_ends({A: end_at(4, epoch=2)})
    assert (caught.value.facts["topic"], caught.value.facts["partition"]) == ("a", "0")
    with pytest.raises(BrokerUnavailableError):
        standing.check_ends({A: end_at(4, epoch=1)})
