"""Checks that the server makes of a definition before anything exists, made without one.

Covers: types, keys, partitions, TTL, settings of CREATE TABLE; expressions and SELECTs in ClickHouse's dialect;
defaults that Spark computes. Does not cover: what Spark says of an expression or a view, other tables. Pure.

Tests: tests/unit/migration/test_translate_clickhouse.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tilth.base.errors import TilthError
from tilth.clickhouse.dialect import in_sparks_words, to_spark
from tilth.grammar.statements import AddColumn, AlterTable, ColumnSpec, CreateTable, CreateView, Name, Statement
from tilth.ingest import check_kafka
from tilth.model.table import ColumnKind, Engine, KafkaDef, Schema
from tilth.model.ttl import read_ttl
from tilth.query.errors import BadDefinitionError
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS, check_together, check_typed
from tilth.statements.definitions.clauses import can_be_key, keyed_schema
from tilth.statements.definitions.columns import column_of
from tilth.statements.definitions.tables import find_column
from tilth.statements.definitions.type_defaults import without_null
from tilth.storage import check_partition_by
from tilth.warehouse.allowed.nesting import check_depth

#: Call of a function, but of those that make literals.
_CALL = re.compile(r"\b(?!tuple|array|map|named_struct|struct|cast\b)\w+\s*\(", re.IGNORECASE)
_TEXT = re.compile(r"'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
#: A function of ClickHouse under a name of its own; those that only check a range compute as Spark does.
_OTHER_FUNCTION = re.compile(r"\bclickhouse_(?!fits)\w+\(", re.IGNORECASE)
_ANY = Name(None, "t")
#: Default that ClickHouse writes as generateUUIDv4().
UUID_CALL = "uuid()"


def check(statement: Statement, *, is_nullable: bool) -> None:
    """Raises the TilthError with which a server would refuse the statement. `is_nullable`: columns may be NULL unless
    they say otherwise.
    """
    if isinstance(statement, CreateView):
        check_depth(statement.select)
        in_sparks_words(statement)
    if isinstance(statement, CreateTable):
        for spec in statement.columns:
            check_depth(spec.default or "")
        if not is_nullable:
            in_sparks_words(statement)
            _check_calls(statement)
        _check_table(statement, _schema_of(statement, is_nullable=is_nullable))


def _check_calls(statement: CreateTable) -> None:
    """Raises UnsupportedSqlError for a default that calls a function of ClickHouse which may mean another one here."""
    for spec in statement.columns:
        text = spec.default or ""
        if "(" in text and _CALL.search(_TEXT.sub("''", text)) and text.strip().lower() != UUID_CALL:
            to_spark(f"SELECT {text}")


def spark_defaults(columns: Sequence[ColumnSpec]) -> Iterator[tuple[str, str]]:
    """Yield name and DEFAULT of each column whose expression goes to Spark as it is, and calls functions by names that
    dialect = 'clickhouse' reads as other ones.
    """
    for spec in columns:
        text = spec.default or ""
        if "(" not in text or not _OTHER_FUNCTION.search(_in_spark(text)):
            continue
        statement = AlterTable(name=_ANY, operations=(AddColumn(column=spec),))
        if in_sparks_words(statement) is statement:
            yield spec.name, text


def _in_spark(expression: str) -> str:
    """Return the expression in Spark's words; empty where it has none."""
    try:
        return to_spark(f"SELECT {expression}")
    except TilthError:
        return ""


def _schema_of(statement: CreateTable, *, is_nullable: bool) -> Schema:
    specs = statement.columns if is_nullable else tuple(without_null(spec) for spec in statement.columns)
    return Schema(
        columns=tuple(
            column_of(spec, identity) for identity, spec in enumerate(specs, 1) if spec.kind is not ColumnKind.ALIAS
        ),
        aliases=tuple(
            column_of(spec, -identity) for identity, spec in enumerate(specs, 1) if spec.kind is ColumnKind.ALIAS
        ),
    )


def _check_table(statement: CreateTable, schema: Schema) -> None:
    given = dict(statement.settings)
    if statement.engine is Engine.KAFKA:
        settings = KAFKA_TABLE_SETTINGS.canonical(given)
        check_typed(settings)
        check_kafka(
            KafkaDef(
                uuid="",
                database=statement.name.database or "default",
                name=statement.name.table,
                schema=schema,
                settings=settings,
            )
        )
        return
    check_together(TABLE_SETTINGS.canonical(given))
    schema = keyed_schema(statement, schema)
    if statement.ttl is not None:
        read_ttl(statement.ttl, schema)
    for transform in statement.partition_by:
        find_column(schema, transform.column, "PARTITION BY")
    check_partition_by(schema, statement.partition_by)
    for name in (*statement.order_by, *statement.primary_key):
        column = find_column(schema, name, "ORDER BY")
        if not can_be_key(column.type):
            raise BadDefinitionError(
                "rows cannot be sorted by a column of this type", column=column.name, type=column.declared_type
            )
