"""Runners of all kinds of tasks, for the workers of a server and for those that are processes of their own.

Covers: the list. Does not cover: what a runner does (the rooms).
"""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.ingest import ConsumerCalls, check_view, consume_runner, replay_letters
from tilth.maintenance import maintenance_runners
from tilth.model.task import TaskKind
from tilth.query.snapshots.protocol import QueryCalls
from tilth.query.worker.query_cache import QueryCache
from tilth.query.worker.spark import InsertRunner, QueryRunner
from tilth.statements.inserts.bodies.spark import write_body
from tilth.verify.spark import read_in_tasks
from tilth.warehouse import Runner


def all_runners(
    clock: Clock, queries: QueryCalls, consumers: ConsumerCalls, *, cache: QueryCache
) -> dict[TaskKind, Runner]:
    """Return new runners by kind; `queries`, `consumers`: what they call of their server."""
    runners: dict[TaskKind, Runner] = {
        TaskKind.QUERY: QueryRunner(queries, check_view, replay_letters, read_in_tasks, cache=cache),
        TaskKind.INSERT: InsertRunner(queries, write_body, cache=cache),
        TaskKind.CONSUME: consume_runner(clock, consumers),
        **maintenance_runners(),
    }
    assert runners.keys() == set(TaskKind), set(TaskKind) - runners.keys()
    return runners
