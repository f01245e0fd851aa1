"""Functions that answer exactly as ClickHouse does, for queries in its dialect: `clickhouse_round`, and so on.

Covers: the expression of Spark that each stands for, by the types of its arguments; where the answer cannot be the
same, an error. Does not cover: functions of ClickHouse that mean the same in both dialects (clickhouse.py), which
name is written as which function (sql/language/dialect_words.py).
Always holds: a call answers as ClickHouse does or is an error. See also: tools/dialect_oracle.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.warehouse.allowed.variants import ArgumentKind, Variant

_ANY, _TEXT, _DATE, _TIME = ArgumentKind.ANY, ArgumentKind.TEXT, ArgumentKind.DATE, ArgumentKind.TIME
_FLOAT, _DECIMAL, _WHOLE = ArgumentKind.FLOAT, ArgumentKind.DECIMAL, ArgumentKind.WHOLE
_ARRAY, _MAP, _NUMBER, _SINGLE = ArgumentKind.ARRAY, ArgumentKind.MAP, ArgumentKind.NUMBER, ArgumentKind.SINGLE

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
#: Above it, a double has no fraction, and does not fit a whole number either.
_WHOLE_FROM = "4503599627370496D"
_DOUBLE = "CAST($1 AS DOUBLE)"
_HAS_NULL = "size(array_compact($1)) < size($1)"
_PLAIN_DECIMAL = "CAST($1 AS STRING)"
_DIVIDED = (
    "CASE WHEN CAST($2 AS DOUBLE) <> 0 THEN CAST($1 AS DOUBLE) / CAST($2 AS DOUBLE) "
    "WHEN $1 IS NOT NULL AND $2 IS NOT NULL THEN "
    + "CASE WHEN CAST($1 AS DOUBLE) > 0 AND NOT isnan(CAST($1 AS DOUBLE)) THEN CAST('Infinity' AS DOUBLE) "
    "WHEN CAST($1 AS DOUBLE) < 0 THEN CAST('-Infinity' AS DOUBLE) ELSE CAST('NaN' AS DOUBLE) END END"
)


def exact_functions() -> Iterator[tuple[str, Variant]]:
    for part in (_conversions, _texts, _times, _numbers, _limits, _comparisons, _collections, _aggregates):
        for name, kinds, expression in part():
            yield f"clickhouse_{name}", Variant(arguments=kinds, expression=expression)


_Lines = Iterator[tuple[str, tuple[ArgumentKind, ...], str]]


def _error(why: str, kind: str = "STRING") -> str:
    return f"CAST(raise_error('{why}') AS {kind})"


def _conversions() -> _Lines:
    """Conversions of texts: Spark takes blanks around a number, which are no part of one there."""
    signed = "$1 RLIKE '^[+-]?[0-9]+$'"
    unsigned = "$1 RLIKE '^[+]?[0-9]+$'"
    for prefix, test in (("Int", signed), ("UInt", unsigned)):
        for bits in (8, 16, 32, 64):
            name = f"to{prefix}{bits}"
            yield f"{name}_or_null", (_TEXT,), f"CASE WHEN {test} THEN {name}OrNull($1) END"
            yield (
                f"{name}_or_zero",
                (_TEXT,),
                f"CASE WHEN $1 IS NOT NULL THEN {name}OrZero(CASE WHEN {test} THEN $1 END) END",
            )
    number = r"$1 RLIKE '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$'"
    words = "lower($1) RLIKE '^[+-]?(nan|inf)'"
    wrong = _error("toFloat64OrNull and OrZero take no words here: nan, inf", "DOUBLE")
    for name, missing in (("null", "NULL"), ("zero", "0D")):
        otherwise = f"WHEN {words} THEN {wrong} WHEN $1 IS NOT NULL THEN {missing}"
        value = f"CASE WHEN {number} THEN TRY_CAST($1 AS DOUBLE) {otherwise} END"
        yield f"toFloat64_or_{name}", (_TEXT,), value


def _texts() -> _Lines:
    yield "to_string", (_TEXT,), "$1"
    yield "to_string", (_WHOLE,), "CAST($1 AS STRING)"
    yield "to_string", (_DATE,), "CAST($1 AS STRING)"
    # ClickHouse writes as many digits as are needed.
    trimmed = f"rtrim('.', rtrim('0', {_PLAIN_DECIMAL}))"
    yield (
        "to_string",
        (_DECIMAL,),
        f"CASE WHEN instr({_PLAIN_DECIMAL}, '.') > 0 THEN {trimmed} ELSE {_PLAIN_DECIMAL} END",
    )
    fraction = "date_trunc('SECOND', $1) <> $1"
    written = "date_format($1, 'yyyy-MM-dd HH:mm:ss')"
    yield (
        "to_string",
        (_TIME,),
        f"CASE WHEN {fraction} THEN {_error('toString of parts of seconds: use formatDateTime')} ELSE {written} END",
    )
    wrong = _error("toString takes no Float, Bool, array, map or tuple here: CAST it to a Decimal or to a whole number")
    yield "to_string", (_ANY,), f"CASE WHEN $1 IS NOT NULL THEN {wrong} END"
    yield "length", (_TEXT,), "octet_length($1)"
    yield "length", (_ARRAY,), "size($1)"
    yield "length", (_MAP,), "size($1)"
    yield "lower", (_TEXT,), f"translate($1, '{_UPPER}', '{_LOWER}')"
    yield "upper", (_TEXT,), f"translate($1, '{_LOWER}', '{_UPPER}')"
    # Of bytes.
    yield (
        "substring",
        (_TEXT, _WHOLE),
        "CASE WHEN $2 = 0 THEN '' ELSE validate_utf8(CAST(substring(CAST($1 AS BINARY), $2) AS STRING)) END",
    )
    wrong = _error("substring takes no negative length here")
    cut = "validate_utf8(CAST(substring(CAST($1 AS BINARY), $2, $3) AS STRING))"
    cut = f"CASE WHEN $2 = 0 THEN '' WHEN $3 < 0 THEN {wrong} ELSE {cut} END"
    yield "substring", (_TEXT, _WHOLE, _WHOLE), cut
    place = "CASE WHEN instr({0}, {1}) = 0 THEN 0 ELSE octet_length(left({0}, instr({0}, {1}) - 1)) + 1 END"
    yield "position", (_TEXT, _TEXT), place.format("$1", "$2")
    yield "locate", (_TEXT, _TEXT), place.format("$2", "$1")


def _times() -> _Lines:
    day = "CAST($1 AS DATE)"
    fits = "CASE WHEN {0} IS NULL OR {0} BETWEEN {1} AND {2} THEN {0} ELSE {3} END"
    wrong = _error("toDate: the day is not from 1970-01-01 to 2149-06-06", "DATE")
    of_day = fits.format(day, "DATE'1970-01-01'", "DATE'2149-06-06'", wrong)
    yield "to_date", (_DATE,), of_day
    yield "to_date", (_TIME,), of_day
    yield "to_date", (_TEXT,), of_day
    # Small numbers are days, others seconds.
    low, high = "date_from_unix_date(CAST($1 AS INT))", "CAST(timestamp_seconds($1) AS DATE)"
    number = f"CASE WHEN $1 BETWEEN 0 AND 65535 THEN {low} WHEN $1 BETWEEN 65536 AND 4294967295 THEN {high}"
    yield "to_date", (_WHOLE,), f"{number} WHEN $1 IS NOT NULL THEN {wrong} END"
    time = "date_trunc('SECOND', CAST($1 AS TIMESTAMP))"
    wrong = _error("toDateTime: the time is not from 1970 to 2106", "TIMESTAMP")
    of_time = fits.format(time, "timestamp_seconds(0)", "timestamp_seconds(4294967295)", wrong)
    yield "to_datetime", (_DATE,), of_time
    yield "to_datetime", (_TIME,), of_time
    yield "to_datetime", (_TEXT,), of_time
    seconds = "CASE WHEN $1 IS NULL OR $1 BETWEEN 0 AND 4294967295 THEN timestamp_seconds($1) ELSE {0} END"
    yield "to_datetime", (_WHOLE,), seconds.format(wrong)


def _numbers() -> _Lines:
    for name, function in (("log", "ln"), ("log2", "log2"), ("log10", "log10")):
        below = "WHEN $1 = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN $1 < 0 THEN CAST('NaN' AS DOUBLE)"
        yield name, (ArgumentKind.NUMBER,), f"CASE {below} ELSE {function}({_DOUBLE}) END"
    for name in ("floor", "ceil"):
        yield name, (_WHOLE,), "$1"
        yield name, (_FLOAT,), f"CASE WHEN abs($1) < {_WHOLE_FROM} THEN CAST({name}($1) AS DOUBLE) ELSE {_DOUBLE} END"
        yield name, (_DECIMAL,), f"{name}($1)"
    yield "round", (_WHOLE,), "$1"
    yield "round", (_FLOAT,), f"rint({_DOUBLE})"
    yield "round", (_DECIMAL,), "round($1)"
    wrong = _error("round takes a number of digits from 0 here, and no Float32", "{0}")
    digits = f"CASE WHEN $2 >= 0 THEN {{1}} ELSE {wrong} END"
    yield "round", (_SINGLE, _WHOLE), f"CASE WHEN $1 IS NOT NULL THEN {wrong.format('DOUBLE')} END"
    yield "round", (_FLOAT, _WHOLE), digits.format("DOUBLE", "rint($1 * power(10D, $2)) / power(10D, $2)")
    yield "round", (_WHOLE, _WHOLE), digits.format("BIGINT", "$1")
    yield "is_nan", (_FLOAT,), "CASE WHEN $1 IS NOT NULL THEN isnan($1) END"
    yield "is_nan", (_WHOLE,), "CASE WHEN $1 IS NOT NULL THEN false END"
    yield "sign", (_FLOAT,), f"CASE WHEN isnan($1) THEN 1D ELSE sign({_DOUBLE}) END"
    yield "sign", (_NUMBER,), "sign($1)"
    # Spark does not know that they are never NULL.
    whole, float_ = ArgumentKind.FILLED_WHOLE, ArgumentKind.FILLED_FLOAT
    for name, value in (("modulo", "$1 % $2"), ("int_div", "$1 div $2")):
        yield name, (whole, whole), f"coalesce({value}, 0)"
        yield name, (_WHOLE, _WHOLE), value
    # Decimals keep their scale there.
    for kinds in ((whole, whole), (float_, whole), (whole, float_), (float_, float_)):
        yield "divide", kinds, f"coalesce({_DIVIDED}, 0D)"
    for kinds in ((_WHOLE, _WHOLE), (_FLOAT, _WHOLE), (_WHOLE, _FLOAT), (_FLOAT, _FLOAT)):
        yield "divide", kinds, _DIVIDED
    yield "minus", (_DATE, _DATE), "datediff($1, $2)"
    yield "minus", (_TIME, _TIME), "unix_seconds($1) - unix_seconds($2)"
    yield "minus", (_ANY, _ANY), "$1 - $2"


def _limits() -> _Lines:
    """Errors for what leaves the range of a type there, and begins at its other end."""
    for kind, filled, low, high, name in (
        (_DATE, ArgumentKind.FILLED_DATE, "DATE'1970-01-01'", "DATE'2149-06-06'", "DATE"),
        (_TIME, ArgumentKind.FILLED_TIME, "timestamp_seconds(0)", "timestamp_seconds(4294967295)", "TIMESTAMP"),
        (ArgumentKind.WIDE, ArgumentKind.FILLED_WIDE, f"{-(2**63)}", f"{2**64 - 1}", "DECIMAL(20, 0)"),
    ):
        wrong = _error("the result is beyond its type in ClickHouse", name)
        value = f"CASE WHEN $1 IS NULL OR $1 BETWEEN {low} AND {high} THEN $1 ELSE {wrong} END"
        yield "fits", (filled,), f"coalesce({value}, {low})"
        yield "fits", (kind,), value
    yield "fits", (_ANY,), "$1"


def _comparisons() -> _Lines:
    """Comparisons of NaN, which equals itself in Spark and is larger than all numbers; in ClickHouse all are false."""
    yield "is_ordered", (_FLOAT,), "NOT isnan($1)"
    yield "is_ordered", (_ANY,), "true"
    yield "is_unordered", (_FLOAT,), "CASE WHEN $1 IS NULL THEN 2 WHEN isnan($1) THEN 1 ELSE 0 END"
    yield "is_unordered", (_ANY,), "0"
    for name, operator in (
        ("equals", "="),
        ("less", "<"),
        ("less_or_equals", "<="),
        ("greater", ">"),
        ("greater_or_equals", ">="),
    ):
        for kinds, guards in (
            ((_FLOAT, _FLOAT), "isnan($1) OR isnan($2)"),
            ((_FLOAT, _ANY), "isnan($1)"),
            ((_ANY, _FLOAT), "isnan($2)"),
        ):
            yield name, kinds, f"$1 {operator} $2 AND NOT ({guards})"
        yield name, (_ANY, _ANY), f"$1 {operator} $2"
    wrong = _error("JOIN on Float columns is not the same here: NaN, -0.0", "BOOLEAN")
    for kinds in ((_FLOAT, _ANY), (_ANY, _FLOAT)):
        yield "join_equals", kinds, wrong
    yield "join_equals", (_ANY, _ANY), "$1 = $2"
    yield "not_equals", (_FLOAT, _FLOAT), "$1 <> $2 OR isnan($1) AND isnan($2)"
    yield "not_equals", (_ANY, _ANY), "$1 <> $2"


def _collections() -> _Lines:
    without_null = "coalesce(array_contains($1, $2), false)"
    yield (
        "has",
        (_ARRAY, _FLOAT),
        f"CASE WHEN $2 IS NOT NULL THEN {without_null} AND NOT isnan($2) ELSE {_HAS_NULL} END",
    )
    yield "has", (_ARRAY, _ANY), f"CASE WHEN $2 IS NOT NULL THEN {without_null} ELSE {_HAS_NULL} END"
    wrong = _error("indexOf takes no NULL and no NaN here", "BIGINT")
    found = f"CASE WHEN {{0}} THEN {wrong} ELSE array_position($1, $2) END"
    yield "index_of", (_ARRAY, _FLOAT), found.format("$2 IS NULL OR isnan($2)")
    yield "index_of", (_ARRAY, _ANY), found.format("$2 IS NULL")
    wrong = "raise_error('no such element: its default in ClickHouse is not known here')"
    unknown = "WHEN $1 IS NULL OR $2 IS NULL THEN NULL"
    known = "abs($2) BETWEEN 1 AND size($1)"
    yield (
        "element",
        (_ARRAY, _WHOLE),
        f"CASE {unknown} WHEN {known} THEN element_at($1, CAST($2 AS INT)) ELSE {wrong} END",
    )
    yield (
        "element",
        (_MAP, _ANY),
        f"CASE {unknown} WHEN map_contains_key($1, $2) THEN element_at($1, $2) ELSE {wrong} END",
    )
    yield "array_distinct", (_ARRAY,), "array_compact(array_distinct($1))"


#: Results of aggregates of columns without NULL where there is no row, by the column's kind.
_DEFAULTS = {
    ArgumentKind.FILLED_WHOLE: "0",
    ArgumentKind.FILLED_DECIMAL: "0",
    ArgumentKind.FILLED_FLOAT: "0D",
    ArgumentKind.FILLED_TEXT: "''",
    ArgumentKind.FILLED_DATE: "DATE'1970-01-01'",
    ArgumentKind.FILLED_TIME: "timestamp_seconds(0)",
}


_FILLED = frozenset({*_DEFAULTS, ArgumentKind.FILLED_BOOLEAN})


def _aggregates() -> _Lines:
    yield from _of_columns()
    # Spark takes many computed values for such that can be NULL, which they cannot be there.
    why = "raise_error('an aggregate of a computed value without rows: write if(count() = 0, a value, the aggregate)')"
    for name, kinds, expression in _of_columns():
        is_filled = all(kind in _FILLED for kind in kinds if kind is not _ANY)
        rows = "count(CASE WHEN $2 THEN 1 END)" if name == "sum_if" else "count(1)"
        guarded = expression if is_filled else f"CASE WHEN {rows} = 0 THEN {why} ELSE {expression} END"
        yield f"{name}_of_computed", kinds, guarded
    for kind in (_WHOLE, _DECIMAL, _TEXT, _DATE, _TIME):
        for name in ("min", "max"):
            yield f"window_{name}", (kind,), f"{name}($1)"
    for kind in (_WHOLE, _DECIMAL, _FLOAT):
        yield "window_sum", (kind,), "sum($1)"
        yield "window_avg", (kind,), f"avg({_DOUBLE})"
    # -0.0 and 0.0 are two values there.
    yield "uniq_exact", (_FLOAT,), "count(DISTINCT CAST($1 AS STRING))"
    yield "uniq_exact", (_ANY,), "count(DISTINCT $1)"
    for kind in (_WHOLE, _DECIMAL, _TEXT, _DATE, _TIME):
        yield "arg_min", (_ANY, kind), "min_by($1, $2)"
        yield "arg_max", (_ANY, kind), "max_by($1, $2)"


def _of_columns() -> _Lines:
    """Aggregates of columns: without a row NULL where a column can be NULL, else its type's default."""
    nan = "CAST('NaN' AS DOUBLE)"
    for name in ("min", "max"):
        # NaN counts where there is nothing else.
        of_floats = f"coalesce({name}(CASE WHEN NOT isnan($1) THEN $1 END), {name}($1))"
        for kind, default in _DEFAULTS.items():
            value = of_floats if kind is ArgumentKind.FILLED_FLOAT else f"{name}($1)"
            yield name, (kind,), f"coalesce({value}, {default})"
        yield name, (_FLOAT,), of_floats
        for kind in (_WHOLE, _DECIMAL, _TEXT, _DATE, _TIME):
            yield name, (kind,), f"{name}($1)"
    for kind in (ArgumentKind.FILLED_WHOLE, ArgumentKind.FILLED_DECIMAL, ArgumentKind.FILLED_FLOAT):
        default = _DEFAULTS[kind]
        yield "sum", (kind,), f"coalesce(sum($1), {default})"
        for test in (ArgumentKind.FILLED_BOOLEAN,):
            yield "sum_if", (kind, test), f"coalesce(sum(CASE WHEN $2 THEN $1 END), {default})"
        yield "avg", (kind,), f"coalesce(avg({_DOUBLE}), {nan})"
        yield "quantile", (kind, _ANY), f"coalesce(percentile({_DOUBLE}, $2), {nan})"
    for kind in (_WHOLE, _DECIMAL, _FLOAT):
        yield "sum", (kind,), "sum($1)"
        yield "sum_if", (kind, ArgumentKind.BOOLEAN), "sum(CASE WHEN $2 THEN $1 END)"
        yield "avg", (kind,), f"avg({_DOUBLE})"
        yield "quantile", (kind, _ANY), f"percentile({_DOUBLE}, $2)"
