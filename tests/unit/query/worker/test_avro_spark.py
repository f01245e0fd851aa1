"""Pieces of Avro files, and their rows as tasks read them, without Spark."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest

from tilth.base.errors import TilthError
from tilth.model.answer import unpack
from tilth.model.loaded_file import SkippedRow
from tilth.query.worker.avro_spark import (
    ERROR_MARK,
    PIECE_BYTES_MAX,
    PIECE_BYTES_MIN,
    PIECE_START,
    ROW,
    AvroPiece,
    AvroReader,
    avro_shape,
    columns_of_shape,
    cut_files,
)
from tilth.query.worker.lines_spark import BAD, FILE
from tilth.storage import local_root

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "a", "type": "long"}, {"name": "s", "type": "string"}, {"name": "n", "type": "null"}],
}


def put(path: Path, rows: int, text: str = "x") -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, [{"a": each, "s": text} for each in range(rows)], sync_interval=30)
    path.write_bytes(file.getvalue())
    return file.getvalue()


def read(folder: Path, names: list[str], tasks: tuple[tuple[AvroPiece, ...], ...]) -> list[dict[str, Any]]:
    with pa.OSFile(str(folder / names[0])) as file:
        columns = columns_of_shape(avro_shape(file))
    reader = AvroReader(
        root=local_root(folder),
        paths=tuple(names),
        names=tuple(range(10, 10 + len(names))),
        columns=tuple(each for each in columns if each.name != "s"),
        tasks=tasks,
    )
    numbers = pa.array(range(len(tasks)))
    batches = reader(iter([pa.RecordBatch.from_arrays([numbers], names=["id"])]))
    rows: list[dict[str, Any]] = pa.Table.from_batches(list(batches)).to_pylist()
    return rows


def test_all_bytes_are_in_one_piece_each() -> None:
    sizes = [0, 1, 3 * PIECE_BYTES_MIN + 1, 5, PIECE_BYTES_MIN]
    for tasks in (1, 3, 100):
        found = cut_files(sizes, tasks=tasks)
        assert all(found)
        pieces = [piece for each in found for piece in each]
        for number, size in enumerate(sizes):
            own = [each for each in pieces if each.file == number]
            assert [each.start for each in own] == [0, *(each.end for each in own[:-1])]
            assert own[-1].end == size
        assert max(sum(each.end - each.start for each in task) for task in found) <= PIECE_BYTES_MAX
    assert len(cut_files([1] * 1000, tasks=4)) == 1
    assert len(cut_files([PIECE_BYTES_MAX * 10], tasks=1)) == 10
    assert len(cut_files([PIECE_BYTES_MIN * 8], tasks=4)) == 4
    assert cut_files([0], tasks=1) == ((AvroPiece(0, 0, 0),),)


def test_rows_keep_their_file_and_their_number(tmp_path: Path) -> None:
    data = put(tmp_path / "a b.avro", 20)
    put(tmp_path / "none.avro", 0)
    half = len(data) // 2
    tasks = ((AvroPiece(0, half, len(data)),), (AvroPiece(1, 0, 200), AvroPiece(0, 0, half)))
    rows = read(tmp_path, ["a b.avro", "none.avro"], tasks)
    assert [each["c0"] for each in rows] == [*range(rows[0]["c0"], 20), *range(rows[0]["c0"])]
    assert {(each[FILE], each[BAD], each["c1"]) for each in rows} == {(10, None, None)}
    for start in (0, half):
        numbers = [each[ROW] for each in rows if each[PIECE_START] == start]
        assert numbers == list(range(len(numbers)))
        assert numbers


def test_a_row_that_cannot_be_stored_has_a_mark(tmp_path: Path) -> None:
    data = put(tmp_path / "a.avro", 3, "text")
    position = data.rindex(b"text")
    (tmp_path / "a.avro").write_bytes(data[:position] + b"\xff" + data[position + 1 :])
    with pa.OSFile(str(tmp_path / "a.avro")) as file:
        columns = columns_of_shape(avro_shape(file))
    assert [(each.name, each.is_void) for each in columns] == [("a", False), ("s", False), ("n", True)]
    reader = AvroReader(
        root=local_root(tmp_path),
        paths=("a.avro",),
        names=(0,),
        columns=tuple(columns),
        tasks=((AvroPiece(0, 0, len(data)),),),
    )
    rows = pa.Table.from_batches(list(reader(one_number()))).to_pylist()
    marks = [each[BAD] and msgspec.msgpack.decode(each[BAD], type=SkippedRow) for each in rows]
    assert marks[:2] == [None, None]
    assert (marks[2].line, marks[2].block_start, "not UTF-8" in marks[2].reason) == (3, 0, True)


def one_number() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])


@pytest.mark.parametrize("bad", [b"", b"Obj\x01", None])
def test_an_error_of_a_file_is_a_row_with_its_name(tmp_path: Path, bad: bytes | None) -> None:
    data = put(tmp_path / "good.avro", 2)
    if bad is not None:
        (tmp_path / "bad.avro").write_bytes(bad)
    tasks = ((AvroPiece(1, 0, 10), AvroPiece(0, 0, len(data))),)
    rows = read(tmp_path, ["good.avro", "bad.avro"], tasks)
    assert [each[BAD] is None for each in rows] == [False, True, True]
    mark = rows[0][BAD]
    assert mark.startswith(ERROR_MARK)
    with pytest.raises(TilthError) as caught:
        unpack(mark.removeprefix(ERROR_MARK), type(None), task=0)
    assert (caught.value.code, caught.value.facts["file"]) == ("FILE_UNREADABLE", str(tmp_path / "bad.avro"))


def test_a_file_whose_columns_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.avro", 1)
    other = io.BytesIO()
    changed = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "string"}]}
    fastavro.writer(other, changed, [{"a": "x"}])
    (tmp_path / "b.avro").write_bytes(other.getvalue())
    [row] = read(tmp_path, ["a.avro", "b.avro"], ((AvroPiece(1, 0, 1000),),))
    assert b"changed while it was read" in row[BAD]
