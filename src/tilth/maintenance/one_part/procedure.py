"""The procedure of work that makes one part of several: its task, its output, the change of its commit.

Does not cover: which parts (merge/op.py, flush/op.py), what runs in Spark (task_spark.py).

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from tilth.catalog import ReplaceParts, Update
from tilth.maintenance.one_part.task_spark import MergeFacts, MergeTask
from tilth.maintenance.table.sources import sources_of
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.planner import WorkT
from tilth.maintenance.work.procedure import Input, Job, Output, Procedure
from tilth.model.delta import Seen
from tilth.storage import Expiry, TableLayout, layout_of


class OnePartProcedure(Procedure[WorkT, MergeFacts]):
    """Procedure of a merge or a flush."""

    facts_type = MergeFacts
    event: Literal["merge", "flush"]

    def __init__(self, context: TableContext) -> None:
        self._root = context.server.root
        self._watch = context.watch

    @abstractmethod
    def reason(self, work: WorkT, facts: MergeFacts) -> str:
        """Return the reason for the part log."""

    @abstractmethod
    def input_bytes(self, work: WorkT) -> int:
        """Return the bytes that the task reads."""

    def expired(self, layout: TableLayout) -> Expiry | None:
        """Return which rows are left out; None: all stay."""
        return None

    def ranges(self, work: WorkT) -> int:
        """Return the number of key ranges into which the work is cut, at most."""
        return 1

    def job(self, work: WorkT) -> Job:
        definition = self._watch.definition
        sources = sources_of(definition, work.sources, work.changes)
        # The result has the columns of its sources.
        layout = layout_of(definition, self._root, sources[0].schema)
        [partition] = work.partitions
        task = MergeTask(
            layout=layout,
            sources=sources,
            partition=partition,
            values=work.sources[0].values,
            txn=0,
            expired=self.expired(layout),
            ranges=self.ranges(work),
        )
        return Job(
            task=task,
            tasks=task.ranges,
            # Each range may have rows of every source.
            inputs=(Input(layout=layout, partition=partition, sources=sources),) * task.ranges,
            input_bytes=self.input_bytes(work),
            rows=sum(part.rows for part in work.sources),
        )

    def outputs(self, work: WorkT, facts: MergeFacts) -> list[Output]:
        return [Output(task=task, written=written) for task, written in enumerate(facts.written)]

    def updates(self, work: WorkT, facts: MergeFacts, duration_ms: int, seen: Seen) -> list[Update]:
        made = facts.made
        replaced = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in work.sources),
            written=made[0] if made else None,
            more=made[1:],
            duration_ms=duration_ms,
            reason=self.reason(work, facts),
            seen=seen,
            event=self.event,
        )
        return [replaced]
