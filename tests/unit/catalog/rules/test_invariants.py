"""Invariants of commits: each detects its defect. All commits in the worlds of other tests are checked by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.catalog_world import SCHEMA, World
from tilth.catalog import AddDelta, InsertPart, ReplaceParts, Update
from tilth.catalog.errors import InvariantError
from tilth.catalog.records.nouns import PartitionRecord, TableVersion
from tilth.catalog.rules.changes import Changes, CommitState, CommitTimes, TableChange, TableState
from tilth.catalog.rules.fold import fold
from tilth.catalog.rules.invariants import check_commit
from tilth.model.part import DataFile, DropRange, Mark, Part, PartName
from tilth.model.table import TableDef

ROWS = 10


def state() -> CommitState:
    """A table of two parts."""
    names = [PartName("a", 1, 1, 0, 100), PartName("a", 2, 2, 0, 101)]
    files = [DataFile(name=f"f{name.min_block}", size=1, checksum=0) for name in names]
    parts = tuple(
        Part(name=name, schema_version=1, rows=ROWS, file=file, commit_ts=name.mutation)
        for name, file in zip(names, files, strict=True)
    )
    table = TableState(
        definition=TableDef(uuid="t", database="default", name="t", schema=SCHEMA),
        version=TableVersion(counter=2, last_commit_ts=101, inserted_rows=2 * ROWS, parts=2),
        entries={"a": parts},
        partitions={"a": PartitionRecord(partition="a", values=("a",), created_ts=100, parts=2)},
        deltas={"a": ()},
    )
    return CommitState(tables={"t": table}, kafka={})


def folded(before: CommitState, *updates: Update) -> Changes:
    return fold(before, list(updates), CommitTimes(txn=200, first_block=201, commit_ts=202, now_ms=0))


def inserted(before: CommitState) -> Changes:
    return folded(before, InsertPart(table="t", written=World().written("a", rows=ROWS)))


def merged(before: CommitState) -> Changes:
    sources = tuple(part.name for part in parts_of(before))
    return folded(before, ReplaceParts(table="t", sources=sources, written=World().written("a", rows=2 * ROWS)))


def changed(before: CommitState) -> Changes:
    written = World().delta((parts_of(before)[0], 3))
    return folded(before, AddDelta(table="t", written=written))


def parts_of(before: CommitState) -> list[Part]:
    return [part for part in before.tables["t"].entries["a"] if isinstance(part, Part)]


def with_version(change: TableChange, **given: int) -> None:
    change.version = msgspec.structs.replace(change.version, **given)


def with_first(change: TableChange, **given: object) -> None:
    """Change fields of the first part that the commit makes."""
    [first, *_] = [each for each in change.added if isinstance(each, Part)]
    change.added[change.added.index(first)] = msgspec.structs.replace(first, **given)


def add_again(change: TableChange, **of_name: int) -> None:
    """Add the first part once more, under another name."""
    first = change.added[0]
    change.added.append(msgspec.structs.replace(first, name=msgspec.structs.replace(first.name, **of_name)))


def more_rows_deleted(change: TableChange) -> None:
    [delta] = change.deltas_added
    [target] = delta.targets
    targets = (msgspec.structs.replace(target, deleted=ROWS + 1),)
    change.deltas_added = [msgspec.structs.replace(delta, targets=targets)]


def with_delta(change: TableChange, **given: object) -> None:
    change.deltas_added = [msgspec.structs.replace(change.deltas_added[0], **given)]


def stray_mark(change: TableChange) -> None:
    """A mark over a part that is on a higher level, which it does not hide."""
    change.added.append(Mark(name=PartName("a", 1, 1, 0, 200), commit_ts=202))


def drop_of_the_future(change: TableChange) -> None:
    change.added.append(DropRange(name=PartName("a", 0, 500, 999, 200), commit_ts=202))


def counted(change: TableChange, **given: int) -> None:
    change.partitions["a"] = msgspec.structs.replace(change.partitions["a"], **given)


DEFECTS: list[tuple[str, Callable[[CommitState], Changes], Callable[[TableChange], object]]] = [
    ("the counter rises by one", inserted, lambda change: with_version(change, counter=2)),
    ("time rises", inserted, lambda change: with_version(change, last_commit_ts=203)),
    ("rows are counted", inserted, lambda change: with_version(change, inserted_rows=2 * ROWS)),
    ("rows are counted", merged, lambda change: with_first(change, rows=2 * ROWS - 1)),
    ("rows are counted", changed, lambda change: with_version(change, removed_rows=0)),
    ("one commit, one timestamp", inserted, lambda change: with_first(change, commit_ts=201)),
    ("lies behind all that was there", inserted, lambda change: with_first(change, name=PartName("a", 50, 50, 0, 200))),
    ("names are unique", inserted, lambda change: add_again(change)),
    ("no blocks are visible twice", inserted, lambda change: add_again(change, mutation=199)),
    ("hides the past only", inserted, drop_of_the_future),
    ("a mark hides one part", merged, stray_mark),
    ("no more rows are deleted than there are", changed, more_rows_deleted),
    ("deltas are new", changed, lambda change: with_delta(change, commit_ts=201)),
    ("deltas change the past", changed, lambda change: with_delta(change, change_ts=203)),
    ("of what is visible", changed, lambda change: with_delta(change, partition="b")),
    ("parts of a are counted", inserted, lambda change: counted(change, parts=2)),
    ("all parts are counted", inserted, lambda change: with_version(change, parts=2)),
    ("a part's columns are known", inserted, lambda change: with_first(change, schema_version=9)),
]


@pytest.mark.parametrize("commit", [inserted, merged, changed])
def test_a_sound_commit_passes(commit: Callable[[CommitState], Changes]) -> None:
    before = state()
    check_commit(before, commit(before))


@pytest.mark.parametrize(("rule", "commit", "spoil"), DEFECTS, ids=[f"{n}-{each[0]}" for n, each in enumerate(DEFECTS)])
def test_a_defect_is_named(
    rule: str, commit: Callable[[CommitState], Changes], spoil: Callable[[TableChange], object]
) -> None:
    before = state()
    changes = commit(before)
    spoil(changes.tables["t"])
    with pytest.raises(InvariantError, match=rule):
        check_commit(before, changes)


def test_what_is_kept_as_visible_is_compared_with_what_is() -> None:
    before = state()
    table = before.tables["t"]
    stale = replace(before, tables={"t": replace(table, shown={"a": tuple(parts_of(before)[:1])})})
    with pytest.raises(InvariantError, match="what is kept is what is visible"):
        check_commit(stale, inserted(before))
