"""ALTER TABLE, and the statements that change rows."""

from __future__ import annotations

import pytest

from tilth.grammar import statements as st
from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.text.tokens import words_of
from tilth.model.table import ColumnKind
from tilth.model.types import Kind, Simple
from tilth.statements.registry import parse

INT = Simple(Kind.INT32)
T = st.Name(None, "t")


def operations(text: str) -> tuple[st.AlterOperation, ...]:
    statement = parse(f"ALTER TABLE db.t {text}")
    assert isinstance(statement, st.AlterTable)
    assert statement.name == st.Name("db", "t")
    return statement.operations


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("MODIFY SETTING a = 1, b = 'x', c = true", st.ModifySetting(settings=(("a", "1"), ("b", "x"), ("c", "true")))),
        ("RESET SETTING a, b", st.ResetSetting(names=("a", "b"))),
        ("ADD COLUMN c Int32", st.AddColumn(column=st.ColumnSpec(name="c", type=INT, declared="Int32"))),
        (
            "ADD COLUMN IF NOT EXISTS c Int32 DEFAULT a + 1 AFTER b",
            st.AddColumn(
                column=st.ColumnSpec(name="c", type=INT, declared="Int32", default="a + 1"),
                if_not_exists=True,
                after="b",
            ),
        ),
        (
            "ADD COLUMN c Int32 NOT NULL FIRST",
            st.AddColumn(column=st.ColumnSpec(name="c", type=INT, declared="Int32", nullable=False), first=True),
        ),
        ("DROP COLUMN IF EXISTS c", st.DropColumn(column="c", if_exists=True)),
        (
            "MODIFY COLUMN c int COMMENT 'x'",
            st.ModifyColumn(column=st.ColumnSpec(name="c", type=INT, declared="int", comment="x")),
        ),
        ("MODIFY COLUMN c DEFAULT a + 1", st.DescribeColumn(column="c", default="a + 1")),
        (
            "MODIFY COLUMN IF EXISTS c COMMENT 'x' DEFAULT 5",
            st.DescribeColumn(column="c", default="5", comment="x", if_exists=True),
        ),
        ("MODIFY COLUMN c REMOVE DEFAULT", st.DescribeColumn(column="c", no_default=True)),
        (
            "MODIFY COLUMN c REMOVE MATERIALIZED",
            st.DescribeColumn(column="c", kind=ColumnKind.MATERIALIZED, no_default=True),
        ),
        (
            "MODIFY COLUMN c MATERIALIZED a + b COMMENT 'x'",
            st.DescribeColumn(column="c", kind=ColumnKind.MATERIALIZED, default="a + b", comment="x"),
        ),
        ("MODIFY COLUMN c ALIAS a", st.DescribeColumn(column="c", kind=ColumnKind.ALIAS, default="a")),
        ("MODIFY COLUMN c REMOVE COMMENT", st.DescribeColumn(column="c", comment="")),
        ("COMMENT COLUMN IF EXISTS c 'x'", st.DescribeColumn(column="c", comment="x", if_exists=True)),
        ("RENAME COLUMN a TO b", st.RenameColumn(old="a", new="b")),
        ("MODIFY TTL d + INTERVAL 1 DAY DELETE", st.ModifyTtl(ttl="d + INTERVAL 1 DAY")),
        ("REMOVE TTL", st.RemoveTtl()),
        (
            "UPDATE a = b + f(1, 2), c = 'WHERE' WHERE d IN (1, 2) AND e",
            st.MutateUpdate(assignments=(("a", "b + f(1, 2)"), ("c", "'WHERE'")), predicate="d IN (1, 2) AND e"),
        ),
        ("DELETE WHERE a = ';' ;", st.MutateDelete(predicate="a = ';'")),
        ("DROP PARTITION '2024-01-31'", st.DropPartition(partition=st.PartitionValues(("2024-01-31",)))),
        ("DROP PARTITION 202401", st.DropPartition(partition=st.PartitionValues((202401,)))),
        ("DROP PARTITION ('eu', -1)", st.DropPartition(partition=st.PartitionValues(("eu", -1)))),
        ("DROP PARTITION tuple()", st.DropPartition(partition=st.PartitionValues(()))),
        ("DROP PARTITION ID 'eu-202401'", st.DropPartition(partition=st.PartitionId("eu-202401"))),
        ("UNDROP PARTITION 202401", st.UndropPartition(partition=st.PartitionValues((202401,)))),
        ("UNDROP PARTITION ID 'eu-202401'", st.UndropPartition(partition=st.PartitionId("eu-202401"))),
    ],
)
def test_operations(text: str, operation: st.AlterOperation) -> None:
    assert operations(text) == (operation,)


def test_several_operations_on_columns() -> None:
    assert operations(
        "ADD COLUMN c Int32 DEFAULT f(1, 2), DROP COLUMN d, RENAME COLUMN e TO f, MODIFY COLUMN g int"
    ) == (
        st.AddColumn(column=st.ColumnSpec(name="c", type=INT, declared="Int32", default="f(1, 2)")),
        st.DropColumn(column="d"),
        st.RenameColumn(old="e", new="f"),
        st.ModifyColumn(column=st.ColumnSpec(name="g", type=INT, declared="int")),
    )


@pytest.mark.parametrize(
    ("text", "culprit", "column"),
    [
        ("ADD COLUMN c Int32, MODIFY TTL d", "only operations on columns", 38),
        ("REMOVE TTL, DROP COLUMN c", "only operations on columns", 18),
        ("ADD INDEX i c TYPE minmax", "ADD INDEX", 22),
        ("DROP PROJECTION p", "DROP PROJECTION", 23),
        ("MODIFY ORDER BY a", "MODIFY ORDER", 25),
        ("MODIFY TTL d, e", "several rules", 30),
        ("DELETE WHERE a = 1, DELETE WHERE b = 2", "only operations on columns", 18),
        ("UPDATE a = 1 WHERE b, DELETE WHERE c", "only operations on columns", 18),
        ("DROP COLUMN a, DELETE WHERE b", "only operations on columns", 33),
        ("CLEAR COLUMN a", "ALTER TABLE .. CLEAR", 18),
        ("FREEZE", "ALTER TABLE .. FREEZE", 18),
        ("DELETE IN PARTITION '1' WHERE a", "IN PARTITION is not supported", 25),
    ],
)
def test_what_is_not_there_is_refused_by_name(text: str, culprit: str, column: int) -> None:
    with pytest.raises(UnsupportedSqlError, match=culprit) as caught:
        operations(text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("MODFY SETTING a = 1", "found 'MODFY'", 18, "did you mean MODIFY?"),
        ("MODIFY SETING a = 1", "expected COLUMN, SETTING or TTL", 25, "did you mean SETTING?"),
        ("MODIFY SETTING a = b", "expected a number, a string", 37, "single quotes"),
        ("RESET SETTING 1", "expected the name of a setting", 32, ""),
        ("ADD COLUMN c", "expected a type", 30, ""),
        ("DROP COLUMN", "expected a column", 29, ""),
        ("RENAME COLUMN a b", "expected TO, found 'b'", 34, ""),
        ("REMOVE COLUMN a", "expected TTL", 25, ""),
        ("UPDATE a = 1", "expected WHERE", 30, "WHERE true"),
        ("UPDATE a = 1, a = 2 WHERE b", "column a is assigned twice", 32, ""),
        ("UPDATE a = WHERE b", "expected an expression, found 'WHERE'", 29, ""),
        ("DELETE", "expected WHERE", 24, "WHERE true"),
        ("DELETE WHERE", "expected a predicate", 30, ""),
        ("DELETE WHERE (a", "bracket is not closed", 31, ""),
        ("DELETE WHERE (a]", r"expected '\)'", 33, ""),
        ("DROP PARTITION (a = 1)", "expected a literal", 34, "PARTITION ID"),
        ("SHRINK", "ALTER TABLE .. SHRINK is not supported", 18, "write ADD, DROP"),
        ("MODIFY COLUMN a REMOVE CODEC", "REMOVE CODEC is not supported", 41, "write DEFAULT, MATERIALIZED or COMMENT"),
        ("MODIFY COLUMN a DEFAULT 1 TTL d", "TTL of a column", 44, "rows expire as a whole"),
        ("COMMENT COLUMN a", "expected a comment", 34, ""),
        ("UNDROP COLUMN a", "expected PARTITION", 25, ""),
    ],
)
def test_errors_point_at_the_culprit(text: str, message: str, column: int, hint: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        operations(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("DELETE FROM t WHERE a > 1 -- old\n AND b", st.DeleteRows(name=T, predicate="a > 1 -- old\n AND b")),
        (
            "UPDATE t SET a = a + 1, b = NULL WHERE c = 'x';",
            st.UpdateRows(name=T, assignments=(("a", "a + 1"), ("b", "NULL")), predicate="c = 'x'"),
        ),
    ],
)
def test_changes_of_rows(text: str, statement: st.Statement) -> None:
    assert parse(text) == statement


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("DELETE t WHERE a", "expected FROM, found 't'", 8),
        ("DELETE FROM t", "expected WHERE", 14),
        ("UPDATE t a = 1 WHERE b", "expected SET", 10),
        ("UPDATE t SET a 1 WHERE b", "expected '='", 16),
        ("UPDATE t SET a = 1", "expected WHERE", 19),
    ],
)
def test_changes_of_rows_that_are_wrong(text: str, message: str, column: int) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("DELETE WHERE settings = 1 AND b", st.MutateDelete(predicate="settings = 1 AND b")),
        (
            "ADD COLUMN c Int32 DEFAULT a + 1",
            st.AddColumn(column=st.ColumnSpec(name="c", type=INT, declared="Int32", default="a + 1")),
        ),
        ("MODIFY TTL d + INTERVAL 1 DAY", st.ModifyTtl(ttl="d + INTERVAL 1 DAY")),
        ("DROP COLUMN c", st.DropColumn(column="c")),
    ],
)
def test_settings_of_the_statement_stand_at_its_end(text: str, operation: st.AlterOperation) -> None:
    statement = parse(f"ALTER TABLE db.t {text} SETTINGS mutations_sync = 2")
    settings = (("mutations_sync", "2"),)
    assert statement == st.AlterTable(name=st.Name("db", "t"), operations=(operation,), settings=settings)
    assert parse("DELETE FROM t WHERE a SETTINGS b = 'c'") == st.DeleteRows(
        name=T, predicate="a", settings=(("b", "c"),)
    )


def test_words_are_found_outside_of_strings_and_comments() -> None:
    assert words_of("UPDATE `A b` = c + 'd' WHERE e /* f */ IN (1, g) -- h") == {
        "update",
        "a b",
        "c",
        "where",
        "e",
        "in",
        "g",
    }
