"""INSERT: values, a query, or data in a format. Pure.

Always holds: data behind FORMAT is not read; it begins behind the line of FORMAT, or behind the blank after it.
"""

from __future__ import annotations

import re

from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.literals import is_literal_call, parse_settings, parse_value
from tilth.grammar.phrases import parse_name, parse_names
from tilth.grammar.statements import InsertData, InsertQuery, InsertValues
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import TokenKind
from tilth.model.literal import Value

_QUERY_WORDS = ("SELECT", "WITH", "FROM", "TABLE")
_HINT = "VALUES takes literals only: use INSERT .. SELECT"
_BEFORE_DATA = re.compile(r"[ \t]*(?:\r?\n)?")


def parse_insert(cursor: Cursor) -> InsertValues | InsertQuery | InsertData:
    """Read what follows INSERT."""
    if cursor.at("OVERWRITE"):
        raise cursor.refused("INSERT OVERWRITE is not supported", hint="drop the partition, then INSERT INTO")
    cursor.expect("INTO")
    cursor.accept("TABLE")
    if cursor.at("FUNCTION"):
        raise cursor.refused(
            "INSERT INTO FUNCTION is not supported",
            hint="the client writes files: tilth sql -c 'SELECT ..' --format csv > x.csv",
        )
    name = parse_name(cursor)
    if cursor.at("PARTITION"):
        raise cursor.refused(
            "INSERT .. PARTITION is not supported", hint="each row's values determine its partition; leave it out"
        )
    columns: tuple[str, ...] = ()
    if cursor.is_symbol("(") and not _is_bracketed_query(cursor):
        if cursor.is_symbol("*", 1):
            hint = "list the columns that are given; the others get their defaults"
            raise cursor.refused("INSERT INTO t (* EXCEPT ..) is not supported", hint=hint)
        columns = parse_names(cursor, "a column")
    settings = parse_settings(cursor) if cursor.accept("SETTINGS") else ()
    if cursor.accept("FORMAT"):
        format_name = cursor.name("the name of a format")
        if format_name.upper() != "VALUES":
            data = _data(cursor)
            return InsertData(name=name, columns=columns, settings=settings, format=format_name, data=data)
        return InsertValues(name=name, columns=columns, settings=settings, rows=_rows(cursor, len(columns)))
    if cursor.accept("VALUES"):
        return InsertValues(name=name, columns=columns, settings=settings, rows=_rows(cursor, len(columns)))
    if cursor.at("FROM", "INFILE"):
        raise cursor.refused("INSERT .. FROM INFILE is not supported", hint="send the file's text behind FORMAT")
    if _is_query(cursor, 0) or _is_bracketed_query(cursor):
        return InsertQuery(name=name, columns=columns, settings=settings, query=cursor.expression("a query"))
    raise cursor.expected("VALUES, SELECT or FORMAT", words=("VALUES", "SELECT", "FORMAT", "SETTINGS"))


def parse_literal(text: str) -> Value:
    """Return the value of a literal as it would stand in a row. Raises SqlSyntaxError, also for several values."""
    cursor = Cursor(f"({text})")
    rows = _rows(cursor, 1)
    cursor.end()
    if len(rows) != 1:
        raise cursor.error("more than one row")
    return rows[0][0]


def _is_query(cursor: Cursor, ahead: int) -> bool:
    return any(cursor.is_word(word, ahead) for word in _QUERY_WORDS)


def _is_bracketed_query(cursor: Cursor) -> bool:
    """`(SELECT ..`, but not a list of columns of which the first is called so."""
    if not (cursor.is_symbol("(") and _is_query(cursor, 1)):
        return False
    return not (cursor.is_symbol(",", 2) or cursor.is_symbol(")", 2))


def _data(cursor: Cursor) -> str:
    begin = _BEFORE_DATA.match(cursor.text, cursor.last_end)
    start = begin.end() if begin is not None else cursor.last_end
    cursor.jump(len(cursor.text))
    data = cursor.text[start:]
    return "" if data.strip() == ";" else data


def _rows(cursor: Cursor, columns: int) -> tuple[tuple[Value, ...], ...]:
    rows: list[tuple[Value, ...]] = []
    while True:
        token = cursor.peek()
        cursor.expect_symbol("(")
        row = _row(cursor)
        wanted = columns or len(rows[0] if rows else row)
        if len(row) != wanted:
            raise cursor.error(f"row {len(rows) + 1} has {len(row)} values, expected {wanted}", at=token)
        rows.append(row)
        if cursor.accept_symbol(","):
            continue
        if not cursor.at_end:
            raise cursor.expected("',' and the next row, or the end")
        return tuple(rows)


def _row(cursor: Cursor) -> tuple[Value, ...]:
    row = [_value(cursor)]
    while not cursor.accept_symbol(")"):
        if not cursor.accept_symbol(","):
            raise _not_a_literal(cursor, "',' or ')'")
        row.append(_value(cursor))
    return tuple(row)


def _value(cursor: Cursor) -> Value:
    token = cursor.peek()
    if token.kind is TokenKind.WORD:
        is_call = cursor.is_symbol("(", 1) and not is_literal_call(token.text)
        if is_call or cursor.at("DEFAULT"):
            raise _not_a_literal(cursor, "a literal")
    return parse_value(cursor, hint=_HINT)


def _not_a_literal(cursor: Cursor, expected: str) -> SqlSyntaxError:
    """Return the error for what is no literal: an expression is refused by name."""
    message = f"expected {expected}, found {cursor.found()}"
    if cursor.at("DEFAULT"):
        hint = "leave the column out of the list of columns: it gets its default"
        return cursor.refused(f"DEFAULT in VALUES is not supported: {message}", hint=hint)
    if cursor.at_end:
        return cursor.error(message, hint=_HINT)
    return cursor.refused(f"expressions in VALUES are not supported: {message}", hint=_HINT)
