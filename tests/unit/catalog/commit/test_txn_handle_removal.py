"""Removal of leftover files: after the answer, by another thread, or by the cleaner."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from tests.txn_world import TxnWorld, fail_in, noted
from tilth.base.errors import UnavailableError


@pytest.fixture
def world() -> TxnWorld:
    return TxnWorld()


class Queue:
    """Steps that another thread would run."""

    def __init__(self, world: TxnWorld) -> None:
        self.steps: list[Callable[[], None]] = []
        self.is_full = False
        world.catalog.sweep_on(self.offer)

    def offer(self, step: Callable[[], None], /) -> bool:
        if not self.is_full:
            self.steps.append(step)
        return not self.is_full


def land_after_a_retry(world: TxnWorld) -> int:
    _, updates = world.one_part()
    with world.open(has_tasks=True) as handle:
        handle.tasks_ended()
        handle.commit(updates)
    return handle.id


def test_a_commit_is_answered_before_its_leftover_files_are_removed(world: TxnWorld) -> None:
    queue = Queue(world)
    txn = land_after_a_retry(world)
    # It stays live though nobody else knows it, so that the cleaner does not remove the same files.
    gc.collect()
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.swept()) == ([], {txn}, set())
    queue.steps.pop()()
    assert ([each for each, _ in world.disk.swept], world.live(), transactions.swept()) == ([txn], set(), {txn})


def test_what_an_error_leaves_is_removed_after_the_answer_too(world: TxnWorld) -> None:
    queue, handle = Queue(world), world.open()
    with pytest.raises(RuntimeError):
        fail_in(handle, RuntimeError())
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.is_cleaned(handle.id)) == ([], {handle.id}, False)
    queue.steps.pop()()
    assert (world.disk.swept, world.live()) == ([(handle.id, frozenset())], set())
    assert transactions.is_cleaned(handle.id)


def test_a_removal_that_nobody_runs_is_left_to_the_cleaner(world: TxnWorld) -> None:
    queue = Queue(world)
    queue.is_full = True
    landed, handle = land_after_a_retry(world), world.open()
    with pytest.raises(RuntimeError):
        fail_in(handle, RuntimeError())
    transactions = world.catalog.transactions
    assert (world.disk.swept, world.live(), transactions.swept()) == ([], set(), set())
    assert (noted(world), transactions.is_cleaned(handle.id)) == ([landed], False)


def test_a_removal_that_fails_later_is_left_to_the_cleaner(world: TxnWorld) -> None:
    queue = Queue(world)
    world.disk.error = UnavailableError("the storage is away")
    txn = land_after_a_retry(world)
    queue.steps.pop()()
    assert (world.live(), world.catalog.transactions.swept(), noted(world)) == (set(), set(), [txn])


# --- nothing is looked for where nothing can be ---


def test_tasks_that_were_tried_once_leave_nothing_to_look_for(world: TxnWorld) -> None:
    """A DELETE of one row would ask a bucket to remove tens of thousands of names."""
    _, updates = world.one_part()
    with world.open() as handle:
        handle.begin_try(0, [world.t])
        handle.tasks_began()
        handle.tasks_ended(may_have_retried=False)
        handle.commit(updates)
    assert (world.disk.swept, noted(world)) == ([], [])


def test_a_later_try_may_have_left_files_of_the_former_one(world: TxnWorld) -> None:
    _, updates = world.one_part()
    with world.open() as handle:
        for number in range(2):
            handle.begin_try(number, [world.t])
            handle.tasks_began()
            handle.tasks_ended(may_have_retried=False)
        handle.commit(updates)
    assert [txn for txn, _ in world.disk.swept] == [handle.id]


def test_tasks_that_found_nothing_to_write_leave_nothing_to_look_for(world: TxnWorld) -> None:
    with world.open() as handle:
        handle.tasks_began()
        handle.tasks_ended(may_have_retried=False)
        handle.wrote_nothing()
    assert (world.disk.swept, world.catalog.transactions.is_cleaned(handle.id)) == ([], True)


def test_failed_attempts_may_have_written_though_the_last_one_has_not(world: TxnWorld) -> None:
    with world.open() as handle:
        handle.tasks_began()
        handle.tasks_ended(may_have_retried=True)
        handle.wrote_nothing()
    assert world.disk.swept == [(handle.id, frozenset())]
