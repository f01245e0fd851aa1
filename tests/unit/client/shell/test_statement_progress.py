"""Progress of a statement, by rows of system tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilth.client.shell.statement_progress import ProgressEstimator, StatementProgress


def process(**values: object) -> dict[str, object]:
    return {"state": "running in Spark", "elapsed": 10.0, **values}


def test_a_query_has_done_its_share_of_rows_and_of_tasks() -> None:
    line = process(read_rows=500, total_rows_approx=1000, read_bytes=4096, tasks_done=1, tasks_total=4)
    progress = ProgressEstimator().of_process(line)
    assert replace(progress, seconds_left=None) == StatementProgress(
        state="running in Spark", rows=500, total_rows=1000, bytes=4096, done=0.375
    )
    assert progress.seconds_left == pytest.approx(50 / 3)


def test_what_is_not_known_is_not_said() -> None:
    waiting = process(state="waiting for a slot, 3 ahead", read_rows=None, tasks_total=None, total_rows_approx=None)
    assert ProgressEstimator().of_process(waiting) == StatementProgress(state="waiting for a slot, 3 ahead")
    assert ProgressEstimator().of_process({}) == StatementProgress()
    early = ProgressEstimator().of_process(process(tasks_done=0, tasks_total=8))
    assert (early.done, early.seconds_left) == (0.0, None)
    assert ProgressEstimator().of_process(process(elapsed=0.5, tasks_done=7, tasks_total=8)).seconds_left is None


def test_it_never_goes_back_and_is_never_all_of_it() -> None:
    estimator = ProgressEstimator()
    assert estimator.of_process(process(tasks_done=3, tasks_total=4)).done == 0.75
    # More stages have begun.
    assert estimator.of_process(process(tasks_done=4, tasks_total=40)).done == 0.75
    assert estimator.of_process(process(tasks_done=40, tasks_total=40, read_rows=9, total_rows_approx=3)).done == 0.99
    assert estimator.of_process(process()).done == 0.99


def test_a_merge_that_is_gone_is_done() -> None:
    def merge(task: str, progress: float, size: int = 100, *, is_mutation: bool = False) -> dict[str, object]:
        return {"task": task, "progress": progress, "input_bytes": size, "is_mutation": is_mutation}

    estimator = ProgressEstimator()
    assert estimator.of_merges([], 1.0) == StatementProgress(state="waiting for merges")
    first = estimator.of_merges([merge("a", 0.5), merge("b", 0.0, 300), merge("m", 0.9, is_mutation=True)], 5.0)
    assert (first.state, first.bytes, first.done) == ("2 of 2 merges under way", 50, 0.125)
    second = estimator.of_merges([merge("b", 0.5, 300)], 10.0)
    assert (second.state, second.bytes, second.done) == ("1 of 2 merges under way", 250, 0.625)
    assert second.seconds_left == pytest.approx(6.0)
    # The second one has ended; its commit waits for a task.
    third = estimator.of_merges([merge("c", 0.1) | {"is_rebase": True}], 11.0)
    assert (third.state, third.bytes, third.done) == ("2 merges done, changes are brought over", 400, 0.99)
    assert estimator.of_merges([], 12.0).state == "2 merges done"


def test_a_mutation_counts_parts() -> None:
    lines = [{"parts_to_do": 3, "parts_done": 1, "state_reason": None}, {"parts_to_do": None, "parts_done": 0}]
    progress = ProgressEstimator().of_mutations(lines, 4.0)
    assert (progress.state, progress.done, progress.seconds_left) == ("1 of 4 parts rewritten", 0.25, 12.0)
    waiting = [{"parts_to_do": None, "parts_done": 0, "state_reason": "mutations are stopped"}]
    assert ProgressEstimator().of_mutations(waiting, 4.0) == StatementProgress(state="mutations are stopped")
    assert ProgressEstimator().of_mutations([], 4.0).state == "waiting for the mutation"
