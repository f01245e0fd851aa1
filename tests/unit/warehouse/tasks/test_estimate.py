"""Estimates come closer to what is measured and stay within bounds."""

from __future__ import annotations

import pytest

from tilth.model.task import Cost, TaskKind
from tilth.warehouse.tasks.estimate import Estimator


def test_measured_speed_moves_the_estimate_towards_it() -> None:
    estimator = Estimator()
    for _ in range(40):
        estimated = estimator.estimate(TaskKind.MERGE, input_bytes=100_000_000)
        actual = Cost(input_bytes=100_000_000, output_bytes=80_000_000, memory_bytes=1_000_000, seconds=2.0)
        estimator = estimator.learn(TaskKind.MERGE, estimated=estimated, actual=actual)
    learnt = estimator.estimate(TaskKind.MERGE, input_bytes=100_000_000)
    assert learnt.seconds == pytest.approx(2.0, rel=0.01)
    assert learnt.output_bytes == pytest.approx(80_000_000, rel=0.01)
    assert estimator.estimate(TaskKind.QUERY, input_bytes=1000) == Estimator().estimate(
        TaskKind.QUERY, input_bytes=1000
    )


def test_one_odd_task_moves_it_little_and_many_only_to_the_bound() -> None:
    estimator = Estimator()
    before = estimator.estimate(TaskKind.MERGE, input_bytes=1000)
    once = estimator.learn(TaskKind.MERGE, estimated=before, actual=Cost(seconds=before.seconds * 1000))
    assert once.estimate(TaskKind.MERGE, input_bytes=1000).seconds < before.seconds * 5
    for _ in range(100):
        estimator = estimator.learn(TaskKind.MERGE, estimated=before, actual=Cost(seconds=1e9))
    assert estimator.corrections[TaskKind.MERGE].seconds == 64.0


def test_what_was_not_measured_teaches_nothing() -> None:
    estimator = Estimator()
    estimated = estimator.estimate(TaskKind.MERGE, input_bytes=1000)
    assert estimator.learn(TaskKind.MERGE, estimated=estimated, actual=Cost(seconds=0.001)) is estimator
    learnt = estimator.learn(TaskKind.MERGE, estimated=estimated, actual=Cost(seconds=1.0))
    assert learnt.corrections[TaskKind.MERGE].output == 1.0


def test_disk_is_estimated_and_measured_zeros_count() -> None:
    estimator = Estimator()
    first = estimator.estimate(TaskKind.QUERY, input_bytes=1000)
    assert first.temporary_bytes == 200
    assert estimator.estimate(TaskKind.MERGE, input_bytes=1000).temporary_bytes == 0
    # Not measured, or of a task without input: as before.
    for actual in (Cost(seconds=1.0), Cost(seconds=1.0, temporary_bytes=None)):
        estimator = estimator.learn(TaskKind.QUERY, estimated=first, actual=actual)
    estimator = estimator.learn(TaskKind.QUERY, estimated=Cost(), actual=Cost(seconds=1.0, temporary_bytes=10**9))
    assert estimator.estimate(TaskKind.QUERY, input_bytes=1000).temporary_bytes == 200
    for _ in range(30):
        estimator = estimator.learn(TaskKind.QUERY, estimated=first, actual=Cost(seconds=1.0, temporary_bytes=0))
    assert estimator.estimate(TaskKind.QUERY, input_bytes=1000).temporary_bytes == 0
    for _ in range(30):
        estimator = estimator.learn(TaskKind.QUERY, estimated=first, actual=Cost(seconds=1.0, temporary_bytes=3000))
    assert 2900 < (estimator.estimate(TaskKind.QUERY, input_bytes=1000).temporary_bytes or 0) <= 3000
