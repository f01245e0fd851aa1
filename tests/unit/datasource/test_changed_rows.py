"""Rows before and after a version: deletes, updates, parts that were written anew, values that look odd."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.unit.datasource.test_rows import PRESENT, ROWS, SPARK, World
from tilth.datasource.changed_rows import changed_batches, differing, subsequence
from tilth.datasource.pieces import PartPiece
from tilth.model.change_feed import PartChangeKind
from tilth.model.delta import Delta
from tilth.storage import write_parts

DAY_AFTER_9999 = 2_932_897


def _read(world: World, piece: PartPiece) -> list[tuple[Any, ...]]:
    task = msgspec.structs.replace(world.task(), has_changes=True)
    found = [tuple(row.values()) for batch in changed_batches(task, [piece]) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def _change(world: World, before: tuple[Delta, ...], after: tuple[Delta, ...], kind: PartChangeKind) -> PartPiece:
    piece = world.piece(deltas=before)
    now = msgspec.structs.replace(world.source, deltas=after)
    return msgspec.structs.replace(piece, version=7, change=kind, after=now, wanted_after=PRESENT)


@pytest.mark.parametrize("is_segment", [False, True])
def test_rows_that_were_deleted_or_got_new_values(tmp_path: Path, is_segment: bool) -> None:
    world = World(tmp_path, is_segment=is_segment)
    old = world.change([1, 12], [None, "twelve"])
    new = world.change([2, 12, 13, 30], [None, "dozen", "v13", "x"])
    assert _read(world, _change(world, (old,), (old, new), PartChangeKind.CHANGE)) == [
        ("dozen", None, 12, "update_after", 7),
        ("twelve", None, 12, "update_before", 7),
        ("v2", None, 2, "delete", 7),
        ("v30", None, 30, "update_before", 7),
        ("x", None, 30, "update_after", 7),
    ]


def test_a_part_that_went_is_deleted_without_what_was_deleted_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    piece = world.piece(deltas=(world.change(list(range(1, ROWS)), [None] * (ROWS - 1)),))
    gone = msgspec.structs.replace(piece, version=3, change=PartChangeKind.DELETE)
    assert _read(world, gone) == [("v0", None, 0, "delete", 3)]


@pytest.mark.parametrize("kept", [ROWS, ROWS - 3])
def test_a_part_that_was_written_anew_is_compared_row_by_row(tmp_path: Path, kept: int) -> None:
    world = World(tmp_path)
    old = world.change([0], [None])
    rows = [k for k in range(1, ROWS) if kept == ROWS or k not in (5, 6, 39)]
    texts = [f"new{k}" if k == 9 and kept == ROWS else f"v{k}" for k in rows]
    [written] = write_parts(world.layout, pa.table({"k": rows, "a.b": texts}), txn=99, task=0, attempt=0)
    now = msgspec.structs.replace(world.source, file=written.file, rows=len(rows))
    piece = msgspec.structs.replace(_change(world, (old,), (), PartChangeKind.REWRITE), after=now)
    if kept == ROWS:
        wanted = [("new9", None, 9, "update_after", 7), ("v9", None, 9, "update_before", 7)]
    else:
        wanted = [(f"v{k}", None, k, "delete", 7) for k in (39, 5, 6)]
    assert _read(world, piece) == wanted


def test_values_that_look_odd_are_compared_as_spark_does() -> None:
    kinds = {
        "f": pa.float64(),
        "t": pa.timestamp("us", tz="UTC"),
        "s": pa.string(),
        "l": pa.list_(pa.date32()),
        "m": pa.map_(pa.string(), pa.timestamp("us")),
        "r": pa.struct([("x", pa.float64())]),
    }
    rows: list[list[Any]] = [
        [math.nan, 2**62, "\x00", [DAY_AFTER_9999], [("k", 2**62)], {"x": math.nan}],
        [-0.0, None, "", [], [], None],
        [None, 0, None, None, None, {"x": None}],
    ]
    table = _table(rows, kinds)
    assert differing(table, _table(rows, kinds)).tolist() == [False] * 3
    assert differing(table.slice(1, 1), _table([[0.0, *rows[1][1:]]], kinds)).tolist() == [False]
    for column in range(len(kinds)):
        for row, other in ((0, 2), (1, 2)):
            changed = [*rows[row]]
            changed[column] = rows[other][column]
            expected = repr(changed[column]) != repr(rows[row][column])
            assert differing(table.slice(row, 1), _table([changed], kinds)).tolist() == [expected], (column, row)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=examples(200))
def test_what_a_mutation_left_is_found_in_its_order(rows: list[tuple[int, bool]], first: int, second: int) -> None:
    old = _blocks([value for value, _ in rows], first)
    new = _blocks([value for value, is_left in rows if is_left], second)
    found = list(subsequence(iter(old), iter(new)))
    assert {word for word, table in found if table.num_rows} <= {"delete"}
    gone = [value for _, table in found for value in table.column("v").to_pylist()]
    assert Counter(gone) == Counter(value for value, is_left in rows if not is_left)


def _blocks(values: list[int], size: int) -> list[pa.Table]:
    table = pa.table({"v": pa.array(values, pa.int64())})
    return [table.slice(start, size) for start in range(0, len(values), size)]


def _table(rows: list[list[Any]], kinds: dict[str, pa.DataType]) -> pa.Table:
    columns = [[row[number] for row in rows] for number in range(len(kinds))]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)]
    return pa.table([pa.chunked_array([array]) for array in arrays], names=list(kinds))


def test_masks_have_a_mark_for_each_row() -> None:
    empty = pa.schema(SPARK).empty_table()
    assert differing(empty, empty).dtype == np.bool_
