"""Statements of other systems: each word that no statement of ours has is refused by name, with what to write instead.

A misspelling stays a syntax error with the nearest word. The collections of tests/acceptance are parsed, not run.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.statements import (
    AddColumn,
    AlterTable,
    CreateTable,
    DeleteRows,
    DescribeColumn,
    Name,
    RenameTable,
    UpdateRows,
)
from tilth.grammar.text import elsewhere
from tilth.grammar.text.elsewhere import form_of, instead, phrase
from tilth.introspection.registry import find_system_table
from tilth.introspection.statements.show import ShowSettings
from tilth.statements.definitions.dropped import DropTable, TruncateTable
from tilth.statements.registry import FORMS, parse
from tools.foreign import read_collection

COLLECTIONS = sorted((Path(__file__).parents[3] / "acceptance").glob("foreign*.sql"))


@pytest.mark.parametrize("path", COLLECTIONS, ids=lambda path: path.stem)
def test_no_statement_of_another_system_is_a_misspelling(path: Path) -> None:
    unclear: list[str] = []
    for statement in read_collection(path):
        try:
            parse(statement.text)
        except UnsupportedSqlError as error:
            if not error.hint:
                unclear.append(f"{statement.text}: {error}")
        except SqlSyntaxError as error:
            unclear.append(f"{statement.text}: {error}")
    assert unclear == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("UPSERT INTO t VALUES (1)", "UPSERT is not supported", "UNIQUE KEY"),
        ("upsert into t values (1)", "upsert is not supported", "UNIQUE KEY"),
        ("SHOW PRIVILEGES", "SHOW PRIVILEGES is not supported", "no accounts"),
        ("SHOW TABLE STATUS FROM d", "SHOW TABLE is not supported", "system.tables"),
        ("SHOW TABLES FROM d NOT LIKE 'a%'", "NOT is not supported", "name NOT LIKE"),
        ("SYSTEM FETCH PARTS t", "SYSTEM FETCH is not supported", "INSERT INTO t SELECT"),
        ("SYSTEM RELOAD DICTIONARIES", "SYSTEM RELOAD DICTIONARIES is not supported", "join it"),
        ("ALTER TABLE t APPLY DELETED MASK", "ALTER TABLE .. APPLY is not supported", "OPTIMIZE TABLE t FINAL"),
        ("ALTER TABLE t DROP DETACHED PARTITION 1", "DROP DETACHED is not supported", "UNDROP PARTITION"),
        ("OPTIMIZE TABLE t FINAL CLEANUP", "OPTIMIZE TABLE .. FINAL CLEANUP is not supported", "leave it out"),
        ("CREATE TABLE t (a Int8 KV) ENGINE = MergeTree", "KV is not supported", "a Map is stored as it is"),
        ("CREATE TABLE t (a Int8) PARTITION BY a STORED AS KUDU", "STORED is not supported", "UNIQUE KEY"),
        ("SHOW CREATE TABLE t FORMAT TSVRaw", "FORMAT is not supported", "--format"),
        # Words that nobody foresaw, in capital letters where a statement is over or has a choice.
        ("SHOW FROBNICATES", "SHOW FROBNICATES is not supported", "write COLUMNS"),
        ("OPTIMIZE TABLE t FROBNICATE", "OPTIMIZE TABLE .. FROBNICATE is not supported", "PARTITION p"),
        # A name of a table may be a word of another statement, but not with a second name behind it.
        ("TRUNCATE DATABASE d", "TRUNCATE DATABASE is not supported", "for each table"),
        ("USE WAREHOUSE w", "USE WAREHOUSE is not supported", "SET warehouse"),
        ("DROP TABLE a, b", "several at once", "for each"),
        ("INSERT INTO t VALUES (now())", "expressions in VALUES", "INSERT .. SELECT"),
        ("INSERT INTO t VALUES (DEFAULT)", "DEFAULT in VALUES", "leave the column out"),
        ("UPDATE t SET a = 1", "expected WHERE", "WHERE true"),
        ("UPDATE t SET a = b.x FROM b WHERE b.k = k", "UPDATE .. FROM", "UNIQUE KEY"),
        ("UPDATE t AS x SET a = 1 WHERE b", "an alias", "leave the alias out"),
        ("DELETE FROM t x WHERE b", "an alias", "leave the alias out"),
        ("ALTER TABLE t UPDATE a = 1 IN PARTITION 'x' WHERE b", "IN PARTITION", "in WHERE"),
        ("ALTER TABLE t FASTDELETE a WHERE b", "FASTDELETE of columns", "UPDATE t SET"),
        ("DESCRIBE TABLE s3('x')", "DESCRIBE of s3", "read no files"),
        ("EXPLAIN indexes = 1 SELECT 1", "settings of EXPLAIN", "EXPLAIN SELECT"),
        ("CREATE DATABASE d ENGINE = MySQL('h')", "ENGINE = 'MySQL'", "leave ENGINE out"),
    ],
)
def test_what_others_understand_is_refused_by_name(text: str, message: str, hint: str) -> None:
    with pytest.raises(UnsupportedSqlError) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SHOW TABELS", "did you mean TABLES?"),
        ("SYSTEM STRAT MERGES t", "did you mean START?"),
        ("TRUNCATE TABLE t u", "TRUNCATE TABLE t"),
        ("OPTIMIZE t", "OPTIMIZE TABLE t"),
    ],
)
def test_a_misspelling_stays_one(text: str, hint: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert caught.value.code == "SYNTAX_ERROR"
    assert hint in caught.value.hint


def test_other_words_for_what_is_there() -> None:
    name = Name("d", "t")
    assert parse("ALTER TABLE d.t RENAME TO u") == RenameTable(old=name, new=Name("d", "u"))
    assert parse("ALTER TABLE d.t FASTDELETE WHERE a = 1") == DeleteRows(name=name, predicate="a = 1")
    added = parse("ALTER TABLE d.t ADD COLUMNS (a INT, b STRING DEFAULT 'x'), DROP COLUMN c")
    assert isinstance(added, AlterTable)
    assert [type(each).__name__ for each in added.operations] == ["AddColumn", "AddColumn", "DropColumn"]
    assert [each.column.name for each in added.operations if isinstance(each, AddColumn)] == ["a", "b"]
    changed = parse("ALTER TABLE d.t ALTER COLUMN a SET DEFAULT 1 + 1")
    assert changed == AlterTable(name=name, operations=(DescribeColumn(column="a", default="1 + 1"),))
    dropped = parse("ALTER TABLE d.t ALTER COLUMN a DROP DEFAULT")
    assert dropped == AlterTable(name=name, operations=(DescribeColumn(column="a", no_default=True),))
    assert parse("SHOW SETTING max_threads") == ShowSettings(like="max_threads")
    keyed = parse("CREATE TABLE d.t (a Int8, PRIMARY KEY a, b Int8) ENGINE = MergeTree")
    assert isinstance(keyed, CreateTable)
    assert (keyed.primary_key, [column.name for column in keyed.columns]) == (("a",), ["a", "b"])
    # Columns may be called like the words behind them.
    assert parse("UPDATE t SET set = 1 WHERE where") == UpdateRows(
        name=Name(None, "t"), assignments=(("set", "1"),), predicate="where"
    )


@pytest.mark.parametrize(
    ("text", "statement", "notice"),
    [
        ("TRUNCATE TABLE t SYNC", TruncateTable(name=Name(None, "t")), "SYNC has no effect"),
        ("DROP TABLE t SETTINGS a = 1", DropTable(name=Name(None, "t")), "the setting a has no effect"),
    ],
)
def test_what_says_nothing_is_noticed(text: str, statement: object, notice: str) -> None:
    parsed, notices = FORMS.parse_noticed(text)
    assert parsed == statement
    assert any(notice in each for each in notices)


def test_hashes_of_kudu_are_buckets() -> None:
    created, notices = FORMS.parse_noticed(
        "CREATE TABLE t (a Int8) ENGINE = MergeTree PARTITION BY HASH(a) PARTITIONS 4"
    )
    assert isinstance(created, CreateTable)
    assert [(each.kind.value, each.argument) for each in created.partition_by] == [("bucket", 4)]
    assert "is read as bucket(4, a)" in notices[0]
    _, notices = FORMS.parse_noticed("CREATE TABLE t UUID 'x' (a Int8) ENGINE = MergeTree")
    assert "UUID has no effect" in notices[0]


def test_the_longest_beginning_is_taken() -> None:
    assert "REPLACE REPLICA" in instead(["SYSTEM"], ["DROP", "REPLICA"])
    assert instead(["DROP", "TABLE", "IF", "EXISTS", ".."], ["CASCADE"]).startswith("drop what depends")
    assert instead(["SHOW"], ["NOTHING"]) == ""
    assert instead([], ["NOTHING"]) == ""
    assert form_of(["NOTHING"]) == "docs/reference/sql.md lists the statements"
    words = ["CREATE", "TABLE", "..", "ENGINE", "..", "ORDER", "BY", ".."]
    assert phrase(words, "FOO") == "CREATE TABLE .. FOO"


def test_hints_name_system_tables_and_columns_that_there_are() -> None:
    for hint in {*elsewhere._BY_PREFIX.values(), *elsewhere._BY_KEYWORD.values()}:
        for columns, table, condition in re.findall(r"SELECT ([^;]+?) FROM system\.(\w+)([^;]*)", hint):
            known = {column.name for column in find_system_table(table).columns} | {"*"}
            named = {*columns.split(", "), *re.findall(r"(?:WHERE|ORDER BY) (\w+)", condition)}
            assert named <= known, hint
        for table in re.findall(r"system\.(\w+)", hint):
            find_system_table(table)
