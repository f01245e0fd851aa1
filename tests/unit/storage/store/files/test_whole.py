"""Replicas that kept the beginning of a file only, or nothing: files of unrecorded size are read from others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.storage.store.replicas.test_replicated import NAMES, Locations
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.storage import ScratchWriter, TableLayout, layout_of, read_note, read_scratch, whole_checksum, write_parts
from tilth.storage.deltas.deletes import encode_deletes
from tilth.storage.deltas.deltas import read_unrecorded
from tilth.storage.errors import PartFileCorruptError, PartFileNotFoundError
from tilth.storage.parts.rowmap import RowMapWriter, find_rows

TABLE = TableDef(
    uuid="t", database="d", name="t", schema=Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))
)


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path)


@pytest.fixture
def layout(locations: Locations) -> TableLayout:
    return layout_of(TABLE, locations.root)


@pytest.fixture(params=["empty", "half", "gone"])
def cut(request: pytest.FixtureRequest, locations: Locations) -> Callable[..., None]:
    """What cuts the first copies of a file off."""

    def act(name: str, *, copies: int = 2) -> None:
        for number in range(copies):
            path = locations.copy(number, name)
            data = path.read_bytes()
            path.unlink()
            if request.param != "gone":
                path.write_bytes(b"" if request.param == "empty" else data[: len(data) // 2])

    return act


def test_a_map_of_rows(layout: TableLayout, cut: Callable[..., None]) -> None:
    with RowMapWriter(layout, "1-0.0-0.parquet") as writer:
        writer.write(np.zeros(3, np.uint16), np.array([5, 6, 7], np.uint32))
        writer.close()
    cut("1-0.0-0.map")
    found = find_rows(layout.folder, "1-0.0-0.parquet", {0: np.array([7, 8])})
    assert found[0].tolist() == [2, -1]


def test_the_error_of_a_map_without_a_whole_copy(layout: TableLayout, cut: Callable[..., None]) -> None:
    with RowMapWriter(layout, "1-0.0-0.parquet") as writer:
        writer.write(np.zeros(3, np.uint16), np.array([5, 6, 7], np.uint32))
        writer.close()
    cut("1-0.0-0.map", copies=len(NAMES))
    with pytest.raises((PartFileCorruptError, PartFileNotFoundError), match=r"1-0\.0-0\.map"):
        find_rows(layout.folder, "1-0.0-0.parquet", {0: np.array([7, 8])})


def test_rows_kept_between_the_tasks_of_a_round(layout: TableLayout, cut: Callable[..., None]) -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    with ScratchWriter(layout, "1-0.0-0.arrow", batch.schema) as writer:
        writer.write(batch)
    cut("1-0.0-0.arrow")
    [read] = read_scratch(layout, "1-0.0-0.arrow", ["a"])
    assert read.equals(batch)


def test_notes_and_checksums_for_a_catalog_made_of_files(layout: TableLayout, cut: Callable[..., None]) -> None:
    [written] = write_parts(layout, pa.table({"a": [3, 1, 2]}), txn=1, task=0, attempt=0)
    name = written.file.name
    cut(name)
    note = read_note(layout.folder, name)
    assert note is not None
    assert note.rows == 3
    assert whole_checksum(layout.folder, name) == (written.file.size, written.file.checksum)


def test_deletes_without_a_record(locations: Locations, layout: TableLayout, cut: Callable[..., None]) -> None:
    locations.write("1-0.0-0.puffin", encode_deletes("part.parquet", np.array([4], np.int64)))
    cut("1-0.0-0.puffin")
    found = read_unrecorded(layout.folder, "1-0.0-0.puffin")
    assert found is not None
    assert found.deletes["part.parquet"].tolist() == [4]
