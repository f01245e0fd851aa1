"""Aggregates that answer exactly as ClickHouse's do, also where no row fits. Part of exact.py.

Covers: aggregates of columns and of computed values, those with a condition, aggregates over windows, exact quantiles.
Does not cover: approximate ones, whose answers differ from run to run.
Always holds: without a row, a value that can be NULL is NULL, and another is its type's default; where it is not known
which of both a value is, an error.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.clickhouse.functions.variants import REFUSED, ArgumentKind, Lines, raised

_ANY, _TEXT, _DATE, _TIME = ArgumentKind.ANY, ArgumentKind.TEXT, ArgumentKind.DATE, ArgumentKind.TIME
_FLOAT, _DECIMAL, _WHOLE = ArgumentKind.FLOAT, ArgumentKind.DECIMAL, ArgumentKind.WHOLE
_LONG = ArgumentKind.LONG
_BOOLEAN = ArgumentKind.BOOLEAN

_NAN = "CAST('NaN' AS DOUBLE)"
#: Kinds of values with their kinds where they are never NULL, and with their defaults.
_KINDS = (
    (_LONG, ArgumentKind.FILLED_LONG, "0"),
    (_WHOLE, ArgumentKind.FILLED_WHOLE, "0"),
    (_DECIMAL, ArgumentKind.FILLED_DECIMAL, "0"),
    (_FLOAT, ArgumentKind.FILLED_FLOAT, "0D"),
    (_TEXT, ArgumentKind.FILLED_TEXT, "''"),
    (_DATE, ArgumentKind.FILLED_DATE, "DATE'1970-01-01'"),
    (_TIME, ArgumentKind.FILLED_TIME, "timestamp_seconds(0)"),
    (_BOOLEAN, ArgumentKind.FILLED_BOOLEAN, "false"),
)
_NUMBERS = (_LONG, _WHOLE, _DECIMAL, _FLOAT)
_NUMBER_ALONE = "CASE WHEN NOT isnan($1) THEN $1 END"
_UNKNOWN = "raise_error('an aggregate of a computed value without rows: write if(count() = 0, a value, the aggregate)')"


def aggregates() -> Lines:
    yield from _of_values()
    yield from _with_arguments()
    yield from _quantiles()
    yield from _windows()
    for suffix, kinds, value in (("", (), "$1"), ("_if", (_BOOLEAN,), "CASE WHEN $2 THEN $1 END")):
        # -0.0 and 0.0 are two values there.
        for name in (f"uniq_exact{suffix}", *([] if kinds else ["count_distinct"])):
            yield name, (_FLOAT, *kinds), f"count(DISTINCT CAST({value} AS STRING))"
            yield name, (_ANY, *kinds), f"count(DISTINCT {value})"


def _of_values() -> Lines:
    """Aggregates of a value, of all rows or of those that a condition selects."""
    for suffix, kinds, value in (("", (), "$1"), ("_if", (_BOOLEAN,), "CASE WHEN $2 THEN $1 END")):
        rows = "count(CASE WHEN $2 THEN 1 END)" if kinds else "count(1)"
        for kind, filled, default in _KINDS:
            for name, expression, missing in _of_kind(kind, value, default):
                yield from _both(f"{name}{suffix}", (filled, *kinds), f"coalesce({expression}, {missing})")
                yield f"{name}{suffix}", (kind, *kinds), expression
                yield f"{name}{suffix}_of_computed", (kind, *kinds), _known(rows, expression)


def _of_kind(kind: ArgumentKind, value: str, default: str) -> Iterator[tuple[str, str, str]]:
    """Name, expression and result without rows of each aggregate that takes values of a kind."""
    for name in ("min", "max"):
        if kind is _FLOAT:
            # NaN counts where there is nothing else.
            number = f"{name}(CASE WHEN NOT isnan({value}) THEN {value} END)"
            yield name, f"coalesce({number}, {name}({value}))", default
        else:
            yield name, f"{name}({value})", default
    yield "any", f"any_value({value}, true)", default
    if kind in _NUMBERS:
        yield "sum", f"sum({value})", default
        yield "avg", _mean(kind, value), _NAN


def _mean(kind: ArgumentKind, value: str) -> str:
    """Return the mean: of large whole numbers the sum is exact there, and a sum of doubles loses digits."""
    if kind is not _LONG:
        return f"avg(CAST({value} AS DOUBLE))"
    total = f"sum(CAST({value} AS DECIMAL(20, 0)))"
    beyond = raised("avg of a sum that is beyond its type in ClickHouse", "DECIMAL(38, 0)")
    fits = f"CASE WHEN {total} NOT BETWEEN {-(2**63)} AND {2**63 - 1} THEN {beyond} ELSE {total} END"
    return f"try_divide(CAST({fits} AS DOUBLE), CAST(count({value}) AS DOUBLE))"


def _both(name: str, kinds: tuple[ArgumentKind, ...], expression: str) -> Lines:
    yield name, kinds, expression
    yield f"{name}_of_computed", kinds, expression


def _known(rows: str, expression: str) -> str:
    """Spark takes many computed values for such that can be NULL, which they cannot be there."""
    return f"CASE WHEN {rows} = 0 THEN {_UNKNOWN} ELSE {expression} END"


def _with_arguments() -> Lines:
    """argMin and argMax: a row without one of both values does not count."""
    for name, function in (("arg_min", "min_by"), ("arg_max", "max_by")):
        for by, by_filled, _ in _KINDS:
            value = _by(function, by, "$1 IS NOT NULL")
            value_if = _by(function, by, "$3 AND $1 IS NOT NULL")
            for _, filled, default in _KINDS:
                yield from _both(name, (filled, by_filled), f"coalesce({value}, {default})")
                yield f"{name}_if", (filled, by_filled, _BOOLEAN), f"coalesce({value_if}, {default})"
            for kind, _, _ in _KINDS:
                yield name, (kind, by), value
                yield f"{name}_of_computed", (kind, by), _known("count(1)", value)
            yield from _both(name, (_ANY, by), _known("count(1)", value))
            yield f"{name}_if", (_ANY, by, _BOOLEAN), value_if


def _by(function: str, kind: ArgumentKind, counts: str) -> str:
    every = f"{function}($1, CASE WHEN {counts} THEN $2 END)"
    if kind is not _FLOAT:
        return every
    # NaN counts where there is nothing else.
    return f"coalesce({function}($1, CASE WHEN {counts} AND NOT isnan($2) THEN $2 END), {every})"


def _quantiles() -> Lines:
    for kind, filled, default in _KINDS:
        if kind in _NUMBERS:
            value = "percentile(CAST($1 AS DOUBLE), $2)"
            if kind is _FLOAT:
                # NaN counts where there is nothing else.
                value = f"coalesce(percentile(CAST({_NUMBER_ALONE} AS DOUBLE), $2), CAST(max($1) AS DOUBLE))"
            yield from _both("quantile", (filled, _ANY), f"coalesce({value}, {_NAN})")
            yield "quantile", (kind, _ANY), value
            yield "quantile_of_computed", (kind, _ANY), _known("count(1)", value)
        if kind in (_TEXT, _BOOLEAN):
            continue
        exact = _exact_quantile(_NUMBER_ALONE if kind is _FLOAT else "$1")
        missing = _NAN if kind is _FLOAT else default
        yield from _both("quantile_exact", (filled, _ANY), f"coalesce({exact}, {missing})")
        yield "quantile_exact", (kind, _ANY), exact
        yield "quantile_exact_of_computed", (kind, _ANY), _known("count(1)", exact)


def _exact_quantile(value: str) -> str:
    """Return the element at the level $2 of all values in their order."""
    sorted_values = f"sort_array(collect_list({value}))"
    index = f"CAST(least(floor($2 * size({sorted_values})), size({sorted_values}) - 1) AS INT) + 1"
    wrong = "raise_error('the level of a quantile is from 0 to 1')"
    found = f"element_at({sorted_values}, {index})"
    return f"CASE WHEN NOT $2 BETWEEN 0 AND 1 THEN {wrong} WHEN size({sorted_values}) > 0 THEN {found} END"


def _windows() -> Lines:
    """Aggregates over windows, none of which is empty."""
    for kind in (_WHOLE, _DECIMAL, _TEXT, _DATE, _TIME):
        for name in ("min", "max"):
            yield f"window_{name}", (kind,), f"{name}($1)"
    for kind in _NUMBERS:
        yield "window_sum", (kind,), "sum($1)"
    yield "window_avg", (_LONG,), f"{REFUSED}avg of Int64 and UInt64 OVER: write avg(toInt32(x)) or avg(toFloat64(x))"
    for kind in (_WHOLE, _DECIMAL, _FLOAT):
        yield "window_avg", (kind,), "avg(CAST($1 AS DOUBLE))"
