"""A cached thread pool: each job has a thread at once, and threads that nobody needs end."""

from __future__ import annotations

import threading

import pytest

from tilth.base.threads import CachedThreadPool

SECONDS_MAX = 30.0
MANY = 50


def test_no_job_waits_for_another_one() -> None:
    pool = CachedThreadPool("test-many")
    everybody = threading.Barrier(MANY + 1)
    for _ in range(MANY):
        # All of them must run at once for any of them to go on.
        pool.start(lambda: everybody.wait(SECONDS_MAX))
    everybody.wait(SECONDS_MAX)


def test_a_thread_is_used_again() -> None:
    used = used_one_by_one(CachedThreadPool("test-again"))
    # A thread may be needed before that of the job before waits again, which is rare.
    assert len(used) < MANY / 2


@pytest.mark.parametrize("idle_seconds", [0.0, 0.001])
def test_threads_that_nobody_needs_end_and_jobs_that_come_then_are_done(idle_seconds: float) -> None:
    pool = CachedThreadPool("test-idle", idle_seconds=idle_seconds)
    for _ in range(10 * MANY):
        is_done = threading.Event()
        pool.start(is_done.set)
        assert is_done.wait(SECONDS_MAX)
    all_end("test-idle")


def test_a_burst_leaves_few_threads_in_use() -> None:
    pool = CachedThreadPool("test-burst")
    everybody = threading.Barrier(MANY + 1)
    for _ in range(MANY):
        pool.start(lambda: everybody.wait(SECONDS_MAX))
    everybody.wait(SECONDS_MAX)
    # The threads of the burst become idle one after the other, all of them soon.
    assert any(len(used_one_by_one(pool)) < MANY / 5 for _ in range(MANY))


def used_one_by_one(pool: CachedThreadPool) -> set[int]:
    """Return the threads of jobs, each of which begins when the one before has ended."""
    used: set[int] = set()
    for _ in range(MANY):
        is_done = threading.Event()

        def job(is_done: threading.Event = is_done) -> None:
            used.add(threading.get_ident())
            is_done.set()

        pool.start(job)
        assert is_done.wait(SECONDS_MAX)
    return used


def all_end(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
