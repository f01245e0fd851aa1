"""A cached thread pool: each job has a thread at once, and threads that nobody needs end. Short jobs share one."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tilth.base.threads import CachedThreadPool, ShortJobs

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


def test_short_jobs_are_done_in_their_order_by_one_thread_at_a_time() -> None:
    jobs = ShortJobs(CachedThreadPool("test-short"))
    done: list[int] = []
    running, is_over = threading.Lock(), threading.Event()

    def job(number: int) -> None:
        assert running.acquire(blocking=False), "two jobs at once"
        done.append(number)
        running.release()
        if number == 10 * MANY - 1:
            is_over.set()

    for number in range(10 * MANY):
        jobs.start(partial(job, number))
    assert is_over.wait(SECONDS_MAX)
    assert done == list(range(10 * MANY))
    assert not jobs.relieve()


def test_a_short_job_that_takes_long_holds_up_no_other() -> None:
    pool = CachedThreadPool("test-stuck")
    jobs, may_end, done = ShortJobs(pool), threading.Event(), threading.Semaphore(0)
    stuck = [threading.Event() for _ in range(3)]

    def wait(number: int) -> None:
        stuck[number].set()
        assert may_end.wait(SECONDS_MAX)
        done.release()

    for number in range(3):
        jobs.start(partial(wait, number))
    jobs.start(done.release)
    for each in stuck:
        # Each call sees only that the same job runs as before; the first one has nothing to compare with.
        while not each.wait(0.001):
            assert jobs.relieve()
    while not done.acquire(timeout=0.001):
        jobs.relieve()
    may_end.set()
    for _ in range(3):
        assert done.acquire(timeout=SECONDS_MAX)
    # Threads whose jobs were late have left the others alone, and the next job has a thread.
    jobs.start(done.release)
    assert done.acquire(timeout=SECONDS_MAX)


def test_short_jobs_that_come_quickly_are_not_late() -> None:
    """Another thread would cost more than the jobs."""
    jobs, begun, may_go_on = ShortJobs(CachedThreadPool("test-quick")), threading.Event(), threading.Semaphore(0)

    def job() -> None:
        begun.set()
        assert may_go_on.acquire(timeout=SECONDS_MAX)

    for _ in range(10):
        jobs.start(job)
    used = set()
    for _ in range(9):
        assert begun.wait(SECONDS_MAX)
        begun.clear()
        assert jobs.relieve()
        used.add(sum(each.name == "test-quick" for each in threading.enumerate()))
        may_go_on.release()
    may_go_on.release()
    assert used == {1}


def test_a_system_without_threads_refuses_a_short_job_and_takes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CachedThreadPool("test-none-left")
    jobs, is_done = ShortJobs(pool), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(pool, "start", no_thread)
        with pytest.raises(RuntimeError):
            jobs.start(lambda: pytest.fail("it was refused"))
    jobs.start(is_done.set)
    assert is_done.wait(SECONDS_MAX)


def no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_system_without_threads_leaves_short_jobs_to_the_one_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CachedThreadPool("test-late-alone")
    jobs, begun, may_end, is_done = ShortJobs(pool), threading.Event(), threading.Event(), threading.Event()

    def late() -> None:
        begun.set()
        assert may_end.wait(SECONDS_MAX)

    jobs.start(late)
    assert begun.wait(SECONDS_MAX)
    jobs.start(is_done.set)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "start", no_thread)
        assert [jobs.relieve() for _ in range(3)] == [True] * 3
    may_end.set()
    assert is_done.wait(SECONDS_MAX)
