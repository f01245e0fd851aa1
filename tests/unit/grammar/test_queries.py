"""Queries pass through; the short statements; scripts."""

from __future__ import annotations

import pickle

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import Name, Query, RenameTable, Statement
from tilth.grammar.text.script import split
from tilth.introspection.statements.show import (
    Describe,
    ExistsTable,
    ShowCreate,
    ShowDatabases,
    ShowSettings,
    ShowTables,
)
from tilth.statements.definitions.databases import DropDatabase, UseDatabase
from tilth.statements.definitions.dropped import DropTable, DropView, TruncateTable, UndropTable
from tilth.statements.registry import parse

T = Name(None, "t")
DBT = Name("db", "t")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "-- why\n  select `a b`, \"c\", 'it''s', r'\\' from t",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "VALUES (1), (2)",
        "FROM t SELECT a",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "TABLE t",
        "SELECT * FROM db.t VERSION AS OF 3",
        "SELECT * FROM db.t TIMESTAMP AS OF '2024-01-01'",
        "EXPLAIN SELECT 1",
        "EXPLAIN MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE",
        "SELECT * FROM format x",
        "SELECT * FROM t format",
        "SELECT a AS format FROM t",
        "SELECT * FROM system.settings WHERE name = 'x'",
        "SELECT * FROM t JOIN settings a ON b = 1",
        "SELECT x -> 'a', y::int, z ?? 1 FROM t WHERE a <=> b",
    ],
)
def test_queries_are_text(text: str) -> None:
    assert parse(text) == Query(text=text)
    assert parse(f"{text} ; -- done") == Query(text=text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT 1 FORMAT JSON", Query(text="SELECT 1", format="JSON")),
        ("SELECT * FROM t\n format CSV;", Query(text="SELECT * FROM t", format="CSV")),
        ("SELECT * SETTINGS a = 1", Query(text="SELECT *", settings=(("a", "1"),))),
        (
            "SELECT f(x) SETTINGS a = 1, b = 'x' FORMAT JSON",
            Query(text="SELECT f(x)", format="JSON", settings=(("a", "1"), ("b", "x"))),
        ),
        ("SELECT x FORMAT JSON SETTINGS a = 1", Query(text="SELECT x", format="JSON", settings=(("a", "1"),))),
        ("VALUES (1) FORMAT CSV", Query(text="VALUES (1)", format="CSV")),
    ],
)
def test_format_and_settings_at_the_end_are_ours(text: str, query: Query) -> None:
    assert parse(text) == query


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("USE db", UseDatabase(database="db")),
        ("DROP DATABASE IF EXISTS db", DropDatabase(database="db", if_exists=True)),
        ("SHOW DATABASES", ShowDatabases()),
        ("show databases like 'a%'", ShowDatabases(like="a%")),
        ("SHOW TABLES", ShowTables()),
        ("SHOW TABLES FROM db LIKE 'p'", ShowTables(database="db", like="p")),
        ("SHOW TABLES IN db", ShowTables(database="db")),
        ("SHOW SETTINGS LIKE 'x'", ShowSettings(like="x")),
        ("SHOW CREATE TABLE db.t", ShowCreate(name=DBT)),
        ("SHOW CREATE t", ShowCreate(name=T)),
        ("DESCRIBE TABLE db.t", Describe(name=DBT)),
        ("DESC t;", Describe(name=T)),
        ("EXISTS TABLE t", ExistsTable(name=T)),
        ("DROP TABLE IF EXISTS db.t ON CLUSTER c", DropTable(name=DBT, if_exists=True)),
        ("DROP VIEW t", DropView(name=T)),
        ("DROP MATERIALIZED VIEW t", DropView(name=T)),
        ("UNDROP TABLE t", UndropTable(name=T)),
        ("TRUNCATE TABLE IF EXISTS t", TruncateTable(name=T, if_exists=True)),
        ("RENAME TABLE t TO db.t", RenameTable(old=T, new=DBT)),
    ],
)
def test_short_statements(text: str, statement: Statement) -> None:
    assert parse(text) == statement


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        ("", "there is no statement", (1, 1), ""),
        (" ; ", "there is no statement", (1, 2), ""),
        ("CRAETE TABLE t", "expected a statement, found 'CRAETE'", (1, 1), "did you mean CREATE?"),
        ("PLEASE", "expected a statement", (1, 1), "statements begin with ALTER"),
        ("SELECT 1;\nSELECT 2", "expected the end of the statement", (2, 1), "one statement at a time"),
        ("SELECT 'abc", "string is not closed", (1, 8), "close it"),
        ("SELECT 1 SETTINGS a = b", "expected a number, a string", (1, 23), "quotes"),
        ("USE", "expected the name of a database", (1, 4), ""),
        ("USE a.b", "expected the end of the statement", (1, 6), ""),
        ("DROP DATABASE", "expected the name of a database", (1, 14), ""),
        ("DROP TBALE t", "expected DATABASE, PIPE, STORAGE, TABLE, VIEW or WAREHOUSE", (1, 6), "did you mean TABLE?"),
        ("SHOW TABELS", "found 'TABELS'", (1, 6), "did you mean TABLES?"),
        ("SHOW DATABASES LIKE x", "expected a pattern", (1, 21), ""),
        ("SHOW SETTINGS x", "expected the end of the statement", (1, 15), ""),
        ("SHOW CREATE TABLE", "expected the name of a table", (1, 18), ""),
        ("DESCRIBE\n\n  1", "expected the name of a table", (3, 3), ""),
        ("EXISTS TABLE ``", "the name of a table is empty", (1, 14), ""),
        ("DROP VIEW", "expected the name of a table", (1, 10), ""),
        ("UNDROP t", "expected TABLE", (1, 8), ""),
        ("TRUNCATE TABLE t u", "expected the end of the statement", (1, 18), ""),
        ("RENAME TABLE t u", "expected TO", (1, 16), ""),
    ],
)
def test_errors_point_at_the_culprit(text: str, message: str, place: tuple[int, int], hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("EXCHANGE TABLES a AND b", "EXCHANGE"),
        ("MERGE INTO t USING u", "MERGE"),
        ("ATTACH TABLE t", "ATTACH"),
        ("RENAME TABLE a TO b, c TO d", "several tables"),
        ("DROP TABLE a.b.c", "two parts"),
        ("UNDROP DATABASE d", "UNDROP DATABASE"),
        ("TRUNCATE TABLE t PARTITION 'x'", "TRUNCATE of a partition"),
        ("EXPLAIN MERGE t PARTITION 'x'", "EXPLAIN MERGE of one partition"),
        ("EXPLAIN GC t PARTITION 'x'", "EXPLAIN GC of one partition"),
    ],
)
def test_what_is_not_there_is_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit):
        parse(text)


def test_errors_cross_process_borders() -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse("USE")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.line, copy.column) == (str(caught.value), 1, 4)


@pytest.mark.parametrize(
    ("script", "pieces"),
    [
        ("", []),
        (" ;; -- nothing\n", []),
        ("USE a; USE b", ["USE a", "USE b"]),
        ("SELECT ';', `;` /* ; */ -- ;\n, 1;\n\n-- next;\nUSE b;", ["SELECT ';', `;` /* ; */ -- ;\n, 1", "USE b"]),
        (
            'INSERT INTO t FORMAT JSONEachRow {"a": "it\'s"};\nUSE b',
            ['INSERT INTO t FORMAT JSONEachRow {"a": "it\'s"}', "USE b"],
        ),
        ("INSERT INTO t FORMAT CSV\n1,'x\n2,y\n\nUSE b", ["INSERT INTO t FORMAT CSV\n1,'x\n2,y", "USE b"]),
        ("INSERT INTO t FORMAT CSV\n1;2\n3;4", ["INSERT INTO t FORMAT CSV\n1;2\n3;4"]),
        ("INSERT INTO t (format, a) VALUES (1, ';'); USE b", ["INSERT INTO t (format, a) VALUES (1, ';')", "USE b"]),
        ("INSERT INTO t SELECT a format FROM u; USE b", ["INSERT INTO t SELECT a format FROM u", "USE b"]),
    ],
)
def test_scripts_fall_apart_at_semicolons(script: str, pieces: list[str]) -> None:
    assert split(script) == pieces


def test_a_script_tells_where_a_string_is_not_closed() -> None:
    with pytest.raises(SqlSyntaxError, match="string is not closed") as caught:
        split("USE a;\nSELECT 'b;")
    assert (caught.value.line, caught.value.column) == (2, 8)
