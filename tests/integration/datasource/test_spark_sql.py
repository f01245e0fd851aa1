"""`tilth.sql`: tables of Tilth beside those of a user's session, by their names.

Costs about 10 s.
"""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.served_world import ServedWorld
from tilth import sql
from tilth.base.errors import TilthError
from tilth.datasource.errors import NotAttachedError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tables(world: ServedWorld, user: SparkSession) -> None:
    world.run("CREATE TABLE q (k BIGINT, `a.b` STRING) ENGINE = MergeTree ORDER BY k")
    world.run("CREATE DATABASE `d.e`", database="default")
    world.run("CREATE TABLE `d.e`.`t'``\"` (k BIGINT) ENGINE = MergeTree ORDER BY k")
    for k in range(3):
        world.run(f"INSERT INTO q VALUES ({k}, 'v{k}')")
    world.run("INSERT INTO `d.e`.`t'``\"` VALUES (1), (2)")
    world.run("DELETE FROM q WHERE k = 0")
    user.createDataFrame([(1, "one"), (2, "two")], "k BIGINT, name STRING").createOrReplaceTempView("names")


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT q.k, name FROM shop.q JOIN names USING (k)", [(1, "one"), (2, "two")]),
        ("SELECT shop.q.k FROM shop.q, names n WHERE shop.q.k = n.k AND shop.q.`a.b` = 'v2'", [(2,)]),
        ("SELECT count(*) FROM tilth.shop.q AS x, shop.q y WHERE x.k < y.k", [(1,)]),
        ("WITH q AS (SELECT 7 AS k) SELECT k FROM q", [(7,)]),
        ("SELECT k FROM `d.e`.`t'``\"` WHERE k IN (SELECT k FROM shop.q) ORDER BY k", [(1,), (2,)]),
        ("SELECT count(*) FROM shop.q VERSION AS OF 2", [(2,)]),
        ("SELECT 'shop.q' /* shop.q */ FROM shop.q -- shop.q\n LIMIT 1", [("shop.q",)]),
        ("SELECT k FROM names WHERE k = 1", [(1,)]),
        ("SELECT 1", [(1,)]),
    ],
)
def test_names_mean_tables_of_tilth_or_of_the_session(
    user: SparkSession, text: str, rows: list[tuple[object, ...]]
) -> None:
    assert sorted(tuple(row) for row in sql(user, text).collect()) == rows
    assert [each.name for each in user.catalog.listTables() if each.name.startswith("__tilth")] == []


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT v FROM shop.r WHERE k = 2", 1),
        ("SELECT v FROM shop.r WHERE k + 1 > 100", 4),
        ("SELECT v FROM shop.r", 4),
        ("SELECT a.v FROM shop.r a JOIN shop.r b ON a.k = b.k WHERE a.k >= 2", 2),
        ("SELECT v FROM shop.r JOIN names USING (k) WHERE name = 'two'", 4),
        ("SELECT v FROM shop.r JOIN ones USING (k)", 1),
        ("WITH w AS (SELECT * FROM shop.r) SELECT v FROM w WHERE k > 2 AND k IN (SELECT k FROM w WHERE k > 1)", 2),
        # The frame may run again at another time.
        ("SELECT v FROM shop.r WHERE k < unix_timestamp() - 1700000000", 4),
        ("SELECT v FROM shop.r JOIN `todays` ON k = day", 4),
        ("SELECT v FROM shop.r WHERE k = (SELECT day FROM todays)", 4),
        ("SELECT v FROM shop.r JOIN casts ON k = day", 4),
    ],
)
def test_parts_that_a_statement_does_not_need_are_not_read(
    world: ServedWorld, user: SparkSession, text: str, parts: int
) -> None:
    user.sql("SELECT 1 AS k").createOrReplaceTempView("ones")
    user.sql("SELECT year(current_date()) AS day").createOrReplaceTempView("todays")
    user.sql("SELECT year(CAST('today' AS DATE)) AS day").createOrReplaceTempView("casts")
    if not world.rows("SHOW TABLES LIKE 'r'"):
        world.run("CREATE TABLE r (k BIGINT, v STRING) ENGINE = MergeTree ORDER BY k")
        for k in range(4):
            world.run(f"INSERT INTO r VALUES ({k}, 'v{k}')")
    frame = sql(user, text)
    assert len(set(frame.inputFiles())) == parts
    plain = text.replace("shop.r", "all_rows")
    user.createDataFrame([(k, f"v{k}") for k in range(4)], "k BIGINT, v STRING").createOrReplaceTempView("all_rows")
    assert sorted(frame.collect()) == sorted(user.sql(plain).collect())


@pytest.mark.usefixtures("tables")
def test_a_command_runs_once(world: ServedWorld, user: SparkSession) -> None:
    user.sql(f"CREATE TABLE copied (k BIGINT) USING parquet LOCATION '{world.folder}/copied'")
    try:
        sql(user, "INSERT INTO copied SELECT k FROM shop.q WHERE k = 1")
        assert user.sql("SELECT k FROM copied").collect() == [(1,)]
        sql(user, f"CREATE TABLE copied2 USING parquet LOCATION '{world.folder}/copied2' AS SELECT k FROM shop.q")
        assert user.sql("SELECT count(*) FROM copied2").collect() == [(2,)]
    finally:
        for name in ("copied", "copied2"):
            user.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.usefixtures("tables")
def test_a_name_that_both_know_is_refused_and_can_be_qualified(world: ServedWorld, user: SparkSession) -> None:
    user.sql("CREATE DATABASE IF NOT EXISTS shop")
    user.sql(f"CREATE TABLE shop.q USING parquet LOCATION '{world.folder}/own' AS SELECT 42L AS k")
    try:
        held = len(world.catalog.readers.list())
        with pytest.raises(TilthError, match=r"tilth\.shop\.q"):
            sql(user, "SELECT k FROM shop.q")
        assert len(world.catalog.readers.list()) == held
        assert sql(user, "SELECT k FROM spark_catalog.shop.q").collect() == [(42,)]
        assert sql(user, "SELECT count(*) FROM tilth.shop.q").collect() == [(2,)]
    finally:
        user.sql("DROP TABLE shop.q")
        user.sql("DROP DATABASE shop")


@pytest.mark.usefixtures("tables")
def test_what_nobody_knows_is_spark_s_own_error(world: ServedWorld, user: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(user, "SELECT * FROM shop.nope")
    with pytest.raises(AnalysisException, match="PARSE_SYNTAX_ERROR"):
        sql(user, "SELEC k FROM shop.q")
    with pytest.raises(TilthError, match="UNKNOWN_VERSION"):
        sql(user, "SELECT k FROM shop.q VERSION AS OF 99")
    held = len(world.catalog.readers.list())
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        sql(user, "SELECT nope FROM shop.q")
    assert len(world.catalog.readers.list()) == held
    with pytest.raises(NotAttachedError):
        sql(world.user_session(), "SELECT k FROM shop.q")
