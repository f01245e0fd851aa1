"""Lines of files to rows, as tasks of Spark read them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pyarrow as pa

from tilth.ingest.settings import KafkaConfig
from tilth.model import types as ty
from tilth.model.loaded_file import SkippedRow
from tilth.model.table import Column, Schema
from tilth.query.worker.lines_spark import BAD, FILE, LineReader

A = Column(id=1, name="a", type=ty.Simple(ty.Kind.INT64), nullable=False)
S = Column(id=2, name="s", type=ty.Simple(ty.Kind.STRING), default="'none'")
M = Column(id=3, name="m", type=ty.Decimal(10, 2))


def read(
    lines: Sequence[tuple[bytes, int, int]], form: str = "JSONEachRow", *, has_header: bool = False, batch: int = 3
) -> tuple[list[tuple[object, ...]], list[tuple[int, SkippedRow]]]:
    """Return the rows of lines, each with its file and its block, and the lines that cannot be read."""
    reader = LineReader(
        schema=Schema(columns=(A, S, M)),
        config=KafkaConfig(table="t", format=form),
        defaults={"s": "none"},
        has_header=has_header,
    )
    columns = [pa.array(column) for column in zip(*lines, strict=True)]
    whole = pa.RecordBatch.from_arrays([columns[0].cast(pa.binary()), *columns[1:]], names=["value", "f", "b"])
    batches = [whole.slice(at, batch) for at in range(0, whole.num_rows, batch)]
    found = pa.Table.from_batches(list(reader(iter(batches)))).to_pylist()
    rows: list[tuple[object, ...]] = [
        (each["a"], each["s"], each["m"], each[FILE]) for each in found if each[BAD] is None
    ]
    bad = [(each[FILE], msgspec.msgpack.decode(each[BAD], type=SkippedRow)) for each in found if each[BAD] is not None]
    return rows, bad


def test_lines_of_several_files_and_blocks_are_rows() -> None:
    lines = [
        (b'{"a": 1}', 7, 0),
        (b"", 7, 0),
        (b'{"a": 2, "s": null, "m": "0.10"}', 7, 0),
        (b"bad", 7, 0),
        (b"bad", 7, 64),
        (b'{"a": 3} {"a": 4}', 8, 0),
        (b'{"a": 5.5}', 8, 0),
        (b'{"a": 6, "m": 1.005}', 8, 0),
    ]
    for batch in (1, 2, 3, 100):
        rows, bad = read(lines, batch=batch)
        assert rows == [(1, "none", None, 7), (2, None, Decimal("0.10"), 7), (3, "none", None, 8), (4, "none", None, 8)]
        assert [(file, each.line, each.block_start) for file, each in bad] == [
            (7, 4, 0),
            (7, 1, 64),
            (8, 2, 0),
            (8, 3, 0),
        ]
        assert [each.raw for _, each in bad] == [b"bad", b"bad", b'{"a": 5.5}', b'{"a": 6, "m": 1.005}']


def test_the_first_line_of_each_file_may_have_the_names() -> None:
    lines = [
        (b"a,s,m", 7, 0),
        (b"1,x,2", 7, 0),
        (b"2,,", 7, 64),
        (b"a,s,m", 8, 0),
        (b"3,\\N,1.50", 8, 0),
        (b'4,"x', 8, 0),
    ]
    for batch in (1, 2, 100):
        rows, bad = read(lines, "CSV", has_header=True, batch=batch)
        assert rows == [(1, "x", Decimal("2.00"), 7), (2, "", None, 7), (3, None, Decimal("1.50"), 8)]
        assert [(file, each.line) for file, each in bad] == [(8, 3)]
