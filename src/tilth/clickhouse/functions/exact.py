"""Functions that answer exactly as ClickHouse does: `arraySum`, and for queries in its dialect `clickhouse_round`.

Covers: the expression of Spark that each stands for, by the types of its arguments; where the answer cannot be the
same, an error. Does not cover: functions of ClickHouse that Spark computes alike (functions.py), which name is written
as which function (clickhouse/dialect_words.py).
Always holds: a call answers as ClickHouse does or is an error. See also: tools/dialect_oracle.py.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.clickhouse.functions.exact_aggregates import aggregates
from tilth.clickhouse.functions.exact_arrays import array_functions
from tilth.clickhouse.functions.exact_comparisons import (
    LAST_DAY_OF_TIMES,
    WHOLE_FROM,
    comparisons,
    is_minus_zero,
    limits,
)
from tilth.clickhouse.functions.exact_floats import digits_of
from tilth.clickhouse.functions.exact_json import json_functions
from tilth.clickhouse.functions.variants import ArgumentKind, Lines, Variant, bound, raised

_ANY, _TEXT, _DATE, _TIME = ArgumentKind.ANY, ArgumentKind.TEXT, ArgumentKind.DATE, ArgumentKind.TIME
_FLOAT, _DECIMAL, _WHOLE = ArgumentKind.FLOAT, ArgumentKind.DECIMAL, ArgumentKind.WHOLE
_ARRAY, _MAP, _NUMBER, _SINGLE = ArgumentKind.ARRAY, ArgumentKind.MAP, ArgumentKind.NUMBER, ArgumentKind.SINGLE

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_DOUBLE = "CAST($1 AS DOUBLE)"
_PLAIN_DECIMAL = "CAST($1 AS STRING)"
_DIVIDED = (
    "CASE WHEN CAST($2 AS DOUBLE) <> 0 THEN CAST($1 AS DOUBLE) / CAST($2 AS DOUBLE) "
    "WHEN $1 IS NOT NULL AND $2 IS NOT NULL THEN "
    + "CASE WHEN CAST($1 AS DOUBLE) > 0 AND NOT isnan(CAST($1 AS DOUBLE)) THEN CAST('Infinity' AS DOUBLE) "
    "WHEN CAST($1 AS DOUBLE) < 0 THEN CAST('-Infinity' AS DOUBLE) ELSE CAST('NaN' AS DOUBLE) END END"
)
#: Lines of names that only ClickHouse has, by which queries in Spark's SQL call them, too. All others are for queries
#: in the dialect alone, and begin with `clickhouse_`.
_SHARED = {
    "to_text": "toString",
    "divide": "divide",
    "modulo": "modulo",
    "int_div": "intDiv",
    "minus": "minus",
    "equals": "equals",
    "not_equals": "notEquals",
    "less": "less",
    "less_or_equals": "lessOrEquals",
    "greater": "greater",
    "greater_or_equals": "greaterOrEquals",
    "has": "has",
    "has_any": "hasAny",
    "has_all": "hasAll",
    "index_of": "indexOf",
    "element": "arrayElement",
    "array_distinct": "arrayDistinct",
    "array_uniq": "arrayUniq",
    "array_sum": "arraySum",
    "array_avg": "arrayAvg",
    "array_min": "arrayMin",
    "array_max": "arrayMax",
    "array_sort": "arraySort",
    "array_concat": "arrayConcat",
    "array_reverse_sort": "arrayReverseSort",
    "array_slice": "arraySlice",
    "array_string_concat": "arrayStringConcat",
    "uniq_exact": "uniqExact",
    "uniq_exact_if": "uniqExactIf",
    "sum_if": "sumIf",
    "avg_if": "avgIf",
    "min_if": "minIf",
    "max_if": "maxIf",
    "any_if": "anyIf",
    "arg_min": "argMin",
    "arg_max": "argMax",
    "count_distinct": "countDistinct",
    "arg_min_if": "argMinIf",
    "arg_max_if": "argMaxIf",
}


def exact_functions() -> Iterator[tuple[str, Variant]]:
    parts = (_decimals, _texts, _times, _numbers, limits, comparisons, array_functions, aggregates, json_functions)
    for part in parts:
        for name, kinds, expression in part():
            yield _SHARED.get(name, f"clickhouse_{name}"), Variant(arguments=kinds, expression=expression)


def _decimals() -> Lines:
    """Values with at most $2 digits behind the point: of more, ClickHouse cuts what is too much, and Spark rounds."""
    yield "with_digits", (_WHOLE, _WHOLE), "$1"
    count = "length(rtrim('0', CASE WHEN instr({0}, '.') > 0 THEN substring_index({0}, '.', -1) ELSE '' END))"
    why = "CAST to a Decimal of a value with more digits"
    for kind, text, name, is_number in (
        (_DECIMAL, _PLAIN_DECIMAL, "DECIMAL(1, 0)", "true"),
        (_TEXT, "$1", "STRING", "$1 RLIKE '^[+-]?[0-9]+([.][0-9]*)?$'"),
    ):
        fits = f"{is_number} AND {count.format(text)} <= $2"
        yield "with_digits", (kind, _WHOLE), f"CASE WHEN $1 IS NULL OR {fits} THEN $1 ELSE {raised(why, name)} END"
    scaled = "($1 * power(10D, $2))"
    fits = f"abs({scaled}) < {WHOLE_FROM} AND {scaled} = rint({scaled}) AND {scaled} / power(10D, $2) = $1"
    wrong = raised("CAST to a Decimal of a Float with more digits", "DOUBLE")
    yield "with_digits", (_FLOAT, _WHOLE), f"CASE WHEN $1 IS NULL OR {fits} THEN {_DOUBLE} ELSE {wrong} END"


def _texts() -> Lines:
    yield "to_text", (_TEXT,), "$1"
    for kind in (_WHOLE, _DATE, ArgumentKind.BOOLEAN):
        yield "to_text", (kind,), "CAST($1 AS STRING)"
    # ClickHouse writes as many digits as are needed.
    trimmed = f"rtrim('.', rtrim('0', {_PLAIN_DECIMAL}))"
    digits = f"CASE WHEN instr({_PLAIN_DECIMAL}, '.') > 0 THEN {trimmed} ELSE {_PLAIN_DECIMAL} END"
    yield "to_text", (_DECIMAL,), digits
    fraction = "date_trunc('SECOND', $1) <> $1"
    written = "date_format($1, 'yyyy-MM-dd HH:mm:ss')"
    wrong = raised("toString of parts of seconds: use formatDateTime, or CAST(t AS STRING)")
    yield "to_text", (_TIME,), f"CASE WHEN {fraction} THEN {wrong} ELSE {written} END"
    wrong = raised("toString takes no Float32 here: CAST it to a Decimal or to Float64")
    yield "to_text", (_SINGLE,), f"CASE WHEN $1 IS NOT NULL THEN {wrong} END"
    yield "to_text", (_FLOAT,), digits_of("$1")
    wrong = raised("toString takes no array, map or tuple: write CAST(x AS STRING)")
    yield "to_text", (_ANY,), f"CASE WHEN $1 IS NOT NULL THEN {wrong} END"
    # A condition is a number there.
    wrong = raised("toString takes no Bool here")
    yield "to_string", (ArgumentKind.BOOLEAN,), f"CASE WHEN $1 IS NOT NULL THEN {wrong} END"
    yield "to_string", (_ANY,), "toString($1)"
    yield "length", (_TEXT,), "octet_length($1)"
    yield "length", (_ARRAY,), "size($1)"
    yield "length", (_MAP,), "size($1)"
    yield "lower", (_TEXT,), f"translate($1, '{_UPPER}', '{_LOWER}')"
    yield "upper", (_TEXT,), f"translate($1, '{_LOWER}', '{_UPPER}')"
    # The digits are those of the bytes.
    yield "hex", (_TEXT,), "hex(CAST($1 AS BINARY))"
    wrong = raised("hex of a number below 0 here, or of one of more than 64 bits")
    even = "CASE WHEN length(hex(CAST($1 AS BIGINT))) % 2 = 1 THEN '0' ELSE '' END || hex(CAST($1 AS BIGINT))"
    yield "hex", (_WHOLE,), f"CASE WHEN $1 IS NULL OR $1 BETWEEN 0 AND {2**63 - 1} THEN {even} ELSE {wrong} END"
    yield "digest_md5", (_TEXT,), "upper(md5(CAST($1 AS BINARY)))"
    yield "digest_sha1", (_TEXT,), "upper(sha1(CAST($1 AS BINARY)))"
    for bits in (224, 256, 384, 512):
        yield f"digest_sha{bits}", (_TEXT,), f"upper(sha2(CAST($1 AS BINARY), {bits}))"
    yield (
        "substring",
        (_TEXT, _WHOLE),
        "CASE WHEN $2 = 0 THEN '' ELSE validate_utf8(CAST(substring(CAST($1 AS BINARY), $2) AS STRING)) END",
    )
    wrong = raised("substring takes no negative length here")
    cut = "validate_utf8(CAST(substring(CAST($1 AS BINARY), $2, $3) AS STRING))"
    cut = f"CASE WHEN $2 = 0 THEN '' WHEN $3 < 0 THEN {wrong} ELSE {cut} END"
    yield "substring", (_TEXT, _WHOLE, _WHOLE), cut
    position = "CASE WHEN instr({0}, {1}) = 0 THEN 0 ELSE octet_length(left({0}, instr({0}, {1}) - 1)) + 1 END"
    yield "position", (_TEXT, _TEXT), position.format("$1", "$2")
    yield "locate", (_TEXT, _TEXT), position.format("$2", "$1")


def _times() -> Lines:
    fits = "CASE WHEN {0} IS NULL OR {0} BETWEEN {1} AND {2} THEN {0} ELSE {3} END"
    wrong = raised("toDate: the day is not from 1970-01-01 to 2149-06-06", "DATE")
    of_day = fits.format("toDate($1)", "DATE'1970-01-01'", "DATE'2149-06-06'", wrong)
    yield "to_date", (_DATE,), of_day
    yield "to_date", (_TIME,), of_day
    yield "to_date", (_TEXT,), of_day
    number = "CASE WHEN $1 BETWEEN 0 AND 4294967295 THEN toDate($1)"
    yield "to_date", (_WHOLE,), f"{number} WHEN $1 IS NOT NULL THEN {wrong} END"
    wrong = raised("toDateTime: the time is not from 1970 to 2106", "TIMESTAMP")
    of_time = fits.format("toDateTime($1)", "timestamp_seconds(0)", "timestamp_seconds(4294967295)", wrong)
    yield "to_datetime", (_DATE,), of_time
    yield "to_datetime", (_TIME,), of_time
    beyond = raised("a Date behind 2106-02-07 as a time", "DATE")
    yield "as_time", (_DATE,), f"CASE WHEN $1 > {LAST_DAY_OF_TIMES} THEN {beyond} ELSE $1 END"
    yield "as_time", (_ANY,), "$1"
    # The clock skips times, which each system takes for others.
    skipped = "CAST($1 AS TIMESTAMP_NTZ) <> CAST(CAST($1 AS TIMESTAMP) AS TIMESTAMP_NTZ)"
    gap = raised("toDateTime of a time that the clock skips, or with a zone", "TIMESTAMP")
    yield "to_datetime", (_TEXT,), f"CASE WHEN {skipped} THEN {gap} ELSE {of_time} END"
    beyond = raised("toUnixTimestamp: the time is not from 1970 to 2106", "BIGINT")
    for kind in (_DATE, _TIME, _TEXT):
        yield "to_unix", (kind,), fits.format("toUnixTimestamp($1)", "0", "4294967295", beyond)
    seconds = "CASE WHEN $1 IS NULL OR $1 BETWEEN 0 AND 4294967295 THEN toDateTime($1) ELSE {0} END"
    yield "to_datetime", (_WHOLE,), seconds.format(wrong)


def _numbers() -> Lines:
    for name, function in (("log", "ln"), ("log2", "log2"), ("log10", "log10")):
        below = "WHEN $1 = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN $1 < 0 THEN CAST('NaN' AS DOUBLE)"
        yield name, (ArgumentKind.NUMBER,), f"CASE {below} ELSE {function}({_DOUBLE}) END"
    for name in ("floor", "ceil"):
        yield name, (_WHOLE,), "$1"
        yield name, (_FLOAT,), f"CASE WHEN abs($1) < {WHOLE_FROM} THEN CAST({name}($1) AS DOUBLE) ELSE {_DOUBLE} END"
        yield name, (_DECIMAL,), f"{name}($1)"
    yield from _rounded()
    signed_zero = raised("atan2 of -0.0", "DOUBLE")
    zeros = " OR ".join(is_minus_zero(each) for each in ("$1", "$2"))
    yield "atan2", (_NUMBER, _NUMBER), f"CASE WHEN {zeros} THEN {signed_zero} ELSE atan2($1, $2) END"
    yield "is_nan", (_FLOAT,), "CASE WHEN $1 IS NOT NULL THEN isnan($1) END"
    yield "is_nan", (_WHOLE,), "CASE WHEN $1 IS NOT NULL THEN false END"
    yield "sign", (_FLOAT,), f"CASE WHEN isnan($1) THEN 1D ELSE sign({_DOUBLE}) END"
    yield "sign", (_NUMBER,), "sign($1)"
    # Spark does not know that they are never NULL.
    whole, float_ = ArgumentKind.FILLED_WHOLE, ArgumentKind.FILLED_FLOAT
    for name, value in (("modulo", "$1 % $2"), ("int_div", "$1 div $2")):
        yield name, (whole, whole), f"coalesce({value}, 0)"
        yield name, (_WHOLE, _WHOLE), value
    # A Decimal keeps its scale in a quotient there.
    for kinds in ((whole, whole), (float_, whole), (whole, float_), (float_, float_)):
        yield "divide", kinds, f"coalesce({_DIVIDED}, 0D)"
    for kinds in ((_WHOLE, _WHOLE), (_FLOAT, _WHOLE), (_WHOLE, _FLOAT), (_FLOAT, _FLOAT)):
        yield "divide", kinds, _DIVIDED
    yield "minus", (_DATE, _DATE), "datediff($1, $2)"
    wrong = raised("minus of times with parts of seconds: use unix_micros(a) - unix_micros(b)", "BIGINT")
    fraction = "date_trunc('SECOND', $1) <> $1 OR date_trunc('SECOND', $2) <> $2"
    seconds = f"CASE WHEN {fraction} THEN {wrong} ELSE unix_seconds($1) - unix_seconds($2) END"
    yield "minus", (_TIME, _TIME), seconds
    yield "minus", (_ANY, _ANY), "$1 - $2"


def _rounded() -> Lines:
    """Floats to the even neighbour, others away from 0."""
    yield "round", (_WHOLE,), "$1"
    yield "round", (_FLOAT,), f"rint({_DOUBLE})"
    yield "round", (_DECIMAL,), "round($1)"
    wrong = raised("round of Float32 takes no number of digits here", "DOUBLE")
    yield "round", (_SINGLE, _WHOLE), f"CASE WHEN $1 IS NOT NULL THEN {wrong} END"
    up = "rint($1 * power(10D, $2)) / power(10D, $2)"
    down = "rint($1 / power(10D, -$2)) * power(10D, -$2)"
    many = raised("round takes from -18 to 18 digits here", "DOUBLE")
    rounded = f"CASE WHEN abs($2) > 18 THEN {many} WHEN $2 >= 0 THEN {up} ELSE {down} END"
    yield "round", (_FLOAT, _WHOLE), rounded
    yield "round", (_WHOLE, _WHOLE), _whole_rounded()
    wrong = raised("round takes from -18 to 18 digits here", "DECIMAL(38, 9)")
    cases = " ".join(f"WHEN {digits} THEN round($1, {digits})" for digits in range(-18, 19))
    any_digits = f"CASE $2 {cases} ELSE {wrong} END"
    yield "round", (_DECIMAL, _WHOLE), f"CASE WHEN $1 IS NOT NULL AND $2 IS NOT NULL THEN {any_digits} END"


def _whole_rounded() -> str:
    """A result beyond the type of the number begins at its other end there, and the type is not known here."""
    limits = sorted({2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 63, 64)})
    unit = "CAST(concat('1', repeat('0', CAST(-$2 AS INT))) AS DECIMAL(38, 0))"
    number = "CAST($1 AS DECIMAL(38, 0))"
    upper = f"(abs({number}) + CAST({unit} / 2 AS DECIMAL(38, 0)))"
    rounded = f"CAST(sign($1) AS DECIMAL(38, 0)) * ({upper} - {upper} % {unit})"
    leaves = " OR ".join(f"abs({number}) <= {limit} AND abs(r) > {limit}" for limit in limits)
    wrong = raised("the result is beyond its type in ClickHouse", "DECIMAL(38, 0)")
    value = bound("r", f"CAST({rounded} AS DECIMAL(38, 0))", f"CASE WHEN {leaves} THEN {wrong} ELSE r END")
    return f"CASE WHEN $2 >= 0 THEN {number} WHEN $2 < -18 THEN {wrong} ELSE {value} END"
