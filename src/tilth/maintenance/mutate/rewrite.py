"""One rewrite: its parts, its task, the changes of its commit, its report.

Does not cover: which parts are rewritten (op.py), the way from files to commit (maintenance/work), how a part is
rewritten in Spark.

Tests: tests/unit/maintenance/mutate/test_op.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tilth.catalog import AcceptMutation, RewritePart, Update
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.mutate.policy import MutateSpec
from tilth.maintenance.mutate.task_spark import MutateFacts, MutateSource, MutateTask
from tilth.maintenance.table.sources import ChangesOf, read_bytes, sources_of
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.procedure import Input, Job, Output, Procedure
from tilth.model.delta import Seen
from tilth.model.part import Part
from tilth.storage import layout_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Parts to which one task applies a mutation."""

    spec: MutateSpec
    #: Parts of the spec that are still visible and still need it; filled in when it is loaded.
    sources: tuple[Part, ...] = ()
    changes: ChangesOf = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        return [str(part.name) for part in self.sources] or self.spec.parts

    @property
    def partitions(self) -> Collection[str]:
        return self.spec.partitions

    @property
    def subject(self) -> str:
        return f"mutation {self.spec.mutation.id}"


class RewriteProcedure(Procedure[Rewrite, MutateFacts]):
    """Procedure of a rewrite."""

    kind = OpKind.MUTATE
    facts_type = MutateFacts
    verb = "mutate"
    noun = "mutation"
    is_divisible = True

    def __init__(self, context: TableContext) -> None:
        self._root = context.server.root
        self._watch = context.watch

    def about(self, works: Sequence[Rewrite]) -> str:
        [rewrite] = works
        return rewrite.spec.reason

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
        )
        return Job(
            task=task,
            tasks=len(sources),
            inputs=tuple(
                Input(layout=task.layout, partition=source.name.partition, sources=(source,)) for source in sources
            ),
            input_bytes=read_bytes(work.sources, work.changes),
            rows=sum(part.rows for part in work.sources),
        )

    def outputs(self, work: Rewrite, facts: MutateFacts) -> list[Output]:
        return [
            Output(task=index, written=result.written)
            for index, result in enumerate(facts.results)
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

    def report(self, work: Rewrite, facts: MutateFacts, duration_ms: int) -> str:
        untouched = sum(result.is_untouched for result in facts.results)
        rewritten = len(facts.results) - untouched
        return f"{rewritten} parts rewritten, {untouched} without a match, in {duration_ms} ms"
