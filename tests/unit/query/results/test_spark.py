"""Answers of workers that become larger than allowed when they are unpacked: refused by what their heads say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.units import MIB
from tilth.model.task import TaskSpec
from tilth.query.errors import ResultTooLargeError
from tilth.query.results.spark import to_stream
from tilth.query.snapshots import protocol
from tilth.query.snapshots.protocol import (
    CheckedDefault,
    CheckedExpressions,
    ComputeTask,
    Source,
    WorkerTask,
)


def packed(rows: int) -> bytes:
    """Rows of eight zeros each, compressed."""
    batch = pa.record_batch([pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])], ["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


BOMB = packed(16 * MIB)


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


@pytest.fixture
def unpacked() -> Iterator[Callable[[], int]]:
    """The most memory that Arrow has had for its buffers."""
    assert len(BOMB) < MIB
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    pa.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pa.set_memory_pool(outer)


def test_a_result_that_is_larger_than_allowed_is_not_unpacked(world: SqlWorld, unpacked: Callable[[], int]) -> None:
    world.dispatch.answer = lambda spec: BOMB
    error = refused(world, "SELECT 1", {"max_result_bytes": "100 MiB"})
    assert (error.code, error.facts["bytes_max"]) == ("RESULT_TOO_LARGE", str(100 * MIB))
    # The task names its worker in system.tasks.
    assert error.facts["task"] == world.dispatch.specs[0].id
    assert unpacked() < MIB
    # A result within the limit is read, and an uncompressed one counts its size in memory.
    assert world.run("SELECT 1", settings={"max_result_bytes": "200 MiB"}).table.num_rows == 16 * MIB
    world.dispatch.answer = lambda spec: to_stream(pa.table({"v": list(range(1000))}))
    assert world.run("SELECT 1", settings={"max_result_bytes": "8000"}).table.num_rows == 1000


def test_a_computed_default_that_is_larger_than_an_insert_is_not_unpacked(
    world: SqlWorld, unpacked: Callable[[], int]
) -> None:
    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        if isinstance(task, ComputeTask):
            return BOMB
        value = CheckedDefault(column="v", value=to_stream(pa.table({"v": [1]})), is_computed=True)
        return msgspec.msgpack.encode(CheckedExpressions(assignments=(), predicate="", defaults=(value,)))

    world.dispatch.answer = answer
    world.run("CREATE TABLE t (a BIGINT, v BIGINT DEFAULT unix_micros(now())) ENGINE = MergeTree ORDER BY a")
    assert refused(world, "INSERT INTO t (a) VALUES (1)").code == "INSERT_TOO_LARGE"
    assert unpacked() < MIB


def test_a_default_and_a_system_table_have_bounds_too(
    monkeypatch: pytest.MonkeyPatch, unpacked: Callable[[], int]
) -> None:
    with pytest.raises(ResultTooLargeError, match="the value of a default"):
        _ = CheckedDefault(column="v", value=BOMB, is_computed=False).scalar
    monkeypatch.setattr(protocol, "SYSTEM_ROWS_BYTES_MAX", MIB)
    with pytest.raises(ResultTooLargeError, match="a system table"):
        _ = Source(rows=BOMB).table
    assert unpacked() < MIB
    assert Source(rows=to_stream(pa.table({"v": [1, 2]}))).table.num_rows == 2
