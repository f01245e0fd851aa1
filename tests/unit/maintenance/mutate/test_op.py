"""Mutations over a memory catalog, with a worker that keeps rows in its memory: order, failures, kills, conflicts."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from tests.maintenance_world import MaintenanceWorld, aborted
from tilth.base.errors import UnavailableError
from tilth.catalog import BadMergeError, CommitOutcome, HidePartition, Unknown
from tilth.maintenance import MutationProgress
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.mutate.task_spark import MutateTask
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.mutation import MutationKind, MutationState
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import Column, Schema
from tilth.model.txn import Txn, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import PartFileCorruptError
from tilth.warehouse import TaskFailedError, TaskLostError

WIDER = Schema(
    columns=(
        Column(id=1, name="a", type=Simple(Kind.INT64)),
        Column(id=2, name="b", type=Simple(Kind.INT64)),
    )
)


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def progress(world: MaintenanceWorld) -> list[MutationProgress]:
    return world.manager.mutations()


def states(world: MaintenanceWorld) -> list[MutationState]:
    return [entry.state for entry in world.catalog.mutations.all(world.t)]


def refusals(world: MaintenanceWorld) -> list[str]:
    return [row.reason for row in world.manager.choices() if row.op == "MUTATE(default.t)"]


def under_way(world: MaintenanceWorld) -> int:
    """Tasks of mutations that the worker holds."""
    return sum(run.name == "MUTATE(default.t)" and run.ended_ms == 0 for run in world.manager.runs())


def turns(world: MaintenanceWorld, count: int = 3) -> None:
    for _ in range(count):
        world.turn()


# --- what a mutation does ---


def test_a_delete_leaves_the_other_rows_and_the_past(world: MaintenanceWorld) -> None:
    world.insert("a", rows=5)
    world.insert("b", rows=4)
    before = world.catalog.parts.snapshot(world.t)
    entry = world.alter_delete("a is odd")
    world.worker.is_holding = True
    assert world.turn()
    [told] = progress(world)
    assert (told.uuid, told.id, told.parts_to_do, told.parts_done, told.running) == (world.t, entry, 2, 0, 1)
    world.worker.let_go()
    world.settle()
    world.work()
    assert world.rows() == [0, 0, 2, 2, 4]
    assert world.catalog.parts.snapshot(world.t, at=before.ts).parts == before.parts
    assert world.mutation(entry).state is MutationState.DONE
    assert progress(world) == []
    assert world.catalog.transactions.unfinished() == []
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.reason, service.running_tasks) == ("idle", "no mutation is pending", 0)
    assert world.manager.numbers().ops[OpKind.MUTATE].ended == 1


def test_a_part_without_a_match_keeps_its_file(world: MaintenanceWorld) -> None:
    [matching] = world.insert("a", rows=2)
    [other] = world.insert("b", rows=1)
    entry = world.update("a + 1", "a is odd")
    world.work()
    by_partition = {part.name.partition: part for part in world.catalog.parts.snapshot(world.t).parts}
    assert by_partition["b"].file == other.file
    assert by_partition["b"].mutation_ts == world.mutation(entry).commit_ts
    assert by_partition["a"].name.blocks == matching.name.blocks
    assert by_partition["a"].name.mutation > entry
    assert world.rows() == [0, 0, 2]


def test_a_part_of_which_no_row_is_left_goes(world: MaintenanceWorld) -> None:
    world.insert("a", "b")
    world.alter_delete("true")
    world.work()
    assert world.names() == []
    assert states(world) == [MutationState.DONE]


def test_new_columns_reach_the_old_parts(world: MaintenanceWorld) -> None:
    world.insert("a", "b")
    world.mutate(MutationKind.COLUMNS, schema=WIDER)
    [young] = world.insert("c")
    world.work()
    parts = world.catalog.parts.snapshot(world.t).parts
    assert {part.schema_version for part in parts} == {2}
    assert young.file in [part.file for part in parts]
    assert states(world) == [MutationState.DONE]


def test_an_entry_without_parts_ends_at_once(world: MaintenanceWorld) -> None:
    world.work()
    first, second = world.alter_delete("true"), world.mutate(MutationKind.COLUMNS, schema=WIDER)
    turns(world)
    assert world.worker.rewrites == 0
    assert [world.mutation(each).state for each in (first, second)] == [MutationState.DONE] * 2


def test_parts_that_come_later_are_left_alone(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    world.alter_delete("true")
    world.insert("a", rows=3)
    world.work()
    assert world.rows() == [0, 1, 2]


# --- order ---


def test_entries_run_one_after_the_other(world: MaintenanceWorld) -> None:
    seen: list[str] = []
    world.worker.on_mutate = lambda task: seen.append(task.assignments[0][1])
    world.insert("a", rows=2)
    world.insert("b", rows=3)
    double, add = world.update("a * 2", "true"), world.update("a + 1", "true")
    world.worker.is_holding = True
    turns(world)
    world.clock.advance(5)
    turns(world)
    assert under_way(world) == 1
    first, second = progress(world)
    assert (first.id, first.running, first.state_reason) == (double, 1, "1 rewrites are running")
    assert (second.id, second.running, second.parts_to_do) == (add, 0, 2)
    assert second.state_reason == f"mutation {add} waits for {double}"
    assert f"mutation {add} waits for {double}" in " ".join(refusals(world))
    world.worker.let_go()
    world.settle()
    world.work(2)
    assert seen == ["a * 2", "a + 1"]
    assert world.rows() == [1, 1, 3, 3, 5]
    assert states(world) == [MutationState.DONE] * 2


def test_no_more_tasks_at_once_than_the_table_allows(world: MaintenanceWorld) -> None:
    world.catalog.tables.modify_settings(
        world.t, {"cnch_mutate_max_parts_to_mutate": "1", "max_addition_mutation_task_num": "1"}
    )
    world.insert("a", "b", "c")
    world.alter_delete("a is odd")
    world.worker.is_holding = True
    turns(world)
    assert under_way(world) == 1
    world.worker.let_go()
    world.settle()
    world.work()
    assert world.worker.rewrites == 3
    assert states(world) == [MutationState.DONE]


# --- failures ---


@pytest.mark.parametrize("is_named", [True, False])
def test_a_poisoned_part_waits_and_holds_up_no_other(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    #: Tasks of the transactions whose files were removed at once.
    swept: list[int] = []

    def sweep(txn: Txn, *, keep: Collection[str]) -> None:
        if not keep:
            swept.append(txn.outputs[0].tasks)

    monkeypatch.setattr(world.catalog.transactions, "sweep", sweep)
    parts = [world.insert(name, rows=3)[0] for name in "abcde"]
    poisoned = parts[2]
    tries = [0]

    def fail(task: MutateTask) -> None:
        if any(source.file == poisoned.file for source in task.sources):
            tries[0] += 1
            if is_named:
                raise PartFileCorruptError(file=f"/data/{poisoned.file.name}")
            raise TaskFailedError(reason="division by zero")

    world.worker.on_mutate = fail
    entry = world.alter_delete("a is odd")
    behind = world.update("a * 2", "true")
    world.work()
    assert world.rows() == [0] * 5 + [1] + [2] * 5
    told, other = progress(world)
    assert (told.id, told.parts_to_do, told.parts_done, told.running) == (entry, 1, 4, 0)
    assert told.latest_failed_part == str(poisoned.name)
    assert ("damaged" if is_named else "division by zero") in told.latest_fail_reason
    assert told.latest_fail_ms == world.clock.now_ms()
    assert told.next_attempt_ms == world.clock.now_ms() + 1000
    assert told.state_reason == f"part {poisoned.name} failed once, next try in 1 s"
    assert told.lasting_failure == f"part {poisoned.name}: {told.latest_fail_reason}"
    assert (other.id, other.parts_to_do, other.lasting_failure) == (behind, 5, "")
    assert other.state_reason == f"mutation {behind} waits for {entry}, where {told.lasting_failure}"
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.failures) == ("failed", 1)
    # Each failure in a row doubles the wait.
    tried: list[int] = []
    for seconds in (1.0, 1.0, 1.0, 3.0, 1.0):
        before = tries[0]
        world.work(seconds)
        tried.append(tries[0] - before)
    assert tried == [1, 0, 1, 0, 1]
    assert progress(world)[0].next_attempt_ms == world.clock.now_ms() + 8000
    world.worker.on_mutate = lambda _: None
    world.work(8)
    world.work(2)
    assert states(world) == [MutationState.DONE] * 2
    assert world.rows() == [0] * 5 + [4] * 5
    assert world.service(ServiceKind.MUTATE).failures == 0
    # The first job had several Spark tasks: when one fails, others may still write, so its files go after the grace.
    left = [txn.outputs[0].tasks for txn in world.catalog.transactions.unfinished()]
    assert (left[0], set(left[1:]), swept) == (5, {1}, left[1:])
    aborted(world)


def test_a_lost_worker_is_no_parts_failure_and_each_loss_doubles_the_wait(world: MaintenanceWorld) -> None:
    world.insert("a", "b")
    world.worker.errors = [TaskLostError(), TaskLostError()]
    world.alter_delete("a is odd")
    world.work()
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.failures) == ("failed", 1)
    [told] = progress(world)
    assert (told.latest_failed_part, told.parts_to_do, told.lasting_failure) == ("", 2, "")
    world.work(1)
    assert world.service(ServiceKind.MUTATE).failures == 2
    world.work(1)
    assert states(world) == [MutationState.PENDING]
    world.work(1)
    assert states(world) == [MutationState.DONE]
    assert world.service(ServiceKind.MUTATE).failures == 0
    # Its files may still come: the transaction is cleaned after the grace.
    world.work(10)
    world.work(20)
    assert world.catalog.transactions.unfinished() == []


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_deletes_nothing_and_is_resolved_later(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, *, has_landed: bool
) -> None:
    real = world.catalog.transactions.commit
    left = [True]

    def lossy(*given: object) -> CommitOutcome:
        if world.worker.rewrites and left:
            left.clear()
            if has_landed:
                real(*given)  # type: ignore[arg-type]  # as it was called
            return Unknown("the answer was lost")
        return real(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.catalog.transactions, "commit", lossy)
    world.insert("a", rows=3)
    world.alter_delete("a is odd")
    assert world.turn()
    assert "the answer was lost" in world.manager.runs()[0].error
    [last] = world.catalog.transactions.recent(1)
    assert last.state is (TxnState.FINISHED if has_landed else TxnState.RUNNING)
    world.work(2)
    assert world.worker.rewrites == 1
    assert world.rows() == [0, 2]
    assert states(world) == [MutationState.DONE]
    assert world.catalog.transactions.unfinished() == []


def test_what_waiting_may_heal_is_no_lasting_failure(world: MaintenanceWorld) -> None:
    [part] = world.insert("a", rows=2)
    world.worker.errors = [UnavailableError("the disk does not answer", part=part.name)]
    world.alter_delete("a is odd")
    world.work()
    [told] = progress(world)
    assert (told.latest_failed_part, told.lasting_failure) == (str(part.name), "")
    assert "does not answer" in told.latest_fail_reason


def test_the_failure_of_a_killed_entry_is_not_reported_of_the_next_one(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    world.worker.errors = [TaskFailedError(reason="division by zero")]
    first, second = world.alter_delete("a is odd"), world.update("a + 1", "true")
    world.work()
    assert "division by zero" in progress(world)[0].lasting_failure
    world.catalog.mutations.kill(world.t, first, "a test")
    # Nobody has looked since.
    [told] = progress(world)
    assert (told.id, told.lasting_failure, told.latest_fail_reason) == (second, "", "")


# --- kill ---


def kill(world: MaintenanceWorld, entry: int) -> None:
    world.catalog.mutations.kill(world.t, entry, "a test")
    world.manager.wake(world.t)


def test_a_killed_entry_that_waits_is_never_begun(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    first, second = world.update("a + 1", "true"), world.alter_delete("true")
    kill(world, second)
    world.work()
    assert [world.mutation(each).state for each in (first, second)] == [MutationState.DONE, MutationState.KILLED]
    assert world.rows() == [1, 2]


def test_the_tasks_of_a_killed_entry_are_cancelled_and_the_next_one_goes_on(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    first, second = world.alter_delete("true"), world.update("a + 1", "true")
    world.worker.is_holding = True
    assert world.turn()
    kill(world, first)
    world.worker.is_holding = False
    world.turn()
    world.settle()
    world.work(2)
    assert world.worker.held == {}
    assert [world.mutation(each).state for each in (first, second)] == [MutationState.KILLED, MutationState.DONE]
    assert world.rows() == [1, 2]
    assert world.service(ServiceKind.MUTATE).failures == 0


def test_what_is_killed_while_it_commits_does_not_land(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.insert("a", rows=2)
    entry = world.alter_delete("true")
    real = world.catalog.transactions.commit

    def late(*given: object) -> CommitOutcome:
        monkeypatch.undo()
        kill(world, entry)
        return real(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.catalog.transactions, "commit", late)
    world.work()
    world.work(2)
    assert world.rows() == [0, 1]
    assert world.mutation(entry).state is MutationState.KILLED
    assert world.service(ServiceKind.MUTATE).failures == 0
    assert aborted(world) == ["mutate default.t"]


def test_a_done_entry_stays_done(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    entry = world.alter_delete("a is odd")
    world.work()
    kill(world, entry)
    world.work(2)
    assert world.mutation(entry).state is MutationState.DONE
    assert world.rows() == [0]


def test_what_was_rewritten_before_the_kill_stays(world: MaintenanceWorld) -> None:
    world.catalog.tables.modify_settings(world.t, {"cnch_mutate_max_parts_to_mutate": "1"})
    world.insert("a", rows=2)
    world.insert("b", rows=2)
    entry = world.alter_delete("a is odd")
    world.turn()
    assert world.rows() == [0, 0, 1]
    kill(world, entry)
    world.work(2)
    assert world.rows() == [0, 0, 1]
    assert (world.mutation(entry).parts_done, world.mutation(entry).parts_left) == (1, 1)
    # The halves may be merged again, and a later entry reaches both.
    world.update("a + 1", "true")
    world.work(2)
    assert world.rows() == [1, 1, 2]


def test_with_a_killed_entry_its_failures_are_forgotten(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)
    world.worker.errors = [TaskFailedError(reason="division by zero")]
    entry = world.alter_delete("a is odd")
    world.work()
    assert world.service(ServiceKind.MUTATE).state == "failed"
    kill(world, entry)
    world.work(2)
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.failures, service.reason) == ("idle", 0, "no mutation is pending")
    assert world.rows() == [0, 1]


# --- beside merges, drops, commands ---


def test_a_part_under_merge_waits_for_the_merge(world: MaintenanceWorld) -> None:
    for _ in range(10):
        world.insert("a", rows=2)
    world.worker.is_holding = True
    turns(world)
    entry = world.alter_delete("a is odd")
    world.clock.advance(2)
    turns(world)
    assert under_way(world) == 0
    [told] = progress(world)
    assert (told.id, told.parts_to_do, told.running) == (entry, 10, 0)
    assert "under merge" in told.state_reason
    world.worker.let_go()
    world.settle()
    world.work(2)
    assert world.worker.merges == 1
    assert world.rows() == [0] * 10
    assert states(world) == [MutationState.DONE]


def test_neighbours_on_two_sides_of_an_entry_are_merged_when_the_older_is_through(world: MaintenanceWorld) -> None:
    [old] = world.insert("a", rows=2)
    world.alter_delete("a is odd")
    [young] = world.insert("a", rows=2)
    with pytest.raises(BadMergeError):
        world.merge([old, young])
    world.work()
    world.merge(list(world.catalog.parts.visible(world.t, "a")))


def drop_when(world: MaintenanceWorld) -> Callable[[MutateTask | MergeTask], None]:
    def drop(_: MutateTask | MergeTask) -> None:
        world.worker.on_mutate = lambda _: None
        world.commit(HidePartition(table=world.t, partition="a"))

    return drop


def test_a_drop_while_parts_are_rewritten_wins_and_is_no_failure(world: MaintenanceWorld) -> None:
    world.insert("a", "b", rows=2)
    world.worker.on_mutate = drop_when(world)
    world.alter_delete("a is odd")
    world.work()
    world.work(2)
    assert world.rows() == [0]
    assert [name.partition for name in world.names()] == ["b"]
    assert world.service(ServiceKind.MUTATE).failures == 0
    assert states(world) == [MutationState.DONE]
    assert aborted(world) == ["mutate default.t"]


def test_running_work_of_a_partition_can_be_cancelled(world: MaintenanceWorld) -> None:
    world.insert("a", "b", rows=2)
    world.alter_delete("a is odd")
    world.worker.is_holding = True
    assert world.turn()
    assert world.manager.cancel_partition(world.t, "z") == 0
    assert world.manager.cancel_partition(world.t, "a") == 1
    world.settle()
    world.worker.is_holding = False
    world.work(2)
    assert states(world) == [MutationState.DONE]


def test_a_stopped_service_ends_what_runs_and_begins_nothing(world: MaintenanceWorld) -> None:
    def switch(state: SwitchState) -> None:
        world.catalog.services.set(
            Switch(table=world.t, service=ServiceKind.MUTATE, state=state, since_ms=0, because="a test")
        )
        world.manager.wake(world.t)

    world.insert("a", rows=2)
    first = world.alter_delete("a is odd")
    world.worker.is_holding = True
    assert world.turn()
    switch(SwitchState.STOPPED)
    second = world.update("a + 1", "true")
    world.turn()
    world.worker.let_go()
    world.settle()
    world.work(2)
    assert world.worker.rewrites == 1
    assert [world.mutation(each).state for each in (first, second)] == [MutationState.DONE, MutationState.PENDING]
    [told] = progress(world)
    assert told.state_reason == "stopped by the user: a test"
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.reason) == ("stopped", "a test")
    switch(SwitchState.RUNNING)
    world.work(2)
    assert world.rows() == [1]


def test_a_restart_in_the_middle_goes_on(world: MaintenanceWorld) -> None:
    world.catalog.tables.modify_settings(world.t, {"cnch_mutate_max_parts_to_mutate": "1"})
    for name in "abc":
        world.insert(name, rows=3)
    first, second = world.alter_delete("a is odd"), world.update("a + 1", "true")
    world.turn()
    world.worker.is_holding = True
    world.turn()
    world.manager.stop()
    assert sorted(len(world.worker.rows_of(part.file)) for part in world.catalog.parts.snapshot(world.t).parts) == [
        2,
        3,
        3,
    ]
    world.worker.is_holding = False
    world.catalog = world.reopened()
    # Before the manager's thread runs, which may do more.
    assert world.mutation(first).parts_done == 1
    world.manager = world.new_manager()
    world.manager.start()
    world.manager.stop()
    world.manager = world.new_manager()
    world.work()
    world.work(2)
    assert [world.mutation(each).state for each in (first, second)] == [MutationState.DONE] * 2
    assert [world.mutation(each).parts_done for each in (first, second)] == [3, 3]
    assert world.rows() == [1, 1, 1, 3, 3, 3]
    assert world.catalog.transactions.unfinished() == []


def test_a_fenced_server_commits_nothing_and_takes_the_table_anew(world: MaintenanceWorld) -> None:
    world.insert("a", rows=2)

    def take(_: MutateTask) -> None:
        world.worker.on_mutate = lambda _: None
        name = f"table/{world.t}"
        lease = world.catalog.leases.get(name)
        assert lease is not None
        world.catalog.leases.release(lease.fence)
        world.catalog.leases.acquire(name, "s2")

    world.worker.on_mutate = take
    world.alter_delete("a is odd")
    world.turn()
    assert world.rows() == [0, 1]
    world.work(2)
    world.work(2)
    assert world.rows() == [0]
    assert world.service(ServiceKind.MUTATE).failures == 0
