"""Work apart from the thread of its statement, and pauses that end early."""

from __future__ import annotations

import threading

import pytest

from tilth.base.cancel import Cancellation, apart, carry, current, pause, reaching, working_under
from tilth.base.clock import SystemClock
from tilth.base.errors import ConflictError, InvalidInputError, TilthError


class Work:
    """Remembers what it was asked."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.asked: list[str] = []

    def cancel(self) -> None:
        self.asked.append("cancel")

    def abandon(self) -> None:
        self.asked.append("abandon")


def test_all_that_a_statement_waits_for_is_reached_and_the_newest_is_shown() -> None:
    cancellation, works = Cancellation(), [Work("t1"), Work("t2"), Work("")]
    assert cancellation.work_id == ""
    for work in works:
        cancellation.hand_over(work)
    assert cancellation.work_id == "t2"
    cancellation.let_go(works[1])
    cancellation.abandon()
    assert cancellation.cancel(ConflictError("enough"))
    cancellation.abandon()
    late = Work("t3")
    cancellation.hand_over(late)
    assert [work.asked for work in (*works, late)] == [["cancel", "abandon"], [], ["cancel", "abandon"], ["cancel"]]


def test_a_pause_ends_with_its_statement() -> None:
    cancellation = Cancellation()
    timer = threading.Timer(0.05, lambda: cancellation.cancel(ConflictError("enough")))
    timer.start()
    with working_under(cancellation), pytest.raises(ConflictError, match="enough"):
        pause(SystemClock(), 60)
    pause(SystemClock(), 0.001)


def test_a_statement_does_not_wait_for_work_apart_that_does_not_end() -> None:
    cancellation, may_end, inner = Cancellation(), threading.Event(), Work("inner")
    ended: list[bool] = []

    def act() -> str:
        assert current.get() is cancellation
        with reaching(inner):
            ended.append(may_end.wait(10))
        return "done"

    def end() -> None:
        while not cancellation.work_id:
            threading.Event().wait(0.001)
        cancellation.cancel(ConflictError("enough", hint="nothing was applied"))
        cancellation.abandon()

    thread = threading.Thread(target=end)
    thread.start()
    with working_under(cancellation), pytest.raises(ConflictError, match="enough") as raised:
        apart(act, name="test", hint="what is done stays")
    thread.join(10)
    assert (inner.asked, ended) == (["cancel", "abandon"], [])
    assert raised.value.hint == "what is done stays"
    assert cancellation.error is not None
    assert cancellation.error.hint == "nothing was applied"
    may_end.set()


def test_work_apart_gives_its_own_result_and_error() -> None:
    def refuse() -> None:
        raise InvalidInputError("no")

    for cancellation in (None, Cancellation()):
        with working_under(cancellation):
            assert apart(lambda: 7, name="test", hint="") == 7
            with pytest.raises(InvalidInputError, match="no"):
                apart(refuse, name="test", hint="")


def test_threads_of_a_statement_see_its_end() -> None:
    cancellation = Cancellation()
    seen: list[TilthError | None] = []

    def look(number: int) -> None:
        found = current.get()
        seen.append(found.error if found is not None else None)

    with working_under(cancellation):
        looking = carry(look)
    cancellation.cancel(ConflictError("enough"))
    thread = threading.Thread(target=looking, args=(1,))
    thread.start()
    thread.join(10)
    assert [str(error) for error in seen] == ["enough"]
