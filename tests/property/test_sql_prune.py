"""Pruning never rules out a part that holds a matching row.

How: random rows make a part's ranges by storage's own rules; a random predicate is decided for each row by SQL's
three-valued logic, written here once more in the plainest way.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tilth.query.snapshots.simplify as simplify
from tests.hostile import values_of
from tests.long import examples
from tilth.model.part import ColumnRange, DataFile, Part, PartName
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Decimal as DecimalType
from tilth.model.types import Kind, Simple
from tilth.query.snapshots.predicates import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    HasPrefix,
    IsIn,
    IsNull,
    Negation,
    Predicate,
    Undecided,
)
from tilth.query.snapshots.prune import keeper
from tilth.query.snapshots.simplify import joined
from tilth.storage import arrow_type
from tilth.storage.values.bounds import range_of

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
    # Dates are days.
    "d": st.sampled_from(values_of(Simple(Kind.DATE))),
}
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
        return Undecided()
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
        case Undecided():
            return True
        case AllOf(items=items):
            answers = [_truth(item, row) for item in items]
            return False if False in answers else None if None in answers else True
        case AnyOf(items=items):
            answers = [_truth(item, row) for item in items]
            return True if True in answers else None if None in answers else False
        case Negation(item=Undecided()):
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


@settings(max_examples=examples(1500))
@given(st.lists(ROWS, min_size=1, max_size=4), PREDICATES)
def test_a_part_with_a_matching_row_is_kept(rows: list[Row], predicate: Predicate) -> None:
    matches = any(_truth(predicate, row) is True for row in rows)
    assert not matches or keeper(predicate, TABLE)(_part(rows))


@settings(max_examples=examples(500))
@given(st.lists(ROWS, min_size=1, max_size=4), PREDICATES)
def test_predicates_of_too_many_terms_still_keep_it(rows: list[Row], predicate: Predicate) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simplify, "TERMS_MAX", 1)
        kept = keeper(predicate, TABLE)(_part(rows))
    assert kept or not any(_truth(predicate, row) is True for row in rows)


@settings(max_examples=examples(500))
@given(ROWS, PREDICATES)
def test_terms_of_one_column_mean_the_same_as_their_list(row: Row, predicate: Predicate) -> None:
    plain = Negation(IsNull("i"))
    # An undecided predicate has no truth value of its own.
    assume("Undecided" not in repr(predicate))
    for each in (predicate, Negation(predicate), AnyOf((predicate, plain)), AllOf((plain, predicate))):
        assert _truth(joined(each), row) is _truth(each, row)


class _Counted(int):
    """A number that counts comparisons."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        _Counted.compared += 1
        return int(self) < other

    def __le__(self, other: int) -> bool:
        _Counted.compared += 1
        return int(self) <= other


def _terms(n: int) -> dict[str, Predicate]:
    equal = tuple(Compare("i", Comparison.EQUAL, _Counted(10 * i)) for i in range(n))
    pairs = (AllOf((each, Compare("s", Comparison.EQUAL, f"v{i}"))) for i, each in enumerate(equal))
    return {
        "in": IsIn("i", tuple(each.value for each in equal)),
        "not in": Negation(IsIn("i", tuple(each.value for each in equal))),
        "or": AnyOf(equal),
        "nested or": AnyOf(
            (AnyOf(equal[: n // 2]), AnyOf((AnyOf(equal[n // 2 :]), Compare("b", Comparison.EQUAL, True))))
        ),
        "and": AllOf(tuple(map(Negation, equal))),
        "pairs": AnyOf(tuple(pairs)),
        "pairs and a list": AllOf((AnyOf(tuple(equal)), AnyOf(tuple(AllOf((each, each)) for each in equal)))),
    }


@pytest.mark.parametrize("kind", _terms(1))
def test_long_lists_cost_each_part_little(kind: str) -> None:
    """n values against p parts: n log n and p log n comparisons, never n * p."""
    file, parts, n = DataFile(name="f", size=1, checksum=0), [], 4096
    for number in range(2000):
        ranges = {"i": ColumnRange(number * 20 + 1, number * 20 + 9, 0)}
        parts.append(Part(name=PartName("all", 1, 1, 0, 1), schema_version=1, rows=5, file=file, ranges=ranges))
    predicate = _terms(n)[kind]
    _Counted.compared = 0
    keep = keeper(predicate, TABLE)
    kept = sum(map(keep, parts))
    # Between any two parts' values there is one of the list, and none inside of a part.
    assert kept == (2000 if kind in ("not in", "and", "nested or") else 0)
    assert _Counted.compared <= 3 * n * 13 + len(parts) * 3 * 14


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=4), st.sampled_from(Comparison), st.integers(-4, 4))
def test_of_whole_numbers_nothing_is_kept_in_vain(values: list[int], comparison: Comparison, value: int) -> None:
    """A range without holes that no value of could match is ruled out."""
    rows: list[Row] = [dict.fromkeys(VALUES, None) | {"i": one} for one in range(min(values), max(values) + 1)]
    predicate = Compare("i", comparison, value)
    assert keeper(predicate, TABLE)(_part(rows)) == any(_truth(predicate, row) for row in rows)
