"""Arrow streams that say they become larger than allowed: refused before anything is unpacked or decoded."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tests.codes import WithCode
from tilth.base.errors import InvalidInputError
from tilth.query.language import unpacked
from tilth.statements.inserts.arrow_streams import read_rows

MIB = 1 << 20


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def zeros(rows: int) -> pa.RecordBatch:
    values = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(bytes(8 * rows))])
    return pa.record_batch([values], names=["k"])


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize(("rows", "batches"), [(16 * MIB, 1), (2 * MIB, 8)])
def test_a_small_stream_of_128_mib_is_refused_and_unpacks_nothing(compression: str, rows: int, batches: int) -> None:
    body = stream(*[zeros(rows)] * batches, compression=compression)
    assert len(body) < MIB
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(InvalidInputError, check=WithCode("INSERT_TOO_LARGE"), match="bytes_max=67108864"):
            read_rows(body, 64 * MIB)
        assert pool.max_memory() < MIB
        assert read_rows(body, 256 * MIB).num_rows == rows * batches
        assert pool.max_memory() >= 128 * MIB
    finally:
        pa.set_memory_pool(outer)


def hidden() -> dict[str, pa.Array]:
    word = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array(["x" * 1000]))
    return {
        "of texts": word,
        "in a list": pa.ListArray.from_arrays(pa.array([0, 1000], pa.int32()), word),
        "in a struct": pa.StructArray.from_arrays([word], names=["a"]),
        "in a map": pa.MapArray.from_arrays(pa.array([0, 1000], pa.int32()), pa.array(range(1000)), word),
        "of lists": pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array([["x" * 1000]])),
        "of nothing": pa.nulls(200_000),
        "bits": pa.array([True] * 600_000),
    }


@pytest.mark.parametrize("what", hidden())
def test_values_that_are_not_written_out_count_as_if_they_were(what: str) -> None:
    body = stream(pa.record_batch([hidden()[what]], names=["a"]))
    with pytest.raises(InvalidInputError, check=WithCode("INSERT_TOO_LARGE")):
        read_rows(body, 500_000)
    assert read_rows(body, 2_000_000).num_rows


def test_what_fits_is_read_as_it_was_written() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), pa.array(["a", "bc"]))
    table = pa.record_batch(
        [words, pa.array([1, None, 3, 4]), pa.array([[1], [], None, [2, 3]])], names=["a", "b", "c"]
    )
    for compression in (None, "zstd", "lz4"):
        assert read_rows(stream(table, table.slice(1), compression=compression), 10_000).num_rows == 7
    assert read_rows(stream(table.slice(0, 0)), 100).num_rows == 0


def test_a_damaged_stream_is_no_stream() -> None:
    body = stream(zeros(100), compression="zstd")
    for position in range(0, len(body), 3):
        for damaged in (body[:position], body[:position] + b"\xff" + body[position + 1 :]):
            try:
                read_rows(damaged, MIB)
            except (pa.ArrowException, OSError):
                continue
            except InvalidInputError as error:
                if error.code != "INSERT_TOO_LARGE":
                    raise


def same_bytes(columns: int, rows: int) -> bytes:
    """A stream whose columns are all the same bytes of its body, as no library writes it."""
    whole = stream(
        pa.record_batch([pa.array(range(rows), pa.int64())] * columns, names=[f"c{n}" for n in range(columns)])
    )
    # Each message is a mark, the size of its head, the head and its body; the first one is the schema, without a body.
    (schema_size,) = struct.unpack_from("<i", whole, 4)
    begin = 8 + schema_size
    (head_size,) = struct.unpack_from("<i", whole, begin + 4)
    body_at = begin + 8 + head_size
    head = bytearray(whole[begin + 8 : body_at])
    view = memoryview(head)
    root = unpacked._target(view, 0)
    struct.pack_into("<q", head, unpacked._field(view, root, unpacked._BODY_BYTES), 8 * rows)
    buffers = unpacked._table(view, unpacked._table(view, root, unpacked._HEAD), unpacked._BUFFERS)
    for index in range(2 * columns):
        struct.pack_into("<q", head, buffers + 4 + 16 * index, 0)
    end = b"\xff\xff\xff\xff\0\0\0\0"
    return whole[: begin + 8] + bytes(head) + whole[body_at : body_at + 8 * rows] + end


def test_columns_that_are_the_same_bytes_count_each() -> None:
    body = same_bytes(columns=50, rows=1000)
    assert len(body) < 30_000
    with pytest.raises(InvalidInputError, check=WithCode("INSERT_TOO_LARGE")):
        read_rows(body, 399_999)
    assert read_rows(body, 400_000).column("c49").to_pylist() == list(range(1000))
