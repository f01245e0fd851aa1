"""What a flush leaves on the disk: one sorted part, its row map, and for tables with a unique key its filter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.part_sources import as_delta, new_part, plain_source
from tilth.model.delta import PartSource
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple
from tilth.storage import (
    DeltaWriter,
    PartFileCorruptError,
    PartFileNotFoundError,
    PartRebaser,
    TableLayout,
    check_file,
    flush_segments,
    local_folder,
    read_part,
    remove_row_map,
    write_segments,
)
from tilth.storage.parts.rowmap import find_rows

pytestmark = pytest.mark.integration
SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="v", type=Simple(Kind.STRING)),
    )
)


def layout_in(folder: Path, *unique_key: str) -> TableLayout:
    return TableLayout(folder=local_folder(folder), schema=SCHEMA, order_by=("k",), unique_key=unique_key, fsync=False)


def segment(layout: TableLayout, number: int, keys: list[int], *, gone: int | None = None) -> PartSource:
    rows = pa.table({"k": keys, "v": [f"{number}/{key}" for key in keys]})
    if gone is not None:
        rows = rows.append_column("_op", pa.array([key == gone for key in keys]).cast(pa.int8()))
    [part] = write_segments(layout, rows, txn=number, task=0, attempt=0)
    source = plain_source(part.file, SCHEMA, number=number, rows=part.rows)
    return PartSource(name=source.name, file=part.file, rows=part.rows, is_segment=True, schema=SCHEMA)


def test_segments_become_a_sorted_part(tmp_path: Path) -> None:
    layout = layout_in(tmp_path, "k")
    sources = [segment(layout, 1, [5, 3, 9]), segment(layout, 2, [4, 3], gone=4)]
    result = flush_segments(new_part(layout, txn=7), sources, task=0, attempt=0)
    written = result.written
    assert written is not None
    assert (written.is_segment, written.rows, result.rows_in, result.rows_deleted) == (False, 5, 5, 0)
    assert (written.ranges["k"].low, written.ranges["k"].high) == (3, 9)
    check_file(local_folder(tmp_path), written.file)
    table = read_part(local_folder(tmp_path), written.file)
    assert table.column_names == ["k", "v"]
    # Among rows with one key, the row of the earlier segment comes first.
    assert table["v"].to_pylist() == ["1/3", "2/3", "2/4", "1/5", "1/9"]
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"7-0.0-0.parquet", "7-0.0-0.map", "7-0.0-0.filter"}
    wanted = {0: np.array([0, 1, 2, 3]), 1: np.array([0, 1]), 2: np.array([0])}
    found = find_rows(local_folder(tmp_path), written.file.name, wanted)
    assert {number: rows.tolist() for number, rows in found.items()} == {0: [3, 0, 4, -1], 1: [2, 1], 2: [-1]}
    assert remove_row_map(local_folder(tmp_path), written.file.name)
    assert not remove_row_map(local_folder(tmp_path), written.file.name)


def test_a_row_map_that_is_lost_or_damaged_is_named(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    source = segment(layout, 1, [2, 1])
    written = flush_segments(new_part(layout, txn=7), [source], task=0, attempt=0).written
    assert written is not None
    (tmp_path / "7-0.0-0.map").write_bytes(b"no map")
    with pytest.raises(PartFileCorruptError, match=r"7-0\.0-0\.map"):
        find_rows(local_folder(tmp_path), written.file.name, {0: np.array([0])})
    (tmp_path / "7-0.0-0.map").unlink()
    with pytest.raises(PartFileNotFoundError, match=r"7-0\.0-0\.map"):
        find_rows(local_folder(tmp_path), written.file.name, {0: np.array([0])})
    # Without changes nobody needs it.
    assert PartRebaser(layout, "all", written.file).rebase([source], txn=7, task=0, n=0) is None


def test_no_row_no_file(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    source = segment(layout, 1, [2])
    delta = DeltaWriter(layout, txn=2, task=0, attempt=0).deletes("all", source.file.name, np.array([0]))
    gone = PartSource(
        name=source.name, file=source.file, rows=1, is_segment=True, schema=SCHEMA, deltas=(as_delta(delta, 1),)
    )
    result = flush_segments(new_part(layout, txn=7), [gone], task=0, attempt=0)
    assert (result.written, result.rows_deleted) == (None, 1)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("7-")]
