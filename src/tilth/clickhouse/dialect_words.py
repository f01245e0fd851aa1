"""Functions and constructs that `dialect = 'clickhouse'` reads, each by its name. Nothing else is passed on.

Covers: the call of Spark or of Tilth that a function is written as, and how many arguments it takes; the parts of
constructs; what is refused although it is well known, with what to do. Does not cover: how a tree is changed
(dialect_queries.py, dialect_calls.py), what the functions compute (clickhouse/functions/exact.py).
Always holds: what stands here was compared with ClickHouse itself (tools/dialect_oracle.py).

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tilth.grammar.errors import UnsupportedSqlError

CLICKHOUSE, SPARK = "clickhouse", "spark"
NO_COUNTERPART = "dialect = 'clickhouse' has no counterpart for "
WITHOUT = "it was not compared with ClickHouse: write the query in Spark's SQL and leave SETTINGS dialect out"
#: Begin of the names of functions that the changes write.
OURS = "clickhouse_"


def refused(what: str, hint: str) -> UnsupportedSqlError:
    return UnsupportedSqlError(f"{NO_COUNTERPART}{what}", hint=hint)


def call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    """Return a call that is not changed any more."""
    return exp.Anonymous(this=name, expressions=list(arguments))


@dataclass(frozen=True, slots=True)
class DialectCall:
    """A function that is written as a call of another, with the same arguments in the same order."""

    written: str
    counts: range


def _calls(text: str, first: int, last: int | None = None) -> dict[str, DialectCall]:
    """Read `name` or `name:written`; of exactly `first`, or of `first` to `last` arguments."""
    found = {}
    for word in text.split():
        name, _, written = word.partition(":")
        found[name] = DialectCall(written or name, range(first, (last or first) + 1))
    return found


#: More arguments than a call has.
MANY = 100
_INTS, _BITS = ("Int", "UInt"), (8, 16, 32, 64)
#: Accepted functions by ClickHouse's name. Functions that begin with `clickhouse_` differ from Spark's or Tilth's of
#: that name.
CALLS: dict[str, DialectCall] = {
    # Conversions.
    **_calls("toInt8 toInt16 toInt32 toInt64 toUInt8 toUInt16 toUInt32 toUInt64", 1),
    **_calls(" ".join(f"to{kind}{bits}Or{other}" for kind in _INTS for bits in _BITS for other in ("Null", "Zero")), 1),
    **_calls("toFloat64OrNull toFloat64OrZero", 1),
    **_calls("toFloat32 toFloat64", 1),
    **_calls("toString:clickhouse_to_string toDate:clickhouse_to_date toDateTime:clickhouse_to_datetime", 1),
    # Parts and beginnings of times.
    **_calls("toYear toQuarter toMonth toDayOfMonth toDayOfWeek toDayOfYear toISOWeek toISOYear", 1),
    **_calls("toHour toMinute toSecond toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toUnixTimestamp:clickhouse_to_unix", 1),
    **_calls("toStartOfSecond toStartOfMinute toStartOfFiveMinutes toStartOfFiveMinute toStartOfTenMinutes", 1),
    **_calls("toStartOfFifteenMinutes toStartOfHour toStartOfDay toStartOfMonth toStartOfQuarter toStartOfYear", 1),
    **_calls("toMonday toLastDayOfMonth fromUnixTimestamp", 1),
    **_calls("toStartOfWeek", 1, 2),
    **_calls("addSeconds addMinutes addHours addDays addWeeks addMonths addQuarters addYears", 2),
    **_calls("subtractSeconds subtractMinutes subtractHours subtractDays subtractWeeks", 2),
    **_calls("subtractMonths subtractQuarters subtractYears", 2),
    **_calls("toIntervalSecond toIntervalMinute toIntervalHour toIntervalDay toIntervalWeek", 1),
    **_calls("toIntervalMonth toIntervalQuarter toIntervalYear", 1),
    **_calls("now today yesterday", 0),
    **_calls("makeDate:make_date", 3),
    # NULL and choices.
    **_calls("isNull:isnull isNotNull:isnotnull", 1),
    # Numbers.
    **_calls("divide modulo mod:modulo MOD:modulo", 2),
    **_calls("abs sqrt exp sin cos tan asin acos atan cbrt degrees radians sign:clickhouse_sign sinh cosh tanh", 1),
    **_calls("log:clickhouse_log ln:clickhouse_log log2:clickhouse_log2 log10:clickhouse_log10", 1),
    **_calls("floor:clickhouse_floor ceil:clickhouse_ceil ceiling:clickhouse_ceil", 1),
    **_calls("round:clickhouse_round", 1, 2),
    **_calls("pow:power power atan2:clickhouse_atan2 hypot", 2),
    **_calls("pi e", 0),
    **_calls("isNaN:clickhouse_is_nan", 1),
    **_calls("bitAnd bitOr bitXor", 2),
    # Texts.
    **_calls("length:clickhouse_length", 1),
    **_calls(
        "lowerUTF8 upperUTF8 lengthUTF8 empty notEmpty lower:clickhouse_lower upper:clickhouse_upper reverseUTF8", 1
    ),
    **_calls("lcase:clickhouse_lower ucase:clickhouse_upper", 1),
    **_calls("substring:clickhouse_substring substr:clickhouse_substring mid:clickhouse_substring", 2, 3),
    **_calls("position:clickhouse_position locate:clickhouse_locate", 2),
    **_calls("positionUTF8", 2),
    **_calls("replaceAll replace:replaceAll replaceOne", 3),
    **_calls("startsWith:startswith endsWith:endswith", 2),
    **_calls("trimLeft trimRight trimBoth trim:trimBoth ltrim:trimLeft rtrim:trimRight", 1),
    **_calls("base64Encode", 1),
    **_calls("repeat", 2),
    # Arrays and maps.
    **_calls("array", 1, MANY),
    **_calls("has indexOf arrayElement", 2),
    **_calls("arrayReverse arrayDistinct", 1),
    **_calls("arrayMap arrayFilter", 2),
    **_calls("arrayPushBack arrayPushFront", 2),
    **_calls("hasAny hasAll", 2),
    **_calls("arraySum arrayAvg", 1),
    **_calls("arrayMin arrayMax arrayUniq", 1),
    **_calls("arraySort arrayReverseSort", 1),
    **_calls("arrayConcat", 1, 8),
    **_calls("arraySlice", 2, 3),
    **_calls("arrayStringConcat", 1, 2),
    **_calls("range", 1, 2),
    **_calls("map", 2, MANY),
    **_calls("mapKeys mapValues", 1),
    **_calls("mapContains", 2),
    # Aggregates.
    **_calls("count", 0, 1),
    **_calls("sum:clickhouse_sum min:clickhouse_min max:clickhouse_max avg:clickhouse_avg uniqExact", 1),
    **_calls("countIf", 1),
    **_calls("any:clickhouse_any", 1),
    **_calls("sumIf minIf maxIf avgIf", 2),
    **_calls("anyIf uniqExactIf", 2),
    **_calls("argMin argMax", 2),
    **_calls("groupArray", 1),
    # Windows.
    **_calls("row_number rank dense_rank", 0),
}

#: Aggregates with parameters: the function of one level, whether the result is an array.
PARAMETERS = {
    "quantile": ("clickhouse_quantile", False),
    "quantiles": ("clickhouse_quantile", True),
    "quantileExact": ("clickhouse_quantile_exact", False),
    "quantilesExact": ("clickhouse_quantile_exact", True),
}

#: Parts that each node of the tree may have; any other part is refused.
NODES: dict[type[exp.Expr], str] = {
    exp.Select: "expressions from_ joins where prewhere group having order limit offset distinct qualify with_",
    exp.Subquery: "this alias",
    exp.Union: "this expression distinct by_name order limit offset with_",
    exp.With: "expressions",
    exp.CTE: "this alias scalar",
    exp.From: "this",
    exp.Table: "this db alias sample",
    exp.TableAlias: "this columns",
    exp.TableSample: "size percent",
    exp.Final: "this",
    exp.Join: "this side kind on using",
    exp.Where: "this",
    exp.PreWhere: "this",
    exp.Having: "this",
    exp.Qualify: "this",
    exp.Group: "expressions rollup cube grouping_sets all",
    exp.Order: "expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression expressions then",
    exp.Offset: "expression expressions",
    exp.Distinct: "expressions",
    exp.Window: "this partition_by order spec over",
    exp.WindowSpec: "kind start start_side end end_side",
    # Values.
    exp.Alias: "this alias",
    exp.Column: "this table db",
    exp.Identifier: "this quoted",
    exp.Star: "except_",
    exp.Literal: "this is_string",
    exp.Boolean: "this",
    exp.Null: "",
    exp.Paren: "this",
    exp.Tuple: "expressions",
    exp.Array: "expressions value_constructor",
    exp.Bracket: "this expressions",
    exp.Dot: "this expression",
    exp.Lambda: "this expressions",
    exp.Interval: "this unit",
    exp.Var: "this",
    exp.Case: "this ifs default",
    exp.If: "this true false",
    exp.Cast: "this to",
    exp.CastToStrType: "this to",
    exp.DataType: "this expressions nested nullable values",
    exp.DataTypeParam: "this",
    # Operators.
    exp.Add: "this expression",
    exp.Sub: "this expression",
    exp.Mul: "this expression",
    exp.Div: "this expression typed safe",
    exp.IntDiv: "this expression",
    exp.Mod: "this expression",
    exp.Neg: "this",
    exp.Not: "this",
    exp.And: "this expression",
    exp.Or: "this expression",
    exp.EQ: "this expression",
    exp.NEQ: "this expression",
    exp.LT: "this expression",
    exp.LTE: "this expression",
    exp.GT: "this expression",
    exp.GTE: "this expression",
    exp.NullSafeEQ: "this expression",
    exp.Is: "this expression",
    exp.In: "this expressions query",
    exp.Between: "this low high",
    exp.Like: "this expression negate",
    exp.DPipe: "this expression safe",
    # Calls.
    exp.Anonymous: "this expressions",
    exp.AnonymousAggFunc: "this expressions",
    exp.CombinedAggFunc: "this expressions",
    exp.ParameterizedAgg: "this expressions params",
    exp.CombinedParameterizedAgg: "this expressions params",
}

#: Well-known functions that are refused, in lower case, with what to do.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("windowfunnel", "topk", "retention", "sequencematch"), "use window functions, or a function of Spark"
    ),
    **dict.fromkeys(("uniq", "uniqcombined", "uniqcombined64", "uniqhll12"), "it is not exact: use uniqExact"),
    "jsonextract": "use JSONExtractString, JSONExtractInt and so on",
}
_OF_JSON = "use JSONExtractString(j, 'a'), JSONExtractInt and so on"
#: Beginnings of names that are refused, with what to do.
REFUSED_FAMILIES: dict[str, str] = {
    "jsonextract": _OF_JSON,
    "simplejson": _OF_JSON,
    "visitparam": _OF_JSON,
    "dictget": "create a table and join it",
    "dicthas": "create a table and join it",
    "quantile": "use quantileExact(0.9)(x)",
}
_TOTALS = "there the keys of a total are 0 or '', in Spark NULL: add totals by UNION ALL with a SELECT of their own"
#: Constructs that are refused, with what to do.
NODES_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Rollup: ("WITH ROLLUP", _TOTALS),
    exp.Cube: ("WITH CUBE", _TOTALS),
    exp.GroupingSets: ("GROUPING SETS", _TOTALS),
    exp.ILike: ("ILIKE", "write lower(x) LIKE lower(y)"),
    exp.Except: ("EXCEPT between queries", "write NOT IN (SELECT ..)"),
    exp.Intersect: ("INTERSECT between queries", "write IN (SELECT ..)"),
    exp.BitwiseXor: ("the operator ^", "write bitXor(x, y)"),
}
