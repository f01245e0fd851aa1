"""Comparisons that answer exactly as ClickHouse's do, and limits of types. Part of exact.py.

Covers: NaN, -0.0, whole numbers beside floats, dates beside times, tuples; what leaves the range of its type there.
Does not cover: which comparison of a query is written as which of these (clickhouse/dialect_compares.py).
Always holds: a comparison with NaN is false, `<>` is true; whole numbers and floats are compared as numbers, however
large; what begins at the other end of its type there is an error.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.variants import REFUSED, ArgumentKind, Lines, raised

_ANY, _FLOAT, _LONG, _ARRAY = ArgumentKind.ANY, ArgumentKind.FLOAT, ArgumentKind.LONG, ArgumentKind.ARRAY
_DATE, _TIME, _TEXT, _TUPLE = ArgumentKind.DATE, ArgumentKind.TIME, ArgumentKind.TEXT, ArgumentKind.TUPLE
_FLOATS, _WIDE = ArgumentKind.ARRAY_OF_FLOAT, ArgumentKind.WIDE
#: Smallest double from which on none has a fraction, nor fits a whole number.
WHOLE_FROM = "4503599627370496D"
#: Smallest double that stands for several whole numbers.
_SHARED_FROM = "9007199254740992D"
#: Last whole day of DateTime, which ends in 2106; Date goes on to 2149.
LAST_DAY_OF_TIMES = "DATE'2106-02-06'"
_OPERATORS = (
    ("equals", "="),
    ("less", "<"),
    ("less_or_equals", "<="),
    ("greater", ">"),
    ("greater_or_equals", ">="),
)
_LARGEST, _LARGEST_SIGNED = 2**64 - 1, 2**63 - 1
_BEYOND = "the result is beyond its type in ClickHouse"


def is_minus_zero(value: str) -> str:
    """Return the test whether a number is -0.0, which equals 0.0 in Spark."""
    return f"({value} = 0 AND CAST({value} AS STRING) = '-0.0')"


def limits() -> Lines:
    """Errors for what leaves the range of a type there, and begins at its other end."""
    for suffix, largest in (("", _LARGEST), ("_signed", _LARGEST_SIGNED)):
        for kind, filled, low, high, name in (
            (_DATE, ArgumentKind.FILLED_DATE, "DATE'1970-01-01'", "DATE'2149-06-06'", "DATE"),
            (_TIME, ArgumentKind.FILLED_TIME, "timestamp_seconds(0)", "timestamp_seconds(4294967295)", "TIMESTAMP"),
            (_WIDE, ArgumentKind.FILLED_WIDE, f"{-(2**63)}", f"{largest}", "DECIMAL(20, 0)"),
        ):
            value = f"CASE WHEN $1 IS NULL OR $1 BETWEEN {low} AND {high} THEN $1 ELSE {raised(_BEYOND, name)} END"
            yield f"fits{suffix}", (filled,), f"coalesce({value}, {low})"
            yield f"fits{suffix}", (kind,), value
        yield f"fits{suffix}", (_ANY,), "$1"


def comparisons() -> Lines:
    """Comparisons of NaN, which equals itself in Spark and is larger than all numbers; in ClickHouse all are false."""
    yield from _orders()
    for name, operator in (*_OPERATORS, ("not_equals", "<>")):
        yield from _of_unlike(name, operator)
        yield name, (_TUPLE, _ANY), f"{REFUSED}a comparison of tuples: compare their elements"
        yield name, (_ANY, _TUPLE), f"{REFUSED}a comparison of tuples: compare their elements"
    for name, operator in _OPERATORS:
        for kinds, guards in (
            ((_FLOAT, _FLOAT), "isnan($1) OR isnan($2)"),
            ((_FLOAT, _ANY), "isnan($1)"),
            ((_ANY, _FLOAT), "isnan($2)"),
        ):
            # A comparison with NULL is NULL, also that of NaN.
            yield name, kinds, f"$1 {operator} $2 AND (NOT ({guards}) OR $1 IS NULL OR $2 IS NULL)"
        yield name, (_ANY, _ANY), f"$1 {operator} $2"
    yield "not_equals", (_FLOAT, _FLOAT), "$1 <> $2 OR isnan($1) AND isnan($2)"
    yield "not_equals", (_ANY, _ANY), "$1 <> $2"
    for kinds in ((_FLOAT, _ANY), (_ANY, _FLOAT)):
        yield "join_equals", kinds, f"{REFUSED}JOIN on Float columns, where -0.0 and NaN are not the same here"
    for kinds in ((_DATE, _TIME), (_TIME, _DATE)):
        yield "join_equals", kinds, f"{REFUSED}JOIN of a Date with a DateTime: write toDate(t) or toDateTime(d)"
    yield "join_equals", (_ANY, _ANY), "$1 = $2"
    yield "is_join_key", (_FLOAT,), f"{REFUSED}JOIN on Float columns, where -0.0 and NaN are not the same here"
    yield "is_join_key", (_ANY,), "true"
    yield from _lists()
    yield from _alike()


def _orders() -> Lines:
    """Yield keys that go before a sorted value: NaN behind all numbers, whatever the direction."""
    yield "is_ordered", (_FLOAT,), "NOT isnan($1)"
    yield "is_ordered", (_ANY,), "true"
    yield "is_unordered", (_FLOAT,), "CASE WHEN $1 IS NULL THEN 2 WHEN isnan($1) THEN 1 ELSE 0 END"
    no_order = raised("ORDER BY an array with NULL or NaN", "INT")
    for kind, test in ((_FLOATS, "item IS NULL OR isnan(item)"), (_ARRAY, "item IS NULL")):
        value = f"CASE WHEN exists($1, item -> {test}) THEN {no_order} ELSE 0 END"
        yield "is_unordered", (kind,), value
        yield "has_order", (kind,), value
    for name in ("is_unordered", "has_order"):
        yield name, (_TUPLE,), f"{REFUSED}ORDER BY a tuple: name its elements"
        yield name, (_ANY,), "0"


def _of_unlike(name: str, operator: str) -> Lines:
    """Whole numbers beside floats, which would be rounded; dates beside times, which end earlier."""
    nan = "true" if operator == "<>" else "false"
    for kinds, whole, number in (((_LONG, _FLOAT), "$1", "$2"), ((_FLOAT, _LONG), "$2", "$1")):
        exact = {whole: f"CAST({whole} AS DECIMAL(38, 0))", number: _whole_number(number)}
        is_shared = f"CAST({whole} AS DOUBLE) = {number} AND abs({number}) >= {_SHARED_FROM}"
        yield (
            name,
            kinds,
            f"CASE WHEN $1 IS NULL OR $2 IS NULL THEN CAST(NULL AS BOOLEAN) WHEN isnan({number}) THEN {nan} "
            f"WHEN {is_shared} THEN {exact['$1']} {operator} {exact['$2']} ELSE $1 {operator} $2 END",
        )
    wrong = raised("a Date behind 2106-02-06 beside a DateTime", "BOOLEAN")
    for kinds, day, later in (((_DATE, _TIME), "$1", (">", ">=")), ((_TIME, _DATE), "$2", ("<", "<="))):
        is_late = f"{day} > {LAST_DAY_OF_TIMES}"
        # A late date is later than all times here: what it is compared with stays visible where that decides.
        if operator in later:
            yield name, kinds, f"$1 {operator} $2 AND CASE WHEN {is_late} THEN {wrong} ELSE true END"
        else:
            yield name, kinds, f"CASE WHEN {is_late} THEN {wrong} ELSE $1 {operator} $2 END"


def _whole_number(value: str) -> str:
    """Return a double without a fraction, up to 2^64, as a decimal. Spark's own cast takes the digits that it shows."""
    small, large = f"CAST({value} AS BIGINT)", f"CAST({value} / 2048 AS BIGINT)"
    return (
        f"CASE WHEN abs({value}) < 9223372036854775808D THEN CAST({small} AS DECIMAL(38, 0)) "
        f"ELSE CAST({large} AS DECIMAL(38, 0)) * 2048 END"
    )


def _lists() -> Lines:
    """Yield conditions beside `x IN (1, 2)`, whose values stay visible, and about what CASE compares."""
    no_nan = raised("NOT BETWEEN of NaN", "DOUBLE")
    yield "no_nan", (_FLOAT,), f"CASE WHEN isnan($1) THEN {no_nan} ELSE $1 END"
    yield "no_nan", (_ANY,), "$1"
    yield "is_no_minus_zero", (_FLOAT,), f"NOT {is_minus_zero('$1')}"
    yield "is_no_minus_zero", (_ANY,), "true"
    wrong = raised("IN of a Float beside whole numbers from 9007199254740992 on", "BOOLEAN")
    for name, kind in (("is_exact_float", _FLOAT), ("is_exact_whole", _LONG)):
        yield name, (kind,), f"CASE WHEN abs(CAST($1 AS DOUBLE)) >= {_SHARED_FROM} THEN {wrong} ELSE true END"
        yield name, (_ANY,), "true"
    unlike = raised("IN with a query of floats with -0.0, or from 9007199254740992 on", "DOUBLE")
    is_shared = f"abs($1) >= {_SHARED_FROM} AND abs($1) < CAST('Infinity' AS DOUBLE)"
    yield "member", (_FLOAT,), f"CASE WHEN {is_shared} OR {is_minus_zero('$1')} THEN {unlike} ELSE $1 END"
    yield "member", (_ANY,), "$1"
    yield "case_of_text", (_TEXT,), "$1"
    yield "case_of_text", (_ANY,), f"{REFUSED}CASE of a value beside texts: write CASE WHEN x = 'a'"
    zero = raised("CASE of -0.0", "DOUBLE")
    yield "case_of_number", (_FLOAT,), f"CASE WHEN {is_minus_zero('$1')} THEN {zero} ELSE $1 END"
    yield "case_of_number", (ArgumentKind.NUMBER,), "$1"
    yield "case_of_number", (_ANY,), f"{REFUSED}CASE of a value beside numbers: write CASE WHEN x = 1"


def _alike() -> Lines:
    """A value beside another one of the same result: a Date does not become a DateTime as it does there."""
    for kinds in ((_DATE, _TIME), (_TIME, _DATE)):
        yield "beside", kinds, f"{REFUSED}a Date and a DateTime in one result: write toDateTime(d)"
    yield "beside", (_ANY, _ANY), "$1"
