"""Rows in a storage's files: in the order of the partitions, of one attempt each, gone when they were read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.query.errors import ResultTooLargeError
from tilth.query.results import stored
from tilth.query.results.stored import (
    ResultFile,
    StoredReader,
    StoredRows,
    pack_rows,
    store_partition,
    stored_in,
)
from tilth.query.snapshots.protocol import stream_of
from tilth.storage import Folder, local_root

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])


def batches(*numbers: int) -> Iterator[pa.RecordBatch]:
    return (pa.record_batch([[number], ["\x00 \U0001f680"]], schema=SCHEMA) for number in numbers)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(local_root(tmp_path), "results/r1")


def read(folder: Folder, files: list[ResultFile], *, bytes_max: int = 0) -> list[int]:
    reader = StoredReader(folder, files)
    return [
        number for batch in reader.batches(lambda: None, bytes_max=bytes_max) for number in batch.column(0).to_pylist()
    ]


def test_rows_come_in_the_order_of_the_partitions_and_their_files_go(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each batch is a file of its own.
    monkeypatch.setattr(stored, "STORED_FILE_BYTES", 1)
    second = store_partition(folder, 1, SCHEMA, batches(3, 4, 5), attempt=8)
    first = store_partition(folder, 0, SCHEMA, batches(1, 2), attempt=9)
    # Another attempt of the first partition, whose answer Spark has not taken.
    store_partition(folder, 0, SCHEMA, batches(7), attempt=3)
    assert store_partition(folder, 2, SCHEMA, batches(), attempt=10) == []
    names = [each.name for each in (*first, *second)]
    assert names == [
        f"00000{n}.{attempt}.00000{k}.arrow"
        for n, attempt, k in ((0, 9, 0), (0, 9, 1), (1, 8, 0), (1, 8, 1), (1, 8, 2))
    ]
    path = tmp_path / "results" / "r1"
    assert all((path / each.name).stat().st_size == each.size for each in (*first, *second))
    reader = StoredReader(folder, [*first, *second])
    rows = reader.batches(lambda: None, bytes_max=0)
    assert next(rows).to_pylist() == [{"a": 1, "s": "\x00 \U0001f680"}]
    assert [number for batch in rows for number in batch.column(0).to_pylist()] == [2, 3, 4, 5]
    assert reader.bytes == 0
    assert [each.name for each in path.iterdir()] == ["000000.3.000000.arrow"]


def test_a_file_that_is_gone_ends_the_result(folder: Folder) -> None:
    files = store_partition(folder, 0, SCHEMA, batches(1), attempt=1)
    with pytest.raises(RetryError, check=WithCode("RESULT_LOST")):
        read(folder, [*files, ResultFile(name="000001.2.000000.arrow", size=1)])


def test_a_result_that_is_too_large_or_was_cancelled_ends(folder: Folder) -> None:
    files = store_partition(folder, 0, SCHEMA, batches(1, 2), attempt=1)
    with pytest.raises(ResultTooLargeError):
        read(folder, files, bytes_max=1)

    def cancelled() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        list(StoredReader(folder, files).batches(cancelled, bytes_max=0))


def test_a_payload_names_files_or_has_rows() -> None:
    rows = StoredRows(columns=SCHEMA.serialize().to_pybytes(), files=(ResultFile(name="f", size=3),))
    assert stored_in(pack_rows(rows)) == rows
    assert rows.schema == SCHEMA
    assert stored_in(b"") is None
    assert stored_in(stream_of(pa.table({"a": ["tilth-stored-rows:"]}))) is None
