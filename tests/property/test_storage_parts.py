"""Random tables through real files: what is written is read again, and a merge is a stable sort.

The schemas are drawn with their rows: every simple type, decimals, nested ones, nulls, many equal keys.
"""

from __future__ import annotations

import datetime
import math
import tempfile
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.part_sources import new_part, plain_source
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage import (
    Expiry,
    TableLayout,
    arrow_schema,
    check_file,
    footer_rows,
    local_folder,
    merge_parts,
    read_part,
    write_parts,
)

_RELAXED = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
_DAY = datetime.date(2000, 1, 1)
#: Few values each, so that keys repeat.
_VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    Simple(Kind.BOOLEAN): st.booleans(),
    Simple(Kind.INT8): st.integers(-2, 2),
    Simple(Kind.INT16): st.sampled_from([-32768, 0, 1]),
    Simple(Kind.INT32): st.integers(-3, 3),
    Simple(Kind.INT64): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    Simple(Kind.FLOAT32): st.sampled_from([-1.5, 0.0, 2.25]),
    Simple(Kind.FLOAT64): st.sampled_from([-math.inf, -1e300, 0.0, 1e-300, math.inf]),
    Simple(Kind.STRING): st.sampled_from(["", "a", "b", "ab", "Z", "ä", "a" * 70]),
    Simple(Kind.BINARY): st.sampled_from([b"", b"\x00", b"\xff", b"a"]),
    Simple(Kind.DATE): st.integers(-2, 2).map(lambda days: _DAY + datetime.timedelta(days=days)),
    Simple(Kind.TIMESTAMP): st.integers(-2, 2).map(
        lambda hours: datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=hours)
    ),
    Decimal(9, 2): st.sampled_from([Number("-9.50"), Number("10.00"), Number("9.99")]),
    Decimal(38, 0): st.sampled_from([Number(-(10**37)), Number(0), Number(10**37)]),
}
_KEY_TYPES = list(_VALUES)
_NESTED: dict[DataType, st.SearchStrategy[Any]] = {
    Array(Simple(Kind.STRING)): st.lists(st.one_of(st.none(), st.sampled_from(["x", "y"])), max_size=3),
    Map(Simple(Kind.STRING), Simple(Kind.INT64)): st.lists(
        st.tuples(st.sampled_from("kl"), st.integers(0, 3)), max_size=1
    ),
    Struct((Field("a", Simple(Kind.INT32)), Field("b", Array(Simple(Kind.DATE))))): st.fixed_dictionaries(
        {"a": st.one_of(st.none(), st.integers(0, 3)), "b": st.lists(st.just(_DAY), max_size=2)}
    ),
}


@st.composite
def _tables(draw: st.DrawFn, *, keys: st.SearchStrategy[int]) -> tuple[Schema, tuple[str, ...], list[pa.Table]]:
    """A schema, a sort key and the rows of some inserts; `at`: where each row was."""
    key_types = draw(st.lists(st.sampled_from(_KEY_TYPES), min_size=1, max_size=3))
    other_types = draw(st.lists(st.sampled_from([*_VALUES, *_NESTED]), max_size=2))
    types = [*key_types, *other_types]
    columns = [Column(id=number + 1, name=f"c{number}", type=of) for number, of in enumerate(types)]
    columns.append(Column(id=99, name="at", type=Simple(Kind.STRING)))
    schema = Schema(columns=tuple(columns))
    rows = st.tuples(*(st.one_of(st.none(), (_VALUES | _NESTED)[of]) for of in types))
    inserts = draw(st.lists(st.lists(rows, max_size=40), min_size=1, max_size=5))
    tables = []
    for number, insert in enumerate(inserts):
        values = [[row[index] for row in insert] for index in range(len(types))]
        values.append([f"{number}-{row}" for row in range(len(insert))])
        arrays = [pa.array(column, field.type) for column, field in zip(values, arrow_schema(schema), strict=True)]
        tables.append(pa.table(arrays, schema=arrow_schema(schema)))
    return schema, tuple(f"c{index}" for index in range(min(draw(keys), len(key_types)))), tables


def _expected(tables: list[pa.Table], order_by: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: [_comparable(row[name]) for name in order_by])


def _comparable(value: Any) -> tuple[bool, Any]:
    """Nulls first; strings by their bytes."""
    return (value is not None, value.encode() if isinstance(value, str) else (0 if value is None else value))


@_RELAXED
@given(_tables(keys=st.integers(0, 3)), st.integers(1, 9), st.integers(1, 30))
def test_a_merge_is_the_stable_sort_of_the_parts_laid_end_to_end(
    drawn: tuple[Schema, tuple[str, ...], list[pa.Table]], block_rows: int, group_rows: int
) -> None:
    schema, order_by, tables = drawn
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=schema, order_by=order_by, row_group_rows=group_rows, fsync=False)
        sorted_tables, files = [], []
        for number, table in enumerate(tables):
            for part in write_parts(layout, table, txn=number, task=0, attempt=0):
                files.append(part.file)
                sorted_tables.append(read_part(folder, part.file))
        sources = [plain_source(file, schema) for file in files]
        result = merge_parts(
            new_part(layout, txn=100),
            sources,
            task=0,
            attempt=0,
            block_rows=block_rows,
        )
        assert result.rows_in == sum(table.num_rows for table in tables)
        if result.written is None:
            assert result.rows_in == 0
            return
        check_file(folder, result.written.file)
        merged = read_part(folder, result.written.file)
        assert merged.schema.equals(arrow_schema(schema, field_ids=False))
        assert merged.to_pylist() == _expected(sorted_tables, order_by)
        again = merge_parts(
            new_part(layout, txn=101),
            sources,
            task=0,
            attempt=0,
            block_rows=block_rows,
        )
        assert again.written is not None
        assert again.written.file.checksum == result.written.file.checksum


@_RELAXED
@given(_tables(keys=st.integers(1, 2)), st.booleans())
def test_what_is_written_is_read_again_by_partition(
    drawn: tuple[Schema, tuple[str, ...], list[pa.Table]], is_partitioned: bool
) -> None:
    schema, order_by, tables = drawn
    by = (Transform(kind=TransformKind.IDENTITY, column="c0"),) if is_partitioned else ()
    if isinstance(of := schema.columns[0].type, Simple) and of.kind in (Kind.FLOAT32, Kind.FLOAT64):
        by = ()
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=schema, partition_by=by, order_by=order_by, fsync=False)
        parts = write_parts(layout, tables[0], txn=1, task=0, attempt=0)
        assert [part.file.name for part in parts] == [f"1-0.0-{n}.parquet" for n in range(len(parts))]
        assert len({part.partition for part in parts}) == len(parts)
        read: list[dict[str, Any]] = []
        for part in parts:
            check_file(folder, part.file)
            assert footer_rows(folder, part.file) == part.rows
            rows = read_part(folder, part.file).to_pylist()
            assert rows == sorted(rows, key=lambda row: [_comparable(row[name]) for name in order_by])
            if by:
                assert len({str(row["c0"]) for row in rows}) == 1
            assert part.ranges["c0"].nulls == sum(row["c0"] is None for row in rows)
            read += rows
        assert sorted(read, key=lambda row: str(row["at"])) == sorted(
            tables[0].to_pylist(), key=lambda row: str(row["at"])
        )


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _number(value: Any) -> int:
    """A date as days, a time as microseconds."""
    if isinstance(value, datetime.datetime):
        microseconds: int = (value - _EPOCH) // datetime.timedelta(microseconds=1)
        return microseconds
    days: int = (value - _EPOCH.date()).days
    return days


@_RELAXED
@given(_tables(keys=st.integers(0, 2)), st.sampled_from([Simple(Kind.DATE), Simple(Kind.TIMESTAMP)]), st.data())
def test_a_merge_with_expiry_is_the_merge_without_what_has_expired(
    drawn: tuple[Schema, tuple[str, ...], list[pa.Table]], of: DataType, data: st.DataObject
) -> None:
    schema, order_by, tables = drawn
    schema = Schema(columns=(*schema.columns, Column(id=98, name="Time", type=of)))
    kept = arrow_schema(schema)
    timed = []
    for table in tables:
        times = data.draw(st.lists(st.one_of(st.none(), _VALUES[of]), min_size=len(table), max_size=len(table)))
        timed.append(pa.table([*table.columns, pa.array(times, kept.field("Time").type)], schema=kept))
    below = _number(data.draw(_VALUES[of])) + data.draw(st.integers(-1, 1))
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=schema, order_by=order_by, ttl_column="time", fsync=False)
        written = [
            part
            for number, table in enumerate(timed)
            for part in write_parts(layout, table, txn=number, task=0, attempt=0)
        ]
        files = [part.file for part in written]
        sorted_tables = [read_part(folder, file) for file in files]
        for part, table in zip(written, sorted_tables, strict=True):
            numbers = [_number(value) for value in table.column("Time").to_pylist() if value is not None]
            assert (part.ranges["Time"].low, part.ranges["Time"].high) == (
                (min(numbers), max(numbers)) if numbers else (None, None)
            )
        expired = Expiry(column="time", below=below)
        sources = [plain_source(file, layout.schema) for file in files]
        result = merge_parts(
            new_part(layout, txn=100),
            sources,
            task=0,
            attempt=0,
            expired=expired,
            block_rows=7,
        )
        expected = [
            row for row in _expected(sorted_tables, order_by) if row["Time"] is None or _number(row["Time"]) >= below
        ]
        assert result.rows_expired == result.rows_in - len(expected)
        assert (read_part(folder, result.written.file).to_pylist() if result.written else []) == expected
