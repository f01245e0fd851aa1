"""The collection of statements in ByConity's and ClickHouse's spelling against one node with a real Spark.

A statement works or is refused by name with what to do instead; what it has without effect is answered with a notice.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lane_spark import LaneSpark
from tests.tidy.sources import ROOT
from tilth.base.errors import TilthError
from tilth.front import LocalNode
from tilth.grammar.statements import CreateTable, CreateView
from tilth.ingest.kafka import broker as kafka_client
from tilth.migration import translate_script
from tilth.model.types import quoted
from tilth.statements.definitions.databases import UseDatabase
from tilth.statements.registry import parse
from tools.foreign import COLLECTION, Class, Judged, judge_all, run_on

pytestmark = pytest.mark.acceptance

#: Statements of operators and of further systems.
WIDER = COLLECTION.with_name("foreign_wider.sql")
#: A floor for each collection: what works today goes on working.
WORKING_MIN = 100
WIDER_WORKING_MIN = 60

#: Statements of the corpus of DDL that only a server can refuse: a storage of that name is not there.
NOT_KNOWN_BEFORE = [("clickhouse", "CREATE TABLE shop.tiers", "STORAGE_NOT_FOUND")]


@pytest.fixture(scope="module")
def node(lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    with pytest.MonkeyPatch.context() as patch:
        # None of the collections' brokers is there: a statement, and the end of the node, wait for this long.
        patch.setattr(kafka_client, "REQUEST_SECONDS_MAX", 1.0)
        with LocalNode(lane_spark.node(tmp_path_factory.mktemp("foreign"))) as opened:
            opened.sql("CREATE DATABASE d")
            yield opened


@pytest.fixture(scope="module")
def judged(node: LocalNode) -> list[Judged]:
    return judge_all(run_on(node))


@pytest.fixture(scope="module")
def judged_wider(node: LocalNode) -> list[Judged]:
    return judge_all(run_on(node), WIDER)


def test_no_statement_is_refused_unclearly_or_ignored_silently(judged: list[Judged]) -> None:
    assert len(judged) == 218
    wrong = [each for each in judged if each.result in (Class.UNCLEAR, Class.SILENT)]
    assert [f"{each.result}: {each.statement.text}: {each.answer}" for each in wrong] == []


@pytest.mark.long
def test_none_of_the_wider_collection_either(node: LocalNode, judged_wider: list[Judged]) -> None:
    assert len(judged_wider) >= 450
    wrong = [each for each in judged_wider if each.result in (Class.UNCLEAR, Class.SILENT)]
    assert [f"{each.result}: {each.statement.text}: {each.answer}" for each in wrong] == []
    assert sum(each.result is Class.WORKS for each in judged_wider) >= WIDER_WORKING_MIN
    # The statements had their effects.
    assert node.sql("SELECT balance FROM d.accounts WHERE id = 1").rows == [(5,)]
    ((shown,),) = node.sql("SHOW CREATE TABLE d.orders").rows
    assert "COMMENT 'with tax'" in shown


@pytest.mark.parametrize(
    "begin",
    [
        "SYSTEM FLUSH LOGS",
        "SHOW COLUMNS",
        "SET max_threads",
        "ALTER TABLE d.c1 ALTER COLUMN",
        "CREATE TABLE d.c2 ",
        "CREATE TABLE d.c6 ",
        "CREATE TABLE d.c14",
        "CREATE TABLE d.c16",
        "CREATE TABLE d.c22",
        "CREATE TABLE d.c25",
        "CREATE TABLE d.c30",
        "CREATE MATERIALIZED VIEW d.kmv2",
        "SELECT * FROM system.cnch_parts",
        "SELECT database, table, elapsed, progress FROM system.merges",
        "SELECT count() FROM d.c54",
        "SELECT toYYYYMM",
        "SELECT toStartOfHour",
        "SELECT formatDateTime",
        "SELECT dateDiff",
        "SELECT toDateTime",
        "SELECT groupArray",
        "SELECT * FROM numbers",
        "INSERT INTO d.c54 SELECT number",
    ],
)
def test_these_work(judged: list[Judged], begin: str) -> None:
    found = [each for each in judged if each.statement.text.startswith(begin)]
    assert found
    assert [each.answer for each in found if each.result is not Class.WORKS] == []


def test_as_many_work_as_before(judged: list[Judged]) -> None:
    assert sum(each.result is Class.WORKS for each in judged) >= WORKING_MIN


def test_what_import_ddl_lets_out_is_accepted_by_a_server(node: LocalNode) -> None:
    """Every statement that translating the corpus gives, sent to the node that the others share: five seconds."""
    refused = []
    for path in sorted((ROOT / "tests" / "fixtures" / "ddl").glob("*.sql")):
        database = "d"
        for translated in translate_script(path.read_text()).statements:
            if translated.statement is None:
                continue
            statement = parse(translated.statement)
            if isinstance(statement, CreateTable | CreateView) and statement.name.database:
                node.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(statement.name.database)}")
            try:
                node.sql(translated.statement, database=database, settings=dict(translated.settings))
            except TilthError as error:
                refused.append((path.stem, translated.what, error.code))
            if isinstance(statement, UseDatabase):
                database = statement.database
    assert refused == NOT_KNOWN_BEFORE


def test_settings_of_set_hold_for_what_follows(node: LocalNode) -> None:
    node.sql("CREATE TABLE d.words (x Int64, y String) ENGINE = MergeTree ORDER BY x")
    node.sql("INSERT INTO d.words VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    query = "SELECT y, quantile(0.5)(x) AS q FROM d.words PREWHERE x > 1 GROUP BY y"
    with pytest.raises(TilthError, match="ClickHouse's dialect") as caught:
        node.sql(query)
    assert "SETTINGS dialect" in caught.value.hint
    assert node.sql(f"{query} SETTINGS dialect = 'clickhouse'").rows == [("b", 2.5)]
    node.sql("SET dialect = 'clickhouse'")
    try:
        result = node.sql(query)
        assert result.rows == [("b", 2.5)]
        assert "read the query as" in result.summary.notices[0]
        node.sql("INSERT INTO d.words SELECT x + 10, y FROM d.words LIMIT 1 BY y")
        assert node.sql("SELECT count() FROM d.words WHERE x > 10").rows == [(2,)]
        with pytest.raises(TilthError, match="no_such_column") as caught:
            node.sql("SELECT no_such_column FROM d.words FINAL")
        assert "read the query as" in caught.value.hint
    finally:
        node.sql("SET dialect = 'spark'")
    assert node.sql("SELECT count() AS c FROM d.words").summary.notices == ()


def test_a_view_in_clickhouses_dialect_is_kept_in_sparks(node: LocalNode) -> None:
    node.sql("CREATE TABLE d.dialect_topic (i Int64, s String) ENGINE = Kafka('127.0.0.1:1', 't', 'gd', 'JSONEachRow')")
    node.sql("CREATE TABLE d.dialect_rows (i Int64, s String, day Date) ENGINE = MergeTree ORDER BY i")
    result = node.sql(
        "CREATE MATERIALIZED VIEW d.dialect_view TO d.dialect_rows AS SELECT i, s::String AS s, toDate(i) AS day "
        "FROM d.dialect_topic PREWHERE i > 1 SETTINGS dialect = 'clickhouse'"
    )
    assert any("read the query as" in notice for notice in result.summary.notices)
    ((shown,),) = node.sql("SHOW CREATE VIEW d.dialect_view").rows
    assert "i > 1 AND" in shown
    assert "PREWHERE" not in shown


def test_keys_and_partitions_of_others_hold(node: LocalNode) -> None:
    node.sql("CREATE TABLE d.replaced (k Int64, v Int64, ts DateTime) ENGINE = ReplacingMergeTree(ts) ORDER BY k")
    node.sql("INSERT INTO d.replaced VALUES (1, 10, '2026-01-01 00:00:00')")
    node.sql("INSERT INTO d.replaced VALUES (1, 20, '2026-01-02 00:00:00'), (2, 5, '2026-01-01 00:00:00')")
    node.sql("INSERT INTO d.replaced VALUES (1, 30, '2025-01-01 00:00:00')")
    assert node.sql("SELECT k, v FROM d.replaced ORDER BY k").rows == [(1, 20), (2, 5)]
    node.sql(
        "CREATE TABLE d.parted (k Int64, ts DateTime) ENGINE = MergeTree PARTITION BY (k % 4, toMonday(ts)) ORDER BY k"
    )
    node.sql("INSERT INTO d.parted VALUES (-5, '2026-03-18 10:00:00'), (6, '2026-03-15 23:59:59'), (9, NULL)")
    partitions = [row[0] for row in node.sql("SELECT partition FROM system.partitions WHERE table = 'parted'").rows]
    assert sorted(partitions) == ["-1-2026-03-16", "1-null", "2-2026-03-09"]
    assert len(node.sql("SHOW PARTITIONS FROM d.parted").rows) == 3
    node.sql("ALTER TABLE d.parted DROP PARTITION (2, '2026-03-09')")
    assert node.sql("SELECT k FROM d.parted ORDER BY k").rows == [(-5,), (9,)]
