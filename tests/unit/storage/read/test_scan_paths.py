"""Which way each part is read, what one task gets, and deleted rows as blocks of bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilth.storage.read.scan_paths as scan_paths
from tilth.model.delta import Delta, DeltaKind, Target
from tilth.model.part import DataFile, Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Array, Kind, Simple
from tilth.storage.read.masks import BLOCK_SCHEMA, Masks, blocks, blocks_in, first_blocks, mask_bytes_max, masks_of
from tilth.storage.read.scan_paths import is_changed, needed_ids, read_columns, scan_paths_of, split_by_cost

SCHEMA = Schema(
    columns=(
        Column(id=1, name="tags", type=Array(Simple(Kind.STRING))),
        Column(id=2, name="k", type=Simple(Kind.INT64)),
        Column(id=3, name="V", type=Simple(Kind.INT16)),
    )
)
TABLE = TableDef(uuid="a", database="d", name="t", schema=SCHEMA)


def _part(number: int, *, rows: int = 10, is_segment: bool = False) -> Part:
    file = DataFile(name=f"{number}", size=1, checksum=0)
    name = PartName("all", number, number, 0, number)
    return Part(name=name, schema_version=1, rows=rows, file=file, is_segment=is_segment)


def _delta(kind: DeltaKind, at: int, *targets: Target, columns: tuple[int, ...] = ()) -> Delta:
    file = DataFile(name=f"d{at}", size=1, checksum=0)
    return Delta(kind=kind, partition="all", file=file, targets=targets, columns=columns, change_ts=at, commit_ts=at)


def _snapshot(parts: Sequence[Part], *deltas: Delta) -> Snapshot:
    return Snapshot(table=TABLE, ts=9, version=1, parts=tuple(parts), deltas=deltas)


def _numbers(parts: Sequence[Part]) -> list[int]:
    return [part.name.min_block for part in parts]


def test_each_part_takes_the_cheapest_scan_path_that_is_right() -> None:
    parts = [_part(number, is_segment=number == 3) for number in range(7)]
    snapshot = _snapshot(
        parts,
        _delta(
            DeltaKind.CHANGES,
            1,
            Target(file="1", deleted=2),
            Target(file="2", deleted=1, updated=1),
            Target(file="4", deleted=7),
            columns=(3,),
        ),
        _delta(DeltaKind.DELETE, 2, Target(file="4", deleted=3)),
        _delta(DeltaKind.UPDATE, 3, Target(file="5", updated=1), columns=(2,)),
        _delta(DeltaKind.COLUMN, 4, Target(file="6", updated=10), columns=(1, 3)),
    )
    found = scan_paths_of(snapshot)
    assert (_numbers(found.plain), _numbers(found.masked), _numbers(found.overlaid)) == ([0], [1], [2, 3, 5, 6])
    assert found.changed_rows == 8 + 9 + 10 + 10 + 10
    # Each has its own target alone.
    assert [delta.targets for delta in found.changes["4"]] == [
        (Target(file="4", deleted=7),),
        (Target(file="4", deleted=3),),
    ]
    assert found.source(TABLE, parts[2]).schema == SCHEMA
    # New values that nobody reads are none.
    found = scan_paths_of(snapshot, {2})
    assert (_numbers(found.plain), _numbers(found.masked), _numbers(found.overlaid)) == ([0, 6], [1, 2], [3, 5])
    assert is_changed(snapshot)
    assert not is_changed(_snapshot(parts[:1]))
    assert is_changed(_snapshot(parts[3:4]))


def test_masks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [_part(0, rows=100_000), _part(1, rows=100_000), _part(2, rows=100)]
    deleted = ((0, 4), (1, 3), (2, 50))
    deltas = [_delta(DeltaKind.DELETE, at + 1, Target(file=f"{at}", deleted=count)) for at, count in deleted]
    # Each of 98 or one blocks has its place, and those with deleted rows have bits.
    sizes = [mask_bytes_max(rows, gone) for rows, gone in ((100_000, 4), (100_000, 3), (100, 50), (1025, 1025))]
    assert sizes == [98 * 8 + 4 * 128, 98 * 8 + 3 * 128, 8 + 128, 2 * 8 + 2 * 128]
    monkeypatch.setattr(scan_paths, "MASK_BYTES_MAX", sizes[1] + sizes[2])
    found = scan_paths_of(_snapshot(parts, *deltas))
    assert (_numbers(found.masked), _numbers(found.overlaid)) == ([2, 1], [0])
    monkeypatch.setattr(scan_paths, "MASK_BYTES_MAX", sum(sizes[:3]))
    assert _numbers(scan_paths_of(_snapshot(parts, *deltas)).masked) == [0, 1, 2]


def test_columns_are_found_by_name_and_the_narrowest_counts_rows() -> None:
    assert needed_ids(SCHEMA, None) is None
    assert needed_ids(SCHEMA, ("v", "K", "gone")) == frozenset((2, 3))
    assert read_columns(SCHEMA, None) == SCHEMA
    assert read_columns(SCHEMA, {1, 2}).names == ("tags", "k")
    assert read_columns(SCHEMA, ()).names == ("V",)


@given(st.lists(st.integers(0, 300 << 20), max_size=40), st.integers(1, 8))
def test_tasks_share_neighbours_evenly(costs: list[int], tasks: int) -> None:
    found = split_by_cost(costs, tasks=tasks)
    assert [index for chunk in found for index in chunk] == list(range(len(costs)))
    assert all(len(chunk) for chunk in found)
    total = sum(costs) + len(costs) * scan_paths.OPEN_BYTES
    assert len(found) == min(len(costs), max(tasks, -(-total // scan_paths.TASK_BYTES))) if costs else not found


def test_thousands_of_tiny_segments_are_few_tasks() -> None:
    assert len(split_by_cost([2000] * 6000, tasks=2)) == 24
    assert [len(chunk) for chunk in split_by_cost([2000] * 100, tasks=2)] == [50, 50]


def _is_gone(masks: Masks, first_block: int, row: int) -> bool:
    """The lookup that the filter of a masked scan does in Spark."""
    word = masks.words[masks.starts[first_block + (row >> 10)] + ((row >> 6) & 15)]
    return bool(int(word) >> (row & 63) & 1)


@given(st.lists(st.lists(st.sets(st.integers(0, 5000)), min_size=1, max_size=3), min_size=1, max_size=4), st.data())
def test_a_bit_of_a_block_shows_whether_its_row_is_gone(files: list[list[set[int]]], data: st.DataObject) -> None:
    gone = [set().union(*deltas) for deltas in files]
    rows = [data.draw(st.integers(max(each, default=0) + 1, 5100)) for each in gone]
    first = first_blocks(rows)
    batches = [
        blocks(number, [np.array(sorted(deltas), np.int64) for deltas in file])
        for number, file in zip(first, files, strict=False)
        if any(file)
    ]
    assert all(batch.schema == BLOCK_SCHEMA for batch in batches)
    # Tasks may answer in any order.
    masks = masks_of(data.draw(st.permutations(batches)), first[-1])
    for number, count, expected in zip(first, rows, gone, strict=False):
        assert {row for row in range(count) if _is_gone(masks, number, row)} == expected
    sizes = [mask_bytes_max(count, len(each)) for count, each in zip(rows, gone, strict=True)]
    assert masks.starts.nbytes + masks.words.nbytes <= sum(sizes) + 128


def test_every_row_has_a_block_and_no_block_two_files() -> None:
    assert [blocks_in(rows) for rows in (0, 1, 1024, 1025)] == [0, 1, 1, 2]
    assert first_blocks([1, 1024, 1025, 3]) == [0, 1, 2, 4, 5]
