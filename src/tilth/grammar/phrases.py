"""Phrases that several statements share. Pure.

Tests: tests/unit/grammar/text/test_elsewhere.py.
"""

from __future__ import annotations

from tilth.base.units import parse_seconds
from tilth.grammar.statements import ColumnSpec, DescribeColumn, Name
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token, TokenKind
from tilth.grammar.types import parse_type
from tilth.model.table import ColumnKind

#: Words after a column's type that have a meaning only in other systems.
_COLUMN_REFUSED = {
    "EPHEMERAL": "compute the value in the materialized view's SELECT",
    "GENERATED": "compute the value in the materialized view's SELECT",
    "TTL": "rows expire as a whole: give the table a TTL",
    "PRIMARY": "name the key behind the columns: ORDER BY (..)",
    "STATISTICS": "leave it out",
    "MODIFY": "settings are those of a table: ALTER TABLE t MODIFY SETTING name = value",
    "RESET": "settings are those of a table: ALTER TABLE t RESET SETTING name",
    "COLLATE": "strings are compared by their bytes; leave it out",
}


def parse_name(cursor: Cursor) -> Name:
    """`table` or `database.table`."""
    first = cursor.name("the name of a table")
    if not cursor.accept_symbol("."):
        return Name(None, first)
    second = cursor.name("the name of a table")
    if cursor.is_symbol("."):
        raise cursor.refused("a name has at most two parts", hint="write database.table")
    return Name(first, second)


def parse_table_name(cursor: Cursor) -> Name:
    """Read a name in a definition. ON CLUSTER is accepted with a notice."""
    name = parse_name(cursor)
    skip_on_cluster(cursor)
    return name


def skip_on_cluster(cursor: Cursor) -> None:
    """Skip ON CLUSTER, which has no meaning where every server sees the one catalog."""
    if cursor.accept("ON", "CLUSTER"):
        cursor.notice("ON CLUSTER has no effect: every server sees the one catalog")
        if cursor.is_string():
            cursor.string("the name of a cluster")
        else:
            cursor.name("the name of a cluster")


def skip_sync(cursor: Cursor) -> None:
    """Skip words about when files go, which the catalog does not need."""
    for words in (("SYNC",), ("ASYNC",), ("NO", "DELAY"), ("PERMANENTLY",), ("PURGE",)):
        if cursor.accept(*words):
            cursor.notice(
                f"{' '.join(words)} has no effect: the name is free at once, and UNDROP TABLE works for a while"
            )


def refuse_alias(cursor: Cursor, *words: str) -> None:
    """Raises UnsupportedSqlError where another name follows, and not one of the words."""
    is_alias = cursor.is_name() and not any(cursor.at(word) for word in words)
    if is_alias and (cursor.at("AS") or cursor.peek(1).text.upper() in words):
        hint = "leave the alias out: a row is changed by its own columns"
        raise cursor.refused("an alias of the table to change is not supported", hint=hint)


def refuse_list(cursor: Cursor, what: str) -> None:
    """Raises UnsupportedSqlError where a second name follows."""
    if cursor.is_symbol(","):
        raise cursor.refused(f"{what} of several at once is not supported", hint="write a statement for each")


def read_if_exists(cursor: Cursor) -> bool:
    if not cursor.at("IF"):
        return False
    cursor.expect("IF", "EXISTS")
    return True


def read_if_not_exists(cursor: Cursor) -> bool:
    if not cursor.at("IF"):
        return False
    cursor.expect("IF", "NOT", "EXISTS")
    return True


def read_seconds(cursor: Cursor, what: str, *, hint: str, end: str = "") -> tuple[float, str, Token]:
    """Read `10 minutes`; return the seconds, the text, and the token at which an error of them points. `what`: name of
    such a time, for errors; `end`: word that may follow, which is no unit.
    """
    token = cursor.peek()
    if token.kind is not TokenKind.NUMBER:
        raise cursor.expected("a number and a unit", hint=hint)
    cursor.number("a number")
    if not cursor.is_name() or (end and cursor.at(end)):
        raise cursor.expected("a unit", hint=hint)
    text = f"{token.text} {cursor.name('a unit')}"
    try:
        return parse_seconds(text), text, token
    except ValueError as error:
        raise cursor.error(f"not a {what}: {text}", at=token, hint=hint) from error


def parse_names(cursor: Cursor, what: str) -> tuple[str, ...]:
    """`(a, b)`; no name twice."""
    cursor.expect_symbol("(")
    names: list[str] = []
    while True:
        token = cursor.peek()
        name = cursor.name(what)
        if name.lower() in (known.lower() for known in names):
            raise cursor.error(f"column {name} is there twice", at=token)
        names.append(name)
        if cursor.accept_symbol(")"):
            return tuple(names)
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')'")


def parse_assignments(cursor: Cursor) -> tuple[tuple[str, str], ...]:
    """`a = e, b = f` up to WHERE."""
    assignments: dict[str, str] = {}
    while True:
        token = cursor.peek()
        column = cursor.name("a column")
        if column.lower() in (known.lower() for known in assignments):
            raise cursor.error(f"column {column} is assigned twice", at=token)
        cursor.expect_symbol("=")
        if cursor.at("WHERE"):
            raise cursor.expected("an expression")
        assignments[column] = cursor.expression("an expression", _ends_assignment, stop_at_comma=True)
        if cursor.at("FROM"):
            hint = (
                "a row is changed by what it holds itself; INSERT .. SELECT into a table with UNIQUE KEY replaces rows"
            )
            raise cursor.refused("UPDATE .. FROM is not supported", hint=hint)
        if not cursor.accept_symbol(","):
            return tuple(assignments.items())


def _ends_assignment(cursor: Cursor) -> bool:
    return cursor.at("WHERE") or cursor.at("FROM") or cursor.at("IN", "PARTITION")


def parse_where(cursor: Cursor) -> str:
    """`WHERE p` up to the end of the statement."""
    refuse_in_partition(cursor)
    if not cursor.accept("WHERE"):
        if cursor.at_end:
            raise cursor.refused("expected WHERE, found the end: a change of all rows says so", hint="write WHERE true")
        raise cursor.expected("WHERE", words=("WHERE",), hint="WHERE true takes every row")
    predicate = cursor.expression("a predicate", _ends_predicate, stop_at_comma=True)
    if not (cursor.at_end or at_settings(cursor)) and _ends_predicate(cursor):
        hint = "leave it out, and name the rows by their key in WHERE: all rows that match are changed"
        raise cursor.refused(f"{cursor.peek().text.upper()} behind WHERE is not supported here", hint=hint)
    return predicate


def _ends_predicate(cursor: Cursor) -> bool:
    """True where the predicate ends: at settings, and at what only other systems take behind it."""
    is_limit = cursor.at("LIMIT") and cursor.peek(1).kind is TokenKind.NUMBER
    return is_limit or at_settings(cursor) or cursor.at("ORDER", "BY")


def refuse_in_partition(cursor: Cursor) -> None:
    """Raises UnsupportedSqlError for DELETE and UPDATE .. IN PARTITION."""
    if cursor.at("IN", "PARTITION"):
        hint = "name the partition's columns in WHERE, or ALTER TABLE t DROP PARTITION p for all of its rows"
        raise cursor.refused("IN PARTITION is not supported", hint=hint)


def at_settings(cursor: Cursor) -> bool:
    """True if the statement's own settings begin here, rather than an expression going on."""
    return cursor.at("SETTINGS") and cursor.is_name(1) and cursor.is_symbol("=", 2)


def parse_column(cursor: Cursor) -> ColumnSpec:
    """`name Type [NOT NULL | NULL] [DEFAULT | MATERIALIZED | ALIAS expression] [CODEC(..)] [COMMENT 'text']`, in any
    order after the type.
    """
    name = cursor.name("a column")
    # With such a clause the type may be missing.
    _refuse_column_clauses(cursor)
    if _at_expression(cursor):
        hint = f"write it: {name} String {cursor.peek().text.upper()} .."
        raise cursor.refused(f"column {name} without a type is not supported", hint=hint)
    written = parse_type(cursor)
    not_null: bool | None = None
    kind, default = ColumnKind.DEFAULT, None
    codec: str | None = None
    comment: str | None = None
    while True:
        token = cursor.peek()
        if not_null is None and _at_nullability(cursor):
            not_null = cursor.accept("NOT")
            cursor.expect("NULL")
            if not_null and written.is_nullable:
                raise cursor.error(f"column {name} is Nullable and NOT NULL", at=token, hint="leave one of them out")
        elif default is None and _at_expression(cursor):
            kind, default = _expression(cursor)
        elif codec is None and cursor.at("CODEC") and cursor.is_symbol("(", 1):
            codec = _codec(cursor)
        elif comment is None and cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        else:
            break
    _refuse_column_clauses(cursor)
    return ColumnSpec(
        name=name,
        type=written.type,
        declared=written.text,
        checks=written.checks,
        zones=written.zones,
        nullable=not not_null,
        default=default,
        kind=kind,
        codec=codec,
        comment=comment or "",
        states_null=written.is_nullable or not_null is False,
    )


def parse_description(cursor: Cursor, *, if_exists: bool) -> DescribeColumn:
    """`name [DEFAULT | MATERIALIZED | ALIAS expression] [COMMENT 'text']` or `name REMOVE DEFAULT | MATERIALIZED |
    COMMENT`: the column keeps its type.
    """
    name = cursor.name("a column")
    if cursor.accept("REMOVE"):
        if cursor.at("ALIAS"):
            hint = "DROP COLUMN it, and ADD COLUMN one that is stored"
            raise cursor.refused("REMOVE ALIAS is not supported", hint=hint)
        word = cursor.choose("DEFAULT", "MATERIALIZED", "COMMENT")
        if word == "COMMENT":
            return DescribeColumn(column=name, comment="", if_exists=if_exists)
        return DescribeColumn(column=name, kind=ColumnKind(word), no_default=True, if_exists=if_exists)
    kind, default = ColumnKind.DEFAULT, None
    comment: str | None = None
    while True:
        if default is None and _at_expression(cursor):
            kind, default = _expression(cursor)
        elif comment is None and cursor.accept("COMMENT"):
            comment = cursor.string("a comment")
        else:
            break
    _refuse_column_clauses(cursor)
    return DescribeColumn(column=name, default=default, kind=kind, comment=comment, if_exists=if_exists)


def at_description(cursor: Cursor) -> bool:
    """True if a column's name comes next, and no type behind it."""
    return cursor.is_name() and any(cursor.is_word(word, 1) for word in (*ColumnKind, "COMMENT", "REMOVE"))


def _at_expression(cursor: Cursor) -> bool:
    return any(cursor.at(kind) for kind in ColumnKind)


def _expression(cursor: Cursor) -> tuple[ColumnKind, str]:
    kind = ColumnKind(cursor.choose(*ColumnKind))
    return kind, cursor.expression("an expression", _ends_default, stop_at_comma=True)


def _at_nullability(cursor: Cursor) -> bool:
    return cursor.at("NULL") or cursor.at("NOT", "NULL")


def _codec(cursor: Cursor) -> str:
    cursor.expect("CODEC")
    cursor.notice("CODEC has no effect: all columns are compressed by zstd")
    cursor.expect_symbol("(")
    codec = cursor.expression("a codec")
    cursor.expect_symbol(")")
    return codec


def _ends_default(cursor: Cursor) -> bool:
    """True where the default's expression ends and the next clause of the column, or of ALTER, begins."""
    if cursor.at("COMMENT") and cursor.is_string(1):
        return True
    if cursor.at("CODEC") and cursor.is_symbol("(", 1):
        return True
    if (
        at_settings(cursor)
        or cursor.at("AFTER")
        or cursor.at("FIRST")
        or cursor.at("PRIMARY", "KEY")
        or cursor.at("TTL")
    ):
        return True
    return _at_nullability(cursor)


def _refuse_column_clauses(cursor: Cursor) -> None:
    word = cursor.peek().text.upper()
    if cursor.peek().kind is TokenKind.WORD and word in _COLUMN_REFUSED:
        raise cursor.refused(f"{word} of a column is not supported", hint=_COLUMN_REFUSED[word])
