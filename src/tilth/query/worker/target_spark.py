"""Rows of a frame as rows of a table: in its columns, with its defaults, as its types, or refused.

Covers: casts that lose nothing, columns that the rows do not bring, computed columns; reading a query's text.
Does not cover: writing them (writing_spark.py). Always holds: a value that does not fit fails; a text of a user is
checked before Spark gets it, a default each time.

Tests: tests/integration/sql/test_sql_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from tilth.formats import BadValueError
from tilth.model.computed import computed_columns, shown_expression
from tilth.model.table import DELETE_WORDS, OP_COLUMN, UPSERT_WORDS, Schema
from tilth.model.text.quotes import double_quoted
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, quoted, spark_name
from tilth.query.errors import BadDefinitionError, BadQueryError
from tilth.query.language.coerce import is_assignable, is_rounded
from tilth.query.snapshots import protocol
from tilth.query.worker.relations import TIME_WORDS, Relations, find_relations, frozen_times, rewrite
from tilth.storage.read.spark import in_utc
from tilth.warehouse import check_plan, parse_expression, parse_plan, schema_of


def target_rows(
    frame: DataFrame,
    task: protocol.InsertTask,
    now_us: int | None,
    *,
    beside: Sequence[str] = (),
    optional: Collection[str] = (),
) -> DataFrame:
    """The rows in the target's columns, by position; raises BadValueError naming the column whose type does not fit.

    `beside`: names of the frame's last columns, which are no columns of the target and stay as they are. `optional`:
    columns with an expression, in small letters, that are computed where the frame has NULL.
    """
    session, fields = frame.sparkSession, schema_of(frame).fields
    fields = fields[: len(fields) - len(beside)]
    # With ANSI casts a value that does not fit fails; without, it would change silently.
    session.conf.set("spark.sql.ansi.enabled", "true")
    # The columns' types have one meaning, whatever the session of the SELECT says.
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    if len(fields) != len(task.columns):
        raise BadDefinitionError(
            "the SELECT gives another number of columns than the INSERT takes",
            given=len(fields),
            taken=len(task.columns),
            columns=", ".join(task.columns),
            hint="name the columns that are given: INSERT INTO t (a, b) SELECT ..; the others get their defaults",
        )
    position = {name.lower(): index for index, name in enumerate(task.columns)}
    expressions = []
    for column in task.target.schema.columns:
        index = position.get(column.name.lower())
        wanted = spark_name(column.type)
        if index is None and column.expression:
            continue
        if index is None:
            is_kept = task.is_partial and column.nullable
            value = "NULL" if is_kept or column.default is None else default_text(session, column.default, now_us)
        else:
            value = f"`{index}`"
            given = fields[index].dataType
            source = model_type(given, column.type)
            if is_rounded(source, column.type):
                # Arrow finds the whole numbers that a float does not have, where Spark rounds them.
                expressions.append(f"{value} AS {quoted(column.name)}")
                continue
            if not is_assignable(source, column.type):
                raise BadValueError(
                    "a value might be lost on the way into the column",
                    column=column.name,
                    type=wanted,
                    given=given.simpleString(),
                    hint="say with CAST what is wanted",
                )
        expressions.append(f"CAST({value}\n AS {wanted}) AS {quoted(column.name)}")
    if OP_COLUMN in task.columns and task.target.schema.find(OP_COLUMN) is None:
        expressions.append(_op_expression(f"`{task.columns.index(OP_COLUMN)}`"))
    expressions += map(quoted, beside)
    rows = frame.toDF(*(str(index) for index in range(len(fields))), *beside).selectExpr(*expressions)
    return _with_expressions(rows, task.target.schema, optional)


def _with_expressions(rows: DataFrame, schema: Schema, optional: Collection[str]) -> DataFrame:
    """Return the rows with the columns that they lack, which are computed from the others."""
    there = {name.lower() for name in rows.columns}
    lacking = [each for each in schema.columns if each.name.lower() not in there or each.name.lower() in optional]
    if not lacking:
        return rows
    for column in lacking:
        check_plan(parse_expression(rows.sparkSession, shown_expression(column, schema)))
    others = [quoted(name) for name in rows.columns if schema.find(name) is None]
    with in_utc(rows.sparkSession):
        return rows.selectExpr(*computed_columns(schema, there, optional), *others)


def default_text(session: SparkSession, text: str, now_us: int | None) -> str:
    """Return the value for rows without the column. It is checked again: the definition may be older than the allow
    list. Raises NotAllowedError and UnknownFunctionError."""
    check_plan(parse_expression(session, text))
    return at_instant(session, text, now_us)


def _op_expression(value: str) -> str:
    """Operation of a row as 0 or 1; a word that is no operation fails the query."""
    upserts, deletes = (", ".join(f"'{word}'" for word in words) for words in (UPSERT_WORDS, DELETE_WORDS))
    word = f"lower(CAST({value} AS STRING))"
    wrong = f"raise_error(concat('a row says by {OP_COLUMN} neither that it is new nor that it deletes: ', {word}))"
    return (
        f"CAST(CASE WHEN {word} IN ({upserts}) THEN 0 WHEN {word} IN ({deletes}) THEN 1 "
        f"ELSE CAST({wrong} AS INT) END AS TINYINT) AS {quoted(OP_COLUMN)}"
    )


_KINDS: dict[str, Kind] = {kind.value: kind for kind in Kind}


def model_type(given: spark_types.DataType, wanted: DataType | None = None) -> DataType:
    """Spark's type as ours, where it is void as the wanted type has it; raises BadValueError for a type that no table
    can store."""
    if isinstance(given, spark_types.NullType) and wanted is not None:
        return wanted
    if isinstance(given, spark_types.DecimalType):
        return Decimal(given.precision, given.scale)
    if isinstance(given, spark_types.ArrayType):
        return Array(model_type(given.elementType, wanted.element if isinstance(wanted, Array) else None))
    if isinstance(given, spark_types.MapType):
        key, value = (wanted.key, wanted.value) if isinstance(wanted, Map) else (None, None)
        return Map(model_type(given.keyType, key), model_type(given.valueType, value))
    if isinstance(given, spark_types.StructType):
        inner = [each.type for each in wanted.fields] if isinstance(wanted, Struct) else []
        pairs = zip_longest(given.fields, inner[: len(given.fields)])
        return Struct(tuple(Field(f.name, model_type(f.dataType, of)) for f, of in pairs))
    kind = Kind.STRING if isinstance(given, spark_types.StringType) else _KINDS.get(given.simpleString())
    if kind is None:
        raise BadValueError("no table can store this type", type=given.simpleString(), hint="CAST it to another one")
    return Simple(kind)


def at_instant(session: SparkSession, text: str, now_us: int | None) -> str:
    """Return the expression with one instant for now() and its kin; unchanged without one or if it cannot be fixed."""
    if now_us is None or not TIME_WORDS.search(text):
        return text
    head = "SELECT "
    edits = frozen_times(parsed_query(session, f"{head}{text}"), now_us)
    return rewrite(f"{head}{text}", edits or []).text[len(head) :]


def parsed_query(session: SparkSession, text: str) -> Relations:
    """Return the relations of a query. Raises NotAllowedError, UnknownFunctionError and TooComplexError."""
    if (session.conf.get("spark.sql.ansi.enabled") or "").lower() != "true" and any(double_quoted(text)):
        hint = "write names in backticks and texts in single quotes, or leave spark.sql.ansi.enabled on"
        raise BadQueryError("without spark.sql.ansi.enabled, Spark takes names in double quotes for texts", hint=hint)
    plan = parse_plan(session, text)
    check_plan(plan, text)
    return find_relations(plan, text)
