"""A merge as work for a worker: its task, what its commit changes, what is told of it.

Covers: what is particular to a merge. Does not cover: which parts are merged (merge.py), the way from files to commit
(attempt.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.catalog import ReplaceParts, SchemaChangedError, Update
from tilth.maintenance.ops.attempt import Job
from tilth.maintenance.policy import MergeSpec
from tilth.maintenance.policy.expiry import TableTtl
from tilth.maintenance.spark import MergeFacts, MergeTask, decode_facts, encode_task
from tilth.maintenance.watch import TableWatch
from tilth.model.part import Part
from tilth.model.table import Schema, TableDef, full_name
from tilth.model.task import TaskKind
from tilth.storage import Expiry, layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A spec whose parts are taken."""

    spec: MergeSpec
    #: Filled in when it is prepared.
    sources: tuple[Part, ...] = ()


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
        definition = self._watch.definition
        task = self._task(work, definition, _schema_of(definition, work))
        return Job(
            payload=lambda txn: encode_task(msgspec.structs.replace(task, txn=txn)),
            tasks=1,
            input_bytes=work.spec.size,
            rows=work.spec.rows,
        )

    def facts(self, payload: bytes) -> MergeFacts:
        return decode_facts(payload)

    def updates(self, work: Merge, facts: MergeFacts, duration_ms: int) -> list[Update]:
        replaced = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in work.sources),
            written=facts.written,
            duration_ms=duration_ms,
            reason=work.spec.reason,
        )
        return [replaced]

    def files(self, facts: MergeFacts) -> list[str]:
        return [] if facts.written is None else [facts.written.file.name]

    def told(self, work: Merge, facts: MergeFacts, duration_ms: int) -> str:
        expired = f", {facts.rows_expired} expired rows left out" if facts.rows_expired else ""
        return f"{len(work.sources)} parts of {work.spec.partition} in {duration_ms} ms{expired}"

    def _task(self, work: Merge, definition: TableDef, schema: Schema) -> MergeTask:
        """What is to be done, for a transaction to come; the result has the columns of its sources."""
        ttl = self._ttl()
        expired: Expiry | None = None
        if ttl is not None and any(column.id == ttl.column.id for column in schema.columns):
            expired = Expiry(column=ttl.column.name, below=ttl.below(self._clock.now_ms()))
        return MergeTask(
            layout=layout_of(definition, self._root, schema),
            files=tuple(part.file for part in work.sources),
            partition=work.spec.partition,
            values=work.sources[0].values,
            txn=0,
            expired=expired,
        )


def _schema_of(definition: TableDef, merge: Merge) -> Schema:
    version = merge.sources[0].schema_version
    schema = definition.schema_of(version)
    if schema is None:
        raise SchemaChangedError(
            "the columns that the parts were written with are not known yet",
            table=full_name(definition),
            schema_version=version,
            hint="it is tried again when the table's definition has been read anew",
        )
    return schema
