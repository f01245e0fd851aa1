"""Removal of files that ended work leaves: after the answer, by another thread, or by the cleaner."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tests.work_world import WorkWorld, fail_in, noted
from tilth.base.errors import UnavailableError


@pytest.fixture
def world() -> WorkWorld:
    return WorkWorld()


class Queue:
    """Steps that another thread would run."""

    def __init__(self, world: WorkWorld) -> None:
        self.steps: list[Callable[[], None]] = []
        self.is_full = False
        world.catalog.sweep_on(self.offer)

    def offer(self, step: Callable[[], None], /) -> bool:
        if not self.is_full:
            self.steps.append(step)
        return not self.is_full


def land_after_a_retry(world: WorkWorld) -> int:
    _, updates = world.one_part()
    with world.work(has_tasks=True) as work:
        work.tasks_ended()
        work.commit(updates)
    return work.id


def test_a_commit_is_answered_before_its_leftover_files_are_removed(world: WorkWorld) -> None:
    queue = Queue(world)
    txn = land_after_a_retry(world)
    # It stays live though nobody else knows it, so that the cleaner does not remove the same files.
    gc.collect()
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.swept()) == ([], {txn}, set())
    queue.steps.pop()()
    assert ([each for each, _ in world.disk.swept], world.live(), transactions.swept()) == ([txn], set(), {txn})


def test_what_an_error_leaves_is_removed_after_the_answer_too(world: WorkWorld) -> None:
    queue, work = Queue(world), world.work()
    with pytest.raises(RuntimeError):
        fail_in(work, RuntimeError())
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.is_cleaned(work.id)) == ([], {work.id}, False)
    queue.steps.pop()()
    assert (world.disk.swept, world.live()) == ([(work.id, frozenset())], set())
    assert transactions.is_cleaned(work.id)


def test_a_removal_that_nobody_runs_is_left_to_the_cleaner(world: WorkWorld) -> None:
    queue = Queue(world)
    queue.is_full = True
    landed, work = land_after_a_retry(world), world.work()
    with pytest.raises(RuntimeError):
        fail_in(work, RuntimeError())
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.swept()) == ([], set(), set())
    assert (noted(world), transactions.is_cleaned(work.id)) == ([landed], False)


def test_a_removal_that_fails_later_is_left_to_the_cleaner(world: WorkWorld) -> None:
    queue = Queue(world)
    world.disk.error = UnavailableError("the storage is away")
    txn = land_after_a_retry(world)
    queue.steps.pop()()
    assert (world.live(), world.catalog.transactions.swept(), noted(world)) == (set(), set(), [txn])


# --- nothing is looked for where nothing can be ---


def test_tasks_that_were_tried_once_leave_nothing_to_look_for(world: WorkWorld) -> None:
    """A DELETE of one row would ask a bucket to remove tens of thousands of names."""
    _, updates = world.one_part()
    with world.work() as work:
        work.begin_try(0, [world.t])
        work.tasks_began()
        work.tasks_ended(may_have_retried=False)
        work.commit(updates)
    assert (world.disk.swept, noted(world)) == ([], [])


def test_a_later_try_may_have_left_files_of_the_former_one(world: WorkWorld) -> None:
    _, updates = world.one_part()
    with world.work() as work:
        for number in range(2):
            work.begin_try(number, [world.t])
            work.tasks_began()
            work.tasks_ended(may_have_retried=False)
        work.commit(updates)
    assert [txn for txn, _ in world.disk.swept] == [work.id]


def test_tasks_that_found_nothing_to_write_leave_nothing_to_look_for(world: WorkWorld) -> None:
    with world.work() as work:
        work.tasks_began()
        work.tasks_ended(may_have_retried=False)
        work.wrote_nothing()
    assert (world.disk.swept, world.catalog.transactions.is_cleaned(work.id)) == ([], True)


def test_failed_attempts_may_have_written_though_the_last_one_has_not(world: WorkWorld) -> None:
    with world.work() as work:
        work.tasks_began()
        work.tasks_ended(may_have_retried=True)
        work.wrote_nothing()
    assert world.disk.swept == [(work.id, frozenset())]
