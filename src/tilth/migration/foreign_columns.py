"""Columns as Spark SQL and Impala write them, read for Tilth. Pure.

Covers: names, types with the comments of their fields, defaults, generated columns, attributes of Kudu. Does not cover:
clauses behind the columns (lake.py, kudu.py). Always holds: a type is read by Tilth's grammar before it is used.

Tests: tests/unit/migration/test_translate_lake.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.render import quoted_string
from tilth.grammar.statements import ColumnSpec, Name
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import TokenKind, next_token, string_value
from tilth.grammar.types import DEPTH_MAX, WrittenType, parse_type
from tilth.migration.draft import Draft, message_without_position, shown, without_columns
from tilth.migration.report import Difference
from tilth.model.table import ColumnKind
from tilth.model.types import quoted

_INSTEAD = {
    "variant": ("STRING", "kept as text", "get_json_object when reading"),
    "interval": ("BIGINT", "a number of units", ""),
    "geometry": ("BINARY", "functions of geometries are not there", ""),
    "geography": ("BINARY", "functions of geometries are not there", ""),
    "void": ("STRING", "a column without values has a type here", "leave the column out"),
    "unixtime_micros": ("TIMESTAMP", "an instant", ""),
    "fixed": ("BINARY", "the length is not checked", ""),
    "uuid": ("UUID", "", ""),
    "timestamptz": ("TIMESTAMP", "", ""),
}
#: Attributes of Kudu's columns: a word and a value behind it.
_STORAGE_ATTRIBUTES = ("ENCODING", "COMPRESSION", "BLOCK_SIZE")


@dataclass(slots=True)
class ForeignTable:
    """A table as it is read, clause by clause."""

    name: Name
    if_not_exists: bool = False
    columns: list[ColumnSpec] = field(default_factory=list)
    #: Columns of PRIMARY KEY, among the columns or at one of them.
    primary_key: tuple[str, ...] = ()
    is_key_unique: bool = True
    #: Types that the system spells as another one here, by their names without brackets.
    spelled: Mapping[str, str] = field(default_factory=dict)


def text_value(cursor: Cursor, what: str) -> str:
    """Read a text in single or double quotes."""
    token = cursor.peek()
    if token.kind is TokenKind.QUOTED and token.text[0] == '"':
        return string_value(cursor.advance())
    return cursor.string(what)


def read_name(draft: Draft, cursor: Cursor) -> Name:
    """`table`, `database.table` or `catalog.database.table`, of which the catalog is left out with a finding."""
    at = cursor.peek().start
    parts = [cursor.name("the name of a table")]
    while cursor.accept_symbol("."):
        parts.append(cursor.name("the name of a table"))
    if len(parts) > 2:
        what = f"catalog {shown('.'.join(parts[:-2]))}"
        draft.find(
            Difference.DIFFERS, at, what, "there is one catalog", "databases of several catalogs need other names"
        )
    if len(parts) == 2 and parts[0].lower() in ("delta", "iceberg", "parquet") and "/" in parts[1]:
        raise draft.refused(at, f"a table by its path, {shown(parts[1])}", "tables have names", "write database.table")
    return Name(parts[-2] if len(parts) > 1 else None, parts[-1])


def read_table(draft: Draft, cursor: Cursor, spelled: Mapping[str, str], elsewhere: str = "elsewhere") -> ForeignTable:
    """Read what follows CREATE TABLE, up to the clauses behind the columns. `elsewhere`: where the table is now.

    Raises SqlSyntaxError and RefusedError.
    """
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    table = ForeignTable(name=read_name(draft, cursor), if_not_exists=if_not_exists, spelled=spelled)
    if not cursor.is_symbol("("):
        raise without_columns(draft, cursor.peek().start, elsewhere)
    read_columns(draft, cursor, table)
    return table


def read_columns(draft: Draft, cursor: Cursor, table: ForeignTable) -> None:
    """Read the columns in brackets, with keys and constraints among them. Raises SqlSyntaxError and RefusedError."""
    cursor.expect_symbol("(")
    while True:
        if not _read_element(draft, cursor, table):
            _read_column(draft, cursor, table)
        if cursor.accept_symbol(")"):
            break
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')' after the column")
    names = [column.name.lower() for column in table.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise draft.refused(0, f"column {shown(twice)} is there twice", "names are compared without regard to case")


def _read_element(draft: Draft, cursor: Cursor, table: ForeignTable) -> bool:
    at = cursor.peek().start
    if cursor.at("NON", "UNIQUE", "PRIMARY", "KEY"):
        cursor.accept("NON", "UNIQUE")
        table.is_key_unique = False
    if cursor.at("PRIMARY", "KEY") and cursor.is_symbol("(", 2):
        cursor.accept("PRIMARY", "KEY")
        table.primary_key = _names_in_brackets(cursor)
        return True
    is_named = cursor.at("CONSTRAINT") and cursor.is_name(1)
    ahead = 2 if is_named else 0
    if not any(cursor.is_word(word, ahead) for word in ("CHECK", "PRIMARY", "FOREIGN")) or not (
        is_named or cursor.is_symbol("(", 1) or cursor.is_word("KEY", 1)
    ):
        return False
    text = cursor.expression("a constraint", stop_at_comma=True)
    why = "rows are not checked by expressions, and a key of this kind is not enforced elsewhere either"
    draft.find(Difference.LEFT_OUT, at, shown(text), why, "UNIQUE KEY keeps one row for each key")
    return True


def _names_in_brackets(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect_symbol("(")
    names = [cursor.name("a column")]
    while cursor.accept_symbol(","):
        names.append(cursor.name("a column"))
    cursor.expect_symbol(")")
    return tuple(names)


def _read_column(draft: Draft, cursor: Cursor, table: ForeignTable) -> None:
    at = cursor.peek().start
    name = cursor.name("a column")
    text = read_type(draft, cursor, name)
    text = table.spelled.get(text.lower(), text)
    written = _parsed(draft, at, text)
    facts = _Facts()
    while _read_attribute(draft, cursor, table, name, facts):
        pass
    if facts.is_left_out:
        return
    table.columns.append(
        ColumnSpec(
            name=name,
            type=written.type,
            declared=written.text,
            checks=written.checks,
            zones=written.zones,
            nullable=not facts.is_not_null,
            default=facts.default,
            kind=facts.kind,
            comment=facts.comment,
            states_null=written.is_nullable or facts.is_null,
        )
    )


def _parsed(draft: Draft, at: int, text: str) -> WrittenType:
    cursor = Cursor(text)
    try:
        written = parse_type(cursor)
        cursor.end()
    except SqlSyntaxError as error:
        raise draft.refused(at, message_without_position(error), instead=error.hint) from error
    return written


@dataclass(slots=True)
class _Facts:
    is_not_null: bool = False
    is_null: bool = False
    default: str | None = None
    kind: ColumnKind = ColumnKind.DEFAULT
    comment: str = ""
    is_left_out: bool = False


def _read_attribute(draft: Draft, cursor: Cursor, table: ForeignTable, name: str, facts: _Facts) -> bool:
    at = cursor.peek().start
    if cursor.accept("NOT", "NULL"):
        facts.is_not_null = True
    elif cursor.accept("NULL"):
        facts.is_null = True
    elif cursor.accept("COMMENT"):
        facts.comment = text_value(cursor, "a comment")
    elif cursor.accept("DEFAULT"):
        facts.default = _in_single_quotes(cursor.expression("an expression", _ends_expression, stop_at_comma=True))
    elif cursor.at("GENERATED"):
        _read_generated(draft, cursor, name, facts)
    elif cursor.at("PRIMARY", "KEY") or cursor.at("NON", "UNIQUE", "PRIMARY", "KEY"):
        table.is_key_unique = not cursor.accept("NON", "UNIQUE")
        cursor.expect("PRIMARY", "KEY")
        table.primary_key = (name,)
    elif any(cursor.at(word) for word in _STORAGE_ATTRIBUTES):
        word = cursor.choose(*_STORAGE_ATTRIBUTES)
        value = cursor.advance().text
        why = "columns are encoded by themselves and compressed by zstd"
        draft.find(Difference.NOTE, at, f"{word} {shown(value)} of column {shown(name)}", why)
    elif cursor.accept("COLLATE"):
        value = cursor.advance().text
        why = "texts are compared by their bytes"
        draft.find(Difference.DIFFERS, at, f"COLLATE {shown(value)} of column {shown(name)}", why)
    else:
        return False
    return True


def _in_single_quotes(text: str) -> str:
    """Return the expression with its texts in single quotes: in double quotes Tilth would read names of columns."""
    pieces: list[str] = []
    at = 0
    token = next_token(text, 0)
    while token.kind is not TokenKind.END:
        if token.text[0] == '"':
            pieces += (text[at : token.start], quoted_string(string_value(token)))
            at = token.end
        token = next_token(text, token.end)
    return "".join([*pieces, text[at:]])


def _ends_expression(cursor: Cursor) -> bool:
    starts = ("COMMENT", "ENCODING", "COMPRESSION", "BLOCK_SIZE", "NULL", "PRIMARY", "COLLATE")
    return cursor.at("NOT", "NULL") or any(cursor.at(word) for word in starts)


def _read_generated(draft: Draft, cursor: Cursor, name: str, facts: _Facts) -> None:
    at = cursor.peek().start
    cursor.expect("GENERATED")
    if not cursor.accept("ALWAYS"):
        cursor.expect("BY", "DEFAULT")
    cursor.expect("AS")
    if cursor.accept("IDENTITY"):
        if cursor.is_symbol("("):
            cursor.advance()
            cursor.expression("options")
            cursor.expect_symbol(")")
        why = "rows get no numbers"
        instead = "the column without GENERATED, filled by who writes, or DEFAULT uuid()"
        raise draft.refused(at, f"column {shown(name)} GENERATED .. AS IDENTITY", why, instead)
    cursor.expect_symbol("(")
    facts.default = _in_single_quotes(cursor.expression("an expression"))
    facts.kind = ColumnKind.MATERIALIZED
    cursor.expect_symbol(")")
    why = "it is computed in UTC, SELECT * leaves it out, and an INSERT that brings it is refused"
    draft.find(Difference.DIFFERS, at, f"column {shown(name)} GENERATED is created as MATERIALIZED", why)


# Types


def read_type(draft: Draft, cursor: Cursor, column: str, depth: int = 0) -> str:
    """Read a type and return it in Tilth's spelling: without NOT NULL and comments of fields, which leave findings."""
    if depth > DEPTH_MAX:
        raise cursor.refused(f"types are nested more than {DEPTH_MAX} deep")
    token = cursor.peek()
    name = cursor.name("a type")
    lowered = name.lower()
    if lowered in ("array", "map", "struct") and cursor.is_symbol("<"):
        cursor.advance()
        read = {"array": _list_of, "map": _list_of, "struct": _fields}[lowered]
        inner = read(draft, cursor, column, depth)
        cursor.expect_symbol(">")
        return f"{name}<{inner}>"
    arguments = ""
    if cursor.is_symbol("("):
        begin = cursor.peek().start
        cursor.advance()
        if not cursor.is_symbol(")"):
            cursor.expression("arguments of a type")
        cursor.expect_symbol(")")
        arguments = cursor.text[begin : cursor.last_end]
    if lowered == "interval":
        while any(cursor.at(word) for word in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO")):
            cursor.advance()
    if lowered == "double" and cursor.accept("PRECISION"):
        return name
    if lowered in _INSTEAD:
        instead, why, hint = _INSTEAD[lowered]
        if why:
            what = f"{shown(column)} {shown(name + arguments)} is created as {instead}"
            draft.find(Difference.DIFFERS, token.start, what, why, hint)
        return instead
    return f"{name}{arguments}"


def _list_of(draft: Draft, cursor: Cursor, column: str, depth: int) -> str:
    types = [read_type(draft, cursor, column, depth + 1)]
    while cursor.accept_symbol(","):
        types.append(read_type(draft, cursor, column, depth + 1))
    return ", ".join(types)


def _fields(draft: Draft, cursor: Cursor, column: str, depth: int) -> str:
    fields: list[str] = []
    while True:
        at = cursor.peek().start
        name = cursor.name("a field")
        cursor.accept_symbol(":")
        fields.append(f"{quoted(name)}: {read_type(draft, cursor, column, depth + 1)}")
        lost: list[str] = []
        if cursor.accept("NOT", "NULL"):
            lost.append("NOT NULL")
        if cursor.accept("COMMENT"):
            text_value(cursor, "a comment")
            lost.append("COMMENT")
        if lost:
            what = f"{' and '.join(lost)} of field {shown(name)} in column {shown(column)}"
            kind = Difference.LEFT_OUT if "NOT NULL" in lost else Difference.NOTE
            draft.find(kind, at, what, "fields have a name and a type")
        if not cursor.accept_symbol(","):
            return ", ".join(fields)
