"""UNDROP PARTITION: what comes back, and that nothing comes back whose file is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.catalog_world import SCHEMA, WIDER, Racing, World
from tilth.base.errors import FencedError
from tilth.catalog import (
    HideEverything,
    HidePartition,
    InsertPart,
    NoRowsSince,
    NothingToUndropError,
    PartsChangedError,
    ReplaceParts,
    RestorePartition,
    TrashedPart,
    visibility,
)
from tilth.catalog.records.keys import Space, pack
from tilth.model.mutation import MutationState
from tilth.model.part import DropRange
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple

RENAMED = Schema(columns=(Column(id=1, name="b", type=Simple(Kind.INT64)),))


@pytest.fixture
def world() -> World:
    return World()


def drop(world: World, partition: str = "a") -> None:
    world.commit(HidePartition(table=world.t, partition=partition))


def undrop(world: World, partition: str = "a") -> None:
    world.commit(RestorePartition(table=world.t, partition=partition))


def trash(world: World) -> list[TrashedPart]:
    return world.catalog.trash.items(world.t, limit=100)[0]


def nothing(_: World) -> None:
    """No collection between drop and undrop."""


def collect_all(world: World) -> None:
    world.collect()
    assert world.catalog.parts.entries(world.t, "a") == []


def collect_data(world: World) -> None:
    world.collect(rounds=1)
    assert len(world.catalog.parts.entries(world.t, "a")) == 1, "the range is still there"


def collect_half(world: World) -> None:
    [first, *_] = visibility.end_times(world.catalog.parts.entries(world.t, "a"))
    world.catalog.parts.move_to_trash(world.t, [first], now_ms=1)


@pytest.mark.parametrize("meanwhile", [nothing, collect_half, collect_data, collect_all])
def test_what_a_drop_hid_is_back(world: World, meanwhile: Callable[[World], None]) -> None:
    parts = [*world.insert("a", "b"), *world.insert("a", rows=7)]
    names = world.names()
    before = world.catalog.parts.version(world.t)
    drop(world)
    assert world.catalog.parts.counts(world.t) == {"a": 0, "b": 1}
    meanwhile(world)
    undrop(world)
    assert world.names() == names
    back = world.catalog.parts.snapshot(world.t).parts
    assert {part.name: part for part in back} == {part.name: part for part in parts}
    version = world.catalog.parts.version(world.t)
    assert (version.removed_rows, version.parts) == (0, before.parts)
    assert version.counter == before.counter + 2
    assert world.catalog.parts.counts(world.t) == {"a": 2, "b": 1}
    assert trash(world) == []
    assert not any(isinstance(each, DropRange) for each in world.catalog.parts.all_entries(world.t))
    event = world.catalog.part_log.recent(limit=1)[0]
    assert (event.event, event.rows, event.sources) == ("undrop", 17, 2)
    assert world.collect() == 0
    world.insert("a")
    assert len(world.names()) == 4


def test_a_truncate_is_undone_partition_by_partition(world: World) -> None:
    world.insert("a", "b", "b")
    names = world.names()
    world.commit(HideEverything(table=world.t))
    world.collect()
    undrop(world, "a")
    assert world.names() == names[:1]
    undrop(world, "b")
    assert world.names() == names


def test_only_the_newest_drop_is_undone(world: World) -> None:
    [first] = world.insert("a")
    drop(world)
    [second] = world.insert("a")
    drop(world)
    undrop(world)
    assert world.names() == [second.name]
    world.collect()
    undrop(world)
    assert world.names() == [first.name, second.name]
    with pytest.raises(NothingToUndropError):
        undrop(world)


def test_a_drop_a_second_time_hides_all_again(world: World) -> None:
    [first] = world.insert("a")
    drop(world)
    world.collect()
    undrop(world)
    [second] = world.insert("a")
    drop(world)
    assert world.names() == []
    world.collect()
    assert trash(world)[0].item.dropped_parts == 2
    undrop(world)
    assert world.names() == [first.name, second.name]


def test_what_was_merged_or_rewritten_before_stays_hidden(world: World) -> None:
    parts = [*world.insert("a"), *world.insert("a"), *world.insert("a")]
    merged = world.merge(parts[:2])
    mutation = world.alter()
    left = world.rewrite(mutation, merged, parts[2])
    for meanwhile in (nothing, collect_half, collect_all):
        drop(world)
        meanwhile(world)
        undrop(world)
        assert world.names() == [part.name for part in left]
    kept = {each.item.part.name: each.item.is_dropped for each in trash(world)}
    assert kept == dict.fromkeys([*(part.name for part in parts), merged.name], False)


def test_what_lay_below_a_rewritten_part_is_not_taken_for_dropped(world: World) -> None:
    """Though the rewritten part went to the trash before it."""
    [old] = world.insert("a")
    [new] = world.rewrite(world.alter(), old)
    drop(world)
    ended = visibility.end_times(world.catalog.parts.entries(world.t, "a"))
    assert [entry for entry, _ in ended] == [old, new]
    for each in reversed(ended):
        assert world.catalog.parts.move_to_trash(world.t, [each], now_ms=1) == 1
    assert {each.item.part.name: each.item.is_dropped for each in trash(world)} == {old.name: False, new.name: True}
    undrop(world)
    assert world.names() == [new.name]


def test_what_was_dropped_and_merged_in_one_commit_is_not_doubled(world: World) -> None:
    parts = [*world.insert("a"), *world.insert("a")]
    names = tuple(part.name for part in parts)
    merge = ReplaceParts(table=world.t, sources=names, written=world.written("a", rows=20))
    world.commit(merge, HidePartition(table=world.t, partition="a"))
    world.collect()
    undrop(world)
    assert [part.rows for part in world.catalog.parts.snapshot(world.t).parts] == [20]


def test_an_overwritten_partition_comes_back_beside_what_replaced_it(world: World) -> None:
    [old] = world.insert("a")
    [new] = world.commit(
        HidePartition(table=world.t, partition="a"), InsertPart(table=world.t, written=world.written("a"))
    )
    undrop(world)
    assert world.names() == [old.name, new.name]


def test_a_partition_of_which_nothing_is_left_is_known_again(world: World) -> None:
    [part] = world.insert("a")
    drop(world)
    world.collect()
    world.kv.commit([], {}, [pack(Space.PARTITION, world.t, "a")])
    undrop(world)
    assert world.catalog.parts.partitions(world.t) == ["a"]
    assert world.catalog.parts.counts(world.t) == {"a": 1}
    assert world.catalog.parts.snapshot(world.t).parts == (part,)


def test_nothing_to_undrop(world: World) -> None:
    world.insert("a")
    for partition in ("a", "never"):
        with pytest.raises(NothingToUndropError, match="ttl_for_trash_items"):
            undrop(world, partition)
    drop(world)
    world.collect()
    world.catalog.trash.remove(world.t, world.catalog.trash.mark_for_removal(world.t, trash(world)))
    with pytest.raises(NothingToUndropError):
        undrop(world)


def test_a_drop_comes_back_whole_or_not_at_all(world: World) -> None:
    world.insert("a")
    world.insert("a")
    drop(world)
    world.collect()
    items = trash(world)
    [marked] = world.catalog.trash.mark_for_removal(world.t, items[:1])
    assert marked.item.is_going
    with pytest.raises(NothingToUndropError, match="dropped=2 left=1"):
        undrop(world)
    assert world.catalog.trash.mark_for_removal(world.t, items[:1]) == [marked]
    assert world.catalog.trash.remove(world.t, [marked]) == 1
    with pytest.raises(NothingToUndropError, match="being removed already"):
        undrop(world)
    assert world.names() == []


def test_claiming(world: World) -> None:
    lease = world.catalog.leases.acquire("table/t", "s1")
    world.insert("a")
    world.merge([*world.insert("b"), *world.insert("b")])
    drop(world)
    world.collect()
    items = trash(world)
    marked = world.catalog.trash.mark_for_removal(world.t, items, fence=lease.fence)
    assert [each.item.is_going for each in marked] == [True, False, False], "merged parts never come back anyway"
    assert world.catalog.trash.mark_for_removal("other", items) == []
    world.catalog.trash.remove(world.t, items)
    assert world.catalog.trash.mark_for_removal(world.t, items) == []
    world.catalog.leases.acquire("table/t", "s2")
    with pytest.raises(FencedError):
        world.catalog.trash.mark_for_removal(world.t, items, fence=lease.fence)


def test_a_mutation_that_ended_meanwhile_is_due_again(world: World) -> None:
    """Before the drop or after it: rows that were there when it was committed get it."""
    [part] = world.insert("a")
    before = world.alter()
    drop(world)
    assert world.mutate_all(before)
    after, killed = world.alter(WIDER), world.alter()
    world.collect()
    assert world.mutate_all(after)
    world.catalog.mutations.kill(world.t, killed.id, "no")
    undrop(world)
    pending = world.catalog.mutations.pending(world.t)
    assert [(each.id, each.state, each.ended_ms) for each in pending] == [
        (before.id, MutationState.PENDING, 0),
        (after.id, MutationState.PENDING, 0),
    ]
    assert [each.schema_version for each in world.catalog.parts.visible(world.t, "a")] == [part.schema_version]
    for mutation in pending:
        assert world.mutate_all(mutation)
    [last] = world.catalog.parts.visible(world.t, "a")
    assert (last.schema_version, last.mutation_ts, last.name.level) == (2, before.commit_ts, 2)


@pytest.mark.parametrize("is_collected", [False, True])
def test_a_mutation_that_may_be_due_again_is_not_forgotten(world: World, is_collected: bool) -> None:
    world.insert("a")
    drop(world)
    if is_collected:
        world.collect()
    done, killed = world.alter(), world.alter()
    assert world.mutate_all(done)
    world.catalog.mutations.kill(world.t, killed.id, "no")
    assert world.catalog.mutations.trim(world.t, keep=0) == 1
    undrop(world)
    assert [each.id for each in world.catalog.mutations.pending(world.t)] == [done.id]
    assert world.mutate_all(done)
    world.collect()
    assert world.catalog.mutations.trim(world.t, keep=0) == 1


def test_the_columns_that_a_revived_mutation_writes_are_known_again(world: World) -> None:
    world.insert("a")
    drop(world)
    world.collect()
    renamed = world.alter(RENAMED)
    assert world.mutate_all(renamed)
    assert world.mutate_all(world.alter(SCHEMA))
    assert world.definition().schema_of(2) is None
    assert world.definition().schema_of(1) is not None, "the trash has such parts"
    undrop(world)
    assert [each.version for each in world.definition().older_schemas] == [1, 2]
    [part] = world.catalog.parts.visible(world.t, "a")
    [rewritten] = world.rewrite(renamed, part)
    assert rewritten.schema_version == 2


# --- races: the other one lands between the view of the first and its commit ---


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_undropped_is_not_moved_to_the_trash(is_late: bool) -> None:
    """GC has seen the drop, then the UNDROP lands: before GC looks again, or just before it commits."""
    kv = Racing()
    world = World(kv)
    world.insert("a")
    names = world.names()
    drop(world)
    ended = visibility.end_times(world.catalog.parts.entries(world.t, "a"))
    if is_late:
        kv.before = lambda: undrop(World(kv))
    else:
        undrop(world)
    assert world.catalog.parts.move_to_trash(world.t, ended, now_ms=1) == 0
    assert world.names() == names
    assert trash(world) == []


def test_an_undrop_brings_back_what_is_just_moved_to_the_trash() -> None:
    kv = Racing()
    world = World(kv)
    world.insert("a")
    world.insert("a")
    names = world.names()
    drop(world)
    kv.before = lambda: setattr(kv, "before", lambda: World(kv).collect(rounds=1))
    undrop(world)
    assert world.names() == names
    assert trash(world) == []
    assert "trash" in [event.event for event in world.catalog.part_log.recent(limit=9)], "the race happened"


def test_an_undrop_loses_against_the_removal_of_files() -> None:
    kv = Racing()
    world = World(kv)
    world.insert("a")
    drop(world)
    world.collect()
    kv.before = lambda: setattr(kv, "before", lambda: World(kv).catalog.trash.mark_for_removal(world.t, trash(world)))
    with pytest.raises(NothingToUndropError):
        undrop(world)
    assert len(trash(world)) == 1


def test_the_removal_of_files_loses_against_an_undrop() -> None:
    kv = Racing()
    world = World(kv)
    world.insert("a")
    names = world.names()
    drop(world)
    world.collect()
    items = trash(world)
    kv.before = lambda: undrop(World(kv))
    assert world.catalog.trash.mark_for_removal(world.t, items) == []
    assert world.catalog.trash.remove(world.t, items) == 0
    assert world.names() == names


def test_a_claim_is_for_the_drop_that_was_judged() -> None:
    """The part comes back and is dropped again while it is marked: the new drop can still be undone."""
    kv = Racing()
    world = World(kv)
    world.insert("a")
    names = world.names()
    drop(world)
    world.collect()
    items = trash(world)

    def drop_anew() -> None:
        other = World(kv)
        undrop(other)
        drop(other)
        other.collect()

    kv.before = drop_anew
    assert world.catalog.trash.mark_for_removal(world.t, items) == []
    [again] = trash(world)
    assert (again.key, again.item.is_going) == (items[0].key, False)
    assert again.item.end_ts > items[0].item.end_ts
    undrop(world)
    assert world.names() == names


def test_a_mutation_does_not_end_over_an_undrop() -> None:
    kv = Racing()
    world = World(kv)
    world.insert("a")
    drop(world)
    mutation = world.alter()
    kv.before = lambda: undrop(World(kv))
    assert not world.catalog.mutations.finish(world.t, mutation.id)
    assert world.mutate_all(mutation)


def test_who_looked_through_the_partition_before_an_undrop_looks_again(world: World) -> None:
    """An upsert that found the partition empty would put its rows beside those that came back."""
    world.insert("a")
    drop(world)
    looked_ts = world.catalog.parts.snapshot(world.t).ts
    undrop(world)
    txn = world.catalog.transactions.open("insert")
    upsert = InsertPart(table=world.t, written=world.written("a"))
    looked = NoRowsSince(table=world.t, ts=looked_ts, partitions=("a",))
    with pytest.raises(PartsChangedError):
        txn.commit([upsert], [looked])
    now = NoRowsSince(table=world.t, ts=world.catalog.parts.snapshot(world.t).ts, partitions=("a",))
    txn.commit([upsert], [now])


def test_a_table_remembers_since_when_undone_drops_are_undone(world: World) -> None:
    spans = []
    world.insert("a")
    for _ in range(40):
        drop(world)
        dropped_ts = world.catalog.parts.version(world.t).last_commit_ts
        undrop(world)
        spans.append((dropped_ts, world.catalog.parts.version(world.t).last_commit_ts))
    assert world.catalog.parts.version(world.t).undone == tuple(spans[-32:])
