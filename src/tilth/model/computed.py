"""Columns whose values are computed from other columns of their row: MATERIALIZED, ALIAS, DEFAULT over columns. Pure.

Covers: an expression as text, with names or with values for its columns; which columns depend on which.
Does not cover: reading and checking expressions (query/worker/expressions.py), where they are computed.
Always holds: an expression knows columns by id, so that a rename changes nothing; what it computes from a row is the
same whenever and in whichever session, and times in it are of UTC; no column depends on itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tilth.model.checks import SecondDigits
from tilth.model.table import Column, ColumnKind, Expression, Schema
from tilth.model.text.times import SECOND_DIGITS_MAX
from tilth.model.types import quoted, spark_name


def named_ids(expression: Expression) -> frozenset[int]:
    """The ids of the columns that an expression names itself."""
    return frozenset(piece for piece in expression if isinstance(piece, int))


def text_of(expression: Expression, value: Callable[[int], str]) -> str:
    """The expression with a text for each column."""
    return "".join(piece if isinstance(piece, str) else value(piece) for piece in expression)


def shown_expression(column: Column, schema: Schema, name: Callable[[str], str] = quoted) -> str:
    """The column's expression with names of columns as they are now; `name` writes one."""
    names = {each.id: each.name for each in schema.all_columns}
    return text_of(column.expression, lambda identity: name(names[identity]))


def value_text(
    column: Column,
    schema: Schema,
    *,
    given: Callable[[Column], str] = lambda column: quoted(column.name),
    computes: Callable[[Column], bool] = lambda column: column.kind is ColumnKind.ALIAS,
) -> str:
    """Spark SQL for the value of a column that has an expression, in the column's type.

    `given`: the value of a column that is there; `computes`: which of the columns that have an expression are not.
    """
    by_id = {each.id: each for each in schema.all_columns}

    def of(identity: int) -> str:
        named = by_id[identity]
        inner = value(named) if named.expression and computes(named) else given(named)
        return f"CAST({inner} AS {spark_name(named.type)})"

    def value(one: Column) -> str:
        # A comment that runs to the end of the line would take what follows with it.
        text = f"({text_of(one.expression, of)}\n)"
        unit = second_unit(one)
        if unit > 1:
            text = f"timestamp_micros(unix_micros(CAST({text} AS timestamp)) div {unit} * {unit})"
        return f"CAST({text} AS {spark_name(one.type)})"

    return value(column)


def computed_columns(schema: Schema, there: Collection[str], optional: Collection[str] = ()) -> list[str]:
    """Spark SQL for all stored columns of rows that have some of them, by their names in small letters.

    `optional`: columns that are there, and are computed in rows where they are NULL.
    """

    def is_lacking(column: Column) -> bool:
        return column.name.lower() not in there

    def given(column: Column) -> str:
        if column.name.lower() not in optional:
            return quoted(column.name)
        return f"coalesce({quoted(column.name)}, {value_text(column, schema, given=given, computes=is_lacking)})"

    return [
        f"{value_text(column, schema, given=given, computes=is_lacking)} AS {quoted(column.name)}"
        if is_lacking(column)
        else f"{given(column)} AS {quoted(column.name)}"
        if column.name.lower() in optional
        else quoted(column.name)
        for column in schema.columns
    ]


def second_unit(column: Column) -> int:
    """Least step between two times of the column, in microseconds; now() is finer than a DateTime."""
    digits = [check.rule.digits for check in column.checks if not check.path and isinstance(check.rule, SecondDigits)]
    unit: int = 10 ** (SECOND_DIGITS_MAX - min(digits, default=SECOND_DIGITS_MAX))
    return unit


def reached_ids(schema: Schema, ids: Iterable[int]) -> frozenset[int]:
    """The ids, and those of all columns that their expressions are made of, however many steps away."""
    by_id = {each.id: each for each in schema.all_columns}
    reached: set[int] = set()
    waiting = list(ids)
    while waiting:
        identity = waiting.pop()
        if identity not in reached:
            reached.add(identity)
            if identity in by_id:
                waiting += named_ids(by_id[identity].expression)
    return frozenset(reached)


def stored_ids(schema: Schema, expression: Expression) -> frozenset[int]:
    """The ids of the stored columns that an expression names, itself or through ALIAS columns."""
    aliases = {each.id: each for each in schema.aliases}
    found = named_ids(expression)
    inner = (stored_ids(schema, aliases[each].expression) for each in found if each in aliases)
    return frozenset().union(found - aliases.keys(), *inner)


def dependents(schema: Schema, identity: int) -> list[Column]:
    """The columns whose expressions name the column themselves."""
    return [each for each in schema.all_columns if identity in named_ids(each.expression)]


def recomputed(schema: Schema, assignments: Mapping[str, str]) -> list[tuple[str, str]]:
    """Assignments of the MATERIALIZED columns that change with others; all of them see the old row.

    `assignments`: Spark SQL by the name of the column that is set.
    """
    set_to = {name.lower(): text for name, text in assignments.items()}
    changed = {each.id for each in schema.columns if each.name.lower() in set_to}
    stale = {
        each.id
        for each in schema.columns
        if each.kind is ColumnKind.MATERIALIZED and not changed.isdisjoint(reached_ids(schema, [each.id]))
    }

    def given(column: Column) -> str:
        text = set_to.get(column.name.lower())
        return quoted(column.name) if text is None else f"({text}\n)"

    def computes(column: Column) -> bool:
        return column.kind is ColumnKind.ALIAS or column.id in stale

    return [
        (each.name, value_text(each, schema, given=given, computes=computes))
        for each in schema.columns
        if each.id in stale
    ]


def in_dependency_order(columns: Collection[Column], schema: Schema) -> Iterator[list[Column]]:
    """Yield the columns with expressions so that each comes after those of them that it is made of."""
    left = list(columns)
    while left:
        waiting = {each.id for each in left}
        ready = [each for each in left if reached_ids(schema, named_ids(each.expression)).isdisjoint(waiting)]
        assert ready, "a column depends on itself"
        yield ready
        left = [each for each in left if each not in ready]


def circle(schema: Schema) -> list[Column]:
    """The columns of the first circle in which columns depend on each other; empty: there is none."""
    reached = {each.id: reached_ids(schema, named_ids(each.expression)) for each in schema.all_columns}
    first = next((each for each in schema.all_columns if each.id in reached[each.id]), None)
    if first is None:
        return []
    return [each for each in schema.all_columns if each.id in reached[first.id] and first.id in reached[each.id]]


def written_length(schema: Schema, column: Column) -> int:
    """Characters of the column's value in which everything that it is made of is written out; there is no circle."""
    known: dict[int, int] = {}
    by_id = {each.id: each for each in schema.all_columns}

    def length(one: Column) -> int:
        if one.id not in known:
            pieces = one.expression or (one.name,)
            known[one.id] = sum(len(each) if isinstance(each, str) else length(by_id[each]) for each in pieces)
        return known[one.id]

    return length(column)
