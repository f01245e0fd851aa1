"""A flush as work for a worker: its task, what its commit changes, what is told of it.

Covers: what is particular to a flush. Does not cover: which segments are flushed (flush.py), the way from files to
commit (attempt.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tilth.catalog import ReplaceParts, Update
from tilth.maintenance.ops.attempt import Input, Job, Output
from tilth.maintenance.ops.sources import ChangesOf, sources_of
from tilth.maintenance.policy.flush_runs import FlushSpec
from tilth.maintenance.spark import MergeFacts, MergeTask, decode_facts, encode_task
from tilth.maintenance.watch import TableWatch
from tilth.model.delta import Seen, deleted_rows
from tilth.model.part import Part
from tilth.model.task import TaskKind
from tilth.storage import layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """A spec whose segments are taken."""

    spec: FlushSpec
    #: The segments.
    sources: tuple[Part, ...]
    #: As it was when they were taken.
    changes: ChangesOf

    @property
    def rows(self) -> int:
        """Without those that were deleted by then."""
        deleted = sum(deleted_rows(file, deltas) for file, deltas in self.changes.items())
        return sum(part.rows for part in self.sources) - deleted


class FlushRecipe:
    """`tilth.maintenance.ops.attempt.Recipe` for the flushes of one table."""

    verb = noun = "flush"
    task_kind = TaskKind.FLUSH

    def __init__(self, root: str, *, watch: TableWatch, flushed: Callable[[int], None]) -> None:
        """`flushed` is told the bytes of each part that was made."""
        self._root = root
        self._watch = watch
        self._flushed = flushed

    def job(self, work: Flush) -> Job:
        definition = self._watch.definition
        sources = sources_of(definition, work.sources, work.changes)
        task = MergeTask(
            layout=layout_of(definition, self._root, sources[0].schema),
            sources=sources,
            partition=work.spec.partition,
            values=work.sources[0].values,
            txn=0,
        )
        return Job(
            payload=lambda txn: encode_task(msgspec.structs.replace(task, txn=txn)),
            tasks=1,
            inputs=(Input(layout=task.layout, partition=task.partition, sources=sources),),
            input_bytes=work.spec.size,
            rows=work.spec.rows,
        )

    def facts(self, payload: bytes) -> MergeFacts:
        return decode_facts(payload)

    def outputs(self, work: Flush, facts: MergeFacts) -> list[Output]:
        return [Output(task=0, written=facts.written)]

    def updates(self, work: Flush, facts: MergeFacts, duration_ms: int, seen: Seen) -> list[Update]:
        replaced = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in work.sources),
            written=facts.written,
            duration_ms=duration_ms,
            reason=work.spec.about,
            seen=seen,
            event="flush",
        )
        return [replaced]

    def told(self, work: Flush, facts: MergeFacts, duration_ms: int) -> str:
        if facts.written is not None:
            self._flushed(facts.written.file.size)
        deleted = f", {facts.rows_deleted} deleted rows left out" if facts.rows_deleted else ""
        return f"{len(work.sources)} segments of {work.spec.partition} in {duration_ms} ms{deleted}"
