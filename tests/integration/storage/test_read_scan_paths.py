"""Parts that have changed, and row segments, through a real Spark: the rows are those that a model in Python has.

The model has every row by data file and position; deletes and new values are applied to it as they
are written to files.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Collection
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tilth.storage.read.masked_spark as masked_spark
import tilth.storage.read.scan_paths as scan_paths
import tilth.storage.read.spark as storage_spark
from tilth.base.errors import TilthError
from tilth.base.mailbox import new_mailbox
from tilth.model.delta import Delta, WrittenDelta, deleted_rows
from tilth.model.part import Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple
from tilth.query.worker.needs_spark import create_views, find_needs
from tilth.storage import (
    CHANGE_DELETE,
    CHANGE_UPDATE,
    DeltaFileCorruptError,
    DeltaFileNotFoundError,
    DeltaWriter,
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreRoot,
    arrow_schema,
    arrow_type,
    data_folder,
    layout_of,
    local_root,
    write_parts,
    write_segments,
)
from tilth.storage.read.spark import file_error, located_snapshot, read_snapshot

pytestmark = pytest.mark.integration
_MIDNIGHT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def _column(identity: int, name: str, of: DataType | Kind, default: str | None = None) -> Column:
    return Column(id=identity, name=name, type=Simple(of) if isinstance(of, Kind) else of, default=default)


TAGS = Array(Simple(Kind.STRING))
PROPS = Map(Simple(Kind.STRING), Simple(Kind.INT32))
K = Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False)
FIRST = Schema(
    columns=(
        K,
        _column(2, "v", Kind.INT32),
        _column(3, "s", Kind.STRING),
        _column(4, "at", Kind.TIMESTAMP),
        _column(5, "price", Decimal(9, 2)),
        _column(6, "tags", TAGS),
        _column(7, "props", PROPS),
        _column(8, "small", Kind.INT8),
    )
)
#: `v` is `wide` and wider, a new `v` has a default, `late` is NULL in older rows.
SECOND = Schema(
    columns=(
        K,
        _column(2, "wide", Kind.INT64),
        _column(9, "v", Kind.INT32, "7"),
        *FIRST.columns[2:],
        _column(10, "late", Kind.DATE),
    )
)
SHAPES = {1: FIRST, 2: SECOND}
TABLE = TableDef(
    uuid="ef" * 16,
    database="d",
    name="t",
    schema=SECOND,
    schema_version=2,
    order_by=("k",),
    older_schemas=(SchemaVersion(version=1, schema=FIRST),),
)
_MISSING = {9: 7, 10: None}


def _value(identity: int, key: int) -> Any:
    values: dict[int, Any] = {
        1: key,
        2: key * 3 if key % 4 else None,
        3: f"s{key % 11}",
        4: _MIDNIGHT + datetime.timedelta(seconds=key),
        5: Number(key) + Number("0.25"),
        6: ["x", None][: key % 3],
        7: [("p", key)],
        8: key % 100,
        9: key % 5,
        10: datetime.date(2020, 1, 1 + key % 28),
    }
    return values[identity]


class World:
    """A table's files, and what they must mean."""

    def __init__(self, root: StoreRoot) -> None:
        self.root = root
        self.parts: list[Part] = []
        self.deltas: list[Delta] = []
        #: Rows of each data file, as values by column id; None: deleted.
        self.rows: dict[str, list[dict[int, Any] | None]] = {}
        self._txn = 0

    def add(self, keys: Collection[int], *, version: int = 2, is_segment: bool = False) -> Part:
        """A part with a row for each key; of a Parquet part they must ascend."""
        self._txn += 1
        schema = SHAPES[version]
        fields = arrow_schema(schema)
        arrays = [
            pa.array([_value(column.id, key) for key in keys], field.type)
            for column, field in zip(schema.columns, fields, strict=True)
        ]
        write = write_segments if is_segment else write_parts
        (written,) = write(self.layout(version), pa.table(arrays, schema=fields), txn=self._txn, task=0, attempt=0)
        part = Part(
            name=PartName("all", self._txn, self._txn, 0, self._txn),
            schema_version=version,
            rows=written.rows,
            file=written.file,
            is_segment=is_segment,
        )
        self.parts.append(part)
        self.rows[part.file.name] = [{column.id: _value(column.id, key) for column in schema.columns} for key in keys]
        return part

    def layout(self, version: int = 2) -> Any:
        return layout_of(TABLE, self.root, SHAPES[version], fsync=False)

    def delete(self, part: Part, *rows: int) -> Delta:
        """By a deletion vector."""
        return self._gone({part.file.name: rows}, lambda **n: self._vector(part, rows, **n))

    def _vector(self, part: Part, rows: Collection[int], **names: int) -> WrittenDelta:
        return DeltaWriter(self.layout(), **names).deletes("all", part.file.name, np.array(sorted(rows), np.int64))

    def delete_many(self, gone: dict[str, Collection[int]]) -> Delta:
        """By one change segment."""
        pairs = [(file, row) for file, rows in gone.items() for row in rows]
        changes = pa.table(
            {
                "file": [file for file, _ in pairs],
                "row": pa.array([row for _, row in pairs], pa.int64()),
                "op": pa.array([CHANGE_DELETE] * len(pairs), pa.int8()),
            }
        )
        return self._gone(gone, lambda **n: DeltaWriter(self.layout(), **n).changes("all", changes))

    def update(self, part: Part, column: int, values: dict[int, Any], *, is_change: bool) -> Delta:
        """New values of one column by row, as a change segment or as a delta of the part."""
        for row, value in values.items():
            kept = self.rows[part.file.name][row]
            assert kept is not None
            kept[column] = value
        layout, kind = self.layout(part.schema_version), _kind(part, column)
        new = {"row": pa.array(list(values), pa.int64()), f"c{column}": pa.array(list(values.values()), kind)}
        if not is_change:
            return self._added(DeltaWriter(layout, **self._names()).updates("all", part.file.name, pa.table(new)))
        count = len(values)
        new |= {"file": pa.array([part.file.name] * count), "op": pa.array([CHANGE_UPDATE] * count, pa.int8())}
        return self._added(DeltaWriter(layout, **self._names()).changes("all", pa.table(new)))

    def set_column(self, part: Part, column: int, values: list[Any]) -> Delta:
        """New values of one column for all rows."""
        for row, value in zip(self.rows[part.file.name], values, strict=True):
            if row is not None:
                row[column] = value
        table = pa.table({f"c{column}": pa.array(values, _kind(part, column))})
        return self._added(
            DeltaWriter(self.layout(part.schema_version), **self._names()).columns("all", part.file.name, [table])
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(table=TABLE, ts=1, version=1, parts=tuple(self.parts), deltas=tuple(self.deltas))

    def expected(self) -> list[tuple[Any, ...]]:
        """In the present columns, with file and position, in the order of their keys."""
        found = [
            (*(row.get(column.id, _MISSING.get(column.id)) for column in SECOND.columns), file, position)
            for file, rows in self.rows.items()
            for position, row in enumerate(rows)
            if row is not None
        ]
        return sorted(found)

    def path(self, name: str) -> Path:
        return Path(data_folder(self.root, TABLE.uuid), name)

    def _gone(self, gone: dict[str, Collection[int]], write: Callable[..., WrittenDelta]) -> Delta:
        for file, rows in gone.items():
            for row in rows:
                assert self.rows[file][row] is not None
                self.rows[file][row] = None
        return self._added(write(**self._names()))

    def _names(self) -> dict[str, int]:
        self._txn += 1
        return {"txn": self._txn, "task": 0, "attempt": 0}

    def _added(self, written: WrittenDelta) -> Delta:
        delta = Delta(
            kind=written.kind,
            partition="all",
            file=written.file,
            targets=written.targets,
            columns=written.columns,
            change_ts=self._txn,
            commit_ts=self._txn,
        )
        self.deltas.append(delta)
        return delta


def _kind(part: Part, column: int) -> pa.DataType:
    columns = SHAPES[part.schema_version].columns
    return next(arrow_type(each.type) for each in columns if each.id == column)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(local_root(tmp_path / "a folder ü"))


#: Below which the tables of `queried` are.
_ROOTS: list[StoreRoot] = []


@pytest.fixture(scope="module")
def queried(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A part of each scan path."""
    world = World(local_root(tmp_path_factory.mktemp("queried")))
    _ROOTS[:] = [world.root]
    world.add(range(10))
    world.delete(world.add(range(10, 30), version=1), 3, 4)
    world.add([40, 39], is_segment=True)
    world.update(world.add(range(50, 60)), 9, {3: None, 4: 77}, is_change=True)
    return world.snapshot()


def mixed(world: World) -> World:
    """Every scan path, with both shapes in each."""
    world.add(range(10))
    world.add(range(10, 20), version=1)
    new, old = world.add(range(1000, 3200)), world.add(range(6000, 7100), version=1)
    first, second = world.add([130, 120, 125], is_segment=True), world.add([140, 139], version=1, is_segment=True)
    updated, whole = world.add(range(200, 220)), world.add(range(220, 230))
    gone, older = world.add([300, 301]), world.add(range(400, 410), version=1)
    world.delete(new, 0, 63, 64, 1023, 1024, 2199)
    world.delete_many({new.file.name: [1, 1025, 2048], old.file.name: [5, 1099], updated.file.name: [3]})
    world.delete_many({first.file.name: [1], second.file.name: [0], gone.file.name: [0, 1]})
    world.update(updated, 9, {0: 1000, 5: None}, is_change=True)
    world.update(updated, 9, {5: 1001, 6: 1002}, is_change=False)
    world.update(updated, 6, {7: ["new", None], 8: None}, is_change=True)
    world.update(first, 3, {2: "fresh"}, is_change=True)
    # Its columns have changed since.
    world.update(older, 2, {3: 30, 4: None}, is_change=True)
    world.update(older, 5, {3: Number("9.99")}, is_change=False)
    world.set_column(whole, 2, [row * 7 for row in range(10)])
    world.update(whole, 2, {4: -1}, is_change=True)
    return world


def got(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = []
    for row in frame.collect():
        values = row.asDict(recursive=True)
        if "props" in values:
            values["props"] = list(values["props"].items())
        if "at" in values:
            values["at"] = values["at"].astimezone(datetime.UTC)
        rows.append(tuple(values.values()))
    return sorted(rows)


def _plan(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


def read_error(session: SparkSession, snapshot: Snapshot, root: StoreRoot) -> TilthError | None:
    letters = new_mailbox()
    with pytest.raises((PySparkException, Py4JError, TilthError)) as raised:
        read_snapshot(session, snapshot, root, mailbox=letters).collect()
    return raised.value if isinstance(raised.value, TilthError) else file_error(raised.value, letters)


def test_all_scan_paths_together_are_as_in_the_model(session: SparkSession, world: World) -> None:
    snapshot = mixed(world).snapshot()
    expected = world.expected()
    frame = read_snapshot(session, snapshot, world.root)
    # The scan paths, with two shapes in each.
    planned = _plan(frame)
    assert [planned.count(word) for word in ("FileScan parquet", "Filter ", "_RowReader")] == [4, 2, 2]
    # The deleted rows are neither joined nor read by tasks of the query, nor described in its plan.
    assert not any(word in planned for word in ("Join", "Exchange", "Subquery", "_MaskReader"))
    assert len(planned) < 20_000
    assert got(frame) == [row[:-2] for row in expected]
    located = located_snapshot(session, snapshot, world.root)
    assert got(located) == expected
    assert snapshot.rows == len(expected)
    plain = read_snapshot(session, Snapshot(table=TABLE, ts=1, version=1, parts=()), world.root)
    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in plain.schema]
    assert located.columns == [*SECOND.names, "__file", "__row"]
    assert frame.count() == len(expected)
    assert frame.where("k >= 1000 AND k < 1066").count() == 66 - 4
    assert sorted(row.k for row in frame.where("v = 1001 OR v = 7 AND k < 12").collect()) == [10, 11, 205]


@pytest.mark.parametrize(("files_max", "bytes_max"), [(0, 1 << 30), (1000, 0)])
def test_tasks_read_many_or_large_deltas(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch, files_max: int, bytes_max: int
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the driver reads nothing itself")

    mixed(world)
    monkeypatch.setattr(masked_spark, "READ_FILES_MAX", files_max)
    monkeypatch.setattr(masked_spark, "READ_BYTES_MAX", bytes_max)
    monkeypatch.setattr(masked_spark, "part_blocks", never)
    assert got(located_snapshot(session, world.snapshot(), world.root)) == world.expected()


def test_each_row_of_many_parts_is_judged_by_its_own_bit(session: SparkSession, world: World) -> None:
    """Parts of one row, of a whole block, of one more row; the deleted ones at the ends of words and blocks."""
    sizes = [1, 2, 1023, 1024, 1025, 2048, 2500]
    start = 0
    for size in sizes:
        part = world.add(range(start, start + size))
        world.delete(part, *sorted({0, 63, 64, 1023, 1024, size - 1} & set(range(size - (size < 3)))))
        start += size
    world.delete(world.add(range(start, start + 3000)), 2999)
    snapshot = world.snapshot()
    assert got(located_snapshot(session, snapshot, world.root)) == world.expected()
    # Spark may interpret what it does not compile.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    try:
        assert got(read_snapshot(session, snapshot, world.root).select("k")) == [(r[0],) for r in world.expected()]
    finally:
        session.conf.unset("spark.sql.codegen.wholeStage")


def test_columns_that_nobody_needs_are_not_read(session: SparkSession, world: World) -> None:
    snapshot = mixed(world).snapshot()
    expected = world.expected()
    frame = read_snapshot(session, snapshot, world.root, ("V", "k")).select("k", "v")
    assert got(frame) == [(row[0], row[2]) for row in expected]
    assert "tags" not in _plan(frame)
    # Nothing of what has changed is read to be counted.
    counted = read_snapshot(session, snapshot, world.root, ())
    assert "MapInArrow" not in _plan(counted)
    assert counted.count() == len(expected)
    assert counted.columns == list(SECOND.names)
    located = located_snapshot(session, snapshot, world.root, ("late",)).select("late", "__file", "__row")
    assert sorted(located.collect(), key=str) == sorted(((r[-3], r[-2], r[-1]) for r in expected), key=str)


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("SELECT count(*) FROM {0}", [frozenset()]),
        # A column that is NOT NULL is none for the optimizer: rows without it would be lost.
        ("SELECT count(k) FROM {0} WHERE k IS NOT NULL", [{"k"}]),
        ("SELECT sum(wide) FROM {0} WHERE s = 's3' AND v IS NULL", [{"wide", "s", "v"}]),
        ("SELECT a.k, b.s FROM {0} a JOIN {1} b ON a.k = b.wide WHERE b.v < 9", [{"k"}, {"wide", "s", "v"}]),
        ("SELECT k FROM {0} WHERE v > (SELECT avg(small) FROM {1} WHERE k > 3)", [{"k", "v"}, {"small", "k"}]),
        ("SELECT k FROM {0} a WHERE EXISTS (SELECT 1 FROM {1} b WHERE b.k = a.wide)", [{"k", "wide"}, {"k"}]),
        ("WITH c AS (SELECT k, s FROM {0}) SELECT x.k FROM c x JOIN c y ON x.s = y.s", [{"k", "s"}]),
        ("SELECT k, row_number() OVER (PARTITION BY s ORDER BY at) AS n FROM {0}", [{"k", "s", "at"}]),
        ("SELECT explode(tags) AS t, map_keys(props) AS p FROM {0} ORDER BY small", [{"tags", "props", "small"}]),
        ("SELECT 1 FROM {0} LIMIT 0", [None]),
    ],
)
def test_the_columns_that_a_query_needs_are_enough(
    session: SparkSession, queried: Snapshot, text: str, needed: list[Collection[str] | None]
) -> None:
    names = ["q0", "q1"][: len(needed)]
    text = text.format(*names)
    create_views(session, names, [SECOND] * len(names))
    wanted = find_needs(session, text, len(names)).columns
    assert wanted == [None if columns is None else set(columns) for columns in needed]
    answers = []
    for all_or_needed in ([None] * len(names), wanted):
        for name, columns in zip(names, all_or_needed, strict=True):
            read_snapshot(session, queried, _ROOTS[0], columns).createOrReplaceTempView(name)
        answers.append(sorted(map(str, session.sql(text).collect())))
    assert answers[0] == answers[1]


def test_new_values_of_other_columns_do_not_leave_the_native_scan(session: SparkSession, world: World) -> None:
    part = world.add(range(50))
    world.delete(part, 7)
    world.update(part, 9, {1: 100}, is_change=True)
    narrow = read_snapshot(session, world.snapshot(), world.root, ("k",)).select("k")
    assert "FileScan parquet" in _plan(narrow)
    assert got(narrow) == [(key,) for key in range(50) if key != 7]
    assert "FileScan" not in _plan(read_snapshot(session, world.snapshot(), world.root, ("v",)))


def test_predicates_reach_the_masked_scan(session: SparkSession, world: World) -> None:
    part = world.add(range(5000))
    world.delete(part, *range(0, 5000, 7))
    frame = read_snapshot(session, world.snapshot(), world.root).where("k > 4000").select("k")
    assert "GreaterThan(k,4000)" in _plan(frame)
    assert got(frame) == [(key,) for key in range(4001, 5000) if key % 7]


def test_many_small_segments_share_tasks(session: SparkSession, world: World) -> None:
    for number in range(60):
        world.add([number], is_segment=True)
    frame = read_snapshot(session, world.snapshot(), world.root)
    assert frame.rdd.getNumPartitions() == 2
    assert got(frame.select("k")) == [(number,) for number in range(60)]


def test_parts_with_too_many_deletes_are_read_in_python(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = world.add(range(5000)), world.add(range(5000, 5100))
    world.delete(large, *range(0, 5000, 2))
    world.delete(small, 1, 3)
    monkeypatch.setattr(scan_paths, "MASK_BYTES_MAX", 500)
    frame = read_snapshot(session, world.snapshot(), world.root)
    assert _plan(frame).count("FileScan parquet") == 1
    assert got(frame) == [row[:-2] for row in world.expected()]


def test_without_the_internals_masked_parts_are_read_in_python(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    world.add(range(5))
    world.delete(world.add(range(5, 10)), 2)
    monkeypatch.setattr(storage_spark, "_indexed", gone)
    with caplog.at_level(logging.WARNING):
        assert got(located_snapshot(session, world.snapshot(), world.root)) == world.expected()
    assert "index_unavailable" in caplog.text


def test_nothing_is_left(session: SparkSession, world: World) -> None:
    empty = located_snapshot(session, world.snapshot(), world.root)
    assert empty.columns == [*SECOND.names, "__file", "__row"]
    assert empty.collect() == []
    part = world.add(range(3))
    world.delete(part, 0, 1, 2)
    assert deleted_rows(part.file.name, world.deltas) == 3
    assert read_snapshot(session, world.snapshot(), world.root).collect() == []


@pytest.mark.parametrize("files_max", [masked_spark.READ_FILES_MAX, 0])
def test_damaged_and_missing_files_are_named(
    session: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch, files_max: int
) -> None:
    # With no file to be read here, tasks read the deleted rows.
    monkeypatch.setattr(masked_spark, "READ_FILES_MAX", files_max)
    masked, segment = world.add(range(10)), world.add([1, 2], is_segment=True)
    deletes = world.delete(masked, 4)
    changes = world.update(segment, 9, {0: 5}, is_change=True)
    cases: list[tuple[Part, Delta | None, str, type[TilthError], type[TilthError]]] = [
        (masked, deletes, deletes.file.name, DeltaFileCorruptError, DeltaFileNotFoundError),
        (segment, changes, changes.file.name, DeltaFileCorruptError, DeltaFileNotFoundError),
        (segment, None, segment.file.name, PartFileCorruptError, PartFileNotFoundError),
    ]
    for part, delta, name, corrupt, missing in cases:
        alone = Snapshot(table=TABLE, ts=1, version=1, parts=(part,), deltas=(delta,) if delta else ())
        whole = world.path(name).read_bytes()
        world.path(name).write_bytes(whole[:-9] + bytes(9))
        found = read_error(session, alone, world.root)
        assert type(found) is corrupt
        assert f"{world.root}/" in found.message
        assert name in found.message
        world.path(name).unlink()
        found = read_error(session, alone, world.root)
        assert type(found) is missing
        assert found.facts["file"] == str(world.path(name))
        world.path(name).write_bytes(whole)


def test_an_error_that_no_task_sent_is_no_error_of_a_file(session: SparkSession) -> None:
    letters = new_mailbox()
    for text in ("something else", '<tilth:{"code":"X","facts":{},"hint":""}:tilth>'):
        assert file_error(ValueError(text), letters) is None
