"""Lives of a table: inserts, merges, ALTERs, rewrites, drops, UNDROPs, kills and collection in any order.

The model knows which rows there are and what has been done to them, not how: groups of rows come with an insert, a
merge moves them, a rewrite notes the mutation at each group. Every commit checks its invariants, counts among them.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tilth.base.rand import new_rng
from tilth.catalog import (
    BadMergeError,
    HideEverything,
    HidePartition,
    InsertPart,
    NothingToUndropError,
    ReplaceParts,
    RestorePartition,
)
from tilth.model.mutation import Mutation, MutationKind, MutationState, first_needed
from tilth.model.part import Part
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple
from tilth.storage.values.shapes import wanted_of

PARTITIONS = "ab"
ACTIONS = (
    *("insert", "insert", "insert", "merge", "merge"),
    *("update", "columns", "rewrite", "rewrite", "rewrite", "vanish", "accept", "finish", "kill", "describe", "trim"),
    *("drop", "truncate", "undrop", "undrop", "collect", "collect", "empty"),
)

#: Group of rows -> ids of the mutations that it got, in order.
Content = dict[int, tuple[int, ...]]


class Life:
    """A table, and what the model knows of it."""

    def __init__(self) -> None:
        self.world = World()
        #: Content of each file.
        self.content: dict[str, Content] = {}
        #: Their state when they were seen last, also those that are forgotten.
        self.mutations: dict[int, Mutation] = {}
        #: Commit of each group's insert, in order.
        self.born: list[int] = []
        #: Visible groups by partition.
        self.shown: dict[str, set[int]] = {partition: set() for partition in PARTITIONS}
        self.dropped: dict[str, list[set[int]]] = {partition: [] for partition in PARTITIONS}

    def step(self, action: str, number: int) -> None:
        partition = PARTITIONS[number % 2]
        match action:
            case "insert":
                self.insert(partition)
            case "merge":
                self.merge(partition, number)
            case "update" | "columns":
                self.alter(action == "columns")
            case "rewrite" | "vanish" | "accept":
                self.mutate(partition, action, number)
            case "finish" | "kill":
                self.end(action)
            case "describe":
                self.describe(number)
            case "trim":
                self.world.catalog.mutations.trim(self.world.t, keep=0)
            case "drop" | "truncate":
                self.drop(PARTITIONS if action == "truncate" else partition)
            case "undrop":
                self.undrop(partition)
            case "collect":
                self.world.collect(rounds=1 + number % 3)
            case _:
                self.empty()

    def insert(self, partition: str) -> None:
        group = len(self.born)
        [part] = self.world.commit(InsertPart(table=self.world.t, written=self.world.written(partition, rows=10)))
        self.born.append(part.commit_ts)
        self.content[part.file.name] = {group: ()}
        self.shown[partition].add(group)

    def merge(self, partition: str, number: int) -> None:
        parts = self.visible(partition)
        chosen = parts[number % 3 : number % 3 + 2 + number % 2]
        if len(chosen) < 2:
            return
        content: Content = {}
        for part in chosen:
            content |= self.content[part.file.name]
        # Now and then cut into two or three key ranges.
        of = max(1, number % 5 - 1)
        keys = sorted(content)
        ranges = [{key: content[key] for key in keys[start::of]} for start in range(of) if keys[start::of]]
        made = [self.world.written(partition, rows=10 * len(each)) for each in ranges or [content]]
        names = tuple(part.name for part in chosen)
        try:
            self.world.commit(ReplaceParts(table=self.world.t, sources=names, written=made[0], more=tuple(made[1:])))
        except BadMergeError:
            pending = self.world.catalog.mutations.pending(self.world.t)
            needed = {first.id if (first := first_needed(part, pending)) else 0 for part in chosen}
            assert len(needed) > 1 or len({part.columns_commit_ts for part in chosen}) > 1
            return
        for written, each in zip(made, ranges or [content], strict=True):
            self.content[written.file.name] = each

    def alter(self, is_columns: bool) -> None:
        if not is_columns:
            self.world.alter()
            return
        definition = self.world.definition()
        number = definition.next_column_id
        column = Column(id=number, name=f"c{number}", type=Simple(Kind.INT64), default=str(number))
        self.world.alter(Schema(columns=(*definition.schema.columns, column)))

    def describe(self, number: int) -> None:
        definition = self.world.definition()
        *others, last = definition.schema.columns
        schema = Schema(columns=(*others, msgspec.structs.replace(last, default=f"-{number}")))
        self.world.catalog.tables.describe_columns(self.world.t, definition.schema_version, schema)

    def mutate(self, partition: str, action: str, number: int) -> None:
        pending = self.world.catalog.mutations.pending(self.world.t)
        waiting = [part for part in self.visible(partition) if first_needed(part, pending)]
        for part in waiting[: 1 + number % 2]:
            mutation = first_needed(part, pending)
            assert mutation is not None
            content = self.content[part.file.name]
            if action == "accept" and mutation.kind is not MutationKind.COLUMNS:
                self.world.accept(mutation, part)
                self.content[part.file.name] = noted(content, mutation)
            elif action == "vanish":
                self.world.rewrite(mutation, part, rows=0)
                self.shown[partition] -= content.keys()
            else:
                [rewritten] = self.world.rewrite(mutation, part)
                self.content[rewritten.file.name] = noted(content, mutation)

    def end(self, action: str) -> None:
        for mutation in self.world.catalog.mutations.pending(self.world.t)[:1]:
            if action == "kill":
                self.world.catalog.mutations.kill(self.world.t, mutation.id, "no")
            else:
                shown = [part for partition in PARTITIONS for part in self.visible(partition)]
                is_needed = any(first_needed(part, [mutation]) for part in shown)
                assert self.world.catalog.mutations.finish(self.world.t, mutation.id) is not is_needed

    def drop(self, partitions: str) -> None:
        if partitions == PARTITIONS:
            self.world.commit(HideEverything(table=self.world.t))
        else:
            self.world.commit(HidePartition(table=self.world.t, partition=partitions))
        for partition in partitions:
            if self.shown[partition]:
                self.dropped[partition].append(self.shown[partition])
                self.shown[partition] = set()

    def undrop(self, partition: str) -> None:
        update = RestorePartition(table=self.world.t, partition=partition)
        try:
            self.world.commit(update)
        except NothingToUndropError:
            assert self.dropped[partition] == []
            return
        self.shown[partition] |= self.dropped[partition].pop()

    def empty(self) -> None:
        """All that nobody needs is gone for good."""
        self.world.collect()
        items, _ = self.world.catalog.trash.items(self.world.t, limit=1000)
        self.world.catalog.trash.remove(self.world.t, self.world.catalog.trash.mark_for_removal(self.world.t, items))
        self.dropped = {partition: [] for partition in PARTITIONS}

    def settle(self) -> None:
        """What is pending is done, as the background does it."""
        while pending := self.world.catalog.mutations.pending(self.world.t):
            for partition in PARTITIONS:
                for _ in self.visible(partition):
                    self.mutate(partition, "rewrite", 1)
            self.world.catalog.mutations.finish(self.world.t, pending[0].id)
            self.check()

    def visible(self, partition: str) -> list[Part]:
        return self.world.catalog.parts.visible(self.world.t, partition)

    def check(self) -> None:
        definition = self.world.definition()
        counts = self.world.catalog.parts.counts(self.world.t)
        self.mutations |= {each.id: each for each in self.world.catalog.mutations.all(self.world.t)}
        for partition in PARTITIONS:
            parts = self.visible(partition)
            # Key ranges of one merge count as one part.
            assert counts.get(partition, 0) == len({part.cut or part.name for part in parts})
            groups = [group for part in parts for group in self.content[part.file.name]]
            assert sorted(groups) == sorted(self.shown[partition]), "every row once"
            assert sum(part.rows for part in parts) == 10 * len(groups)
            for part in parts:
                stored = definition.schema_of(part.schema_version)
                assert stored is not None
                for column in wanted_of(definition, part.schema_version).columns:
                    assert column.name in stored.names or column.default == str(column.id), "as the column came"
                for group, got in self.content[part.file.name].items():
                    times = [self.mutations[each].commit_ts for each in got]
                    assert times == sorted(set(times)), "once, and in their order"
                    assert all(ts > self.born[group] for ts in times), "rows that came later do not get it"

    def check_settled(self) -> None:
        done = [each for each in self.mutations.values() if each.state is MutationState.DONE]
        for partition in PARTITIONS:
            for part in self.visible(partition):
                for group, got in self.content[part.file.name].items():
                    assert {each.id for each in done if each.commit_ts > self.born[group]} <= set(got)


def noted(content: Content, mutation: Mutation) -> Content:
    return {group: (*got, mutation.id) for group, got in content.items()}


@pytest.mark.parametrize("seed", range(100))
def test_every_row_is_there_once_with_what_was_asked_of_it(seed: int) -> None:
    rng = new_rng(seed)
    life = Life()
    for _ in range(40):
        life.step(ACTIONS[int(rng.random() * len(ACTIONS))], int(rng.random() * 6))
        life.check()
    life.settle()
    life.check_settled()
    life.empty()
    life.check()
