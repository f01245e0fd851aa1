"""Groups of small inserts: who waits for whom, and that everybody gets an answer of his own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

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


def test_the_first_leads_and_waits_at_most_its_time() -> None:
    gathering = Gathering()
    assert gathering.arrive(insert(1))
    assert not gathering.arrive(insert(2, arrived=0.004))
    assert gathering.seconds_left(0.004) == pytest.approx(0.006)
    assert gathering.seconds_left(0.02) == 0
    assert ids(gathering.begin_batch()) == [1, 2]


def test_while_one_batch_is_at_work_the_next_one_gathers() -> None:
    gathering = Gathering()
    gathering.arrive(insert(1))
    gathering.begin_batch()
    assert not gathering.arrive(insert(2))
    assert not gathering.arrive(insert(3))
    assert gathering.done() == 2
    # Its time was over while it waited for the work before it.
    assert gathering.seconds_left(0.5) == 0
    assert ids(gathering.begin_batch()) == [2, 3]
    assert gathering.done() is None


def test_a_full_batch_does_not_wait() -> None:
    gathering = Gathering()
    gathering.arrive(insert(1, rows=60))
    assert gathering.seconds_left(0.0) > 0
    gathering.arrive(insert(2, rows=40))
    assert gathering.seconds_left(0.0) == 0
    gathering.arrive(insert(3))
    assert ids(gathering.begin_batch()) == [1, 2]
    assert gathering.done() == 3


def test_shapes_and_equal_labels_do_not_share_a_batch() -> None:
    gathering = Gathering()
    for each in (insert(1, label="a"), insert(2, label="b"), insert(3, label="a"), insert(4, shape=2)):
        gathering.arrive(each)
    assert gathering.seconds_left(0.0) == 0
    batches = []
    while gathering.waiting:
        batches.append(ids(gathering.begin_batch()))
        gathering.done()
    assert batches == [[1, 2], [3], [4]]


class Crowd:
    """Threads that insert at once; the first batch is held until all have come."""

    def __init__(self, store: Callable[[Sequence[str]], None] | None = None) -> None:
        self.clock = ManualClock()
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
            self.batches.add("t", offered, shape=1, label=label, limits=LIMITS)
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


def test_a_leader_that_is_cancelled_while_it_gathers_leaves_its_batch_to_the_next() -> None:
    gathering = Gathering()
    inserts = [insert(number) for number in (1, 2, 3)]
    for each in inserts:
        gathering.arrive(each)
    assert gathering.withdraw(inserts[1]) is None
    assert gathering.withdraw(inserts[0]) == 3
    assert gathering.withdraw(inserts[2]) is None
    assert gathering.arrive(insert(4)), "the table is idle again"


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
