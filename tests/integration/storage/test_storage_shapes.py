"""Parts of several schema versions through a real Spark: a snapshot reads as the table's present columns.

The expected rows are made by a small model in Python: values by column id.
"""

from __future__ import annotations

import datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tilth.model.part import Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage import (
    PartShapeUnknownError,
    StoreRoot,
    arrow_schema,
    layout_of,
    local_folder,
    local_root,
    write_parts,
)
from tilth.storage.read.spark import files_frame, read_snapshot

pytestmark = pytest.mark.integration
TAGS = Array(Simple(Kind.STRING))
PROPS = Map(Simple(Kind.STRING), Simple(Kind.INT32))
PLACE = Struct((Field("x", Simple(Kind.FLOAT64)),))


def _column(identity: int, name: str, of: DataType | Kind, default: str | None = None) -> Column:
    return Column(id=identity, name=name, type=Simple(of) if isinstance(of, Kind) else of, default=default)


FIRST = Schema(
    columns=(
        _column(1, "k", Kind.INT64),
        _column(2, "a", Kind.INT32),
        _column(3, "b", Kind.FLOAT32),
        _column(4, "price", Decimal(9, 2)),
        _column(5, "tags", TAGS),
        _column(6, "props", PROPS),
        _column(7, "place", PLACE),
        _column(8, "gone", Kind.STRING),
    )
)
#: `a` is now `Alpha`, wider; there is a new `A`; `gone` has gone, `b` and `price` are wider.
SECOND = Schema(
    columns=(
        _column(1, "k", Kind.INT64),
        _column(2, "Alpha", Kind.INT64),
        _column(9, "A", Kind.INT32, "6 * 7"),
        _column(3, "b", Kind.FLOAT64),
        _column(4, "price", Decimal(12, 2)),
        _column(5, "labels", TAGS),
        _column(6, "props", PROPS),
        _column(7, "place", PLACE),
    )
)
#: `Alpha` is `gone` now; `A` is wider and has another default, for later rows; `since` is new.
THIRD = Schema(
    columns=(
        _column(1, "k", Kind.INT64),
        _column(2, "gone", Kind.INT64),
        _column(9, "A", Kind.INT64, "-1"),
        _column(3, "b", Kind.FLOAT64),
        _column(4, "price", Decimal(12, 2)),
        _column(5, "labels", TAGS),
        _column(6, "props", PROPS),
        _column(7, "place", PLACE),
        _column(10, "since", Kind.DATE, "DATE'2020-02-02'"),
        _column(11, "note", Kind.STRING),
    )
)
SHAPES = {1: FIRST, 2: SECOND, 3: THIRD}
TABLE = TableDef(
    uuid="ab" * 16,
    database="d",
    name="t",
    schema=THIRD,
    schema_version=3,
    order_by=("k",),
    older_schemas=(SchemaVersion(version=1, schema=FIRST), SchemaVersion(version=2, schema=SECOND)),
)


def _value(identity: int, key: int) -> Any:
    """What the column has in the row of that key."""
    values: dict[int, Any] = {
        1: key,
        2: key * 3 if key % 4 else None,
        3: key + 0.5,
        4: Number(key) + Number("0.25"),
        5: ["x", None][: key % 3],
        6: [("p", key)],
        7: {"x": key / 2},
        8: f"gone {key}",
        9: key % 5,
        10: None,
        11: f"note {key}",
    }
    return values[identity]


def _part(root: StoreRoot, version: int, keys: range) -> Part:
    schema = SHAPES[version]
    arrays = [
        pa.array([_value(column.id, key) for key in keys], field.type)
        for column, field in zip(schema.columns, arrow_schema(schema), strict=True)
    ]
    rows = pa.table(arrays, schema=arrow_schema(schema))
    layout = layout_of(TABLE, root, schema, fsync=False)
    (written,) = write_parts(layout, rows, txn=keys.start + 1, task=0, attempt=0)
    name = PartName("all", keys.start, keys.start, 0, keys.start)
    return Part(name=name, schema_version=version, rows=len(keys), file=written.file)


def _snapshot(parts: list[Part], table: TableDef = TABLE) -> Snapshot:
    return Snapshot(table=table, ts=1, version=1, parts=tuple(parts))


def _expected(version: int, keys: range) -> list[tuple[Any, ...]]:
    """The rows in the third shape; of a column that the version lacks the default it came with."""
    stored = {column.id for column in SHAPES[version].columns}
    missing = {9: 42, 10: datetime.date(2020, 2, 2), 11: None}
    return [
        tuple(_value(column.id, key) if column.id in stored else missing[column.id] for column in THIRD.columns)
        for key in keys
    ]


def _got(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = []
    for row in frame.orderBy("k").collect():
        values = row.asDict(recursive=True)
        values["props"] = list(values["props"].items())
        rows.append(tuple(values.values()))
    return rows


def _plan(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


def test_three_versions_read_as_one_table(session: SparkSession, tmp_path: Path) -> None:
    ranges = {1: range(20), 2: range(20, 40), 3: range(40, 60)}
    parts = [_part(local_root(tmp_path), version, keys) for version, keys in ranges.items()]
    frame = read_snapshot(session, _snapshot(parts), local_root(tmp_path))
    expected = [row for version, keys in ranges.items() for row in _expected(version, keys)]
    assert _got(frame) == expected
    declared = [(f.name, f.dataType.simpleString()) for f in frame.schema.fields]
    plain = files_frame(session, folder=local_folder(tmp_path), files=[], schema=THIRD, is_filterable=True)
    assert declared == [(f.name, f.dataType.simpleString()) for f in plain.schema.fields]


def test_names_that_are_used_again_find_the_new_column_only(session: SparkSession, tmp_path: Path) -> None:
    parts = [_part(local_root(tmp_path), version, range(20 * version, 20 * version + 20)) for version in (1, 2, 3)]
    frame = read_snapshot(session, _snapshot(parts), local_root(tmp_path))
    expected = [row for version in (1, 2, 3) for row in _expected(version, range(20 * version, 20 * version + 20))]
    assert _got(frame.where("a = 42")) == [row for row in expected if row[2] == 42]
    assert _got(frame.where("gone = 66 OR gone > 150")) == [
        row for row in expected if row[1] == 66 or (row[1] or 0) > 150
    ]
    assert _got(frame.where("gone IS NULL")) == [row for row in expected if row[1] is None]
    assert frame.where("A = 3 AND since = DATE'2020-02-02'").count() == sum(
        row[2] == 3 and row[8] is not None for row in expected
    )


def test_every_shape_has_its_own_pruned_scan(session: SparkSession, tmp_path: Path) -> None:
    parts = [_part(local_root(tmp_path), version, range(20 * version, 20 * version + 20)) for version in (1, 2, 3)]
    frame = read_snapshot(session, _snapshot(parts), local_root(tmp_path)).where("gone > 7").select("k")
    plan = _plan(frame)
    assert plan.count("FileScan parquet") == 3
    for name, kind in (("a", "int"), ("Alpha", "bigint"), ("gone", "bigint")):
        assert f"GreaterThan({name},7)" in plan
        assert f"ReadSchema: struct<k:bigint,{name}:{kind}>" in plan


def test_columns_that_came_or_went_need_no_scan_of_their_own(session: SparkSession, tmp_path: Path) -> None:
    """And the plan for one version is the scan alone."""
    now = Schema(columns=(*(c for c in FIRST.columns if c.id not in (3, 8)), _column(12, "late", Kind.STRING)))
    versions = (SchemaVersion(version=1, schema=FIRST),)
    table = TableDef(
        uuid=TABLE.uuid, database="d", name="t", schema=now, schema_version=2, order_by=("k",), older_schemas=versions
    )
    root = local_root(tmp_path)
    frame = read_snapshot(session, _snapshot([_part(root, 1, range(5))], table), root)
    assert "Project" not in frame._jdf.queryExecution().analyzed().toString()
    assert [(row.k, row.late) for row in frame.orderBy("k").collect()] == [(key, None) for key in range(5)]
    assert frame.selectExpr("_metadata.row_index").count() == 5
    own = read_snapshot(session, _snapshot([_part(root, 3, range(10, 15))]), root)
    assert "Project" not in own._jdf.queryExecution().analyzed().toString()


def test_rows_of_one_older_shape_know_their_file(session: SparkSession, tmp_path: Path) -> None:
    part = _part(local_root(tmp_path), 1, range(3))
    frame = read_snapshot(session, _snapshot([part]), local_root(tmp_path))
    found = frame.selectExpr("k", "_metadata.file_name AS file").collect()
    assert {(row.k, row.file) for row in found} == {(key, part.file.name) for key in range(3)}


def test_a_part_of_a_lost_version_is_named(session: SparkSession, tmp_path: Path) -> None:
    part = Part(
        name=PartName("all", 1, 1, 0, 1), schema_version=9, rows=1, file=_part(local_root(tmp_path), 3, range(1)).file
    )
    with pytest.raises(PartShapeUnknownError, match=r"part=all_1_1_0_1 table=d\.t schema_version=9"):
        read_snapshot(session, _snapshot([part]), local_root(tmp_path))
