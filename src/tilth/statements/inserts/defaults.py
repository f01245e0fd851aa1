"""Defaults of columns, MATERIALIZED and ALIAS: read once, when a statement gives them, and kept as Spark reads them.

Covers: a literal here, any other expression by Spark; what rows get that were there before the column; the values that
are computed for each INSERT. Does not cover: Spark's side (query/worker/expressions.py), what other columns mean for
keys (definitions/clauses.py).
Always holds: a default that is kept is a literal that says its type, or an expression that Spark has analysed and
computed once, or one over other columns that gives the same for a row whenever it is computed; times without a zone in
a literal were read in the session's zone, or in the column's; it keeps the column's checks. All defaults of one INSERT
are computed at one instant.

Tests: tests/unit/statements/inserts/test_insert.py, tests/integration/sql/test_defaults_on_spark.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, tzinfo
from decimal import InvalidOperation

import msgspec
import pyarrow as pa

from tilth.clickhouse.dialect_sessions import check_zones
from tilth.clickhouse.dialect_words import CLICKHOUSE
from tilth.control.context.services import Call, Services, run_on_worker
from tilth.formats import BadValueError, Reading, Stored, check_array, to_stored
from tilth.ingest import BadDefaultError
from tilth.model.computed import (
    circle,
    named_ids,
    second_unit,
    shown_expression,
    stored_ids,
    value_text,
    written_length,
)
from tilth.model.table import Column, ColumnKind, Schema
from tilth.model.text.literals import spark_literal
from tilth.model.text.zones import UTC_NAMES
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct, spark_name
from tilth.query.errors import BadDefinitionError
from tilth.query.language.unpacked import read_own
from tilth.query.language.values import literal
from tilth.query.snapshots.protocol import CheckedDefault, CheckedExpressions, ComputeTask, ExpressionsTask, stream_of
from tilth.statements.errors import BadAlterError
from tilth.statements.inserts.arrow_streams import too_large
from tilth.statements.inserts.rows import Compute
from tilth.storage import array_of, arrow_type, exact_cast

#: Expressions of the instant that need no Spark, by the types that they are of.
_NOW = re.compile(r"(?:now\s*\(\s*\)|current_timestamp(?:\s*\(\s*\))?)", re.IGNORECASE)
_TODAY = re.compile(r"(?:curdate\s*\(\s*\)|current_date(?:\s*\(\s*\))?)", re.IGNORECASE)

#: Longest expression, with all that it is made of written out.
EXPRESSION_LENGTH_MAX = 64 * 1024

_EPOCH_DAY = date(1970, 1, 1).toordinal()


def settled(
    services: Services,
    call: Call,
    table: str,
    schema: Schema,
    given: Collection[int],
    *,
    added: Collection[int] = (),
    is_kafka: bool = False,
) -> Schema:
    """The columns with their defaults as they are kept; `given`: the ids of those whose defaults are new, or are to be
    read by another type; `added`: of those that rows are there without.

    Raises BadValueError, BadDefaultError and the errors of query/worker/expressions.py for a default that is none of
    its column.
    """
    reading = Reading(zone=call.zone)
    schema = _each(schema, {each.id: _as_given(each, schema) for each in schema.all_columns if each.id in given})
    with_default = [column for column in schema.all_columns if column.id in given and column.default is not None]
    if is_kafka:
        _check_no_kinds(table, with_default)
    known = {
        column.id: value
        for column in with_default
        if column.kind is not ColumnKind.ALIAS and (value := literal(column.default or "")) is not None
    }
    checked = _checked(services, call, table, schema, [column for column in with_default if column.id not in known])
    found: dict[int, Column] = {}
    for column in with_default:
        if column.id in known:
            now = found[column.id] = _constant(column, _stored(column, known[column.id][0], reading))
        else:
            answer = checked[column.name]
            if answer.expression:
                found[column.id] = _over_columns(column, answer, table=table, is_kafka=is_kafka, added=added)
                continue
            value = stored_of(answer.scalar, column.type)
            now = _constant(column, _in_precision(column, value) if answer.is_computed else value)
            found[column.id] = _computed(column, kafka=table if is_kafka else "") if answer.is_computed else now
        if column.id in added:
            found[column.id] = msgspec.structs.replace(found[column.id], older_default=now.default)
    kept = _each(schema, found)
    _check_ends(kept)
    if call.settings.dialect == CLICKHOUSE:
        named = frozenset[int]().union(*(stored_ids(kept, each.expression) for each in found.values()))
        check_zones(Schema(columns=tuple(each for each in kept.columns if each.id in named)), UTC_NAMES[0], table)
    return kept


def altered(
    services: Services, call: Call, table: str, before: Schema, schema: Schema, *, is_kafka: bool = False
) -> Schema:
    """The columns that an ALTER makes of those of before, with their defaults as they are kept; what it adds to a table
    of rows has one value for older rows. Raises as `settled` does.
    """
    known = {column.id: column for column in before.all_columns}
    given = {
        column.id
        for column in schema.all_columns
        if (old := known.get(column.id)) is None or _given_shape(old) != _given_shape(column)
    }
    # An expression is checked anew where what it names has another type.
    retyped = {each.id for each in schema.all_columns if each.id in known and known[each.id].type != each.type}
    given |= {each.id for each in schema.all_columns if not retyped.isdisjoint(named_ids(each.expression))}
    added = () if is_kafka else given - known.keys()
    kept = settled(services, call, table, schema, given, added=added, is_kafka=is_kafka)
    written = {each.id for each in schema.all_columns if each.id in given and not each.expression}
    renamed = {each.id for each in schema.all_columns if each.id in known and known[each.id].name != each.name}
    for column in kept.all_columns:
        if column.id in written and not renamed.isdisjoint(named_ids(column.expression)):
            # The column that an old name means would depend on the order of the operations.
            hint = "write RENAME COLUMN in a statement of its own"
            raise BadAlterError(
                "an expression names a column that is renamed", table=table, column=column.name, hint=hint
            )
    return kept


def _given_shape(column: Column) -> tuple[object, ...]:
    """Return the facts of a column after a change of which its expression is read again."""
    return column.kind, column.written_default, column.expression, column.type, column.checks


def _each(schema: Schema, found: Mapping[int, Column]) -> Schema:
    """Return the columns, those that were found in their positions."""
    columns, aliases = (tuple(found.get(each.id, each) for each in kind) for kind in (schema.columns, schema.aliases))
    return Schema(columns=columns, aliases=aliases)


def _as_given(column: Column, schema: Schema) -> Column:
    """Return the column with the default that was written, unless that is a constant."""
    if column.expression:
        text = shown_expression(column, schema)
        return msgspec.structs.replace(column, default=text, written_default=text, expression=())
    if not column.is_default_computed:
        return column
    return msgspec.structs.replace(column, default=column.written_default)


def _check_no_kinds(table: str, columns: Sequence[Column]) -> None:
    """Raises BadDefaultError for a MATERIALIZED or ALIAS column of a Kafka table."""
    for column in columns:
        if column.kind is not ColumnKind.DEFAULT:
            hint = "give it to the target's column, or compute it in the view"
            message = f"a Kafka table has no {column.kind} columns"
            raise BadDefaultError(message, table=table, column=column.name, hint=hint)


def _over_columns(
    column: Column, answer: CheckedDefault, *, table: str, is_kafka: bool, added: Collection[int]
) -> Column:
    """Return the column with its expression. Raises BadDefaultError and BadValueError."""
    if is_kafka:
        hint = "give the default to the target's column, or compute it in the view"
        raise BadDefaultError("must be a constant in a Kafka table", table=table, column=column.name, hint=hint)
    if answer.may_be_null and not column.nullable and column.id in added:
        hint = f"write coalesce({column.default}, ..), or leave NOT NULL out"
        raise BadValueError("a NOT NULL column may get NULL in rows that are there", column=column.name, hint=hint)
    return msgspec.structs.replace(
        column, default=None, written_default=None, is_default_computed=None, expression=answer.expression
    )


def _check_ends(schema: Schema) -> None:
    """Raises BadDefinitionError for columns that are made of each other, or of more than can be written out."""
    found = circle(schema)
    if found:
        names = ", ".join(column.name for column in found)
        raise BadDefinitionError("these columns are computed from each other", columns=names)
    for column in schema.all_columns:
        length = written_length(schema, column)
        if length > EXPRESSION_LENGTH_MAX:
            hint = "make it of stored columns rather than of others that are computed"
            message = "the expression is too long with all that it is made of"
            raise BadDefinitionError(message, column=column.name, characters=length, hint=hint)


def _checked(
    services: Services, call: Call, table: str, schema: Schema, columns: Sequence[Column]
) -> dict[str, CheckedDefault]:
    """Return Spark's check of these defaults, by column."""
    if not columns:
        return {}
    task = ExpressionsTask(
        table=table,
        schema=schema,
        defaults=tuple(column.name for column in columns),
        zone=call.zone_name,
        now_ms=services.clock.now_ms(),
    )
    found = msgspec.msgpack.decode(run_on_worker(services, task), type=CheckedExpressions)
    return {each.column: each for each in found.defaults}


def _stored(column: Column, value: object, reading: Reading) -> Stored:
    try:
        return to_stored(value, column.type, reading.of(column))
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise BadValueError(
            "the default does not fit the column",
            column=column.name,
            type=column.declared_type,
            default=column.written_default,
            why=error,
        ) from error


def _constant(column: Column, stored: Stored) -> Column:
    if stored is None and not column.nullable:
        raise BadValueError("the default of a NOT NULL column cannot be NULL", column=column.name)
    check_array(column, array_of([stored], column.type), position=1)
    text = spark_literal(stored, column.type)
    return msgspec.structs.replace(column, default=text, is_default_computed=False)


def _computed(column: Column, *, kafka: str) -> Column:
    """Return the column with its default as an expression. `kafka`: its Kafka table's name; empty: it has none."""
    if kafka:
        hint = "give the default to the target's column, or compute it in the view"
        raise BadDefaultError("must be a constant in a Kafka table", table=kafka, column=column.name, hint=hint)
    # now() is finer than a DateTime.
    text, unit = column.default or "", second_unit(column)
    if unit > 1:
        text = f"timestamp_micros(unix_micros(CAST(({text}\n) AS timestamp)) div {unit} * {unit})"
    return msgspec.structs.replace(column, default=text, is_default_computed=True)


def _in_precision(column: Column, value: Stored) -> Stored:
    """Return a computed value with no more digits of the second than the column takes."""
    unit = second_unit(column)
    return value if value is None or unit == 1 else value // unit * unit


def stored_of(value: pa.Scalar, data_type: DataType) -> Stored:
    """Return a value of Arrow as `to_stored` would give it."""
    if not value.is_valid:
        return None
    match data_type:
        case Array(element=element):
            return [stored_of(item, element) for item in value.values]
        case Map(key=key, value=of):
            return [(stored_of(pair["key"], key), stored_of(pair["value"], of)) for pair in value.values]
        case Struct(fields=fields):
            return {field.name: stored_of(value[field.name], field.type) for field in fields}
        case Simple(kind=Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ):
            return value.value
        case Simple() | Decimal():
            return value.as_py()


# Computed for each INSERT


def computing(services: Services, call: Call, schema: Schema) -> Compute:
    """Return a function that computes defaults and expressions for one INSERT into a table with these columns: of the
    time here, all else by Spark.
    """
    now_us = services.clock.now_ms() * 1000

    def compute(columns: Sequence[Column], rows: int | pa.Table) -> Mapping[str, pa.Array]:
        names = tuple(column.name for column in columns)
        if isinstance(rows, pa.Table):
            given = Schema(columns=tuple(found for name in rows.column_names if (found := schema.find(name))))
            task = ComputeTask(
                columns=names,
                expressions=tuple(value_text(column, schema) for column in columns),
                rows=rows.num_rows,
                schema=given,
                given=stream_of(rows),
                zone=UTC_NAMES[0],
                now_us=now_us,
            )
        else:
            local = {column.name: of_instant(column, now_us, call.zone) for column in columns}
            if None not in local.values():
                return {column.name: array_of([local[column.name]] * rows, column.type) for column in columns}
            task = ComputeTask(
                columns=names,
                expressions=tuple(f"CAST({column.default}\n AS {spark_name(column.type)})" for column in columns),
                rows=rows,
                zone=call.zone_name,
                now_us=now_us,
            )
        limit = call.settings.max_insert_bytes
        found = read_own(run_on_worker(services, task), limit, lambda size: too_large(size, limit)).combine_chunks()
        return {column.name: _of_type(found.column(column.name), column) for column in columns}

    return compute


def _of_type(values: pa.ChunkedArray, column: Column) -> pa.Array:
    return exact_cast(pa.concat_arrays(values.chunks), arrow_type(column.type))


def of_instant(column: Column, now_us: int, zone: tzinfo) -> Stored:
    """Return the value of a default that depends on the time only; None: Spark has to compute it."""
    text = (column.written_default or "").strip()
    if column.type == Simple(Kind.TIMESTAMP) and _NOW.fullmatch(text):
        return _in_precision(column, now_us)
    if column.type == Simple(Kind.DATE) and _TODAY.fullmatch(text):
        return datetime.fromtimestamp(now_us // 1_000_000, zone).toordinal() - _EPOCH_DAY
    return None
