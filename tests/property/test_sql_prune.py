"""Pruning never rules out a part that holds a matching row.

How: random rows make a part's ranges by storage's own rules; a random predicate is decided for each row by SQL's
three-valued logic, written here once more in the plainest way.
"""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile import values_of
from tilth.model.part import ColumnRange, DataFile, Part, PartName
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Decimal as DecimalType
from tilth.model.types import Kind, Simple
from tilth.sql.predicates import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Negation,
    Predicate,
    Unknown,
    predicates_of,
)
from tilth.sql.prune import keeper
from tilth.storage import arrow_type
from tilth.storage.bounds import range_of

SCHEMA = Schema(
    columns=(
        Column(id=1, name="i", type=Simple(Kind.INT64)),
        Column(id=2, name="s", type=Simple(Kind.STRING)),
        Column(id=3, name="f", type=Simple(Kind.FLOAT64)),
        Column(id=4, name="m", type=DecimalType(6, 2)),
        Column(id=5, name="b", type=Simple(Kind.BOOLEAN)),
        Column(id=6, name="g", type=Simple(Kind.FLOAT32)),
        Column(id=7, name="d", type=Simple(Kind.DATE)),
    )
)
TABLE = TableDef(uuid="u", database="d", name="t", schema=SCHEMA)
Row = dict[str, Any]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3) | st.sampled_from(values_of(Simple(Kind.INT64))),
    "s": st.text("ab\u00e9\U0001f600", max_size=3) | st.sampled_from(values_of(Simple(Kind.STRING))),
    "f": st.sampled_from(values_of(Simple(Kind.FLOAT64))),
    "m": st.integers(-1200, 1200).map(lambda cents: Decimal(cents) / 100)
    | st.sampled_from(values_of(DecimalType(6, 2))),
    "b": st.booleans(),
    "g": st.sampled_from(["0.1", "0.3", "0.7", "1.1", "-0.7", "16777217", "3.4028235E38"]).map(np.float32).map(float),
    # As days.
    "d": st.sampled_from(values_of(Simple(Kind.DATE))),
}
#: As Spark writes a FLOAT.
FLOAT_TEXTS = ["0.1", "0.3", "0.7", "1.1", "-0.7", "1.6777216E7", "3.4028235E38", "1.4E-45", "-Infinity"]
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def _bound(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(sorted(VALUES)))
    literals = VALUES[column].filter(lambda value: value == value).map(_bound)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return IsNull(column)
    if kind == 1:
        return IsIn(column, tuple(draw(st.lists(st.none() | literals, min_size=1, max_size=3))))
    if kind == 2:
        return HasPrefix("s", draw(VALUES["s"]))
    if kind == 3 and draw(st.integers(0, 3)) == 0:
        return Unknown()
    return Compare(column, draw(st.sampled_from(Comparison)), draw(literals))


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    leaves(),
    lambda inner: (
        inner.map(Negation)
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: AllOf(tuple(items)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: AnyOf(tuple(items)))
    ),
    max_leaves=6,
)


def _part(rows: list[Row]) -> Part:
    ranges: dict[str, ColumnRange] = {}
    for column in SCHEMA.columns:
        values = pa.chunked_array([pa.array([row[column.name] for row in rows], arrow_type(column.type))])
        ranges[column.name] = range_of(values)
    file = DataFile(name="f", size=1, checksum=0)
    return Part(name=PartName("all", 1, 1, 0, 1), schema_version=1, rows=len(rows), file=file, ranges=ranges)


def _order(value: Any) -> Any:
    """NaN above all numbers and strings by their bytes, as Spark has it."""
    if isinstance(value, str):
        return value.encode()
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


def _truth(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case Unknown():
            return True
        case AllOf(items=items):
            answers = [_truth(item, row) for item in items]
            return False if False in answers else None if None in answers else True
        case AnyOf(items=items):
            answers = [_truth(item, row) for item in items]
            return True if True in answers else None if None in answers else False
        case Negation(item=Unknown()):
            return True
        case Negation(item=item):
            answer = _truth(item, row)
            return None if answer is None else not answer
        case IsNull(column=column):
            return row[column] is None
        case HasPrefix(column=column, prefix=prefix):
            return None if row[column] is None else row[column].startswith(prefix)
        case IsIn(column=column, values=values):
            return _truth(AnyOf(tuple(Compare(column, Comparison.EQUAL, value) for value in values)), row)
        case Compare(column=column, comparison=comparison, value=value):
            return _compared(comparison, row[column], Decimal(value) if column == "m" and value is not None else value)


def _compared(comparison: Comparison, given_value: Any, value: Any) -> bool | None:
    if given_value is None or value is None:
        return None
    left, right = _order(given_value), _order(value)
    return bool(
        {
            Comparison.EQUAL: left == right,
            Comparison.LESS: left < right,
            Comparison.LESS_OR_EQUAL: left <= right,
            Comparison.GREATER: left > right,
            Comparison.GREATER_OR_EQUAL: left >= right,
        }[comparison]
    )


@settings(max_examples=1500, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4), PREDICATES)
def test_a_part_with_a_matching_row_is_kept(rows: list[Row], predicate: Predicate) -> None:
    matches = any(_truth(predicate, row) is True for row in rows)
    assert not matches or keeper(predicate, TABLE)(_part(rows))


@given(
    st.lists(st.sampled_from(FLOAT_TEXTS), min_size=1, max_size=3),
    st.sampled_from(["EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"]),
    st.sampled_from(FLOAT_TEXTS),
)
def test_a_float_is_what_four_bytes_hold(values: list[str], comparison: str, text: str) -> None:
    """0.7 as a DOUBLE is another number than 0.7 as a FLOAT."""
    sides = [
        {"class": "AttributeReference", "num-children": 0, "name": "0:g", "dataType": "float"},
        {"class": "Literal", "num-children": 0, "value": text, "dataType": "float"},
    ]
    plan = [
        {"class": "Filter", "num-children": 1, "condition": [{"class": comparison, "num-children": 2}, *sides]},
        {"class": "LogicalRDD", "num-children": 0, "output": [[{"name": "0:g"}]]},
    ]
    (predicate,) = predicates_of(plan, 1)
    rows: list[Row] = [dict.fromkeys(VALUES, None) | {"g": float(np.float32(value))} for value in values]
    number = np.float32(text)
    compared = {
        "EqualTo": operator.eq,
        "LessThan": operator.lt,
        "LessThanOrEqual": operator.le,
        "GreaterThan": operator.gt,
        "GreaterThanOrEqual": operator.ge,
    }[comparison]
    assert not any(compared(np.float32(value), number) for value in values) or keeper(predicate, TABLE)(_part(rows))


def test_a_literal_that_is_no_text_rules_out_nothing() -> None:
    """X'FF' is above every letter, but in the plan's text it is U+FFFD, which is not."""
    sides = [
        {"class": "AttributeReference", "num-children": 0, "name": "0:s", "dataType": "string"},
        {"class": "Literal", "num-children": 0, "value": "\ufffd", "dataType": "string"},
    ]
    plan = [
        {"class": "Filter", "num-children": 1, "condition": [{"class": "LessThan", "num-children": 2}, *sides]},
        {"class": "LogicalRDD", "num-children": 0, "output": [[{"name": "0:s"}]]},
    ]
    (predicate,) = predicates_of(plan, 1)
    assert keeper(predicate, TABLE)(_part([dict.fromkeys(VALUES, None) | {"s": "\U0001f600"}]))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=4), st.sampled_from(Comparison), st.integers(-4, 4))
def test_of_whole_numbers_nothing_is_kept_in_vain(values: list[int], comparison: Comparison, value: int) -> None:
    """A range without holes that no value of could match is ruled out."""
    rows: list[Row] = [dict.fromkeys(VALUES, None) | {"i": one} for one in range(min(values), max(values) + 1)]
    predicate = Compare("i", comparison, value)
    assert keeper(predicate, TABLE)(_part(rows)) == any(_truth(predicate, row) for row in rows)
