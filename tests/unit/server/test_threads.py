"""Calls from an event loop: results, errors, loops that have ended."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

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
    class PanicError(BaseException):
        """As a library in Rust raises it."""

    def panic() -> None:
        raise PanicError("index out of bounds")

    async def run() -> None:
        await CallThreads("test-panic").run(panic)

    with pytest.raises(Exception, match="a library has failed"):
        asyncio.run(run())


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
