"""Times of versions, columns of older snapshots, and labels of inserts."""

from __future__ import annotations

import pytest

from tests.catalog_world import SCHEMA, WIDER, Racing, World
from tilth.base.errors import ErrorKind
from tilth.catalog import HidePartition, InsertLabel, InsertPart, LabelTakenError, StartMutation, Unknown
from tilth.catalog.rules.earlier_columns import columns_as_of, without_unused
from tilth.model.mutation import MutationKind
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple

WIDEST = Schema(columns=(*WIDER.columns, Column(id=3, name="c", type=Simple(Kind.INT64))))


@pytest.fixture
def world() -> World:
    return World()


# --- versions ---


def test_each_commit_notes_its_time(world: World) -> None:
    history = world.catalog.history
    assert (history.listing(world.t, 10), history.time_of(world.t, 0)) == ([], None)
    [part] = world.insert()
    times = [part.commit_ts]
    world.commit(HidePartition(table=world.t, partition="all"))
    times.append(world.catalog.parts.version(world.t).last_commit_ts)
    mutation = world.alter()
    times.append(mutation.commit_ts)
    assert history.listing(world.t, 10) == [(3, times[2]), (2, times[1]), (1, times[0])]
    assert history.listing(world.t, 1) == [(3, times[2])]
    assert [history.time_of(world.t, version) for version in (1, 2, 3, 4, -1)] == [*times, None, None]
    # An update that changes nothing makes no version.
    world.commit(HidePartition(table=world.t, partition="all"))
    assert len(history.listing(world.t, 10)) == 3


def test_the_version_of_the_oldest_time_stays(world: World) -> None:
    history = world.catalog.history
    times = [world.insert()[0].commit_ts for _ in range(4)]
    other = world.table("other")
    world.insert(table=other)
    assert history.trim(world.t, times[0] - 1) == 0
    assert history.trim(world.t, times[2] - 1) == 1
    assert history.trim(world.t, times[2]) == 1
    assert [version for version, _ in history.listing(world.t, 10)] == [4, 3]
    assert history.trim(world.t, times[3] + 100) == 1
    assert [version for version, _ in history.listing(world.t, 10)] == [4]
    assert len(history.listing(other, 10)) == 1


# --- columns ---


def test_an_older_snapshot_has_the_columns_of_its_time(world: World) -> None:
    [part] = world.insert()
    first, second = world.alter(WIDER), world.alter(WIDEST)
    snapshot = world.catalog.parts.snapshot
    before = snapshot(world.t, at=first.commit_ts - 1)
    assert (before.table.schema, before.table.schema_version, before.table.columns_commit_ts) == (SCHEMA, 1, 0)
    assert before.table.older_schemas == ()
    assert before.parts == (part,)
    between = snapshot(world.t, at=first.commit_ts)
    assert (between.table.schema, between.table.schema_version) == (WIDER, 2)
    assert [each.version for each in between.table.older_schemas] == [1]
    for at in (None, second.commit_ts, second.commit_ts + 100):
        assert snapshot(world.t, at=at).table == world.definition()


def test_what_reads_of_the_past_need_is_not_forgotten(world: World) -> None:
    world.insert()
    first, second = world.alter(WIDER), world.alter(WIDEST)
    definition = world.definition()

    def versions(keep_ts: int | None) -> list[int]:
        kept = without_unused(definition, (), (), keep_ts=keep_ts)
        return [each.version for each in kept.older_schemas]

    assert versions(None) == []
    assert versions(first.commit_ts) == [1, 2]
    assert versions(first.commit_ts + 1) == versions(second.commit_ts) == [2]
    assert versions(second.commit_ts + 1) == []
    assert columns_as_of(definition, first.commit_ts - 1).schema == SCHEMA
    # The nearest time that is left.
    forgotten = without_unused(definition, (), (), keep_ts=second.commit_ts)
    assert columns_as_of(forgotten, first.commit_ts - 1).schema == WIDER
    assert columns_as_of(without_unused(definition, (), ()), first.commit_ts).schema == WIDEST


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_mutation_ends_with_or_without_the_columns_before_it(world: World, is_kept: bool) -> None:
    mutation = world.alter(WIDER)
    keep_ts = mutation.commit_ts if is_kept else None
    assert world.catalog.mutations.finish(world.t, mutation.id, keep_ts=keep_ts)
    assert len(world.definition().older_schemas) == is_kept
    described = Schema(columns=(SCHEMA.columns[0], Column(id=2, name="b", type=Simple(Kind.STRING), comment="x")))
    changed = world.catalog.tables.describe_columns(world.t, 2, described, keep_ts=keep_ts)
    assert [each.version for each in changed.older_schemas] == ([1] if is_kept else [])
    before = world.catalog.parts.snapshot(world.t, at=mutation.commit_ts - 1).table.schema
    assert before == (SCHEMA if is_kept else described)


def test_a_snapshot_between_two_descriptions_has_the_newest_of_them(world: World) -> None:
    world.insert()
    commented = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64), comment="x"),))
    world.catalog.tables.describe_columns(world.t, 1, commented, keep_ts=0)
    start = StartMutation(
        table=world.t, from_version=2, kind=MutationKind.COLUMNS, command="ADD", schema=WIDER, next_column_id=3
    )
    world.commit(start)
    ts = world.definition().columns_commit_ts
    assert world.catalog.parts.snapshot(world.t, at=ts - 1).table.schema == commented


# --- labels ---


def test_a_label_is_taken_once(world: World) -> None:
    labels = world.catalog.labels
    assert labels.find(world.t, "load-1") is None
    label = InsertLabel(table=world.t, label="load-1", rows=10)
    [part] = world.commit(InsertPart(table=world.t, written=world.written()), label)
    found = labels.find(world.t, "load-1")
    assert found is not None
    assert (found.rows, found.commit_ts, found.txn) == (10, part.commit_ts, part.name.mutation)
    with pytest.raises(LabelTakenError) as refused:
        world.commit(InsertPart(table=world.t, written=world.written()), label)
    assert (refused.value.code, refused.value.kind) == ("INSERT_LABEL_TAKEN", ErrorKind.CONFLICT)
    facts = refused.value.facts
    assert (facts["label"], facts["rows"], facts["txn"]) == ("load-1", "10", str(found.txn))
    assert world.names() == [part.name]
    other = world.table("other")
    world.commit(InsertLabel(table=other, label="load-1", rows=0))
    assert labels.find(other, "load-1") is not None


def test_two_inserts_of_one_commit_do_not_share_a_label(world: World) -> None:
    label = InsertLabel(table=world.t, label="x", rows=1)
    with pytest.raises(LabelTakenError):
        world.commit(label, label)
    assert world.catalog.labels.find(world.t, "x") is None


def test_of_two_at_once_one_gets_the_label() -> None:
    kv = Racing()
    world = World(kv)
    label = InsertLabel(table=world.t, label="x", rows=1)
    txn = world.catalog.transactions.open("insert")
    kv.before = lambda: World(kv).commit(label)
    with pytest.raises(LabelTakenError):
        txn.commit([label])


def test_the_same_commit_gets_the_same_answer(world: World) -> None:
    label = InsertLabel(table=world.t, label="x", rows=1)
    txn = world.catalog.transactions.begin("insert")
    first = world.catalog.transactions.commit(txn.id, [label])
    assert not isinstance(first, Unknown)
    assert world.catalog.transactions.commit(txn.id, [label]) == first


def test_old_labels_are_forgotten(world: World) -> None:
    labels, times = world.catalog.labels, []
    for number in range(3):
        world.commit(InsertLabel(table=world.t, label=f"l{number}", rows=1))
        times.append(world.catalog.parts.version(world.t).last_commit_ts)
    assert labels.trim(times[0]) == 0
    assert labels.trim(times[2]) == 2
    assert [labels.find(world.t, f"l{number}") is None for number in range(3)] == [True, True, False]
    world.commit(InsertLabel(table=world.t, label="l0", rows=1))
