"""Computed views as Arrow kernels: filters, casts and expressions that mean exactly what Spark means by them.

Covers: programs as values, running them over decoded rows. Does not cover: making them of Spark's plans
(compiling.py), choosing between them and Spark (policy/evaluation.py).
Always holds: the rows are those that Spark computes, or `UnfitError` is raised: for an overflow, a division by zero,
NaN in a comparison, letters beyond ASCII in `upper` and `lower`, a number too large to be rounded. Spark computes the
view then.

Tests: tests/integration/ingest/test_view_kernels.py.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.text.times import DAY_US
from tilth.model.types import DataType
from tilth.storage import arrow_type

#: Products from here on may have rounding errors as large as `_TIE_DISTANCE`.
_ROUNDED_MAX = float(1 << 40)
#: Distance of a fraction from 0.5 within which the decimal digits of the number decide on its rounding.
_TIE_DISTANCE = 1e-3

# An array, or a scalar for all rows.
Datum = Any


class UnfitError(Exception):
    """a kernel does not compute these rows as Spark does"""


@dataclass(frozen=True, slots=True)
class Expr:
    """Expression over columns of a batch."""

    #: Key of `_FUNCTIONS`, or `column` or `literal`.
    op: str
    args: tuple[Expr, ...] = ()
    #: Name of a column, value of a literal, or a further argument of the function.
    value: Any = None
    #: Type of a literal or of a cast.
    type: DataType | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Step that retains the rows for which the condition is true."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class Project:
    """Step that replaces the columns, by name."""

    columns: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class ViewKernel:
    """Program of a view."""

    steps: tuple[Filter | Project, ...]
    #: Columns of the target over those of the last step, in the target's order.
    columns: tuple[tuple[str, Expr], ...]

    def run(self, rows: pa.RecordBatch) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]] | None]:
        """Return the view's rows, and the positions of those that they are made of (None: all). Raises UnfitError."""
        columns: dict[str, Datum] = dict(zip(rows.schema.names, rows.columns, strict=True))
        positions, count = None, rows.num_rows
        try:
            for step in self.steps:
                if isinstance(step, Project):
                    columns = {name: _evaluated(expression, columns, count) for name, expression in step.columns}
                    continue
                mask = pc.fill_null(_evaluated(step.condition, columns, count), False)
                if pc.all(mask, min_count=0).as_py():
                    continue
                found = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
                positions, count = found if positions is None else positions[found], len(found)
                columns = {name: array.filter(mask) for name, array in columns.items()}
            made = {name: _evaluated(expression, columns, count) for name, expression in self.columns}
        except (pa.ArrowException, OverflowError) as error:
            # Arrow's message has the value in it.
            raise UnfitError("an overflow") from error
        return pa.table(made), positions


def _evaluated(expression: Expr, columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Return the values of the expression, one for each row."""
    found = _evaluate(expression, columns)
    return pa.repeat(found, count) if isinstance(found, pa.Scalar) else found


def _evaluate(expression: Expr, columns: Mapping[str, pa.Array]) -> Datum:
    if expression.op == "column":
        return columns[expression.value]
    if expression.op == "literal":
        assert expression.type is not None
        return pa.scalar(expression.value, arrow_type(expression.type))
    arguments = [_evaluate(each, columns) for each in expression.args]
    return _FUNCTIONS[expression.op](expression, *arguments)


def _plain(function: Callable[..., Datum]) -> Callable[..., Datum]:
    """Return a function of `_FUNCTIONS` for one on whose values Arrow and Spark agree, NaN excepted."""
    return lambda _, *arguments: function(*map(_without_nan, arguments))


def _is_any(found: Datum) -> bool:
    """Return whether any of the values is true."""
    return bool(found.as_py() if isinstance(found, pa.Scalar) else pc.any(found).as_py())


def _without_nan(values: Datum) -> Datum:
    """Return the values; raises UnfitError for NaN, which in Spark equals itself and exceeds every number."""
    if pa.types.is_floating(values.type) and _is_any(pc.is_nan(values)):
        raise UnfitError("NaN in a comparison")
    return values


def _divided(_: Expr, one: Datum, other: Datum) -> Datum:
    if _is_any(pc.equal(other, 0.0)):
        raise UnfitError("a division by zero")
    return pc.divide(one, other)


def _cast(expression: Expr, values: Datum) -> Datum:
    """Cast to a wider or a narrower type of whole numbers, to text, or to the nearest double."""
    assert expression.type is not None
    target = arrow_type(expression.type)
    return pc.cast(values, target, safe=not pa.types.is_floating(target))


def _day(expression: Expr, values: Datum) -> Datum:
    """Return the days of times in UTC."""
    if isinstance(values, pa.Scalar):
        return _day(expression, pa.array([values], values.type))[0]
    micros = pc.fill_null(values.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days = np.floor_divide(micros, DAY_US).astype(np.int32)
    return pa.array(days, mask=values.is_null().to_numpy(zero_copy_only=False)).view(pa.date32())


def _times(expression: Expr, values: Datum) -> Datum:
    """Return the times of counts since 1970; `value`: microseconds of a unit."""
    counts = pc.multiply_checked(pc.cast(values, pa.int64()), pa.scalar(expression.value, pa.int64()))
    assert expression.type is not None
    return pc.cast(counts, arrow_type(expression.type))


def _of_ascii(function: Callable[[Datum], Datum]) -> Callable[..., Datum]:
    def call(_: Expr, values: Datum) -> Datum:
        if _is_any(pc.invert(pc.string_is_ascii(values))):
            raise UnfitError("letters beyond ASCII")
        return function(values)

    return call


def _joined(_: Expr, *texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _chosen(_: Expr, *arguments: Datum) -> Datum:
    """CASE; the arguments are pairs of a condition and its value, then the value of ELSE."""
    *pairs, found = arguments
    for condition, value in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        found = pc.if_else(pc.fill_null(condition, False), value, found)
    return found


def _is_in(expression: Expr, values: Datum) -> Datum:
    """IN; `value` is the list of literals, without NULL."""
    found = pc.is_in(values, value_set=pa.array(expression.value, values.type))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def _rounded(expression: Expr, values: Datum) -> Datum:
    """Round doubles half up, as Spark rounds the decimal digits that Java prints; `value`: digits behind the point.

    The rounding error of the product with a power of ten matters near a tie only: there, the decimal digits decide.
    """
    if isinstance(values, pa.Scalar):
        return _rounded(expression, pa.array([values.as_py()], values.type))[0]
    digits: int = expression.value
    numbers = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    power = 10.0**digits
    scaled = np.abs(numbers) * power
    if not np.all(scaled < _ROUNDED_MAX):
        raise UnfitError("a number too large to be rounded")
    whole = np.floor(scaled)
    rest = scaled - whole
    rounded = np.copysign((whole + (rest >= 0.5)) / power, numbers)
    near = np.flatnonzero(np.abs(rest - 0.5) < _TIE_DISTANCE)
    unit = decimal.Decimal((0, (1,), -digits))
    context = decimal.Context(prec=40, rounding=decimal.ROUND_HALF_UP)
    exact = [float(context.quantize(decimal.Decimal(repr(each)), unit)) for each in numbers[near].tolist()]
    rounded[near] = exact
    # Java's decimals have no negative zero.
    rounded[rounded == 0.0] = 0.0
    return pa.array(rounded, mask=values.is_null().to_numpy(zero_copy_only=False))


_FUNCTIONS: Mapping[str, Callable[..., Datum]] = {
    "add": lambda _, one, other: pc.add_checked(one, other),
    "subtract": lambda _, one, other: pc.subtract_checked(one, other),
    "multiply": lambda _, one, other: pc.multiply_checked(one, other),
    "divide": _divided,
    "negate": lambda _, values: pc.negate_checked(values),
    "equal": _plain(pc.equal),
    "less": _plain(pc.less),
    "less_equal": _plain(pc.less_equal),
    "greater": _plain(pc.greater),
    "greater_equal": _plain(pc.greater_equal),
    "and": lambda _, one, other: pc.and_kleene(one, other),
    "or": lambda _, one, other: pc.or_kleene(one, other),
    "not": lambda _, values: pc.invert(values),
    "is_null": lambda _, values: pc.is_null(values),
    "is_not_null": lambda _, values: pc.is_valid(values),
    "is_in": _is_in,
    "cast": _cast,
    "day": _day,
    "times": _times,
    "round": _rounded,
    "upper": _of_ascii(pc.ascii_upper),
    "lower": _of_ascii(pc.ascii_lower),
    "length": lambda _, values: pc.utf8_length(values),
    "concat": _joined,
    "coalesce": lambda _, *values: pc.coalesce(*values),
    "case": _chosen,
}
