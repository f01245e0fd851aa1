"""A real Spark, local[2]: snapshots read through the index are what Spark reads of the same files."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tilth.storage.read.spark as storage_spark
from tilth.base.mailbox import new_mailbox
from tilth.model.part import DataFile, Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Array, Decimal, Field, Kind, Map, Simple, Struct
from tilth.storage import (
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreRoot,
    arrow_schema,
    data_folder,
    layout_of,
    local_root,
    write_parts,
)
from tilth.storage.read.spark import file_error, read_snapshot
from tilth.storage.store.replicas.source_choice import SourceFiles

pytestmark = pytest.mark.integration
SCHEMA = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="name", type=Simple(Kind.STRING)),
        Column(id=3, name="at", type=Simple(Kind.TIMESTAMP)),
        Column(id=4, name="wall", type=Simple(Kind.TIMESTAMP_NTZ)),
        Column(id=5, name="price", type=Decimal(9, 2)),
        Column(id=6, name="huge", type=Decimal(38, 0)),
        Column(id=7, name="tags", type=Array(Simple(Kind.STRING))),
        Column(id=8, name="props", type=Map(Simple(Kind.STRING), Simple(Kind.INT32))),
        Column(id=9, name="place", type=Struct((Field("x", Simple(Kind.FLOAT64)), Field("y", Simple(Kind.DATE))))),
        Column(id=10, name="tiny", type=Simple(Kind.INT8)),
    )
)
TABLE = TableDef(uuid="cd" * 16, database="d", name="t", schema=SCHEMA, order_by=("k",))


@pytest.fixture
def root(tmp_path: Path) -> StoreRoot:
    # Such names must cross to Hadoop unharmed.
    return local_root(tmp_path / "a folder with 100% ü")


def _rows(first: int, count: int) -> pa.Table:
    keys = range(first, first + count)
    columns = {
        "k": list(keys),
        "name": [f"n{key % 7}" if key % 5 else None for key in keys],
        "at": [key * 1_000_000 for key in keys],
        "wall": list(keys),
        "price": [f"{key}.25" for key in keys],
        "huge": ["9" * 30 for _ in keys],
        "tags": [["a", None][: key % 3] for key in keys],
        "props": [[("p", key % 100)] for key in keys],
        "place": [{"x": key / 2, "y": key} for key in keys],
        "tiny": [key % 100 for key in keys],
    }
    made = []
    for field in arrow_schema(SCHEMA):
        values = columns[field.name]
        if pa.types.is_decimal(field.type):
            made.append(pa.array(values).cast(field.type))
        else:
            made.append(pa.array(values, field.type))
    return pa.table(made, schema=arrow_schema(SCHEMA))


def _files(root: StoreRoot, count: int, rows: int) -> list[DataFile]:
    layout = layout_of(TABLE, root, fsync=False)
    files = []
    for number in range(count):
        files += [part.file for part in write_parts(layout, _rows(number * rows, rows), txn=number, task=0, attempt=0)]
    return files


def _snapshot(files: list[DataFile]) -> Snapshot:
    parts = tuple(
        Part(name=PartName("all", number, number, 0, number), schema_version=1, rows=1, file=file)
        for number, file in enumerate(files)
    )
    return Snapshot(table=TABLE, ts=1, version=1, parts=parts)


def _paths(root: StoreRoot, files: list[DataFile]) -> list[str]:
    return [str(Path(data_folder(root, TABLE.uuid), file.name)) for file in files]


def test_a_snapshot_is_what_spark_reads_of_the_files(
    session: SparkSession, root: StoreRoot, caplog: pytest.LogCaptureFixture
) -> None:
    files = _files(root, 5, 100)
    with caplog.at_level(logging.WARNING):
        frame = read_snapshot(session, _snapshot(files), root)
    assert "index_unavailable" not in caplog.text
    plain = session.read.parquet(*_paths(root, files))
    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in plain.schema]
    assert frame.orderBy("k").collect() == plain.orderBy("k").collect()
    assert frame.where("k >= 450").count() == 50
    summed = frame.selectExpr("sum(price)", "sum(place.x)", "count(name)").first()
    assert summed == plain.selectExpr("sum(price)", "sum(place.x)", "count(name)").first()


def test_only_the_files_of_the_snapshot_are_read(session: SparkSession, root: StoreRoot) -> None:
    files = _files(root, 4, 10)
    frame = read_snapshot(session, _snapshot(files[1:3]), root)
    assert sorted(row.k for row in frame.collect()) == list(range(10, 30))


def test_the_session_s_cache_of_folders_does_not_matter(
    session: SparkSession, root: StoreRoot, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one, Spark would list the folder and read all that is in it."""
    files = _files(root, 4, 10)
    name = "spark.sql.hive.manageFilesourcePartitions"
    session.conf.set(name, "false")
    try:
        with caplog.at_level(logging.WARNING):
            frame = read_snapshot(session, _snapshot(files[1:3]), root)
        assert sorted(row.k for row in frame.collect()) == list(range(10, 30))
    finally:
        session.conf.unset(name)
    assert "index_unavailable" not in caplog.text


def _short(source: SourceFiles) -> SourceFiles:
    return dataclasses.replace(source, files=source.files[:-1])


def test_an_index_of_other_files_is_not_used(
    session: SparkSession, root: StoreRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = _files(root, 4, 10)
    # Spark's cache drops statuses when it is full: the index is one file short then.
    whole = storage_spark._statuses
    monkeypatch.setattr(storage_spark, "_statuses", lambda source, first: whole(_short(source), first))
    with caplog.at_level(logging.WARNING):
        frame = read_snapshot(session, _snapshot(files[1:3]), root)
    assert sorted(row.k for row in frame.collect()) == list(range(10, 30))
    assert "instead of 2 of" in caplog.text


def test_rows_know_their_file_and_position(session: SparkSession, root: StoreRoot) -> None:
    files = _files(root, 2, 10)
    frame = read_snapshot(session, _snapshot(files), root)
    rows = frame.selectExpr("k", "_metadata.file_name AS file", "_metadata.row_index AS position").collect()
    assert {(row.k, row.file, row.position) for row in rows} == {(k, files[k // 10].name, k % 10) for k in range(20)}


def test_an_empty_snapshot_has_the_columns_and_no_rows(session: SparkSession, root: StoreRoot) -> None:
    frame = read_snapshot(session, _snapshot([]), root)
    assert frame.columns == list(SCHEMA.names)
    assert frame.collect() == []


def test_many_files_cross_to_the_jvm_at_once(session: SparkSession, root: StoreRoot) -> None:
    files = _files(root, 200, 1)
    assert read_snapshot(session, _snapshot(files), root).selectExpr("sum(k)").first() == (sum(range(200)),)


def test_a_damaged_and_a_missing_file_are_named(session: SparkSession, root: StoreRoot) -> None:
    damaged, missing = _files(root, 2, 10)
    path = Path(data_folder(root, TABLE.uuid), damaged.name)
    path.write_bytes(path.read_bytes()[:20] + bytes(damaged.size - 20))
    Path(data_folder(root, TABLE.uuid), missing.name).unlink()
    for file, kind in ((damaged, PartFileCorruptError), (missing, PartFileNotFoundError)):
        with pytest.raises((PySparkException, Py4JError)) as raised:
            read_snapshot(session, _snapshot([file]), root).selectExpr("sum(k)").collect()
        letters = new_mailbox()
        error = file_error(raised.value, letters)
        assert isinstance(error, kind)
        assert f"{root}/" in error.message
        assert file.name in error.message


def test_without_the_internals_the_files_are_still_read(
    session: SparkSession, root: StoreRoot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    files = _files(root, 2, 10)
    monkeypatch.setattr(storage_spark, "_indexed", gone)
    with caplog.at_level(logging.WARNING):
        assert read_snapshot(session, _snapshot(files), root).count() == 20
    assert "index_unavailable" in caplog.text
