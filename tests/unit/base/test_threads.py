"""Threads that are kept: each work has one at once, and those that nobody needs end."""

from __future__ import annotations

import threading

import pytest

from tilth.base.threads import KeptThreads

SECONDS_MAX = 30.0
MANY = 50


def test_no_work_waits_for_another_one() -> None:
    threads = KeptThreads("test-many")
    everybody = threading.Barrier(MANY + 1)
    for _ in range(MANY):
        # All of them must run at once for any of them to go on.
        threads.start(lambda: everybody.wait(SECONDS_MAX))
    everybody.wait(SECONDS_MAX)


def test_a_thread_is_used_again() -> None:
    threads = KeptThreads("test-again")
    used: list[int] = []
    for _ in range(MANY):
        is_done = threading.Event()

        def work(is_done: threading.Event = is_done) -> None:
            used.append(threading.get_ident())
            is_done.set()

        threads.start(work)
        assert is_done.wait(SECONDS_MAX)
    # A thread may be needed before the one of the work before waits again, which is rare.
    assert len(set(used)) < MANY / 2


@pytest.mark.parametrize("idle_seconds", [0.0, 0.001])
def test_threads_that_nobody_needs_end_and_work_that_comes_then_is_done(idle_seconds: float) -> None:
    threads = KeptThreads("test-idle", idle_seconds=idle_seconds)
    for _ in range(10 * MANY):
        is_done = threading.Event()
        threads.start(is_done.set)
        assert is_done.wait(SECONDS_MAX)
    all_end("test-idle")


def test_a_burst_leaves_few_threads_in_use() -> None:
    threads = KeptThreads("test-burst")
    everybody = threading.Barrier(MANY + 1)
    for _ in range(MANY):
        threads.start(lambda: everybody.wait(SECONDS_MAX))
    everybody.wait(SECONDS_MAX)
    # The threads of the burst come back one after the other; all have soon.
    assert any(len(used_one_by_one(threads)) < MANY / 5 for _ in range(MANY))


def used_one_by_one(threads: KeptThreads) -> set[int]:
    """Return the threads of works, each of which begins when the one before has ended."""
    used: set[int] = set()
    for _ in range(MANY):
        is_done = threading.Event()

        def work(is_done: threading.Event = is_done) -> None:
            used.add(threading.get_ident())
            is_done.set()

        threads.start(work)
        assert is_done.wait(SECONDS_MAX)
    return used


def all_end(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
