"""Runners of maintenance on a worker, one for each kind of its tasks.

Covers: the list. Does not cover: what they do (the folders of their kinds). Always holds: what Spark's Python workers
need for them is imported here.
"""

from __future__ import annotations

from tilth.maintenance.copies.task_spark import copy_runner
from tilth.maintenance.damage.task_spark import check_runner
from tilth.maintenance.deltas.task_spark import delta_runner
from tilth.maintenance.mutate.task_spark import mutate_runner
from tilth.maintenance.one_part.task_spark import flush_runner, merge_runner
from tilth.maintenance.work.task_spark import rebase_runner
from tilth.model.task import TaskKind
from tilth.warehouse import Runner


def maintenance_runners() -> dict[TaskKind, Runner]:
    """Return new runners by kind."""
    return {
        TaskKind.FLUSH: flush_runner(),
        TaskKind.MERGE: merge_runner(),
        TaskKind.MUTATE: mutate_runner(),
        TaskKind.DELTA: delta_runner(),
        TaskKind.REBASE: rebase_runner(),
        TaskKind.COPY: copy_runner(),
        TaskKind.CHECK: check_runner(),
    }
