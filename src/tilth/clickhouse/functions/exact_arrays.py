"""Functions of arrays and maps that answer exactly as ClickHouse's do. Part of exact.py.

Covers: elements, tests, order, sums, parts of arrays. Does not cover: functions with a lambda (functions.py).
Always holds: NaN equals nothing; NULL equals NULL; where ClickHouse answers with the default of a type that is not
known here, or refuses arrays with NULL, an error.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.exact_comparisons import is_minus_zero
from tilth.clickhouse.functions.variants import ArgumentKind, Lines, bound, raised

_ANY, _ARRAY, _WHOLE, _TEXT = ArgumentKind.ANY, ArgumentKind.ARRAY, ArgumentKind.WHOLE, ArgumentKind.TEXT
_FLOAT, _MAP = ArgumentKind.FLOAT, ArgumentKind.MAP
_WHOLES, _DECIMALS, _FLOATS = (
    ArgumentKind.ARRAY_OF_WHOLE,
    ArgumentKind.ARRAY_OF_DECIMAL,
    ArgumentKind.ARRAY_OF_FLOAT,
)
_TEXTS, _DATES, _TIMES = ArgumentKind.ARRAY_OF_TEXT, ArgumentKind.ARRAY_OF_DATE, ArgumentKind.ARRAY_OF_TIME

_HAS_NULL = "size(array_compact($1)) < size($1)"
_WITHOUT_NAN = "filter($1, item -> NOT isnan(item))"
#: Arrays that arrayConcat takes.
_CONCATENATED_MAX = 8


def array_functions() -> Lines:
    yield from _elements()
    yield from _tests()
    yield from _numbers()
    yield from _orders()
    yield from _parts()


def _elements() -> Lines:
    without_null = "coalesce(array_contains($1, $2), false)"
    yield (
        "has",
        (_ARRAY, _FLOAT),
        f"CASE WHEN $2 IS NOT NULL THEN {without_null} AND NOT isnan($2) ELSE {_HAS_NULL} END",
    )
    yield "has", (_ARRAY, _ANY), f"CASE WHEN $2 IS NOT NULL THEN {without_null} ELSE {_HAS_NULL} END"
    wrong = raised("indexOf takes no NULL and no NaN here", "BIGINT")
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
    two_zeros = raised("arrayDistinct of -0.0", "ARRAY<DOUBLE>")
    has_zero = f"exists($1, item -> {is_minus_zero('item')})"
    distinct = "array_compact(array_distinct($1))"
    yield "array_distinct", (_FLOATS,), f"CASE WHEN {has_zero} THEN {two_zeros} ELSE {distinct} END"
    yield "array_distinct", (_ARRAY,), distinct


def _tests() -> Lines:
    for name, of_all in (("has_any", "exists"), ("has_all", "forall")):
        for kinds, equal in (
            ((_FLOATS, _FLOATS), "item <=> each AND (each IS NULL OR NOT isnan(each))"),
            ((_ARRAY, _ARRAY), "item <=> each"),
        ):
            yield name, kinds, f"{of_all}($2, each -> exists($1, item -> {equal}))"
    # -0.0 and 0.0 are two values there.
    yield "array_uniq", (_FLOATS,), "size(array_distinct(transform($1, item -> CAST(item AS STRING))))"
    for kind in (_WHOLES, _DECIMALS, _TEXTS, _DATES, _TIMES):
        yield "array_uniq", (kind,), "size(array_distinct($1))"


def _numbers() -> Lines:
    null = raised("arraySum and arrayAvg take no array with NULL", "{0}")
    checked = f"CASE WHEN {_HAS_NULL} THEN {null} ELSE {{1}} END"
    beyond = raised("the sum is beyond its type in ClickHouse", "BIGINT")
    whole = "aggregate($1, CAST(0 AS DECIMAL(38, 0)), (total, item) -> CAST(total + item AS DECIMAL(38, 0)))"
    fits = f"BETWEEN {-(2**63)} AND {2**63 - 1}"
    limited = bound("all_of_it", whole, f"CASE WHEN all_of_it {fits} THEN CAST(all_of_it AS BIGINT) ELSE {beyond} END")
    yield "array_sum", (_WHOLES,), checked.format("BIGINT", limited)
    # The digits that the largest decimals have.
    sum_of = "DECIMAL(38, 18)"
    rounded = raised("arraySum of decimals with more than 18 digits behind the point", sum_of)
    item = f"CASE WHEN item = CAST(item AS {sum_of}) THEN CAST(item AS {sum_of}) ELSE {rounded} END"
    decimals = f"aggregate($1, CAST(0 AS {sum_of}), (total, item) -> CAST(total + {item} AS {sum_of}))"
    yield "array_sum", (_DECIMALS,), checked.format(sum_of, decimals)
    double = "aggregate($1, 0D, (total, item) -> total + CAST(item AS DOUBLE))"
    yield "array_sum", (_FLOATS,), checked.format("DOUBLE", double)
    for kind in (_WHOLES, _FLOATS):
        mean = f"CASE WHEN size($1) = 0 THEN 0D ELSE {double} / size($1) END"
        yield "array_avg", (kind,), checked.format("DOUBLE", mean)
    empty = "raise_error('an array without elements: its default in ClickHouse is not known here')"
    for name in ("min", "max"):
        # NaN counts where there is nothing else.
        of_floats = f"coalesce(array_{name}({_WITHOUT_NAN}), array_{name}($1))"
        yield f"array_{name}", (_FLOATS,), f"CASE WHEN size($1) = 0 THEN {empty} ELSE {of_floats} END"
        for kind in (_WHOLES, _DECIMALS, _TEXTS, _DATES, _TIMES):
            yield f"array_{name}", (kind,), f"CASE WHEN size($1) = 0 THEN {empty} ELSE array_{name}($1) END"


def _orders() -> Lines:
    nulls = "filter($1, item -> item IS NULL)"
    for kind in (_WHOLES, _DECIMALS, _TEXTS, _DATES, _TIMES):
        yield "array_sort", (kind,), "array_sort($1)"
        yield "array_reverse_sort", (kind,), f"concat(reverse(array_sort(array_compact($1))), {nulls})"
    yield "array_sort", (_FLOATS,), "array_sort($1)"
    yield (
        "array_reverse_sort",
        (_FLOATS,),
        f"concat(reverse(array_sort(array_compact({_WITHOUT_NAN}))), filter($1, item -> isnan(item)), {nulls})",
    )


def _parts() -> Lines:
    for count in range(1, _CONCATENATED_MAX + 1):
        arguments = ", ".join(f"${number}" for number in range(1, count + 1))
        yield "array_concat", (_ARRAY,) * count, f"concat({arguments})"
    # The offsets `begin` and `end` are counted from 0.
    begin = "CASE WHEN $2 > 0 THEN $2 - 1 ELSE size($1) + $2 END"
    null = "raise_error('arraySlice takes no NULL here')"
    for kinds, end in (
        ((_ARRAY, _WHOLE), "size($1)"),
        ((_ARRAY, _WHOLE, _WHOLE), f"CASE WHEN $3 >= 0 THEN {begin} + $3 ELSE size($1) + $3 END"),
    ):
        wanted = (
            f"slice($1, CAST(greatest(0, {begin}) AS INT) + 1, CAST(greatest(0, {end} - greatest(0, {begin})) AS INT))"
        )
        is_null = " OR ".join(f"{each} IS NULL" for each in ("$2", "$3")[: len(kinds) - 1])
        yield (
            "array_slice",
            kinds,
            f"CASE WHEN {is_null} THEN {null} WHEN $2 = 0 THEN slice($1, 1, 0) ELSE {wanted} END",
        )
    yield "array_string_concat", (_TEXTS,), "array_join($1, '')"
    yield "array_string_concat", (_TEXTS, _TEXT), "array_join($1, $2)"
    yield "array_string_concat", (_WHOLES,), "array_join(transform($1, item -> CAST(item AS STRING)), '')"
    yield "array_string_concat", (_WHOLES, _TEXT), "array_join(transform($1, item -> CAST(item AS STRING)), $2)"
