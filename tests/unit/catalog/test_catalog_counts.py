"""Counts of parts: kept by every commit, checked at commit."""

from __future__ import annotations

import pytest

from tests.catalog_world import SCHEMA, World
from tilth.base.errors import ErrorKind
from tilth.catalog import (
    HideEverything,
    HidePartition,
    InsertPart,
    PartsBelow,
    ReplaceParts,
    RestorePartition,
    TooManyPartsError,
    Update,
)
from tilth.catalog.records.nouns import PartitionRecord, TableVersion
from tilth.catalog.rules.changes import CommitState, CommitTimes, TableState
from tilth.catalog.rules.fold import fold
from tilth.catalog.rules.invariants import check_commit
from tilth.model.part import DataFile, Mark, Part, PartName, parse_part_name
from tilth.model.table import TableDef


@pytest.fixture
def world() -> World:
    return World()


def total(world: World) -> int:
    return world.catalog.parts.version(world.t).parts


def test_every_commit_keeps_the_counts(world: World) -> None:
    parts = world.catalog.parts
    assert (parts.counts(world.t), total(world)) == ({}, 0)
    a, a2, _ = world.insert("a", "a", "b")
    assert (parts.counts(world.t), total(world)) == ({"a": 2, "b": 1}, 3)
    merged = world.merge([a, a2])
    assert (parts.counts(world.t), total(world)) == ({"a": 1, "b": 1}, 2)
    [a3] = world.insert("a")
    world.commit(ReplaceParts(table=world.t, sources=(merged.name, a3.name), written=None))
    assert (parts.counts(world.t), total(world)) == ({"a": 0, "b": 1}, 1)
    world.commit(HidePartition(table=world.t, partition="b"), *_inserts(world, "b", "c"))
    assert (parts.counts(world.t), total(world)) == ({"a": 0, "b": 1, "c": 1}, 2)
    world.commit(HideEverything(table=world.t))
    assert (parts.counts(world.t), total(world)) == ({"a": 0, "b": 0, "c": 0}, 0)
    world.commit(RestorePartition(table=world.t, partition="c"))
    assert (parts.counts(world.t), total(world)) == ({"a": 0, "b": 0, "c": 1}, 1)
    assert world.reopened().parts.counts(world.t) == parts.counts(world.t)


def test_a_commit_that_leaves_too_many_parts_is_refused(world: World) -> None:
    limit = PartsBelow(table=world.t, per_partition=3, total=0)
    world.insert("a", "a", "b")
    _commit(world, limit, "a")
    with pytest.raises(TooManyPartsError, match="partition=a parts=4 parts_to_throw_insert=3") as refused:
        _commit(world, limit, "b", "a")
    assert refused.value.kind is ErrorKind.RETRY
    assert world.catalog.parts.counts(world.t) == {"a": 3, "b": 1}
    with pytest.raises(TooManyPartsError):
        _commit(world, limit, "b", "b", "b")
    _commit(world, limit, "b", "c")
    _commit(world, PartsBelow(table=world.t, per_partition=0, total=0), "a", "a")
    world.merge(world.catalog.parts.visible(world.t, "a"))
    _commit(world, limit, "a")


def test_a_table_has_a_limit_too(world: World) -> None:
    limit = PartsBelow(table=world.t, per_partition=0, total=2)
    _commit(world, limit, "a", "b")
    with pytest.raises(TooManyPartsError, match="parts=3 max_parts_in_total=2"):
        _commit(world, limit, "c")
    txn = world.catalog.transactions.open("overwrite")
    updates: list[Update] = [HidePartition(table=world.t, partition="a"), *_inserts(world, "a")]
    txn.commit(updates, [limit])


def test_limits_that_were_passed_stop_no_merge_and_no_drop(world: World) -> None:
    a, b, *_ = world.insert("a", "a", "a", "b")
    txn = world.catalog.transactions.open("merge")
    merge = ReplaceParts(table=world.t, sources=(a.name, b.name), written=world.written("a", rows=20))
    limit = PartsBelow(table=world.t, per_partition=1, total=0)
    txn.commit([merge], [limit])
    assert world.catalog.parts.counts(world.t) == {"a": 2, "b": 1}


def test_what_a_merge_makes() -> None:
    """Of docs/policies/visibility.md#single-rows: a_1_1_0_100, a_2_2_0_101, a_3_5_2_102 merged by txn 200."""
    names = [parse_part_name(text) for text in ("a_1_1_0_100", "a_2_2_0_101", "a_3_5_2_102")]
    file = DataFile(name="f", size=1, checksum=0)
    parts = tuple(Part(name=name, schema_version=1, rows=1, file=file, commit_ts=name.mutation) for name in names)
    before = TableState(
        definition=TableDef(uuid="t", database="default", name="t", schema=SCHEMA),
        version=TableVersion(counter=3, last_commit_ts=102, inserted_rows=3, parts=3),
        entries={"a": parts},
        partitions={"a": PartitionRecord(partition="a", values=("a",), created_ts=100, parts=3)},
    )
    merge = ReplaceParts(table="t", sources=tuple(names), written=World().written("a", rows=3))
    state = CommitState(tables={"t": before}, kafka={})
    changes = fold(state, [merge], CommitTimes(txn=200, first_block=201, commit_ts=201, now_ms=0))
    check_commit(state, changes)
    made = changes.tables["t"].added
    assert [str(each.name) for each in made if isinstance(each, Part)] == ["a_1_5_3_200"]
    assert [str(each.name) for each in made if isinstance(each, Mark)] == ["a_1_1_1_200", "a_2_2_1_200", "a_3_5_3_200"]
    assert [each.name for each in made if isinstance(each, Part)] == [PartName("a", 1, 5, 3, 200)]


def _inserts(world: World, *partitions: str) -> list[InsertPart]:
    return [InsertPart(table=world.t, written=world.written(each)) for each in partitions]


def _commit(world: World, limit: PartsBelow, *partitions: str) -> None:
    txn = world.catalog.transactions.open("insert")
    txn.commit(_inserts(world, *partitions), [limit])
