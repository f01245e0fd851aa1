"""Threads that are kept: each work has one at once, and those that nobody needs end."""

from __future__ import annotations

import threading

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


def test_threads_that_nobody_needs_end_and_work_that_comes_then_is_done() -> None:
    threads = KeptThreads("test-idle", idle_seconds=0.001)
    for _ in range(MANY):
        is_done = threading.Event()
        threads.start(is_done.set)
        assert is_done.wait(SECONDS_MAX)
    for thread in threading.enumerate():
        if thread.name == "test-idle":
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
