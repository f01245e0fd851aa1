"""Large results as files: written by one side, followed by the other while they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codes import WithCode
from tilth.base.errors import ConflictError, RetryError, TilthError
from tilth.query.errors import ResultTooLargeError
from tilth.query.results import files
from tilth.query.results.files import follow, has_schema, read_schema, write_partition, write_schema
from tilth.query.results.stream import RowStream

SCHEMA = pa.schema([("a", pa.int64())], metadata={b"k": b"v"})


def batches(*rows: list[int]) -> Iterator[pa.RecordBatch]:
    for each in rows:
        yield pa.record_batch([pa.array(each, pa.int64())], schema=SCHEMA)


def followed(folder: Path, *, ended: bool = True, bytes_max: int = 0) -> list[int]:
    found = follow(folder, lambda seconds: ended, lambda: None, bytes_max=bytes_max)
    return [value for batch in found for value in batch.column(0).to_pylist()]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(partitions=st.lists(st.none() | st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=4), max_size=5))
def test_rows_come_in_the_order_of_the_partitions(
    tmp_path_factory: pytest.TempPathFactory, partitions: list[list[list[int]] | None]
) -> None:
    """None: Spark left the partition out. The files are written in the reverse order, one batch each."""
    folder = tmp_path_factory.mktemp("result")
    assert not has_schema(folder)
    write_schema(str(folder), SCHEMA)
    assert has_schema(folder)
    assert read_schema(folder).equals(SCHEMA, check_metadata=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FILE_BYTES", 1)
        for number, rows in reversed(list(enumerate(partitions))):
            if rows is not None:
                write_partition(str(folder), number, SCHEMA, batches(*rows), attempt=7 * number)
    assert followed(folder) == [value for rows in partitions for each in rows or [] for value in each]
    assert not list(folder.glob("*.*.arrow")), "what was read is gone"


def test_the_first_rows_come_before_the_last_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    may_go_on, has_ended = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches([1], [2])
        assert may_go_on.wait(10)
        yield from batches([3])

    def write() -> None:
        write_partition(str(tmp_path), 0, SCHEMA, slow(), attempt=1)
        has_ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    rows = follow(tmp_path, has_ended.wait, lambda: None, bytes_max=0)
    assert [next(rows).column(0).to_pylist() for _ in range(2)] == [[1], [2]]
    may_go_on.set()
    assert [batch.column(0).to_pylist() for batch in rows] == [[3]]
    thread.join(10)


def test_a_job_that_fails_is_never_a_short_result(tmp_path: Path) -> None:
    write_partition(str(tmp_path), 0, SCHEMA, batches([1]), attempt=1)

    def check() -> None:
        raise ConflictError("the job failed")

    calls = iter([None])

    def check_later() -> None:
        if next(calls, 1) is not None:
            check()

    rows = follow(tmp_path, lambda seconds: True, check_later, bytes_max=0)
    assert next(rows).num_rows == 1
    with pytest.raises(ConflictError, match="the job failed"):
        next(rows)


def test_the_bound_holds_for_all_partitions_together(tmp_path: Path) -> None:
    for number in range(3):
        write_partition(str(tmp_path), number, SCHEMA, batches([1] * 10), attempt=number)
    with pytest.raises(ResultTooLargeError, match="bytes_max=200"):
        followed(tmp_path, bytes_max=200)


def killed(*rows: list[int]) -> Iterator[pa.RecordBatch]:
    yield from batches(*rows)
    raise OSError("the executor is gone")


@pytest.mark.parametrize("ended", [True, False], ids=["after the end", "meanwhile"])
def test_a_partition_comes_from_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    """Attempts have the rows in other orders and cut them into other files. Attempt 12 ended, 10 lost its executor,
    15 ended once more."""
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    with pytest.raises(OSError, match="the executor is gone"):
        write_partition(str(tmp_path), 0, SCHEMA, killed([3], [1], [2]), attempt=10)
    write_partition(str(tmp_path), 0, SCHEMA, batches([1], [2, 3]), attempt=12)
    with pytest.raises(OSError, match="the executor is gone"):
        write_partition(str(tmp_path), 1, SCHEMA, killed([5]), attempt=11)
    write_partition(str(tmp_path), 1, SCHEMA, batches(), attempt=13)
    write_partition(str(tmp_path), 2, SCHEMA, batches([6], [7]), attempt=14)
    write_partition(str(tmp_path), 2, SCHEMA, batches([7], [6]), attempt=15)
    waits = iter([ended])
    rows = follow(tmp_path, lambda seconds: next(waits, True), lambda: None, bytes_max=0)
    assert [value for batch in rows for value in batch.column(0).to_pylist()] == [1, 2, 3, 7, 6]


@pytest.mark.parametrize("is_there", [True, False], ids=["another attempt has ended", "the job has ended"])
def test_rows_that_were_sent_are_never_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    with pytest.raises(OSError, match="the executor is gone"):
        write_partition(str(tmp_path), 0, SCHEMA, killed([3]), attempt=10)
    rows = follow(tmp_path, lambda seconds: True, lambda: None, bytes_max=0)
    assert next(rows).column(0).to_pylist() == [3]
    if is_there:
        write_partition(str(tmp_path), 0, SCHEMA, batches([1], [2], [3]), attempt=12)
    with pytest.raises(RetryError, check=WithCode("RESULT_LOST"), match="run the query again"):
        next(rows)


def test_a_stream_is_closed_once_with_what_was_taken() -> None:
    closed: list[tuple[int, int, TilthError | None]] = []

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches([1, 2])
        raise OSError("the disk is gone")

    stream = RowStream(SCHEMA, broken(), lambda *how: closed.append(how))
    with pytest.raises(OSError, match="the disk is gone"):
        list(stream)
    stream.close(None)
    assert [(rows, size, str(error)) for rows, size, error in closed] == [
        (2, 16, "a defect of Tilth: OSError: the disk is gone")
    ]
    closed.clear()
    whole = RowStream(SCHEMA, batches([1], [2]), lambda *how: closed.append(how))
    assert len(list(whole)) == 2
    assert closed == [(2, 16, None)]
