"""A merge as work for a worker: its task, what its commit changes, what is told of it.

Covers: what is particular to a merge. Does not cover: which parts are merged (merge.py), the way from files to commit
(attempt.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec

from tilth.base.clock import Clock
from tilth.catalog import ReplaceParts, Update
from tilth.maintenance.ops.attempt import Input, Job, Output
from tilth.maintenance.ops.sources import ChangesOf, PartsNow, read_bytes, sources_of
from tilth.maintenance.policy import MergeSpec
from tilth.maintenance.policy.expiry import TableTtl
from tilth.maintenance.spark import MergeFacts, MergeTask, decode_facts, encode_task
from tilth.maintenance.watch import TableWatch
from tilth.model.delta import Seen
from tilth.model.part import Part
from tilth.model.task import TaskKind
from tilth.storage import Expiry, layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A spec whose parts are taken."""

    spec: MergeSpec
    #: Filled in when it is prepared.
    sources: tuple[Part, ...] = ()
    #: Of the sources, as it was then.
    changes: ChangesOf = field(default_factory=dict)


class MergeRecipe:
    """`tilth.maintenance.ops.attempt.Recipe` for the merges of one table."""

    verb = noun = "merge"
    task_kind = TaskKind.MERGE

    def __init__(self, clock: Clock, root: str, *, watch: TableWatch, ttl: Callable[[], TableTtl | None]) -> None:
        """`ttl`: the table's at the moment."""
        self._clock = clock
        self._root = root
        self._watch = watch
        self._ttl = ttl

    def job(self, work: Merge) -> Job:
        task = self._task(work)
        return Job(
            payload=lambda txn: encode_task(msgspec.structs.replace(task, txn=txn)),
            tasks=1,
            inputs=(Input(layout=task.layout, partition=task.partition, sources=task.sources),),
            input_bytes=read_bytes(work.sources, work.changes),
            rows=work.spec.rows,
        )

    def facts(self, payload: bytes) -> MergeFacts:
        return decode_facts(payload)

    def outputs(self, work: Merge, facts: MergeFacts) -> list[Output]:
        return [Output(task=0, written=facts.written)]

    def updates(self, work: Merge, facts: MergeFacts, duration_ms: int, seen: Seen) -> list[Update]:
        replaced = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in work.sources),
            written=facts.written,
            duration_ms=duration_ms,
            reason=work.spec.reason,
            seen=seen,
        )
        return [replaced]

    def told(self, work: Merge, facts: MergeFacts, duration_ms: int) -> str:
        left_out = ((facts.rows_deleted, "deleted"), (facts.rows_expired, "expired"))
        told = "".join(f", {rows} {why} rows left out" for rows, why in left_out if rows)
        return f"{len(work.sources)} parts of {work.spec.partition} in {duration_ms} ms{told}"

    def _task(self, work: Merge) -> MergeTask:
        """What is to be done, for a transaction to come; the result has the columns of its sources."""
        definition = self._watch.definition
        sources = sources_of(definition, work.sources, work.changes)
        layout = layout_of(definition, self._root, sources[0].schema)
        ttl = self._ttl()
        expired: Expiry | None = None
        if ttl is not None and any(column.id == ttl.column.id for column in layout.schema.columns):
            expired = Expiry(column=ttl.column.name, below=ttl.below(self._clock.now_ms()))
        return MergeTask(
            layout=layout,
            sources=sources,
            partition=work.spec.partition,
            values=work.sources[0].values,
            txn=0,
            expired=expired,
        )


def is_repeated(spec: MergeSpec, there: PartsNow, rewritten: Collection[tuple[int, int]]) -> bool:
    """Whether the part was written anew for its expired rows already, and has no changes."""
    [part, *others] = there.named(spec.parts)
    return not others and part.file.name not in there.changes and part.name.blocks in rewritten
