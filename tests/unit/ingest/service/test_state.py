"""The state machine of a CONSUME service: observations in, instructions out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.oracle import Row, oracle
from tilth.ingest.service.state import (
    ConsumerState,
    EndKind,
    ServiceLifecycle,
    StartConsumer,
    StopConsumer,
    TableObservation,
    next_backoff_ms,
)
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceState

WELL = TableObservation(is_wanted=True, definition="d1", consumers=2, partitions={"t": 3})


def assigned(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", p) for p in partitions)


def state_of(heart: ServiceLifecycle) -> str:
    return heart.state.value


def running_heart() -> ServiceLifecycle:
    heart = ServiceLifecycle()
    assert heart.observe(WELL, now_ms=0) == [StartConsumer(0, assigned(0, 2)), StartConsumer(1, assigned(1))]
    return heart


@pytest.mark.parametrize("row", oracle("consumers", "Back-off"))
def test_oracle_back_off(row: Row) -> None:
    assert next_backoff_ms(int(row["failures"])) == int(row["wait (ms)"])


def test_starts_each_consumer_once() -> None:
    heart = running_heart()
    assert heart.state is ServiceState.RUNNING
    assert heart.reason == "2 consumers"
    assert heart.observe(WELL, now_ms=1) == []
    assert heart.tick(now_ms=2) == []


def test_failed_consumer_is_replaced_after_growing_waits() -> None:
    heart = running_heart()
    for failures, wait_ms in ((1, 100), (2, 200), (3, 400)):
        heart.record_end(1, EndKind.FAILURE, "it broke", now_ms=1000)
        assert state_of(heart) == "failed"
        assert heart.reason == "it broke"
        assert heart.consumers[1].failures == failures
        assert heart.next_retry_ms() == 1000 + wait_ms
        assert heart.tick(now_ms=1000 + wait_ms - 1) == []
        assert heart.tick(now_ms=1000 + wait_ms) == [StartConsumer(1, assigned(1))]
        assert state_of(heart) == "running"
    heart.record_commit(1)
    heart.record_end(1, EndKind.FAILURE, "again", now_ms=0)
    assert heart.next_retry_ms() == 100


def test_stale_consumer_does_not_wait_longer_each_time() -> None:
    heart = running_heart()
    for _ in range(5):
        heart.record_end(0, EndKind.STALE, "fenced", now_ms=0)
        assert heart.next_retry_ms() == 100
        assert heart.tick(now_ms=100) == [StartConsumer(0, assigned(0, 2))]


def test_change_of_definition_stops_all_before_any_starts() -> None:
    heart = running_heart()
    changed = replace(WELL, definition="d2", consumers=1)
    assert heart.observe(changed, now_ms=1) == [
        StopConsumer(0, "definition changed"),
        StopConsumer(1, "definition changed"),
    ]
    # Told again: the first time may have come while they were being dispatched.
    assert heart.observe(changed, now_ms=2) == [
        StopConsumer(0, "definition changed"),
        StopConsumer(1, "definition changed"),
    ]
    heart.record_end(1, EndKind.REQUESTED, "", now_ms=3)
    assert heart.tick(now_ms=3) == []
    heart.record_end(0, EndKind.REQUESTED, "", now_ms=4)
    assert heart.tick(now_ms=4) == [StartConsumer(0, assigned(0, 1, 2))]


def test_new_partitions_are_shared_out_anew() -> None:
    heart = running_heart()
    grown = replace(WELL, partitions={"t": 4})
    assert heart.observe(grown, now_ms=1) == [
        StopConsumer(0, "partitions changed"),
        StopConsumer(1, "partitions changed"),
    ]
    heart.record_end(0, EndKind.REQUESTED, "", now_ms=2)
    heart.record_end(1, EndKind.REQUESTED, "", now_ms=2)
    assert heart.tick(now_ms=2) == [StartConsumer(0, assigned(0, 2)), StartConsumer(1, assigned(1, 3))]


def test_stop_is_kept_and_ended() -> None:
    heart = running_heart()
    off = replace(WELL, is_wanted=False, because="maintenance")
    assert heart.observe(off, now_ms=1) == [StopConsumer(0, "maintenance"), StopConsumer(1, "maintenance")]
    assert not heart.is_quiet()
    heart.record_end(0, EndKind.REQUESTED, "", now_ms=2)
    # A consumer that fails while it is told to stop is stopped all the same.
    heart.record_end(1, EndKind.FAILURE, "late", now_ms=2)
    assert heart.is_quiet()
    assert (heart.state, heart.reason) == (ServiceState.STOPPED, "maintenance")
    assert heart.tick(now_ms=10**9) == []
    assert len(heart.observe(WELL, now_ms=3)) == 2


def test_missing_dependency_waits_with_its_reason() -> None:
    heart = running_heart()
    missing = replace(WELL, missing="the target of a view is gone")
    assert [type(each) for each in heart.observe(missing, now_ms=1)] == [StopConsumer, StopConsumer]
    assert (heart.state, heart.reason) == (ServiceState.WAITING, "the target of a view is gone")


def test_what_was_missing_is_not_said_once_a_definition_has_changed() -> None:
    heart = running_heart()
    missing = replace(WELL, missing="no materialized view reads from d.k")
    heart.definition_changed()
    assert (heart.state, heart.reason) == (ServiceState.RUNNING, "2 consumers")
    heart.begin_poll()
    heart.observe(missing, now_ms=1)
    assert heart.reason == "no materialized view reads from d.k"
    heart.definition_changed()
    assert (heart.state, heart.reason) == (ServiceState.WAITING, "reading its definitions and its topic")
    # A look that began before the change.
    heart.observe(missing, now_ms=2)
    assert heart.reason == "reading its definitions and its topic"
    heart.begin_poll()
    heart.observe(missing, now_ms=3)
    assert heart.reason == "no materialized view reads from d.k"


def test_broker_that_comes_back_cuts_the_wait() -> None:
    heart = running_heart()
    for _ in range(8):
        heart.record_end(0, EndKind.BROKER, "no answer", now_ms=0)
        heart.tick(now_ms=10**9)
    heart.record_end(0, EndKind.BROKER, "no answer", now_ms=0)
    trouble = replace(WELL, partitions={}, trouble="no answer")
    assert heart.observe(trouble, now_ms=1) == []
    assert heart.state is ServiceState.FAILED
    assert heart.next_retry_ms() is None
    # The other one was not touched: it runs on as soon as messages come.
    assert heart.consumers[1].state is ConsumerState.RUNNING
    assert heart.observe(WELL, now_ms=2) == [StartConsumer(0, assigned(0, 2))]


def test_gap_stops_the_consumer_that_owns_it_and_no_other() -> None:
    heart = running_heart()
    gap = replace(WELL, gaps=frozenset(assigned(1)))
    assert heart.observe(gap, now_ms=1) == [StopConsumer(1, "messages are missing")]
    heart.record_end(1, EndKind.REQUESTED, "", now_ms=2)
    assert heart.tick(now_ms=10**9) == []
    assert heart.next_retry_ms() is None
    assert state_of(heart) == "failed"
    assert "t/1" in heart.reason
    assert heart.observe(WELL, now_ms=3) == [StartConsumer(1, assigned(1))]
    assert state_of(heart) == "running"


def test_the_reason_is_that_of_a_consumer_that_is_still_down() -> None:
    """Two consumers fail for different reasons; that of one that runs again is not shown any more."""
    heart = ServiceLifecycle()
    heart.observe(TableObservation(is_wanted=True, consumers=2, partitions={"t": 2}), now_ms=0)
    for _ in range(5):
        heart.record_end(0, EndKind.FAILURE, "the view fails", now_ms=0)
        heart.consumers[0].state = ConsumerState.RUNNING
    heart.record_end(0, EndKind.FAILURE, "the view fails", now_ms=0)
    heart.record_end(1, EndKind.FAILURE, "Spark is away", now_ms=0)
    assert heart.reason == "Spark is away"
    heart.tick(now_ms=heart.consumers[1].retry_at_ms)
    assert heart.consumers[1].state is ConsumerState.RUNNING
    assert (heart.state, heart.reason) == (ServiceState.FAILED, "the view fails")
    assert (heart.consumers[0].why, heart.consumers[1].why) == ("the view fails", "")
    heart.observe(TableObservation(is_wanted=False, because="maintenance window"), now_ms=1)
    heart.record_end(1, EndKind.REQUESTED, "the task was cancelled", now_ms=1)
    assert (heart.reason, heart.consumers[0].why, heart.consumers[1].why) == ("maintenance window", "", "")


def test_a_broker_that_is_back_is_not_the_reason_any_more() -> None:
    heart = ServiceLifecycle()
    seen = TableObservation(is_wanted=True, consumers=2, partitions={"t": 2})
    heart.observe(seen, now_ms=0)
    for _ in range(5):
        heart.record_end(0, EndKind.FAILURE, "the view fails", now_ms=0)
        heart.consumers[0].state = ConsumerState.RUNNING
    heart.record_end(0, EndKind.FAILURE, "the view fails", now_ms=0)
    heart.observe(TableObservation(is_wanted=True, trouble="no broker"), now_ms=10)
    assert "waiting for the broker" in heart.reason
    heart.observe(seen, now_ms=20)
    assert (heart.state, heart.reason) == (ServiceState.FAILED, "the view fails")
