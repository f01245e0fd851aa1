"""What other systems write: read with a notice, or refused with what to write instead."""

from __future__ import annotations

import pytest

import tilth.grammar.text.date_diff as units
from tests.statement_texts import render
from tilth.grammar.errors import UnsupportedSqlError
from tilth.grammar.statements import AlterTable, CreateTable, CreateView, DeleteRows, ModifyColumn, Name
from tilth.grammar.text.date_diff import with_unit_diff
from tilth.introspection.statements.show import Describe, ExistsTable, ShowFunctions, ShowPartitions, ShowTables
from tilth.statements.operate.kill import KillMutation
from tilth.statements.operate.session import NothingToDo, SetSettings
from tilth.statements.operate.system import OptimizeTable
from tilth.statements.registry import FORMS, parse

_TABLE = "CREATE TABLE t (a UInt64, b String, d Date{}) {}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_TABLE.format(", INDEX i (a, b) TYPE bloom_filter(0.01) GRANULARITY 4", "ENGINE = MergeTree"), "INDEX i"),
        (_TABLE.format("", "ENGINE = MergeTree CLUSTER BY (a, b) INTO 4 BUCKETS ORDER BY a"), "CLUSTER BY"),
        (_TABLE.format("", "ENGINE = MergeTree SAMPLE BY intHash32(a) ORDER BY a"), "SAMPLE BY"),
        (_TABLE.format("", "ENGINE = ReplicatedMergeTree('/p', '{r}') ORDER BY a"), "path"),
        (_TABLE.format("", "ENGINE = ReplicatedMergeTree('/p', '{r}') ORDER BY a"), "makes no replicas"),
        (_TABLE.format("", "ENGINE = HaMergeTree ORDER BY a"), "HaMergeTree makes no replicas"),
        (_TABLE.format("", "ENGINE = MergeTree UNIQUE KEY sipHash64(a, b)"), "sipHash64(a, b) is read as a, b"),
        (_TABLE.format("", "ENGINE = MergeTree PARTITION BY cityHash64(a) % 8"), "bucket(8, a)"),
        (_TABLE.format("", "ENGINE = ReplacingMergeTree(a) ORDER BY b"), "UNIQUE KEY (b)"),
        ("CREATE TABLE t (a Int8 CODEC(ZSTD(1))) ENGINE = MergeTree", "CODEC"),
        ("CREATE TABLE t ON CLUSTER c (a Int8) ENGINE = MergeTree", "ON CLUSTER"),
        ("CREATE DATABASE d ENGINE = Atomic", "ENGINE = Atomic"),
        ("DROP TABLE t SYNC", "SYNC"),
        ("DROP TABLE IF EXISTS t ON CLUSTER c NO DELAY", "NO DELAY"),
        ("DROP DATABASE d SYNC", "SYNC"),
        ("OPTIMIZE TABLE t ON CLUSTER 'c' FINAL", "ON CLUSTER"),
        ("OPTIMIZE TABLE t FINAL SETTINGS mutations_sync = 1", "mutations_sync"),
        ("KILL MUTATION WHERE table = 't' SYNC", "SYNC"),
        ("KILL MUTATION '1' ASYNC", "ASYNC"),
    ],
)
def test_what_has_no_effect_is_read_with_a_notice(text: str, words: str) -> None:
    statement, notices = FORMS.parse_noticed(text)
    assert any(words in notice for notice in notices), notices
    assert parse(render(statement)) == statement
    assert len(notices) == len(set(notices))


def test_a_statement_without_such_words_has_no_notice() -> None:
    assert FORMS.parse_noticed("CREATE TABLE t (a Int8, index String) ENGINE = MergeTree ORDER BY a")[1] == ()


def test_a_replacing_table_has_its_sort_key_for_unique_key() -> None:
    text = "CREATE TABLE t (a Int8, b Int8, v DateTime) ENGINE = ReplacingMergeTree(v) PRIMARY KEY a ORDER BY (a, b)"
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    assert (statement.unique_key, statement.order_by, statement.version_column) == (("a", "b"), ("a", "b"), "v")
    with pytest.raises(UnsupportedSqlError, match="ReplacingMergeTree without ORDER BY") as caught:
        parse("CREATE TABLE t (a Int8) ENGINE = ReplacingMergeTree ORDER BY tuple()")
    assert "UNIQUE KEY" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SHOW COLUMNS FROM d.t", Describe(name=Name("d", "t"))),
        ("SHOW FULL COLUMNS FROM t FROM d", Describe(name=Name("d", "t"))),
        ("SHOW PARTITIONS d.t", ShowPartitions(name=Name("d", "t"))),
        ("SHOW PARTITIONS FROM d.t", ShowPartitions(name=Name("d", "t"))),
        ("SHOW FUNCTIONS LIKE 'to%'", ShowFunctions(like="to%")),
        ("SHOW TABLES FROM d LIKE '%c%' LIMIT 3", ShowTables(database="d", like="%c%", limit=3)),
        ("EXISTS VIEW d.v", ExistsTable(name=Name("d", "v"))),
        (
            "SET max_threads = 4, dialect = 'clickhouse'",
            SetSettings(settings=(("max_threads", "4"), ("dialect", "clickhouse"))),
        ),
        ("SET spark.sql.ansi.enabled = false", SetSettings(settings=(("spark.sql.ansi.enabled", "false"),))),
        (
            "SYSTEM SYNC REPLICA d.t",
            NothingToDo(words="SYSTEM SYNC REPLICA", reason="every server sees the one catalog"),
        ),
        (
            "SYSTEM RESTART REPLICA d.t",
            NothingToDo(words="SYSTEM RESTART REPLICA", reason="every server sees the one catalog"),
        ),
        (
            "SYSTEM DROP CNCH PART CACHE d.t",
            NothingToDo(words="SYSTEM DROP CNCH PART CACHE", reason="there is no such cache"),
        ),
        ("OPTIMIZE TABLE t ON CLUSTER c", OptimizeTable(name=Name(None, "t"))),
        ("KILL MUTATION WHERE sync_id = 1 SYNC", KillMutation(predicate="sync_id = 1")),
    ],
)
def test_words_of_others(text: str, statement: object) -> None:
    found = parse(text)
    assert found == statement
    assert parse(render(found)) == found


def test_a_column_is_modified_by_alter_column() -> None:
    statement = parse("ALTER TABLE t ALTER COLUMN a TYPE Nullable(Int64)")
    assert isinstance(statement, AlterTable)
    assert statement == parse("ALTER TABLE t MODIFY COLUMN a Nullable(Int64)")
    assert isinstance(statement.operations[0], ModifyColumn)


def test_a_view_has_settings_of_its_own() -> None:
    statement = parse("CREATE MATERIALIZED VIEW v TO t AS SELECT a FROM k SETTINGS dialect = 'clickhouse'")
    assert isinstance(statement, CreateView)
    assert (statement.select, statement.settings) == ("SELECT a FROM k", (("dialect", "clickhouse"),))
    assert parse(render(statement)) == statement


@pytest.mark.parametrize(
    ("text", "named", "hint"),
    [
        ("GRANT SELECT ON d.* TO u", "GRANT", "accounts"),
        ("CREATE USER u IDENTIFIED BY 'p'", "CREATE USER", "accounts"),
        ("CREATE FUNCTION f AS (x) -> x", "CREATE FUNCTION", "expression"),
        ("CREATE TABLE t ENGINE = MergeTree AS SELECT 1", "AS SELECT", "INSERT .. SELECT"),
        ("CREATE MATERIALIZED VIEW v ENGINE = MergeTree POPULATE AS SELECT 1", "without TO", "create a table first"),
        ("BACKUP TABLE t TO Disk('a', 'b')", "BACKUP", "BACKUP CATALOG"),
        ("RESTORE TABLE t FROM Disk('a', 'b')", "RESTORE", "tilth catalog restore"),
        ("BEGIN", "BEGIN", "transaction"),
        ("WATCH t", "WATCH", "SELECT"),
        ("CHECK TABLE t", "CHECK", "SYSTEM VERIFY"),
        ("EXIT", "EXIT", "tilth sql"),
        ("quit;", "EXIT", "tilth sql"),
        ("SHOW INDEX FROM t", "SHOW INDEX", "SHOW CREATE"),
        ("SHOW CREATE DATABASE d", "SHOW CREATE DATABASE", "name"),
        ("EXPLAIN PIPELINE SELECT 1", "EXPLAIN PIPELINE", "EXPLAIN SELECT"),
        ("SYSTEM RESUME ALL MERGE", "SYSTEM RESUME", "SYSTEM START MERGES"),
        ("SYSTEM STOP DEDUP WORKER t", "SYSTEM STOP DEDUP", "UNIQUE KEY"),
        ("SYSTEM STOP TTL MERGES t", "SYSTEM STOP TTL", "GC"),
        ("SYSTEM RELOAD CONFIG", "SYSTEM RELOAD", "restart"),
        ("ALTER TABLE t MODIFY COMMENT 'x'", "MODIFY COMMENT", "CREATE TABLE"),
        ("ALTER TABLE t SAMPLE BY a", "SAMPLE", "TABLESAMPLE"),
        ("ALTER TABLE t INGEST PARTITION 1 COLUMNS a FROM u", "INGEST", "UPDATE"),
        ("DELETE FROM t IN PARTITION '1' WHERE a = 1", "IN PARTITION", "WHERE"),
        ("DROP DICTIONARY d", "DROP DICTIONARY", "DROP TABLE"),
        ("SELECT * FROM t INTO OUTFILE 'x.csv' FORMAT CSV", "INTO OUTFILE", "--format csv"),
        ("ALTER TABLE t DROP PARTITION WHERE d < '2026-01-01'", "DROP PARTITION WHERE", "DELETE FROM"),
        ("SET ROLE r", "SET ROLE", "accounts"),
        ("KILL MUTATION WHERE a = 1 TEST", "TEST", "system.mutations"),
        (_TABLE.format("", "ENGINE = Distributed('c', 'd', 't', rand())"), "Distributed", "one table is enough"),
        (_TABLE.format("", "ENGINE = MergeTree PARTITION BY intDiv(a, 1000)"), "intDiv", "truncate(1000, k)"),
        (_TABLE.format("", "ENGINE = MergeTree PARTITION BY date_trunc('hour', d)"), "date_trunc", "toStartOfHour"),
        ("CREATE TABLE t (a UInt64, e EPHEMERAL Int32) ENGINE = MergeTree", "EPHEMERAL", "SELECT"),
        ("UPDATE t SET a = 1 WHERE b = 2 ORDER BY b LIMIT 1", "ORDER", "key"),
        ("DELETE FROM t WHERE b = 2 LIMIT 1", "LIMIT", "key"),
        ("DROP DATABASE IF EXISTS d CASCADE", "CASCADE", "SHOW TABLES"),
        ("SYSTEM CLEAN TRANSACTION 1", "SYSTEM CLEAN", "in the background"),
        ("SYSTEM CALCULATE METRICS t", "SYSTEM CALCULATE", "system.parts"),
        ("DESCRIBE (SELECT 1 AS x)", "DESCRIBE of a query", "LIMIT 0"),
        ("CREATE STATS t", "CREATE STATS", "leave it out"),
        ("CREATE STATISTICS ALL", "CREATE STATISTICS", "leave it out"),
        ("INSERT INTO t (* EXCEPT(y)) VALUES (6)", "EXCEPT", "list the columns"),
        ("INSERT INTO FUNCTION file('a') SELECT 1", "FUNCTION", "--format csv"),
    ],
)
def test_what_is_not_there_is_refused_with_what_to_do(text: str, named: str, hint: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=named) as caught:
        parse(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "engine",
    [
        "MergeTree(d, (a, d), 8192)",
        "MergeTree(d, intHash32(a), (a, d), 8192)",
        "ReplicatedMergeTree('/p', '{replica}', d, (a, d), 8192)",
        "ReplacingMergeTree(v, is_deleted)",
        "MergeTree(8192)",
        "Kafka(1)",
    ],
)
def test_arguments_that_engines_do_not_have_are_refused_with_the_clauses_to_write(engine: str) -> None:
    with pytest.raises(UnsupportedSqlError, match="argument") as caught:
        parse(_TABLE.format("", f"ENGINE = {engine}"))
    assert caught.value.code == "UNSUPPORTED_SYNTAX"
    assert "PARTITION BY" in caught.value.hint
    assert "ORDER BY" in caught.value.hint


def test_columns_called_limit_and_order_stand_in_a_predicate() -> None:
    statement = parse("DELETE FROM t WHERE limit > 1 AND order = 2 AND a IN (SELECT b FROM u ORDER BY b LIMIT 1)")
    assert isinstance(statement, DeleteRows)
    assert statement.predicate.endswith("LIMIT 1)")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT dateDiff('day', a, b)", "SELECT unitDiff('day', a, b)"),
        ("SELECT date_diff ( 'day', a, b)", "SELECT unit_diff ( 'day', a, b)"),
        ("SELECT datediff(a, b), dateDiff(DAY, a, b)", "SELECT datediff(a, b), dateDiff(DAY, a, b)"),
        ("SELECT 'dateDiff(''day'', a)', dateDiff('h', a, b)", "SELECT 'dateDiff(''day'', a)', unitDiff('h', a, b)"),
        ("SELECT `dateDiff('` -- dateDiff('\n", "SELECT `dateDiff('` -- dateDiff('\n"),
        ("INSERT INTO `format` SELECT dateDiff('h', a, b)", "INSERT INTO `format` SELECT unitDiff('h', a, b)"),
        ("INSERT /* format */ INTO t SELECT dateDiff('h', 1)", "INSERT /* format */ INTO t SELECT unitDiff('h', 1)"),
        ("INSERT -- format\nINTO t SELECT dateDiff('h', 1)", "INSERT -- format\nINTO t SELECT unitDiff('h', 1)"),
        ("INSERT INTO t FORMAT CSV\ndateDiff('day', 'open", "INSERT INTO t FORMAT CSV\ndateDiff('day', 'open"),
    ],
)
def test_date_diff_with_a_text_is_a_function_of_its_own(text: str, read: str) -> None:
    assert with_unit_diff(text) == read


def test_data_is_not_searched_for_date_diff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_CALL", None)
    text = "insert into db.t (a, b) SETTINGS x = 1\nFormat CSV\n1,dateDiff('day'"
    assert with_unit_diff(text) == text
