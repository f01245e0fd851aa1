"""Changes of versions by the records of parts: what merges make of parts is none, and no row is lost or comes twice."""

from __future__ import annotations

from random import Random  # noqa: TID251  # a seed is all that the sequence depends on

import pytest

from tests.catalog_world import World
from tests.long import cases
from tilth.catalog import AddDelta, HidePartition, InsertPart, ReplaceParts
from tilth.catalog.rules.visibility import visible
from tilth.model.change_feed import PartChange, PartChangeKind
from tilth.model.delta import deleted_rows
from tilth.model.part import Part
from tilth.query.snapshots.version_changes import changes_of

STEPS = 40


def _changes(world: World, start: int, end: int) -> list[PartChange]:
    times = {version: world.catalog.history.time_of(world.t, version) for version in range(start, end + 1)}
    return changes_of(
        world.catalog.parts.all_entries(world.t),
        world.catalog.parts.deltas(world.t, is_all=True),
        start_ts=times[start] or 0,
        commits={version: ts for version, ts in times.items() if version > start and ts is not None},
    )


def _newest(world: World) -> int:
    return world.catalog.parts.version(world.t).counter


def _kinds(world: World, start: int) -> list[tuple[int, str, str]]:
    found = _changes(world, start, _newest(world))
    return [(change.version, change.kind.value, change.part.file.name) for change in found]


def test_inserts_are_their_own_parts_though_they_were_merged() -> None:
    world = World()
    [a] = world.insert()
    [b] = world.insert()
    world.merge([a, b])
    [c], start = world.insert(), _newest(world)
    assert _kinds(world, 0) == [(1, "insert", a.file.name), (2, "insert", b.file.name), (4, "insert", c.file.name)]
    assert _kinds(world, 1) == [(2, "insert", b.file.name), (4, "insert", c.file.name)]
    merged = world.merge([*visible(world.catalog.parts.all_entries(world.t))])
    assert _kinds(world, start) == []
    assert merged.rows == 30


def test_deletes_are_changes_once_and_what_is_kept_of_them_is_not() -> None:
    world = World()
    [a] = world.insert()
    start = _newest(world)
    first = world.delete((a, 3))
    world.delete((a, 2), seen=((a.file.name, first.change_ts),))
    found = _changes(world, start, _newest(world))
    assert [(change.kind, change.version) for change in found] == [
        (PartChangeKind.CHANGE, 2),
        (PartChangeKind.CHANGE, 3),
    ]
    assert [len(change.before) for change in found] == [0, 1]
    assert [len(change.after) for change in found] == [1, 2]


def test_a_mutation_writes_a_part_anew_and_new_columns_change_nothing() -> None:
    world = World()
    [a] = world.insert()
    start = _newest(world)
    [after] = world.rewrite(world.alter(), a)
    [change] = _changes(world, start, _newest(world))
    assert (change.kind, change.part, change.source) == (PartChangeKind.REWRITE, after, a)


def test_key_ranges_of_a_merge_change_nothing_and_are_mutated_one_by_one() -> None:
    world = World()
    [a], [b] = world.insert(), world.insert()
    start = _newest(world)
    first, second, third = _merge_cut(world, [a, b], ranges=3)
    assert _kinds(world, start) == []
    [joined] = world.commit(
        ReplaceParts(table=world.t, sources=(second.name, third.name), written=world.written("all", rows=14))
    )
    assert _kinds(world, start) == []
    # The mutation leaves no row of the first range, which lies inside the blocks of the other one.
    mutation = world.alter()
    world.commit(world.rewriting(mutation, first, rows=0), world.rewriting(mutation, joined, rows=9))
    last = _newest(world)
    found = {change.part.file.name: change for change in _changes(world, last - 1, last)}
    assert found.pop(first.file.name).kind is PartChangeKind.DELETE
    [rewritten] = found.values()
    assert (rewritten.kind, rewritten.source) == (PartChangeKind.REWRITE, joined)


def test_a_merge_stays_one_when_its_part_accepts_a_mutation_later() -> None:
    world = World()
    [a], [b] = world.insert(), world.insert()
    start = _newest(world)
    merged = world.merge([a, b])
    world.accept(world.alter(), merged)
    assert _kinds(world, start) == []


def test_replacing_a_partition_is_a_delete_and_an_insert_in_one_version() -> None:
    world = World()
    [a] = world.insert("p")
    start = _newest(world)
    [b] = _replace(world, "p", rows=10)
    assert _kinds(world, start) == [(start + 1, "delete", a.file.name), (start + 1, "insert", b.file.name)]


def _merge_cut(world: World, sources: list[Part], *, ranges: int) -> list[Part]:
    partition, rows = sources[0].name.partition, sum(part.rows for part in sources)
    counts = [rows // ranges] * (ranges - 1) + [rows - rows // ranges * (ranges - 1)]
    first, *more = (world.written(partition, rows=count) for count in counts)
    names = tuple(part.name for part in sources)
    return world.commit(ReplaceParts(table=world.t, sources=names, written=first, more=tuple(more)))


def _replace(world: World, partition: str, *, rows: int) -> list[Part]:
    new = InsertPart(table=world.t, written=world.written(partition, rows=rows))
    return world.commit(HidePartition(table=world.t, partition=partition), new)


def test_a_drop_is_a_delete_of_what_was_there() -> None:
    world = World()
    [a, b] = world.insert("p", "q")
    start = _newest(world)
    world.commit(HidePartition(table=world.t, partition="p"))
    assert _kinds(world, start) == [(start + 1, "delete", a.file.name)]
    assert b in visible(world.catalog.parts.all_entries(world.t))


@pytest.mark.parametrize("seed", cases(range(20), first=4))
def test_the_rows_of_a_version_and_the_changes_after_it_are_those_of_a_later_one(seed: int) -> None:
    world, rng = World(), Random(seed)
    for _ in range(STEPS):
        _act(world, rng)
    newest = _newest(world)
    for start in (0, *rng.sample(range(newest), 5)):
        end = start + rng.randrange(newest - start + 1)
        rows = _rows(world, start)
        for change in _changes(world, start, end):
            rows += _gain(change)
        assert rows == _rows(world, end), (seed, start, end)


def _act(world: World, rng: Random) -> None:
    shown = visible(world.catalog.parts.all_entries(world.t))
    deltas = world.catalog.parts.deltas(world.t)
    part = rng.choice(shown) if shown else None
    match rng.randrange(8):
        case 0 if part is not None:
            same = [each for each in shown if each.name.partition == part.name.partition]
            if len(same) > 1 and not any(deleted_rows(each.file.name, deltas) for each in same[:2]):
                if rng.random() < 0.5:
                    world.merge(same[:2])
                else:
                    _merge_cut(world, same[:2], ranges=2)
        case 1 if part is not None and part.rows - deleted_rows(part.file.name, deltas) > 2:
            newest = max((each.change_ts for each in deltas if each.targets[0].file == part.file.name), default=0)
            written = world.delta((part, 1 + rng.randrange(2)))
            world.commit(AddDelta(table=world.t, written=written, seen=((part.file.name, newest),)))
        case 2 if part is not None:
            world.commit(HidePartition(table=world.t, partition=part.name.partition))
        case 3 if part is not None:
            _replace(world, part.name.partition, rows=4)
        case _:
            world.insert(rng.choice(["p", "q"]), rows=3 + rng.randrange(5))


def _rows(world: World, version: int) -> int:
    ts = world.catalog.history.time_of(world.t, version) if version else 0
    assert ts is not None
    parts = visible(world.catalog.parts.all_entries(world.t), ts) if version else []
    deltas = world.catalog.parts.deltas(world.t, at=ts)
    return sum(part.rows - deleted_rows(part.file.name, deltas) for part in parts)


def _live(part: Part, change: PartChange, *, is_after: bool) -> int:
    return part.rows - deleted_rows(part.file.name, change.after if is_after else change.before)


def _gain(change: PartChange) -> int:
    match change.kind:
        case PartChangeKind.INSERT:
            return _live(change.part, change, is_after=True)
        case PartChangeKind.DELETE:
            return -_live(change.part, change, is_after=False)
    source = change.source or change.part
    return _live(change.part, change, is_after=True) - _live(source, change, is_after=False)
