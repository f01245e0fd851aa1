"""Writes of a user's own Spark: saves, `tilth.write`, streams; what is refused, what is stored once.

Costs about 60 s, most of them for the processes in which Spark plans and commits Python data sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal as Number
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import tilth
from tests import hostile
from tests.served_world import ServedWorld
from tilth.base.errors import TilthError
from tilth.base.rand import new_rng
from tilth.client.errors import ServerError
from tilth.formats import BadValueError
from tilth.model.types import DataType, Decimal, Kind, Simple, spark_name
from tilth.storage import BadColumnError

pytestmark = pytest.mark.integration
_NUMBERS = count()
PLAIN = "(a BIGINT NOT NULL, `b.c` STRING DEFAULT 'it''s') ENGINE = MergeTree ORDER BY a"


def _table(world: ServedWorld, columns: str = PLAIN) -> str:
    name = f"w{next(_NUMBERS)}"
    world.run(f"CREATE TABLE {name} {columns}")
    return f"shop.{name}"


def _save(frame: DataFrame, table: str, mode: str = "append", **options: object) -> None:
    frame.write.format("tilth").options(**options).mode(mode).save(table)  # type: ignore[arg-type]


def _open_transactions(world: ServedWorld) -> list[int]:
    return [txn.id for txn in world.catalog.transactions.unfinished() if txn.state.value == "running"]


@pytest.fixture(params=["save", "write"])
def road(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _write(road: str, frame: DataFrame, table: str, mode: str = "append", *, label: str = "", **options: Any) -> None:
    """Write by the data source or by `tilth.write`."""
    if road == "save":
        partitions = options.get("partitions")
        more = {"replace_partitions": json.dumps(partitions)} if partitions else {}
        _save(frame, table, mode, **({"label": label} if label else {}), **more)
    else:
        tilth.write(frame, table, mode=mode, label=label, **options)


def test_rows_of_tasks_land_together(world: ServedWorld, user: SparkSession, road: str) -> None:
    table = _table(world)
    _write(road, user.range(1000).selectExpr("id AS A").repartition(3), table)
    frame = user.createDataFrame([(5, "x'\"\x00ä"), (6, None)], "a long, `b.c` string")
    _write(road, frame, table)
    assert world.rows(f"SELECT count(*), sum(a), count(DISTINCT a) FROM {table}") == [(1002, 499_511, 1000)]
    found = world.rows(f"SELECT `b.c`, count(*) FROM {table} GROUP BY 1 ORDER BY 2 DESC, 1")
    assert found == [("it's", 1000), (None, 1), ("x'\"\x00ä", 1)]
    # One commit for each write, sorted parts, no file that nobody names.
    versions = world.rows(f"SELECT count(*) FROM system.table_versions WHERE table = '{table[5:]}'")
    assert versions == [(2,)]
    assert _open_transactions(world) == []


def test_hostile_values(world: ServedWorld, user: SparkSession, road: str) -> None:
    rng = new_rng(hostile.seed_of_run())
    kinds: tuple[DataType, ...] = (
        *(Simple(kind) for kind in (Kind.BOOLEAN, Kind.INT8, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64)),
        *(Simple(kind) for kind in (Kind.STRING, Kind.BINARY, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)),
        Decimal(38, 18),
    )
    table = _table(
        world, f"({', '.join(f'c{n} {spark_name(kind)}' for n, kind in enumerate(kinds))}) ENGINE = MergeTree"
    )
    rows = pa.table({f"c{n}": hostile.array(rng, kind, 40) for n, kind in enumerate(kinds)})
    # Spark makes times of a zone of Arrow's times without one.
    zoned = user.createDataFrame(rows)
    casts = [f"CAST(c{n} AS {spark_name(kind)}) AS c{n}" for n, kind in enumerate(kinds)]
    _write(road, zoned.selectExpr(*casts), table)
    found = world.run(f"SELECT * FROM {table}").table
    for name in rows.column_names:
        given, read = rows.column(name).combine_chunks(), found.column(name).combine_chunks()
        assert _bag(read) == _bag(given.cast(read.type)), name


def _bag(values: pa.Array) -> list[str]:
    return sorted(repr(hostile.bits_of(each)) for each in hostile.plain(values))


def test_a_label_is_stored_once(world: ServedWorld, user: SparkSession, road: str) -> None:
    table = _table(world)
    for _ in range(2):
        _write(road, user.range(10).selectExpr("id AS a"), table, label="load 1")
    _write(road, user.range(10).selectExpr("id AS a"), table, label="load 2")
    assert world.rows(f"SELECT count(*) FROM {table}") == [(20,)]


def test_an_overwrite_is_one_commit(world: ServedWorld, user: SparkSession, road: str) -> None:
    table = _table(world, "(a BIGINT NOT NULL, d DATE NOT NULL) ENGINE = MergeTree ORDER BY a PARTITION BY d")

    def frame(*pairs: tuple[int, str]) -> DataFrame:
        return user.createDataFrame([(number, date.fromisoformat(day)) for number, day in pairs], "a long, d date")

    _write(road, frame((1, "2026-01-01"), (2, "2026-01-02")), table)
    _write(
        road, frame((3, "2026-01-01"), (4, "2026-01-03")), table, "overwrite", partitions=["2026-01-01", "2026-01-03"]
    )
    assert world.rows(f"SELECT a FROM {table} ORDER BY a") == [(2,), (3,), (4,)]
    with pytest.raises((PySparkException, TilthError), match="are not to be replaced"):
        _write(road, frame((9, "2026-01-02")), table, "overwrite", partitions=["2026-01-01"])
    _write(road, frame((7, "2026-05-01")), table, "overwrite")
    assert world.rows(f"SELECT a FROM {table}") == [(7,)]
    _write(road, frame((8, "2026-05-01")).where("a > 8"), table, "overwrite")
    assert world.rows(f"SELECT a FROM {table}") == []


def test_rows_of_a_unique_key_are_upserts(world: ServedWorld, user: SparkSession, road: str) -> None:
    table = _table(world, "(k BIGINT NOT NULL, v STRING) ENGINE = MergeTree ORDER BY k UNIQUE KEY k")
    _write(road, user.range(100).selectExpr("id AS k", "'old' AS v"), table)
    changes = user.createDataFrame([(1, "new", "upsert"), (2, None, "delete")], "k long, v string, _op string")
    _write(road, changes, table)
    assert world.rows(f"SELECT count(*), count(DISTINCT k), max(k) FROM {table}") == [(99, 99, 99)]
    assert world.rows(f"SELECT v FROM {table} WHERE k IN (1, 2)") == [("new",)]


@pytest.mark.parametrize(
    ("schema", "code", "error"),
    [
        ("a long, no_such string", "UNKNOWN_COLUMN", ServerError),
        ("`b.c` string", "BAD_VALUE", ServerError),
        ("a string", "BAD_VALUE", BadValueError),
        ("a double", "BAD_VALUE", BadValueError),
        ("a long, `b.c` date", "BAD_VALUE", BadValueError),
        ("a interval day to second", "", (TilthError, PySparkException)),
    ],
)
def test_columns_that_do_not_fit(
    world: ServedWorld, user: SparkSession, road: str, schema: str, code: str, error: type[Exception]
) -> None:
    table = _table(world)
    with pytest.raises(PySparkException if road == "save" else error) as refused:
        _write(road, user.createDataFrame([], schema), table)
    if road == "save":
        assert f"[{code}" in str(refused.value)
    assert _open_transactions(world) == []


def test_values_that_do_not_fit(world: ServedWorld, user: SparkSession, road: str) -> None:
    table = _table(world, "(a TINYINT NOT NULL, b DECIMAL(5,2)) ENGINE = MergeTree ORDER BY a")
    for rows in ([(300, None)], [(None, None)], [(1, Number("12345.67"))]):
        frame = user.createDataFrame(rows, "a int, b decimal(9,2)")
        with pytest.raises(PySparkException if road == "save" else BadColumnError, match="column"):
            _write(road, frame, table)
    assert (world.rows(f"SELECT count(*) FROM {table}"), _open_transactions(world)) == ([(0,)], [])


def test_a_table_that_changes_while_tasks_write(world: ServedWorld, user: SparkSession, road: str) -> None:
    for change, code in (("DROP TABLE {}", "TABLE_NOT_FOUND"), ("ALTER TABLE {} ADD COLUMN z INT", "SCHEMA_CHANGED")):
        table = _table(world)
        url, statement = world.url, change.format(table)

        def alter(
            batches: Iterator[pa.RecordBatch], url: str = url, statement: str = statement
        ) -> Iterator[pa.RecordBatch]:
            with tilth.connect(url) as connection:
                connection.sql(statement)
            yield from batches

        # The rows are computed while the write is open.
        frame = user.range(0, 10, 1, 1).selectExpr("id AS a").mapInArrow(alter, "a long")
        with pytest.raises((PySparkException, TilthError)) as refused:
            _write(road, frame, table)
        assert code in (str(refused.value) if road == "save" else getattr(refused.value, "code", ""))
        assert _open_transactions(world) == []


def _altering(url: str, statement: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def alter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tilth.connect(url) as connection:
            connection.sql(statement)
        yield from batches

    return alter


def test_modes_and_options_that_there_are_not(world: ServedWorld, user: SparkSession) -> None:
    table, frame = _table(world), user.range(1).selectExpr("id AS a")
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException):
            _save(frame, table, mode)
    with pytest.raises(PySparkException, match="BAD_SPARK_OPTION"):
        _save(frame, table, labl="x")
    with pytest.raises(TilthError, match="mode"):
        tilth.write(frame, table, mode="ignore")
    assert world.rows(f"SELECT count(*) FROM {table}") == [(0,)]


class Stream:
    """A stream of files of rows, each of which is a batch."""

    def __init__(self, user: SparkSession, table: str, folder: Path) -> None:
        self._user = user
        self._table = table
        self._source = folder / "source"
        self._source.mkdir()
        self.checkpoint = folder / "checkpoint"
        self._sent = 0

    def send(self, rows: int = 10) -> None:
        lines = [json.dumps({"a": number, "b": f"x{number}"}) for number in range(self._sent, self._sent + rows)]
        self._sent += rows
        (self._source / f"{self._sent:06}.json").write_text("\n".join(lines))

    def run(self, checkpoint: Path | None = None, **options: str) -> None:
        """Write what there is, a file in each batch."""
        schema = StructType([StructField("a", LongType()), StructField("b", StringType())])
        read = self._user.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self._source))
        query = (
            read.selectExpr("a", "b AS `b.c`")
            .writeStream.format("tilth")
            .options(**options)
            .option("checkpointLocation", str(checkpoint or self.checkpoint))
            .trigger(availableNow=True)
            .start(self._table)
        )
        query.awaitTermination()

    def forget_commit(self) -> int:
        """Make Spark forget that the last batch was committed, as when the driver ends there; return its number."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last


@pytest.fixture
def stream(world: ServedWorld, user: SparkSession, tmp_path: Path) -> Stream:
    return Stream(user, _table(world), tmp_path)


def _counted(world: ServedWorld, stream: Stream) -> list[tuple[object, ...]]:
    return world.rows(f"SELECT count(*), count(DISTINCT a) FROM {stream._table}")


def test_a_batch_that_is_tried_again_lands_once(world: ServedWorld, stream: Stream) -> None:
    stream.send()
    stream.send()
    stream.run()
    assert _counted(world, stream) == [(20, 20)]
    stream.forget_commit()
    stream.send()
    stream.run()
    assert _counted(world, stream) == [(30, 30)]
    assert _open_transactions(world) == []


def test_a_lost_checkpoint_is_said(world: ServedWorld, stream: Stream, tmp_path: Path) -> None:
    stream.send()
    stream.run(stream="orders")
    other = tmp_path / "other"
    with pytest.raises(StreamingQueryException, match="STREAM_CHECKPOINT_LOST"):
        stream.run(other, stream="orders")
    assert _counted(world, stream) == [(10, 10)]
    query = json.loads((other / "metadata").read_text())["id"]
    stream.run(other, stream="orders", new_checkpoint=query)
    assert _counted(world, stream) == [(20, 10)]
    stream.forget_commit()
    with pytest.raises(StreamingQueryException, match="STREAM_CHECKPOINT_LOST"):
        stream.run(stream="orders")
    assert _open_transactions(world) == []


def test_a_stream_appends(stream: Stream) -> None:
    stream.send()
    with pytest.raises(StreamingQueryException, match="BAD_SPARK_OPTION"):
        stream.run(label="x")
