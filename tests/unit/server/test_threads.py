"""Calls from an event loop: results, errors, loops that have ended."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from tests.panics import PanicError
from tests.waiting import wait_until
from tilth.base.errors import ErrorKind, TilthError
from tilth.base.threads import Completion
from tilth.server.threads import CallThreads

SECONDS_MAX = 30.0


def twice(number: int) -> int:
    return number * 2


def test_each_call_gets_its_own_result() -> None:
    threads = CallThreads("test-calls")

    async def run() -> list[int]:
        return await asyncio.gather(*(threads.run(partial(twice, number)) for number in range(200)))

    assert asyncio.run(run()) == [number * 2 for number in range(200)]
    # A later loop, as each request of a test has one.
    assert asyncio.run(run()) == [number * 2 for number in range(200)]


def test_an_error_is_raised_where_it_is_awaited_and_nowhere_else() -> None:
    threads = CallThreads("test-errors")

    def fail(number: int) -> int:
        if number % 2:
            raise KeyError(number)
        return number

    async def run() -> list[int | BaseException]:
        calls = (threads.run(partial(fail, number)) for number in range(6))
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(run())
    assert found[::2] == [0, 2, 4]
    assert [type(each) for each in found[1::2]] == [KeyError] * 3


def test_what_is_no_exception_becomes_one() -> None:
    def panic() -> None:
        raise PanicError("index out of bounds")

    async def run() -> None:
        await CallThreads("test-panic").run(panic)

    with pytest.raises(Exception, match="a library has failed"):
        asyncio.run(run())


class OwnStopError(StopIteration):
    """As a library may have it."""


@pytest.mark.parametrize("end", [StopIteration, OwnStopError, StopAsyncIteration])
def test_the_end_of_an_iterator_is_a_defect_and_harms_no_neighbour(end: type[Exception]) -> None:
    threads = CallThreads("test-end")
    everybody = threading.Barrier(4)

    def act(number: int) -> int:
        everybody.wait(SECONDS_MAX)
        if number == 1:
            raise end("it was empty")
        return number

    async def run() -> list[int | BaseException]:
        calls = (threads.run(partial(act, number)) for number in range(4))
        async with asyncio.timeout(SECONDS_MAX):
            return await asyncio.gather(*calls, return_exceptions=True)

    first, failed, *others = asyncio.run(run())
    assert [first, *others] == [0, 2, 3]
    assert isinstance(failed, TilthError)
    assert (failed.kind, type(failed.__cause__)) == (ErrorKind.INTERNAL, end)
    assert "it was empty" in failed.message


def test_a_result_that_cannot_be_handed_over_holds_up_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    threads = CallThreads("test-broken")

    class BrokenFuture(asyncio.Future[int]):
        def set_result(self, result: int) -> None:
            raise TypeError("no result is good enough")

    async def run() -> list[int]:
        loop, make, calls = asyncio.get_running_loop(), asyncio.Future[int], []
        may_end = threading.Event()

        def act(number: int) -> int:
            assert may_end.wait(SECONDS_MAX)
            return number

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "create_future", BrokenFuture)
            broken = asyncio.ensure_future(threads.run(partial(act, 0)))
            await asyncio.sleep(0)
            patch.setattr(loop, "create_future", make)
            calls = [asyncio.ensure_future(threads.run(partial(act, number))) for number in range(1, 4)]
            await asyncio.sleep(0)
        may_end.set()
        async with asyncio.timeout(SECONDS_MAX):
            found = await asyncio.gather(*calls)
            while "result_failed" not in caplog.text:
                await asyncio.sleep(0)
        broken.cancel()
        return found

    assert asyncio.run(run()) == [1, 2, 3]


def test_a_result_that_nobody_awaits_is_dropped_once() -> None:
    threads = CallThreads("test-dropped")
    made: list[int] = []
    dropped: list[int] = []
    all_are_over = threading.Semaphore(0)

    def act(number: int) -> int:
        made.append(number)
        all_are_over.release()
        return number

    async def run() -> list[int | BaseException]:
        calls = []
        for number in range(200):
            call = asyncio.ensure_future(threads.run(partial(act, number), drop=dropped.append))
            calls.append(call)
            # Some are left before they begin, some while they are made, some when the result is there.
            for _ in range(number % 4):
                await asyncio.sleep(0)
            if number % 8 > 3:
                assert number % 4 == 0 or all_are_over.acquire(timeout=SECONDS_MAX)
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    found = [each for each in asyncio.run(run()) if isinstance(each, int)]
    wait_until(lambda: len(found) + len(dropped) == len(made), "results that are dropped")
    assert sorted(found + dropped) == sorted(made)
    assert dropped


def test_a_result_is_dropped_when_its_loop_is_closed_and_an_error_of_that_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = CallThreads("test-closed")
    may_go_on, was_told = threading.Event(), threading.Event()

    def slow() -> int:
        assert may_go_on.wait(SECONDS_MAX)
        return 5

    def drop(result: int) -> None:
        was_told.set()
        raise KeyError(result)

    async def leave() -> None:
        left = asyncio.ensure_future(threads.run(slow, drop=drop))
        await asyncio.sleep(0)
        left.cancel()

    asyncio.run(leave())
    may_go_on.set()
    assert was_told.wait(SECONDS_MAX)
    wait_until(lambda: "result_not_dropped" in caplog.text, "the line of the log")


def test_a_call_goes_on_when_nobody_awaits_it_and_harms_no_later_one() -> None:
    threads = CallThreads("test-left")
    may_go_on, is_over = threading.Event(), threading.Event()

    def slow() -> None:
        assert may_go_on.wait(SECONDS_MAX)
        is_over.set()

    async def leave() -> None:
        left = asyncio.ensure_future(threads.run(slow))
        await asyncio.sleep(0)
        left.cancel()

    asyncio.run(leave())
    # Its loop is closed by now.
    may_go_on.set()
    assert is_over.wait(SECONDS_MAX)
    assert asyncio.run(threads.run(lambda: 7)) == 7


def test_a_short_call_gives_its_result_at_once_or_later() -> None:
    threads, pending = CallThreads("test-later"), list[Completion[int]]()
    all_wait = threading.Event()

    def act(number: int, later: Completion[int]) -> int | None:
        if number == 0:
            return 0
        pending.append(later)
        if len(pending) == 3:
            all_wait.set()
        return None

    def answer() -> None:
        assert all_wait.wait(SECONDS_MAX)
        for number, later in enumerate(pending, start=1):
            later(partial(answered, number))

    def answered(number: int) -> int:
        if number == 2:
            raise KeyError(number)
        return number

    async def run() -> list[int | BaseException]:
        calls = (threads.run_short(partial(act, number)) for number in range(4))
        threading.Thread(target=answer).start()
        async with asyncio.timeout(SECONDS_MAX):
            found: list[int | BaseException] = await asyncio.gather(*calls, return_exceptions=True)
        return found

    for _ in range(2):
        found = asyncio.run(run())
        assert found[:2] + found[3:] == [0, 1, 3]
        assert isinstance(found[2], KeyError)
        pending.clear()
        all_wait.clear()


def test_short_calls_that_wait_for_each_other_all_end() -> None:
    """A short call may take long after all: each of these waits for the ones behind it."""
    threads, everybody = CallThreads("test-barrier"), threading.Barrier(8)

    def act(_: Completion[int]) -> int:
        return everybody.wait(SECONDS_MAX)

    async def run() -> list[int]:
        async with asyncio.timeout(SECONDS_MAX):
            return await asyncio.gather(*(threads.run_short(act) for _ in range(8)))

    assert sorted(asyncio.run(run())) == list(range(8))
    # Another loop, while the timer of the first one is gone.
    assert sorted(asyncio.run(run())) == list(range(8))


def test_a_late_result_that_nobody_awaits_is_dropped() -> None:
    threads, pending, dropped = CallThreads("test-late"), list[Completion[int]](), list[int]()

    def act(later: Completion[int]) -> None:
        pending.append(later)

    async def leave() -> None:
        left = asyncio.ensure_future(threads.run_short(act, drop=dropped.append))
        while not pending:
            await asyncio.sleep(0.001)
        left.cancel()

    asyncio.run(leave())
    pending[0](lambda: 5)
    wait_until(lambda: dropped == [5], "the result that is dropped")
