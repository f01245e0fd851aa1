"""Inserts, merges, mutations, drops and restarts in any order: what is read in the end is what the statements say, one
after the other, over plain lists of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.maintenance_world import MaintenanceWorld, mutated
from tilth.base.errors import ConflictError
from tilth.catalog import BadMergeError, HidePartition, InsertPart, ReplaceParts
from tilth.catalog.rules.visibility import visible
from tilth.model.mutation import MutationKind, MutationState
from tilth.model.service import ServiceKind
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple

PARTITIONS = ("a", "b")


@dataclass
class Case:
    """A table whose tasks are held or done at once, and beside it the rows that it must have."""

    world: MaintenanceWorld = field(default_factory=MaintenanceWorld)
    rows: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, ()))
    columns: int = 1

    def insert(self, partition: str, rows: tuple[int, ...]) -> None:
        written = self.world.written(partition, rows=len(rows))
        self.world.worker.contents[written.file.name] = rows
        self.world.commit(InsertPart(table=self.world.t, written=written))
        self.rows[partition] += rows

    def delete(self, predicate: str) -> None:
        self.world.alter_delete(predicate)
        self._apply(MutationKind.DELETE, predicate)

    def update(self, expression: str, predicate: str) -> None:
        self.world.update(expression, predicate)
        self._apply(MutationKind.UPDATE, predicate, (("a", expression),))

    def add_column(self) -> None:
        self.columns += 1
        columns = (
            Column(id=n, name=f"{'a' if n == 1 else f'c{n}'}", type=Simple(Kind.INT64))
            for n in range(1, self.columns + 1)
        )
        self.world.mutate(MutationKind.COLUMNS, schema=Schema(columns=tuple(columns)))

    def drop(self, partition: str) -> None:
        self.world.commit(HidePartition(table=self.world.t, partition=partition))
        self.rows[partition] = ()

    def merge(self, partition: str, first: int, count: int) -> None:
        """By somebody who does not ask who has taken the parts; refused where they are not alike."""
        world = self.world
        entries = world.catalog.parts.entries(world.t, partition)
        sources = visible(entries)[first : first + count]
        if len(sources) < 2:
            return
        written = world.written(partition, rows=sum(part.rows for part in sources))
        world.worker.contents[written.file.name] = tuple(
            row for part in sources for row in world.worker.rows_of(part.file)
        )
        names = tuple(part.name for part in sources)
        try:
            world.commit(ReplaceParts(table=world.t, sources=names, written=written))
        except (BadMergeError, ConflictError):
            return

    def hold(self) -> None:
        self.world.worker.is_holding = True

    def let_go(self) -> None:
        self.world.worker.let_go()
        self.world.settle()

    def turn(self) -> None:
        self.world.clock.advance(1.1)
        self.world.turn()

    def restart(self) -> None:
        self.world.manager.stop()
        self.world.catalog = self.world.reopened()
        self.world.manager = self.world.new_manager()

    def finish(self) -> None:
        self.let_go()
        for _ in range(12):
            self.world.work(1.1)

    def _apply(self, kind: MutationKind, predicate: str, assignments: tuple[tuple[str, str], ...] = ()) -> None:
        for partition, rows in self.rows.items():
            self.rows[partition] = mutated(rows, kind, predicate=predicate, assignments=assignments)


Step = Callable[[Case], None]

PARTITION = st.sampled_from(PARTITIONS)
PREDICATE = st.sampled_from(["a is odd", "a is a multiple of 3", "true", "false"])
ROWS = st.lists(st.integers(0, 20), min_size=1, max_size=3).map(tuple)


def step(method: Callable[..., None], *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda given: lambda case: method(case, *given))


STEPS = st.lists(
    st.one_of(
        step(Case.insert, PARTITION, ROWS),
        step(Case.insert, PARTITION, ROWS),
        step(Case.insert, PARTITION, ROWS),
        step(Case.delete, PREDICATE.filter(lambda text: text != "true")),
        step(Case.update, st.sampled_from(["a + 1", "a * 2"]), PREDICATE),
        step(Case.add_column),
        step(Case.merge, PARTITION, st.integers(0, 3), st.integers(2, 4)),
        step(Case.turn),
        step(Case.turn),
        step(Case.hold),
        step(Case.let_go),
        step(Case.drop, PARTITION),
        step(Case.restart),
    ),
    min_size=5,
    max_size=25,
)


@settings(max_examples=examples(40))
@given(STEPS)
def test_any_order_ends_with_what_the_statements_say(steps: list[Step]) -> None:
    case = Case()
    for each in steps:
        each(case)
    case.finish()
    world = case.world
    assert world.rows() == sorted(row for rows in case.rows.values() for row in rows)
    assert {entry.state for entry in world.catalog.mutations.all()} <= {MutationState.DONE}
    assert world.manager.mutations() == []
    service = world.service(ServiceKind.MUTATE)
    assert (service.state, service.failures) == ("idle", 0)
    assert not world.running()
