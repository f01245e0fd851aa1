"""What consumers are said to do: reports and rounds in, words out. Times are milliseconds from 1970 on."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.consumer_rows import NEW_CONSUMER
from tilth.base.errors import UnavailableError
from tilth.ingest.consumer.view_watch import SLOW_SECONDS, ViewWatch
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.ingest.service.activity import Activity, ActivityKind, describe
from tilth.model.offset import OffsetRange, TopicPartition
from tilth.testing import ManualClock

A = TopicPartition("a", 0)


def reaching(stable: int, high: int | None = None) -> dict[TopicPartition, PartitionEnd]:
    return {A: PartitionEnd(stable=Offset(stable), high=Offset(stable if high is None else high))}


def a_range(start: int, end: int) -> list[OffsetRange]:
    return [OffsetRange(topic="a", partition=0, start=start, end=end)]


def said(*activities: Activity, now_ms: int) -> str:
    return describe([each.doing(now_ms=now_ms) for each in activities], flush_interval_ms=500)


def test_an_idle_consumer_says_since_when() -> None:
    activity = Activity({A: 5}, 60_000)
    activity.record_ends(reaching(5), now_ms=61_000)
    assert said(activity, now_ms=90_000) == "idle: no message since 1970-01-01 00:01:00 UTC"
    activity.record_ends(reaching(7), now_ms=120_000)
    activity.record_begin(a_range(5, 7), rows_max=100, now_ms=120_100)
    activity.record_commit(a_range(5, 7), now_ms=121_000)
    activity.record_ends(reaching(7), now_ms=121_100)
    assert said(activity, now_ms=190_000) == "idle: no message since 1970-01-01 00:02:01 UTC"


def test_messages_wait_for_the_flush_interval() -> None:
    activity = Activity({A: 5}, 0)
    activity.record_ends(reaching(1_205), now_ms=1_000)
    assert said(activity, now_ms=1_100) == "waiting for the flush interval (0.5 s), 1,200 messages"


def test_an_open_transaction_holds_it_up() -> None:
    activity = Activity({A: 5}, 0)
    activity.record_ends(reaching(5, 9), now_ms=60_000)
    activity.record_ends(reaching(5, 12), now_ms=70_000)
    told = "behind an open transaction since 1970-01-01 00:01:00 UTC, 7 messages"
    assert said(activity, now_ms=71_000) == told
    activity.record_ends(reaching(12), now_ms=72_000)
    assert activity.doing(now_ms=72_000).kind is ActivityKind.FLUSH_INTERVAL
    # It was skipped by a reset: nothing holds anything up.
    skipped = Activity({A: 12}, 0)
    skipped.record_ends(reaching(5, 12), now_ms=60_000)
    assert skipped.doing(now_ms=60_000).kind is ActivityKind.IDLE


def test_reading_has_a_rate_and_an_end() -> None:
    activity = Activity({A: 0}, 0)
    activity.record_ends(reaching(1_300_000), now_ms=0)
    for number in range(3):
        start = number * 20_000
        activity.record_begin(a_range(start, start + 20_000), rows_max=20_000, now_ms=number * 500)
        activity.record_commit(a_range(start, start + 20_000), now_ms=number * 500 + 500)
        activity.record_ends(reaching(1_300_000), now_ms=number * 500 + 500)
    told = "reading: 40,000 messages/s, 1.2 million behind, about 31 s left, bounded by kafka_max_block_size"
    assert said(activity, now_ms=1_600) == told
    # Bytes bound it where it takes fewer messages than it may and leaves some.
    activity.record_begin(a_range(60_000, 61_000), rows_max=20_000, now_ms=1_600)
    assert said(activity, now_ms=1_700).endswith("bounded by kafka_max_block_bytes")


def test_several_consumers_are_added_up() -> None:
    reading, idle = Activity({A: 0}, 0), Activity({A: 9}, 0)
    reading.record_ends(reaching(9), now_ms=0)
    idle.record_ends(reaching(9), now_ms=1)
    reading.record_begin(a_range(0, 9), rows_max=100, now_ms=0)
    assert said(reading, idle, now_ms=10) == "reading: 9 behind"
    assert said(idle, idle, now_ms=10) == "idle: no message since 1970-01-01 00:00:00 UTC"
    assert describe([], flush_interval_ms=1) == ""


def test_a_round_that_does_not_end_is_told_from_an_idle_topic() -> None:
    stuck, idle = Activity({A: 0}, 0), Activity({A: 9}, 0)
    for each in (stuck, idle):
        each.record_ends(reaching(9), now_ms=1_000)
    stuck.record_begin(a_range(0, 9), rows_max=100, now_ms=2_000)
    assert said(stuck, now_ms=11_000) == "reading: 9 behind"
    assert said(stuck, now_ms=602_000) == "reading: 9 behind, its round has been under way for 10 min"
    doing = stuck.doing(now_ms=602_000)
    assert (doing.round_seconds, doing.polled_ms, doing.seconds_left) == (600, 1_000, None)
    idle.record_ends(reaching(9), now_ms=601_500)
    doing = idle.doing(now_ms=602_000)
    assert (doing.kind, doing.round_seconds, doing.polled_ms, doing.seconds_left) == (
        ActivityKind.IDLE,
        0,
        601_500,
        None,
    )


def test_what_is_behind_has_an_end_at_the_present_rate() -> None:
    activity = Activity({A: 0}, 0)
    activity.record_ends(reaching(1_000), now_ms=0)
    activity.record_begin(a_range(0, 100), rows_max=100, now_ms=0)
    activity.record_commit(a_range(0, 100), now_ms=1_000)
    doing = activity.doing(now_ms=1_000)
    assert (doing.rate, doing.behind, doing.seconds_left) == (100, 900, 9)


def test_a_consumer_without_a_worker_says_what_it_waits_for() -> None:
    """This holds between rounds and within one: a round under way does not go on without a worker either."""
    for prepared in (Activity({A: 0}, 0), Activity({A: 9}, 0)):
        prepared.record_ends(reaching(9), now_ms=1)
        doing = prepared.doing(now_ms=10, waits_for="w: Spark is away since then")
        assert doing.kind is ActivityKind.WAITING
        assert describe([doing], flush_interval_ms=1000) == "waiting for a worker: w: Spark is away since then"
        assert prepared.doing(now_ms=10).kind is not ActivityKind.WAITING


def test_a_consumer_that_has_not_asked_for_messages_is_not_idle() -> None:
    """Its task prepares the views and does not know yet how many messages wait."""
    new = Activity({A: 0}, 5_000)
    assert said(new, now_ms=9_000) == "starting since 1970-01-01 00:00:05 UTC"
    new.record_ends(reaching(0), now_ms=9_000)
    assert said(new, now_ms=9_000) == "idle: no message since 1970-01-01 00:00:05 UTC"


def test_a_view_that_takes_long_is_named_while_its_first_round_runs() -> None:
    activity = Activity({A: 0}, 0)
    activity.record_ends(reaching(9), now_ms=1_000)
    activity.record_begin(a_range(0, 9), rows_max=100, now_ms=1_000)
    activity.record_view("db.slow", since_ms=3_000)
    assert (
        said(activity, now_ms=63_000)
        == "reading: 9 behind, its round has been under way for 62 s, view db.slow for 60 s of it"
    )
    shown = replace(NEW_CONSUMER, doing=activity.doing(now_ms=63_000))
    assert shown.slowest_view is not None
    assert shown.slowest_view[0] == "db.slow"
    assert shown.slowest_view[1] == pytest.approx(60 / 62)
    # A longer last round takes precedence, and a view that has ended is not shown.
    assert replace(shown, round_seconds=100.0, view_seconds={"db.other": 50.0}).slowest_view == ("db.other", 0.5)
    activity.record_view("", since_ms=64_000)
    assert replace(NEW_CONSUMER, doing=activity.doing(now_ms=65_000)).slowest_view is None
    activity.record_view("db.slow", since_ms=65_000)
    activity.record_commit(a_range(0, 9), now_ms=70_000)
    assert activity.doing(now_ms=71_000).view == ""


class Reports:
    """The reports of a watch."""

    def __init__(self) -> None:
        self.made: list[tuple[str, float]] = []
        self.came = threading.Semaphore(0)

    def __call__(self, view: str, seconds: float) -> None:
        self.made.append((view, seconds))
        self.came.release()
        raise UnavailableError("a report that is lost changes nothing")


def test_quick_views_are_not_reported_and_a_slow_one_is_with_its_end() -> None:
    clock, reports = ManualClock(), Reports()
    watch = ViewWatch(clock, reports)
    for view in ("db.a", "db.b"):
        watch.begin(view)
    watch.end()
    assert reports.made == []
    watch.begin("db.slow")
    until(clock, reports)
    watch.begin("db.c")
    watch.end()
    watch.end()
    assert reports.made == [("db.slow", SLOW_SECONDS), ("", 0.0)]


def until(clock: ManualClock, reports: Reports) -> None:
    """Let time pass until something is reported."""
    for _ in range(1_000):
        clock.advance(SLOW_SECONDS)
        if reports.came.acquire(timeout=0.01):
            return
    raise AssertionError("nothing was reported")


def unread_age(activity: Activity, *, now_ms: int) -> float | None:
    return activity.doing(now_ms=now_ms).oldest_unread_age


def test_the_age_of_the_oldest_unread_message_is_bounded() -> None:
    activity = Activity({A: 5}, 0)
    assert unread_age(activity, now_ms=1_000) is None
    activity.record_ends(reaching(9), now_ms=2_000)
    # Nobody knows when the first of the four was sent.
    assert unread_age(activity, now_ms=3_000) is None
    activity.record_commit(a_range(5, 7), now_ms=4_000, newest={A: 1_500})
    assert unread_age(activity, now_ms=4_500) == 3.0
    # The consumer hangs: the messages wait on.
    assert unread_age(activity, now_ms=64_500) == 63.0
    activity.record_commit(a_range(7, 9), now_ms=65_000, newest={A: 1_700})
    activity.record_ends(reaching(9), now_ms=66_000)
    assert unread_age(activity, now_ms=3_600_000) == 0.0
    activity.record_ends(reaching(9), now_ms=3_601_000)
    activity.record_ends(reaching(10), now_ms=3_602_000)
    # It came since the poll before, however old the last one is that was read.
    assert unread_age(activity, now_ms=3_603_000) == 2.0
    # Messages of an open transaction are unread, too.
    activity.record_commit(a_range(9, 10), now_ms=3_604_000)
    activity.record_ends(reaching(10, 12), now_ms=3_605_000)
    assert unread_age(activity, now_ms=3_605_000) == 4.0


def test_a_clock_of_a_producer_that_is_ahead_makes_no_message_younger_than_new() -> None:
    activity = Activity({A: 5}, 0)
    activity.record_ends(reaching(9), now_ms=2_000)
    activity.record_commit(a_range(5, 7), now_ms=4_000, newest={A: 9_000_000})
    assert unread_age(activity, now_ms=5_000) == 1.0


def test_a_consumer_that_is_started_again_knows_what_its_predecessor_knew_unless_its_offset_moved() -> None:
    activity = Activity({A: 5}, 0)
    activity.record_ends(reaching(5), now_ms=1_000)
    again, reset = activity.successor({A: 5}, now_ms=2_000), activity.successor({A: 0}, now_ms=2_000)
    for each in (again, reset):
        each.record_ends(reaching(8), now_ms=3_000)
    assert unread_age(again, now_ms=3_000) == 2.0
    assert unread_age(reset, now_ms=3_000) is None
