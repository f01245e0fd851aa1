"""Groups of small inserts: who waits for whom, and that everybody gets an answer of his own."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from tests.panics import PanicError
from tests.waiting import wait_until
from tilth.base.cancel import Cancellation, working_under
from tilth.base.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    TilthError,
    UnavailableError,
    UnknownOutcomeError,
)
from tilth.catalog import LabelTakenError, SchemaChangedError
from tilth.control.insert_batches import (
    SETTLE_SECONDS,
    BatchLimits,
    Gathering,
    InsertBatches,
    InsertStats,
    OfferedInsert,
    Waiting,
)
from tilth.testing import ManualClock

LIMITS = BatchLimits(wait_seconds=0.01, bytes_max=1000, rows_max=100)


def insert(number: int, *, rows: int = 1, shape: int = 1, label: str = "", arrived: float = 0.0) -> Waiting:
    return Waiting(id=number, rows=rows, bytes=rows, shape=shape, label=label, limits=LIMITS, arrived=arrived)


def ids(batch: Sequence[Waiting]) -> list[int]:
    return [each.id for each in batch]


def gathering(*inserts: Waiting) -> Gathering:
    return Gathering(deque(inserts))


def test_the_first_waits_at_most_its_time_and_the_others_with_it() -> None:
    waiting = gathering(insert(1), insert(2, arrived=0.004))
    assert waiting.seconds_left(0.004) == pytest.approx(0.006)
    assert waiting.seconds_left(0.02) == 0
    assert ids(waiting.begin_batch()) == [1, 2]
    assert not waiting.waiting


def test_a_full_batch_does_not_wait() -> None:
    waiting = gathering(insert(1, rows=60))
    assert waiting.seconds_left(0.0) > 0
    waiting.waiting.append(insert(2, rows=40))
    assert waiting.seconds_left(0.0) == 0
    waiting.waiting.append(insert(3))
    assert ids(waiting.begin_batch()) == [1, 2]
    assert ids(waiting.begin_batch()) == [3]


def test_the_strictest_limits_of_a_batch_count() -> None:
    strict = replace(insert(2), limits=replace(LIMITS, rows_max=2))
    assert ids(gathering(insert(1), strict, insert(3)).begin_batch()) == [1, 2]
    small = replace(insert(2, rows=3), limits=replace(LIMITS, bytes_max=4))
    assert ids(gathering(insert(1), small, insert(3)).begin_batch()) == [1, 2]


def test_shapes_and_equal_labels_do_not_share_a_batch() -> None:
    waiting = gathering(insert(1, label="a"), insert(2, label="b"), insert(3, label="a"), insert(4, shape=2))
    assert waiting.seconds_left(0.0) == 0
    batches = []
    while waiting.waiting:
        batches.append(ids(waiting.begin_batch()))
    assert batches == [[1, 2], [3], [4]]


class Crowd:
    """Threads that insert at once; the first batch is held until all have come."""

    def __init__(self, store: Callable[[Sequence[str]], None] | None = None) -> None:
        self.clock = ManualClock()
        self.limits = LIMITS
        self.batches = InsertBatches[str](self.clock)
        self.stored: list[list[str]] = []
        self.outcomes: dict[str, BaseException | None] = {}
        self.may_store = threading.Event()
        self.is_storing = threading.Event()
        self._store = store
        self._threads: list[threading.Thread] = []

    def _stored(self, payloads: Sequence[str]) -> None:
        self.is_storing.set()
        self.may_store.wait(10)
        self.stored.append(list(payloads))
        if self._store is not None:
            self._store(payloads)

    def insert(self, *payloads: str, label: str = "") -> None:
        for payload in payloads:
            before = len(self.batches._tickets)
            thread = threading.Thread(target=self._insert, args=(payload, label))
            thread.start()
            self._threads.append(thread)
            while thread.is_alive() and len(self.batches._tickets) == before:
                threading.Event().wait(0.001)

    def _insert(self, payload: str, label: str) -> None:
        self.outcomes[payload] = None
        offered = OfferedInsert(payload=payload, rows=1, bytes=1, store=self._stored)
        try:
            self.batches.add("t", offered, shape=1, label=label, limits=self.limits)
        # Also what ends a program.
        except BaseException as error:
            self.outcomes[payload] = error

    def wait(self) -> None:
        self.may_store.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


def test_those_who_come_meanwhile_share_the_next_commit() -> None:
    crowd = Crowd()
    crowd.insert("a")
    crowd.is_storing.wait(10)
    crowd.insert("b", "c", "d")
    crowd.wait()
    assert crowd.stored == [["a"], ["b", "c", "d"]]
    assert crowd.outcomes == dict.fromkeys("abcd")
    assert crowd.batches.stats() == InsertStats(batched=4, batches=2)


def test_one_s_fault_is_no_other_s() -> None:
    def store(payloads: Sequence[str]) -> None:
        if "bad" in payloads:
            raise InvalidInputError("it is bad")
        if "taken" in payloads:
            raise LabelTakenError(label="taken")

    crowd = Crowd(store)
    crowd.insert("a")
    crowd.is_storing.wait(10)
    crowd.insert("b", "bad", "taken", "c")
    crowd.wait()
    told = {payload: getattr(error, "code", None) for payload, error in crowd.outcomes.items()}
    assert told == {"a": None, "b": None, "bad": "INVALID_INPUT", "taken": "INSERT_LABEL_TAKEN", "c": None}
    assert crowd.stored[2:] == [["b"], ["bad"], ["taken"], ["c"]]


@pytest.mark.parametrize("error", [SchemaChangedError(), UnknownOutcomeError(), UnavailableError(), ValueError("odd")])
def test_what_refuses_the_batch_is_told_to_each(error: Exception) -> None:
    def store(payloads: Sequence[str]) -> None:
        raise error

    crowd = Crowd(store)
    crowd.insert("a")
    crowd.is_storing.wait(10)
    crowd.insert("b", "c")
    crowd.wait()
    assert len(crowd.stored) == 2
    told = list(crowd.outcomes.values())
    assert len({id(each) for each in told}) == 3
    assert {type(each) for each in told} == {type(error) if isinstance(error, TilthError) else TilthError}


def test_work_that_is_broken_off_is_answered_to_all() -> None:
    """As when something ends its thread: what became of the rows is not known."""

    def store(payloads: Sequence[str]) -> None:
        if "b" in payloads:
            raise SystemExit

    crowd = Crowd(store)
    crowd.insert("a")
    crowd.is_storing.wait(10)
    crowd.insert("b", "c")
    crowd.wait()
    crowd.insert("d")
    crowd.wait()
    assert crowd.stored == [["a"], ["b", "c"], ["d"]]
    told = {payload: type(error) for payload, error in crowd.outcomes.items()}
    assert told == {"a": type(None), "b": UnknownOutcomeError, "c": UnknownOutcomeError, "d": type(None)}


def cancel_reason() -> ConflictError:
    return ConflictError.coded("QUERY_WAS_CANCELLED", "the query was cancelled", by="a test")


def cancelled(crowd: Crowd, *, at: str) -> tuple[Cancellation, threading.Thread]:
    """An insert of a statement that can be cancelled; returns when it waits."""
    cancellation = Cancellation()

    def act() -> None:
        with working_under(cancellation):
            crowd._insert(at, "")

    thread = threading.Thread(target=act)
    before = len(crowd.batches._tickets)
    thread.start()
    while len(crowd.batches._tickets) == before:
        threading.Event().wait(0.001)
    return cancellation, thread


def test_an_insert_that_is_cancelled_before_its_batch_is_at_work_is_not_stored() -> None:
    crowd = Crowd()
    crowd.insert("a")
    crowd.is_storing.wait(10)
    # It would lead the next batch.
    first, thread = cancelled(crowd, at="b")
    crowd.insert("c")
    first.cancel(cancel_reason())
    thread.join(10)
    assert not thread.is_alive()
    crowd.wait()
    assert crowd.stored == [["a"], ["c"]]
    assert [getattr(crowd.outcomes[one], "code", None) for one in "abc"] == [None, "QUERY_WAS_CANCELLED", None]
    crowd.insert("d")
    crowd.wait()
    assert crowd.stored[2:] == [["d"]]
    assert (crowd.batches._tables, crowd.batches._tickets) == ({}, {})


def test_a_cancelled_insert_leaves_the_others_of_its_batch_and_an_idle_table() -> None:
    crowd = Crowd()
    crowd.may_store.set()
    crowd.limits = replace(LIMITS, wait_seconds=math.inf)
    first, one = cancelled(crowd, at="a")
    second, two = cancelled(crowd, at="b")
    first.cancel(cancel_reason())
    one.join(10)
    second.cancel(cancel_reason())
    two.join(10)
    assert [getattr(crowd.outcomes[each], "code", None) for each in "ab"] == ["QUERY_WAS_CANCELLED"] * 2
    wait_until(lambda: not crowd.batches._tables, "the end of the table's thread")
    crowd.limits = LIMITS
    crowd.insert("c")
    crowd.wait()
    assert crowd.stored == [["c"]]


def test_a_statement_that_was_cancelled_before_is_not_stored() -> None:
    crowd, cancellation = Crowd(), Cancellation()
    cancellation.cancel(cancel_reason())
    offered = OfferedInsert(payload="a", rows=1, bytes=1, store=crowd._stored)
    with working_under(cancellation), pytest.raises(ConflictError):
        crowd.batches.add("t", offered, shape=1, label="", limits=LIMITS)
    assert (crowd.stored, crowd.batches._tables, crowd.batches._tickets) == ([], {}, {})
    crowd.batches.stop()


def test_an_offered_insert_needs_no_thread_and_is_answered_once() -> None:
    crowd = Crowd()
    answers: list[tuple[str, TilthError | None]] = []
    crowd.insert("first")
    crowd.is_storing.wait(10)
    before = threading.active_count()
    for payload in "abcdefgh":
        offered = OfferedInsert(payload=payload, rows=1, bytes=1, store=crowd._stored)
        given = partial(lambda name, error: answers.append((name, error)), payload)
        crowd.batches.offer("t", offered, shape=1, label="", limits=LIMITS, answer=given)
    assert threading.active_count() == before
    crowd.wait()
    wait_until(lambda: len(answers) == 8, "the answers")
    crowd.batches.stop()
    assert answers == [(payload, None) for payload in "abcdefgh"]
    assert crowd.stored == [["first"], list("abcdefgh")]


def test_an_offered_insert_with_an_error_may_wait_and_holds_up_nobody() -> None:
    """It may be tried again, in a batch of its own."""

    def store(payloads: Sequence[str]) -> None:
        if "bad" in payloads:
            raise InvalidInputError("it is bad")

    crowd, answers = Crowd(store), list[str]()
    crowd.may_store.set()
    again = OfferedInsert(payload="again", rows=1, bytes=1, store=crowd._stored)

    def try_again(error: TilthError | None) -> None:
        assert isinstance(error, InvalidInputError)
        crowd.batches.add("t", again, shape=1, label="", limits=now)
        answers.append("again")

    def broken(error: TilthError | None) -> None:
        answers.append("broken")
        raise PanicError("an answer that cannot be given")

    now = replace(LIMITS, wait_seconds=0.0)
    for payload, answer in (("bad", try_again), ("good", broken), ("last", lambda _: answers.append("last"))):
        offered = OfferedInsert(payload=payload, rows=1, bytes=1, store=crowd._stored)
        crowd.batches.offer("t", offered, shape=1, label="", limits=now, answer=answer)
    wait_until(lambda: len(answers) == 3, "the answers")
    crowd.batches.stop()
    assert sorted(answers) == ["again", "broken", "last"]
    assert crowd.stored.count(["again"]) == 1


def test_an_insert_that_is_cancelled_while_its_batch_is_at_work_gets_the_outcome_of_the_batch() -> None:
    crowd = Crowd()
    cancellation, thread = cancelled(crowd, at="a")
    crowd.is_storing.wait(10)
    cancellation.cancel(cancel_reason())
    cancellation.abandon()
    crowd.may_store.set()
    thread.join(10)
    assert (crowd.stored, crowd.outcomes) == ([["a"]], {"a": None})


def test_the_outcome_of_a_cancelled_insert_whose_batch_does_not_end_is_unknown() -> None:
    crowd = Crowd()
    cancellation, thread = cancelled(crowd, at="a")
    crowd.is_storing.wait(10)
    crowd.insert("b")
    cancellation.cancel(cancel_reason())
    crowd.clock.advance(SETTLE_SECONDS - 0.1)
    assert thread.is_alive()
    while thread.is_alive():
        crowd.clock.advance(0.1)
        thread.join(0.01)
    error = crowd.outcomes["a"]
    assert isinstance(error, TilthError)
    assert error.code == "INSERT_OUTCOME_UNKNOWN"
    assert error.kind is ErrorKind.UNKNOWN_OUTCOME
    assert "by=a test" in error.message
    crowd.wait()
    # The others of the batch, and those behind it, are stored.
    assert crowd.stored == [["a"], ["b"]]


def test_a_server_that_stops_answers_those_who_wait_and_takes_no_others() -> None:
    crowd = Crowd()
    crowd.insert("a")
    crowd.is_storing.wait(10)
    crowd.insert("b", "c")
    stopping = threading.Thread(target=crowd.batches.stop)
    stopping.start()
    crowd.wait()
    stopping.join(10)
    assert crowd.outcomes == dict.fromkeys("abc")
    offered = OfferedInsert(payload="d", rows=1, bytes=1, store=crowd._stored)
    with pytest.raises(UnavailableError, match="stopping"):
        crowd.batches.add("t", offered, shape=1, label="", limits=LIMITS)
