"""Work of other rooms that the runners of QUERY and INSERT tasks do, as protocols.

Covers: the protocols. Does not cover: the work (tilth.ingest, tilth.verify, statements/inserts). Always holds: it is
handed in by whoever makes the runner, for those rooms also know the catalog, which code for workers must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilth.model.table import KafkaDef, TableDef
from tilth.query.snapshots.protocol import BodyTask
from tilth.warehouse import TaskContext, TaskResult


class CheckedView(Protocol):
    """Result of the check of a view, with what the runner passes on."""

    @property
    def outputs(self) -> tuple[tuple[str, int], ...]: ...


class ViewCheck(Protocol):
    """`tilth.ingest.check_view`."""

    def __call__(
        self,
        # Any: a SparkSession; pyspark is for modules that run Spark.
        session: Any,
        kafka: KafkaDef,
        target: TableDef,
        select: str,
        *,
        view: str,
        target_columns: Sequence[tuple[str, int]],
    ) -> CheckedView: ...


class RunReplayOrder(Protocol):
    """`tilth.ingest.replay_letters`."""

    def __call__(self, context: TaskContext, order: bytes) -> TaskResult: ...


class WriteBody(Protocol):
    """`tilth.statements.inserts.bodies.spark.write_body`."""

    def __call__(self, context: TaskContext, task: BodyTask) -> TaskResult: ...


class RunVerifyOrder(Protocol):
    """`tilth.verify.spark.read_in_tasks`."""

    def __call__(self, context: TaskContext, order: bytes) -> TaskResult: ...
