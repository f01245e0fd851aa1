"""Definitions to their canonical text. Pure.

Covers: tables, views, operations of ALTER TABLE, and the phrases of any statement. Does not cover: statements that
nobody writes but users. Always holds: what is written is read as the same value; types in Spark's words, engines by
Tilth's names; names in quotes where needed.

Tests: tests/property/test_grammar_roundtrip.py, tests/unit/grammar/test_grammar_foreign.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import TypeVar, assert_never

from tilth.grammar import statements as st
from tilth.model.literal import ArrayValue, CastValue, MapValue, StructValue, TupleValue, Value
from tilth.model.table import Transform, TransformKind
from tilth.model.types import quoted, spark_name

#: Longer numbers keep their exponent.
_DIGITS_SPELLED_MAX = 308
_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE_SETTING = re.compile(r"-?[0-9]+(\.[0-9]+)?|true|false")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
_TO_ESCAPE = re.compile(r"[\\'\n\t\r\0]")
#: Words that begin something where a name may stand too.
_KEYWORDS_TEXT = (
    "ADD AFTER ALTER AS ASC ASYNC BECAUSE CLONE CLUSTER CODEC COMMENT CONSTRAINT DATE DEFAULT DELETE DESC DISTRIBUTED "
    "DROP ENGINE EXISTS LOGS SAMPLE "
    "FINAL FIRST FOR FORMAT FROM FUNCTION GC ID IF IN INDEX INTO LIKE MERGE MODIFY NOT NULL ON ORDER PARTITION "
    "POLICY PRIMARY PROJECTION REFRESH SELECT SET SETTINGS TABLE TIMESTAMP TO TTL UNIQUE UPDATE VALUES VIEW WHERE "
    "WITH"
)
_KEYWORDS = frozenset(_KEYWORDS_TEXT.split())


def render_operations(operations: Iterable[st.AlterOperation]) -> str:
    """Return the text behind the name of ALTER TABLE."""
    return listed_texts(operations, _operation)


def quoted_name(name: str) -> str:
    """The name, in backticks if it needs them."""
    if _SIMPLE_NAME.fullmatch(name) and name.upper() not in _KEYWORDS:
        return name
    return quoted(name)


def quoted_string(text: str) -> str:
    return f"'{_TO_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text)}'"


def table_text(table: st.CreateTable) -> str:
    lines = [f"CREATE TABLE {if_not_exists_text(table.if_not_exists)}{name_text(table.name)}", "("]
    lines.append(",\n".join(f"    {_column(column)}" for column in table.columns))
    version = f"({quoted_name(table.version_column)})" if table.version_column is not None else ""
    lines += [")", f"ENGINE = {table.engine}{version}"]
    if table.partition_by:
        lines.append(f"PARTITION BY {_tuple(table.partition_by, _transform)}")
    for clause, key in (
        ("ORDER BY", table.order_by),
        ("PRIMARY KEY", table.primary_key),
        ("UNIQUE KEY", table.unique_key),
    ):
        if key:
            lines.append(f"{clause} {_tuple(key, quoted_name)}")
        elif clause == "ORDER BY" and table.unique_key:
            # Without it, the unique key would be the sort key.
            lines.append("ORDER BY tuple()")
    if table.ttl is not None:
        lines.append(f"TTL {table.ttl}")
    if table.settings:
        lines.append(f"SETTINGS {settings_text(table.settings)}")
    if table.comment:
        lines.append(f"COMMENT {quoted_string(table.comment)}")
    return "\n".join(lines)


def view_text(view: st.CreateView) -> str:
    names = f"{name_text(view.name)} TO {name_text(view.target)}{names_text(view.columns)}"
    head = f"CREATE MATERIALIZED VIEW {if_not_exists_text(view.if_not_exists)}{names}{comment_clause(view.comment)}"
    return f"{head}\nAS {view.select}{settings_clause(view.settings)}"


def _operation(operation: st.AlterOperation) -> str:
    match operation:
        case st.AddColumn(column=column, if_not_exists=if_not_exists, after=after, first=first):
            position = " FIRST" if first else f" AFTER {quoted_name(after)}" if after is not None else ""
            return f"ADD COLUMN {if_not_exists_text(if_not_exists)}{_column(column)}{position}"
        case st.DropColumn(column=name, if_exists=if_exists):
            return f"DROP COLUMN {if_exists_text(if_exists)}{quoted_name(name)}"
        case st.ModifyColumn(column=column, if_exists=if_exists):
            return f"MODIFY COLUMN {if_exists_text(if_exists)}{_column(column)}"
        case st.DescribeColumn():
            return _described(operation)
        case st.RenameColumn(old=old, new=new, if_exists=if_exists):
            return f"RENAME COLUMN {if_exists_text(if_exists)}{quoted_name(old)} TO {quoted_name(new)}"
        case st.ModifySetting(settings=settings):
            return f"MODIFY SETTING {settings_text(settings)}"
        case st.ResetSetting(names=names):
            return f"RESET SETTING {listed_texts(names, quoted_name)}"
        case st.ModifyTtl(ttl=ttl):
            return f"MODIFY TTL {ttl}"
        case st.RemoveTtl():
            return "REMOVE TTL"
        case st.MutateUpdate(assignments=assignments, predicate=predicate):
            return f"UPDATE {listed_texts(assignments, assignment_text)} WHERE {predicate}"
        case st.MutateDelete(predicate=predicate):
            return f"DELETE WHERE {predicate}"
        case st.DropPartition(partition=partition):
            return f"DROP{partition_clause(partition)}"
        case st.UndropPartition(partition=partition):
            return f"UNDROP{partition_clause(partition)}"
    assert_never(operation)


# Phrases


def name_text(name: st.Name) -> str:
    return f"{quoted_name(name.database)}.{quoted_name(name.table)}" if name.database else quoted_name(name.table)


def names_text(names: tuple[str, ...]) -> str:
    return f" ({listed_texts(names, quoted_name)})" if names else ""


def _column(column: st.ColumnSpec) -> str:
    text = f"{quoted_name(column.name)} {column.declared}"
    if not column.nullable:
        text += " NOT NULL"
    elif column.states_null:
        text += " NULL"
    if column.default is not None:
        text += f" {column.kind} {column.default}"
    if column.codec is not None:
        text += f" CODEC({column.codec})"
    return text + comment_clause(column.comment)


def _transform(transform: Transform) -> str:
    column = quoted_name(transform.column)
    if transform.kind is TransformKind.IDENTITY:
        return column
    return f"{transform.kind}({column if transform.argument is None else f'{transform.argument}, {column}'})"


def settings_text(settings: st.SettingTexts) -> str:
    return listed_texts(
        settings, lambda s: f"{quoted_name(s[0])} = {s[1] if _BARE_SETTING.fullmatch(s[1]) else quoted_string(s[1])}"
    )


def settings_clause(settings: st.SettingTexts) -> str:
    return f" SETTINGS {settings_text(settings)}" if settings else ""


def _described(operation: st.DescribeColumn) -> str:
    text = f"MODIFY COLUMN {if_exists_text(operation.if_exists)}{quoted_name(operation.column)}"
    if operation.no_default:
        return f"{text} REMOVE {operation.kind}"
    if operation.default is not None:
        text += f" {operation.kind} {operation.default}"
    return text if operation.comment is None else f"{text} COMMENT {quoted_string(operation.comment)}"


def assignment_text(assignment: tuple[str, str]) -> str:
    return f"{quoted_name(assignment[0])} = {assignment[1]}"


def if_exists_text(words: bool) -> str:
    return "IF EXISTS " if words else ""


def if_not_exists_text(words: bool) -> str:
    return "IF NOT EXISTS " if words else ""


def comment_clause(comment: str) -> str:
    return f" COMMENT {quoted_string(comment)}" if comment else ""


def partition_clause(partition: st.Partition | None) -> str:
    if partition is None:
        return ""
    if isinstance(partition, st.PartitionId):
        return f" PARTITION ID {quoted_string(partition.id)}"
    return f" PARTITION tuple({listed_texts(partition.values, value_text)})"


def value_text(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            text = repr(value)
            return text if text.lstrip("-") in ("nan", "inf") or "e" in text else f"{text}e0"
        case Decimal() if value.adjusted() > _DIGITS_SPELLED_MAX:
            return str(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else f"{text}.0"
        case str():
            return quoted_string(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"TIMESTAMP {quoted_string(value.isoformat(sep=' '))}"
        case date():
            return f"DATE {quoted_string(value.isoformat())}"
        case ArrayValue(items=items):
            return f"[{listed_texts(items, value_text)}]"
        case TupleValue(items=items):
            return f"({listed_texts(items, value_text)})"
        case StructValue(fields=fields):
            named = listed_texts(fields, lambda field: f"{quoted_string(field[0])}, {value_text(field[1])}")
            return f"named_struct({named})"
        case CastValue(value=inner, type=data_type):
            return f"CAST({value_text(inner)} AS {spark_name(data_type)})"
        case MapValue(entries=entries):
            return f"{{{listed_texts(entries, lambda entry: f'{value_text(entry[0])}: {value_text(entry[1])}')}}}"
    assert_never(value)


_Item = TypeVar("_Item")


def _tuple(items: tuple[_Item, ...], show: Callable[[_Item], str]) -> str:
    return show(items[0]) if len(items) == 1 else f"({listed_texts(items, show)})"


def listed_texts(items: Iterable[_Item], show: Callable[[_Item], str]) -> str:
    return ", ".join(show(item) for item in items)
