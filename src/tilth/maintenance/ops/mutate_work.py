"""A rewrite for a mutation as work for a worker: its task, what its commit changes, what is told of it.

Covers: what is particular to a rewrite. Does not cover: which parts are rewritten (mutate.py), the way from files to
commit (attempt.py), how a part is rewritten (spark.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tilth.catalog import AcceptMutation, RewritePart, Update
from tilth.maintenance.ops.attempt import Input, Job, Output
from tilth.maintenance.ops.sources import ChangesOf, read_bytes, sources_of
from tilth.maintenance.policy.mutate import MutateSpec
from tilth.maintenance.spark import MutateFacts, MutateSource, MutateTask, decode_mutate_facts, encode_mutate_task
from tilth.maintenance.watch import TableWatch
from tilth.model.delta import Seen
from tilth.model.part import Part
from tilth.model.task import TaskKind
from tilth.storage import layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A spec whose parts are taken."""

    spec: MutateSpec
    #: Those of the spec's parts that are still there and still need it.
    sources: tuple[Part, ...]
    #: Of the sources, as it was then.
    changes: ChangesOf = field(default_factory=dict)


class RewriteRecipe:
    """`tilth.maintenance.ops.attempt.Recipe` for the rewrites of one table."""

    verb = "mutate"
    noun = "mutation"
    task_kind = TaskKind.MUTATE

    def __init__(self, root: str, *, watch: TableWatch) -> None:
        self._root = root
        self._watch = watch

    def job(self, work: Rewrite) -> Job:
        definition, mutation = self._watch.definition, work.spec.mutation
        sources = sources_of(definition, work.sources, work.changes)
        task = MutateTask(
            layout=layout_of(definition, self._root, mutation.schema.schema),
            sources=tuple(
                MutateSource(source=source, values=part.values)
                for source, part in zip(sources, work.sources, strict=True)
            ),
            txn=0,
            kind=mutation.kind,
            assignments=mutation.assignments,
            predicate=mutation.predicate,
            quotes_names=mutation.quotes_names,
        )
        return Job(
            payload=lambda txn: encode_mutate_task(msgspec.structs.replace(task, txn=txn)),
            tasks=len(sources),
            inputs=tuple(
                Input(layout=task.layout, partition=source.name.partition, sources=(source,)) for source in sources
            ),
            input_bytes=read_bytes(work.sources, work.changes),
            rows=sum(part.rows for part in work.sources),
        )

    def facts(self, payload: bytes) -> MutateFacts:
        return decode_mutate_facts(payload)

    def outputs(self, work: Rewrite, facts: MutateFacts) -> list[Output]:
        return [
            Output(task=place, written=result.written)
            for place, result in enumerate(facts.results)
            if not result.is_untouched
        ]

    def updates(self, work: Rewrite, facts: MutateFacts, duration_ms: int, seen: Seen) -> list[Update]:
        mutation = work.spec.mutation.id
        names = {str(part.name): part.name for part in work.sources}
        assert [str(part.name) for part in work.sources] == [result.name for result in facts.results]
        updates: list[Update] = [
            RewritePart(
                table=self._watch.uuid,
                source=names[result.name],
                written=result.written,
                mutation=mutation,
                duration_ms=duration_ms,
                reason=work.spec.reason,
                seen=seen,
            )
            for result in facts.results
            if not result.is_untouched
        ]
        untouched = tuple(names[result.name] for result in facts.results if result.is_untouched)
        if untouched:
            updates.append(AcceptMutation(table=self._watch.uuid, parts=untouched, mutation=mutation))
        return updates

    def told(self, work: Rewrite, facts: MutateFacts, duration_ms: int) -> str:
        untouched = sum(result.is_untouched for result in facts.results)
        rewritten = len(facts.results) - untouched
        return f"{rewritten} parts rewritten, {untouched} without a match, in {duration_ms} ms"
