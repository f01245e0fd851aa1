"""The format `tilth` in a session of a user: what it reads, what it holds, what it says when it cannot.

Costs about 40 s, most of them for the processes in which Spark plans Python data sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.filter_trees import Dialect, operands_of, random_tree, written
from tests.hostile import array, bits_of, plain, seed_of_run
from tests.served_world import ServedWorld
from tilth import attach
from tilth.base.rand import new_rng
from tilth.control.running import Origin
from tilth.model.table import Column
from tilth.model.types import DataType, Decimal, Kind, Simple, quoted, spark_name
from tilth.storage.errors import BadColumnError

pytestmark = pytest.mark.integration
_KINDS = (
    Kind.BOOLEAN,
    Kind.INT8,
    Kind.INT64,
    Kind.FLOAT32,
    Kind.FLOAT64,
    Kind.STRING,
    Kind.BINARY,
    Kind.DATE,
    Kind.TIMESTAMP,
    Kind.TIMESTAMP_NTZ,
)
FILTERS, ROWS = 16, 60


def _load(user: SparkSession, table: str, **options: object) -> DataFrame:
    return user.read.format("tilth").options(**options).load(f"shop.{table}")  # type: ignore[arg-type]


def _rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_frame_reads_one_snapshot_with_all_changes(world: ServedWorld, user: SparkSession) -> None:
    world.run("CREATE TABLE t (k BIGINT, v STRING) ENGINE = MergeTree ORDER BY k SETTINGS memory_buffer = 0")
    for k in range(4):
        world.run(f"INSERT INTO t VALUES ({k}, 'a'), ({k + 10}, 'b')")
    world.run("DELETE FROM t WHERE k = 10")
    world.run("UPDATE t SET v = 'new' WHERE k = 11")
    frame = _load(user, "t")
    wanted = [(0, "a"), (1, "a"), (2, "a"), (3, "a"), (11, "new"), (12, "b"), (13, "b")]
    assert _rows(frame) == wanted
    world.run("INSERT INTO t VALUES (99, 'later')")
    assert _rows(frame) == wanted
    assert frame.alias("l").join(frame.alias("r"), "k").count() == len(wanted)
    assert _rows(_load(user, "t").where("k > 12")) == [(13, "b"), (99, "later")]
    assert _rows(_load(user, "t", version=1)) == [(0, "a"), (10, "b")]
    assert _load(user, "t", columns="v").columns == ["v"]
    assert _rows(user.read.format("tilth").schema("v STRING").load("shop.t").where("v = 'new'")) == [("new",)]
    user.sql("CREATE OR REPLACE TEMPORARY VIEW tv USING tilth OPTIONS (path 'shop.t')")
    assert user.sql("SELECT count(*) FROM tv").first()[0] == 8  # type: ignore[index]
    assert len({lease.id for lease in world.catalog.readers.list()}) >= 4


def test_filters_find_what_a_scan_of_parquet_finds(world: ServedWorld, user: SparkSession, tmp_path: Path) -> None:
    rng = new_rng(seed_of_run())
    types: list[DataType] = [*(Simple(kind) for kind in _KINDS), Decimal(10, 2), Decimal(38, 10)]
    columns = [Column(id=number + 2, name=f"c{number}.'`x", type=each) for number, each in enumerate(types)]
    listed = ", ".join(f"{quoted(column.name)} {spark_name(column.type)}" for column in columns)
    world.run(
        f"CREATE TABLE odd (id BIGINT, {listed}) ENGINE = MergeTree ORDER BY id SETTINGS parquet_row_group_rows = 4"
    )
    made: list[pa.Table] = []
    while len(made) < 3:
        rows = [array(rng, column.type, ROWS // 3) for column in columns]
        ids = pa.array(range(len(made) * ROWS, len(made) * ROWS + ROWS // 3), pa.int64())
        table = pa.table([ids, *rows], names=["id", *(column.name for column in columns)])
        try:
            world.engine.insert_arrow("shop", "odd", partial(_given, table), settings={}, origin=Origin())
        except BadColumnError:
            # A text that is no UTF-8.
            continue
        made.append(table)
    whole = pa.concat_tables(made)
    pq.write_table(whole, tmp_path / "odd.parquet")
    # Spark's filters of row groups miss times of the ten days that its hybrid calendar does not have.
    user.conf.set("spark.sql.parquet.filterPushdown", "false")
    parquet = user.read.parquet(str(tmp_path / "odd.parquet"))
    frame = _load(user, "odd")
    assert frame.schema == parquet.schema
    _same_rows(frame, whole)
    values = [plain(whole.column(column.name).combine_chunks()) for column in columns]
    operands = operands_of(columns, list(zip(*values, strict=True))[:9])
    texts = [written(random_tree(rng, operands), Dialect.SPARK) for _ in range(FILTERS)]
    found, wanted = _found(frame, texts), _found(parquet, texts)
    assert {text: found[text] for text in texts if found[text] != wanted[text]} == {}


def test_errors_name_kind_code_thing_and_cure(world: ServedWorld, user: SparkSession) -> None:
    world.run("CREATE TABLE e (k BIGINT) ENGINE = MergeTree ORDER BY k")
    world.run("INSERT INTO e VALUES (1)")
    for options, said in (
        ({"verson": 1}, r"\[BAD_SPARK_OPTION\] \(invalid\) .*option=verson.*what to do"),
        ({"version": 77}, r"\[UNKNOWN_VERSION\] \(invalid\)"),
        ({"columns": "nope"}, r"\[UNKNOWN_COLUMN\] \(invalid\) .*column=nope"),
        ({"url": "http://127.0.0.1:9"}, r"\[SERVER_UNREACHABLE\] \(unavailable\)"),
    ):
        assert re.search(said, _refused(partial(_load, user, "e", **options))), options
    assert "[TABLE_NOT_FOUND] (not_found)" in _refused(lambda: _load(user, "nope"))
    frame = _load(user, "e")
    world.run("ALTER TABLE e ADD COLUMN later STRING")
    assert _rows(frame) == [(1,)]
    assert "[COLUMNS_CHANGED]" in _refused(
        lambda: user.read.format("tilth").schema("k STRING").load("shop.e").collect()
    )
    data = world.folder / "tables"
    data.rename(world.folder / "away")
    try:
        said = _refused(frame.collect)
        assert re.search(r"\[ROOT_NOT_READABLE\] \(unavailable\) .*root=.*/tables host=\S+", said), said
    finally:
        (world.folder / "away").rename(data)
    world.run("DROP TABLE e SYNC")
    assert "[TABLE_NOT_FOUND]" in _refused(lambda: _load(user, "e"))


def test_what_is_attached_is_in_no_plan_and_no_setting(world: ServedWorld, tmp_path: Path) -> None:
    session = world.user_session()
    world.run("CREATE TABLE s (k BIGINT) ENGINE = MergeTree ORDER BY k")
    with attach(session, url=world.url, token="tok-secret-4711"):
        frame = session.read.format("tilth").load("shop.s")
        assert frame.count() == 0
        shown = frame._jdf.queryExecution().toString() + str(session.conf.getAll)
        assert "tok-secret-4711" not in shown
        held = {lease.id for lease in world.catalog.readers.list()}
        assert held
    # The end of the attachment releases what it held.
    assert not held & {lease.id for lease in world.catalog.readers.list() if lease.table == world.table("s").uuid}
    assert "[SNAPSHOT_LOST] (retry)" in _refused(frame.where("k = 1").collect)
    assert "[NOT_ATTACHED] (invalid)" in _refused(lambda: session.read.format("tilth").load("shop.s"))


def _refused(act: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as refused:
        act()
    return str(refused.value)


def _found(frame: DataFrame, texts: Sequence[str]) -> dict[str, list[int]]:
    """Ids of the rows that each filter finds, in a scan of its own."""
    scans = [frame.where(text).selectExpr(f"{number} AS n", "id") for number, text in enumerate(texts)]
    rows = [tuple(row) for row in reduce(DataFrame.union, scans).collect()]
    return {text: sorted(row for n, row in rows if n == number) for number, text in enumerate(texts)}


def _same_rows(frame: DataFrame, whole: pa.Table) -> None:
    found = frame.toArrow().sort_by("id")
    for name, column in zip(whole.column_names, whole.sort_by("id").columns, strict=True):
        shown = found.column(name).combine_chunks().cast(column.type)
        assert [bits_of(each) for each in plain(shown)] == [bits_of(each) for each in plain(column.combine_chunks())], (
            name
        )


def _given(table: pa.Table, _: int) -> pa.Table:
    return table
