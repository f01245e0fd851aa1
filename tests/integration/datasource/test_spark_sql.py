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
