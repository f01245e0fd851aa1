"""A real Spark: a filter over part files finds what it finds over the same rows in memory, whatever wrote the files.

Files are written as now, and as by a version that thought of no value: with statistics and dictionaries of all leaves,
of which the records do not confirm that they may be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import tilth.storage.read.spark as storage_spark
from tests.hostile import SEED_VARIABLE, array, seed_of_run, spark_literal, values_of
from tests.long import cases
from tests.part_sources import as_delta
from tilth.base.rand import new_rng
from tilth.model.delta import Delta
from tilth.model.part import DataFile, Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Decimal, Field, Kind, Simple, Struct
from tilth.storage import (
    DeltaWriter,
    RowIndexes,
    StoreRoot,
    arrow_schema,
    data_folder,
    layout_of,
    local_root,
    write_parts,
)
from tilth.storage.parts import part_files
from tilth.storage.read.spark import located_snapshot, read_snapshot
from tilth.storage.values.unfilterable import DAYS_MIN, MICROSECONDS_MIN

pytestmark = pytest.mark.integration
#: Bound of the scans of one query.
_SCANS_MAX = 16
NAN, ZERO = "CAST('NaN' AS DOUBLE)", "CAST('-0.0' AS DOUBLE)"
SCHEMA = Schema(
    columns=(
        Column(id=1, name="id", type=Simple(Kind.INT64)),
        Column(id=2, name="x", type=Simple(Kind.FLOAT64)),
        Column(id=3, name="y", type=Simple(Kind.FLOAT32)),
        Column(id=4, name="day", type=Simple(Kind.DATE)),
        Column(id=5, name="at", type=Simple(Kind.TIMESTAMP)),
        Column(id=6, name="wall", type=Simple(Kind.TIMESTAMP_NTZ)),
        Column(
            id=7,
            name="in",
            type=Struct((Field("x", Simple(Kind.FLOAT64)), Field("day", Simple(Kind.DATE)))),
        ),
        Column(id=8, name="s", type=Simple(Kind.STRING)),
        Column(id=9, name="m", type=Decimal(9, 2)),
        Column(id=10, name="huge", type=Decimal(38, 10)),
        Column(id=11, name="b", type=Simple(Kind.BOOLEAN)),
        Column(id=12, name="raw", type=Simple(Kind.BINARY)),
    )
)
TABLE = TableDef(
    uuid="ef" * 16,
    database="d",
    name="t",
    schema=SCHEMA,
    order_by=("id",),
    settings={"parquet_row_group_rows": "2"},
)
#: Columns whose types have broken more than others: each run looks at them.
SOME = ("x", "day", "s", "huge")
#: Each finds rows that Parquet's own filters leave out of files with all statistics, or that are near to it.
FILTERS = (
    "x > 5",
    f"x = {NAN}",
    f"x >= {NAN}",
    "x <> 1",
    "x NOT IN (1, 2)",
    "NOT (x BETWEEN 0.5 AND 2.5)",
    f"x BETWEEN 3 AND {NAN}",
    f"x IN ({NAN}, 77)",
    "x = 0",
    f"x = {ZERO}",
    f"x <= {ZERO}",
    "x >= 0 AND x < 0.5",
    "y > 5",
    "y = CAST(0 AS FLOAT)",
    "in.x > 5",
    "in.x = 0",
    "in.day = DATE'1582-10-10'",
    "day = DATE'1582-10-10'",
    "day IN (DATE'1582-10-10', DATE'2000-01-01')",
    "day > DATE'1582-10-04' AND day < DATE'1582-10-15'",
    "day <> DATE'1582-10-04'",
    "at = TIMESTAMP'1582-10-10 01:00:00'",
    "at < TIMESTAMP'1582-10-14 00:00:00'",
    "at > TIMESTAMP'1582-10-05 00:00:00' AND at < TIMESTAMP'1582-10-14 00:00:00'",
    "wall = TIMESTAMP_NTZ'1582-10-10 01:00:00'",
    "wall > TIMESTAMP_NTZ'1582-10-05 00:00:00' AND wall < TIMESTAMP_NTZ'1582-10-14 00:00:00'",
)


def _rows() -> pa.Table:
    nan, days, times = float("nan"), (-141_432, -141_438, -141_427), (-12_219_807_600_000_000, -12_220_329_600_000_000)
    xs = [1.0, nan, -0.0, 2.0, 0.0, 1.0, None, nan]
    columns: dict[str, list[Any]] = {
        "id": list(range(8)),
        "x": xs,
        "y": [None if x is None else float(np.float32(x)) for x in xs],
        "day": [days[index % 3] for index in range(8)],
        "at": [times[index % 2] for index in range(8)],
        "wall": [times[index % 2] for index in range(8)],
        "in": [None if index == 4 else {"x": x, "day": days[index % 3]} for index, x in enumerate(xs)],
        **dict.fromkeys(("s", "m", "huge", "b", "raw"), [None] * 8),
    }
    schema = arrow_schema(SCHEMA, field_ids=False)
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _part(file: DataFile, number: int = 0, *, rows: int) -> Part:
    return Part(name=PartName("all", number, number, 0, number), schema_version=1, rows=rows, file=file)


class _Files:
    """The rows three times: in a filterable file, in one with all statistics and dictionaries, and in memory."""

    def __init__(self, root: StoreRoot, rows: pa.Table) -> None:
        self.root = root
        self.rows = rows
        self.layout = layout_of(TABLE, root, fsync=False)
        (written,) = write_parts(self.layout, rows, txn=1, task=0, attempt=0)
        self.filterable = written.file
        self.plain = DataFile(name="2-0.0-0.parquet", size=0, checksum=0)
        path = Path(data_folder(root, TABLE.uuid), self.plain.name)
        pq.write_table(rows, path, row_group_size=2, write_page_index=True, store_schema=False)
        self.plain = DataFile(name=self.plain.name, size=path.stat().st_size, checksum=0)
        assert (self.filterable.is_filterable, self.plain.is_filterable) == (True, False)

    def snapshot(self, *files: DataFile, deltas: tuple[Delta, ...] = ()) -> Snapshot:
        parts = tuple(_part(file, number, rows=self.rows.num_rows) for number, file in enumerate(files))
        return Snapshot(table=TABLE, ts=1, version=1, parts=parts, deltas=deltas)


@pytest.fixture
def files(tmp_path: Path) -> _Files:
    return _Files(local_root(tmp_path), _rows())


@contextmanager
def _settings(session: SparkSession, **values: str) -> Iterator[None]:
    names = {name: "spark.sql." + name.replace("__", ".") for name in values}
    for name, value in values.items():
        session.conf.set(names[name], value)
    try:
        yield
    finally:
        for name in names.values():
            session.conf.unset(name)


def _found(frame: DataFrame, texts: Sequence[str]) -> dict[str, list[int]]:
    """The ids that each filter finds, by a scan of its own."""
    found: dict[str, list[int]] = {text: [] for text in texts}
    for start in range(0, len(texts), _SCANS_MAX):
        some = texts[start : start + _SCANS_MAX]
        scans = [frame.where(text).selectExpr(f"{number} AS n", "id") for number, text in enumerate(some)]
        for row in reduce(DataFrame.union, scans).collect():
            found[some[row.n]].append(row.id)
    return {text: sorted(ids) for text, ids in found.items()}


def _in_memory(session: SparkSession, rows: pa.Table, texts: Sequence[str]) -> dict[str, list[int]]:
    found = session.createDataFrame(rows).selectExpr("id", *texts).collect()
    return {text: sorted(row[0] for row in found if row[index]) for index, text in enumerate(texts, start=1)}


def _check(session: SparkSession, frame: DataFrame, rows: pa.Table, times: int = 1) -> None:
    """Each filter finds in the frame what it finds in the rows, so many times."""
    expected = _in_memory(session, rows, FILTERS)
    assert _found(frame, FILTERS) == {text: sorted(ids * times) for text, ids in expected.items()}


def test_files_of_every_age_are_searched_rightly(session: SparkSession, files: _Files) -> None:
    _check(session, read_snapshot(session, files.snapshot(files.filterable), files.root), files.rows)
    _check(session, read_snapshot(session, files.snapshot(files.plain), files.root), files.rows)
    both = files.snapshot(files.filterable, files.plain)
    _check(session, read_snapshot(session, both, files.root), files.rows, times=2)
    _check(session, located_snapshot(session, both, files.root), files.rows, times=2)


def test_rows_beside_deleted_ones_are_found(session: SparkSession, files: _Files) -> None:
    deltas = tuple(
        as_delta(
            DeltaWriter(files.layout, txn=3, task=0, attempt=0, first_n=number).deletes(
                "all", file.name, _indexes(0, 5)
            ),
            5,
        )
        for number, file in enumerate((files.filterable, files.plain))
    )
    snapshot = files.snapshot(files.filterable, files.plain, deltas=deltas)
    kept = files.rows.take([1, 2, 3, 4, 6, 7])
    _check(session, read_snapshot(session, snapshot, files.root), kept, times=2)
    found = located_snapshot(session, snapshot, files.root).where("x = 0").select("__file", "__row").collect()
    assert {(row[0], row[1]) for row in found} == {
        (name, row) for name in (files.filterable.name, files.plain.name) for row in (2, 4)
    }


def _indexes(*rows: int) -> RowIndexes:
    return np.array(rows, dtype=np.int64)


def test_without_the_index_of_our_own(session: SparkSession, files: _Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_spark, "_native", lambda *_, **__: None)
    for file in (files.filterable, files.plain):
        _check(session, read_snapshot(session, files.snapshot(file), files.root), files.rows)


@pytest.mark.parametrize(
    "values",
    cases(
        [
            {"parquet__datetimeRebaseModeInRead": "LEGACY", "parquet__int96RebaseModeInRead": "LEGACY"},
            {"parquet__enableVectorizedReader": "false", "parquet__recordLevelFilter__enabled": "true"},
            {"session__timeZone": "America/Los_Angeles", "datetime__java8API__enabled": "true"},
        ]
    ),
    ids=lambda values: next(iter(values)),
)
def test_the_settings_of_a_user_s_session_change_no_value(
    session: SparkSession, files: _Files, values: dict[str, str]
) -> None:
    with _settings(session, **values):
        both = files.snapshot(files.filterable, files.plain)
        _check(session, read_snapshot(session, both, files.root), files.rows, times=2)
        frame = read_snapshot(session, both, files.root)
        numbers = frame.where("id = 0").selectExpr("unix_date(day)", "unix_micros(at)").distinct().collect()
        assert [tuple(row) for row in numbers] == [(-141_432, -12_219_807_600_000_000)]


def test_a_file_that_is_gone_is_not_left_out_silently(session: SparkSession, files: _Files) -> None:
    frame = read_snapshot(session, files.snapshot(files.filterable), files.root)
    Path(data_folder(files.root, TABLE.uuid), files.filterable.name).unlink()
    with (
        _settings(session, files__ignoreMissingFiles="true", files__ignoreCorruptFiles="true"),
        pytest.raises(Exception, match="FAILED_READ_FILE"),
    ):
        frame.collect()


def _scanned(frame: DataFrame, text: str) -> int:
    """How many rows the scans of files hand on, before Spark compares any."""
    # An adaptive plan hides its leaves.
    with _settings(frame.sparkSession, adaptive__enabled="false"):
        filtered = frame.where(text)
        filtered.collect()
        leaves = filtered._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.nodeName().startswith("Scan parquet")]
    return sum(scan.metrics().apply("numOutputRows").value() for scan in scans)


def test_good_files_keep_their_filters(session: SparkSession, files: _Files) -> None:
    good = read_snapshot(session, files.snapshot(files.filterable), files.root)
    assert _scanned(good, "id = 3") == 2
    plain = read_snapshot(session, files.snapshot(files.plain), files.root)
    assert _scanned(plain, "id = 3") == 8
    # Leaves without such values are filtered by statistics and dictionaries, too.
    rows = files.rows.set_column(1, "x", pa.array([1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 3.5, 3.5]))
    (part,) = write_parts(files.layout, rows, txn=7, task=0, attempt=0)
    clean = read_snapshot(session, files.snapshot(part.file), files.root)
    assert (_scanned(clean, "x > 3"), _scanned(clean, "x = 2.5")) == (4, 2)


def test_rows_keep_their_position_where_pages_are_skipped(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DELETE and UPDATE name rows by their index in the file."""
    monkeypatch.setattr(part_files, "PAGE_BYTES_MIN", 64)
    monkeypatch.setattr(part_files, "PAGE_BYTES_MAX", 64)
    count = 20_000
    schema = arrow_schema(SCHEMA, field_ids=False)
    arrays = {field.name: pa.nulls(count, field.type) for field in schema}
    arrays["id"] = pa.array(range(count))
    arrays["x"] = pa.array([float("nan") if row % 5000 == 7 else float(row) for row in range(count)])
    layout = layout_of(TABLE, local_root(tmp_path), fsync=False)
    layout = replace(layout, row_group_rows=count)
    (part,) = write_parts(layout, pa.table(arrays), txn=1, task=0, attempt=0)
    deleted = DeltaWriter(layout, txn=2, task=0, attempt=0).deletes("all", part.file.name, _indexes(3, 15_007))
    for deltas in ((), (as_delta(deleted, 5),)):
        snapshot = Snapshot(table=TABLE, ts=1, version=1, parts=(_part(part.file, rows=count),), deltas=deltas)
        frame = located_snapshot(session, snapshot, local_root(tmp_path))
        assert _scanned(frame, "id = 12345") < count / 4
        for text, rows in (
            ("id IN (3, 12345, 12346)", {3, 12_345, 12_346}),
            ("id > 15000 AND id < 15010 AND x > 15008", {15_007, 15_009}),
            ("x = CAST('NaN' AS DOUBLE)", {7, 5007, 10_007, 15_007}),
        ):
            found = {row[0] for row in frame.where(text).select("__row").collect()}
            assert found == rows - ({3, 15_007} if deltas else set()), text


def test_the_bounds_are_those_of_spark(session: SparkSession) -> None:
    """Literals from the bounds on come back from Java's calendar as they were, and earlier ones stay below them."""
    jvm: Any = session._jvm
    rebase = jvm.org.apache.spark.sql.catalyst.util.RebaseDateTime
    assert rebase.lastSwitchGregorianDay() <= DAYS_MIN
    assert rebase.lastSwitchGregorianTs() <= MICROSECONDS_MIN
    gone = range(rebase.lastSwitchGregorianDay() - 12, rebase.lastSwitchGregorianDay())
    moved = [rebase.rebaseJulianToGregorianDays(rebase.rebaseGregorianToJulianDays(day)) for day in gone]
    assert any(there != day for there, day in zip(moved, gone, strict=True))
    assert max(moved) < DAYS_MIN
    last = rebase.lastSwitchGregorianTs() - 1
    # The zones that move literals furthest across the bound.
    for zone in ("America/Yellowknife", "America/Resolute", "Antarctica/Palmer", "Asia/Qatar", "Europe/Amsterdam"):
        there = rebase.rebaseJulianToGregorianMicros(zone, rebase.rebaseGregorianToJulianMicros(zone, last))
        assert there < MICROSECONDS_MIN


@pytest.mark.parametrize(
    "column",
    cases([c for c in SCHEMA.columns if c.name != "in"], and_also=[c for c in SCHEMA.columns if c.name in SOME]),
    ids=lambda column: column.name,
)
def test_every_value_of_every_type_is_found(session: SparkSession, tmp_path: Path, column: Column) -> None:
    """Row groups with few hostile values each: equal, below and above each of them."""
    seed = seed_of_run()
    print(f"{SEED_VARIABLE}={seed}")
    rng = new_rng(seed)
    assert isinstance(column.type, Simple | Decimal)
    schema = arrow_schema(SCHEMA, field_ids=False)
    arrays = [pa.nulls(120, field.type) for field in schema]
    arrays[0] = pa.array(range(120))
    arrays[schema.get_field_index(column.name)] = array(rng, column.type, 120)
    files = _Files(local_root(tmp_path), pa.table(arrays, schema=schema))
    values = values_of(column.type)
    texts = [
        f"{column.name} {operator} {spark_literal(value, column.type)}"
        for value in values[:: max(1, len(values) // 8)]
        for operator in ("=", "<", ">=")
    ]
    expected = _in_memory(session, files.rows, texts)
    for file in (files.filterable, files.plain):
        assert _found(read_snapshot(session, files.snapshot(file), files.root), texts) == expected
