"""Reads SELECTs in ClickHouse's dialect and writes them for Spark, where `dialect = 'clickhouse'` is set.

Covers: rules for what sqlglot would write wrongly or leave as it is. An expression without a rule is written as sqlglot
writes it, which may differ from ClickHouse. Does not cover: functions that keep their names
(warehouse/allowed/clickhouse.py), statements that are not SELECTs.
Always holds: a clause that has no counterpart is refused by name; none is left out silently. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, cast

import sqlglot
from sqlglot import exp, transforms
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.dialects.spark import Spark

from tilth.base.errors import TilthError
from tilth.sql.grammar import CreateView, InsertQuery, Query, SqlSyntaxError, Statement, UnsupportedSqlError

CLICKHOUSE, SPARK = "clickhouse", "spark"
#: What ClickHouse's queries have and Spark's do not. Without one, a query that cannot be read is misspelled.
_MARKS = re.compile(
    r"\b(prewhere|final|sample\s+[\d.]|array\s+join|global|asof|any\s+(left|inner|right|join)|with\s+totals|u?int\d+|limit\s+\d+"
    r"(\s*,\s*\d+|\s+by)|with\s+[\d'(]|except\s+\w|cast\s*\([^()]*,\s*')|::|\[|\?|\{|\)\s*\(|[)\w]\.\d",
    re.IGNORECASE,
)
_STRING = re.compile(r"'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
_OUTER_JOIN = re.compile(r"\b(left|right|full)\s+(outer\s+)?join\b", re.IGNORECASE)
_NULLS_OF_JOINS = "outer joins are read as with join_use_nulls = 1: columns without a match are NULL, not 0 or ''"
#: Longest part of the written query that an error repeats.
_SHOWN_MAX = 400


class _ClickHouse(ClickHouse):
    """ClickHouse's dialect with indexes as they are written: a key of a map must not be moved by one."""

    INDEX_OFFSET = 0


class _Spark(Spark):
    """Spark as it is today: QUALIFY is not written as a subquery with a further column."""

    # The base class is made at run time.
    class Generator(Spark.Generator):  # type: ignore[misc, valid-type]
        TRANSFORMS: ClassVar = {
            **Spark.Generator.TRANSFORMS,
            exp.Select: transforms.preprocess([transforms.eliminate_distinct_on, transforms.unnest_to_explode]),
        }


@contextmanager
def reading(statement: Statement, name: str) -> Iterator[tuple[Statement, tuple[str, ...]]]:
    """Yield the statement as its dialect has it, with a notice that shows it; errors inside show it, too."""
    if name != CLICKHOUSE:
        yield statement, ()
        return
    written = in_sparks_words(statement)
    if written is statement:
        yield statement, ()
        return
    shown = read_as(_select_of(written))
    outer = _OUTER_JOIN.search(_STRING.sub("''", _select_of(written)))
    try:
        yield written, (shown, _NULLS_OF_JOINS) if outer else (shown,)
    except TilthError as error:
        error.hint = f"{error.hint}; {shown}" if error.hint else shown
        raise


def _select_of(statement: Statement) -> str:
    match statement:
        case Query(text=text):
            return text
        case InsertQuery(query=query):
            return query
        case CreateView(select=select):
            return select
        case _:
            return ""


def in_sparks_words(statement: Statement) -> Statement:
    """Return the statement with its SELECT written for Spark; others as they are.

    Raises SqlSyntaxError, and UnsupportedSqlError for what has no counterpart.
    """
    match statement:
        case Query(text=text) if text.lstrip()[:7].upper() != "EXPLAIN":
            return replace(statement, text=to_spark(text))
        case InsertQuery(query=query):
            return replace(statement, query=to_spark(query))
        case CreateView(select=select):
            return replace(statement, select=to_spark(select))
        case _:
            return statement


def to_spark(text: str) -> str:
    try:
        tree = sqlglot.parse_one(text, read=_ClickHouse)
    except sqlglot.errors.ParseError as error:
        facts = error.errors[0] if error.errors else {}
        message = f"ClickHouse's dialect cannot be read here: {str(facts.get('description', error)).rstrip('.')}"
        hint = "check the spelling, or write the query in Spark's SQL and leave SETTINGS dialect out"
        raise SqlSyntaxError(message, hint=hint, line=facts.get("line", 1), column=facts.get("col", 1)) from error
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise _refused("this query", "write it in Spark's SQL and leave SETTINGS dialect out") from error
    if not isinstance(tree, exp.Query):
        raise _refused("this statement", "only SELECT is read in it")
    # Any: nodes of sqlglot have values of any type.
    for change in cast(list[Callable[[Any], Any]], _CHANGES):
        tree = change(tree)
    try:
        return tree.sql(dialect=_Spark, normalize_functions=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise _refused(f"this query ({reason})", "write it in Spark's SQL and leave SETTINGS dialect out") from error


def refusal_of(text: str) -> str:
    """Return the message for a query that Spark cannot read because it is in ClickHouse's dialect; empty: it is not."""
    if not _MARKS.search(_STRING.sub("''", text)):
        return ""
    try:
        to_spark(text)
    except UnsupportedSqlError as error:
        return error.message.partition(": line=")[0]
    except (SqlSyntaxError, RecursionError):
        return ""
    return "the query is in ClickHouse's dialect, which is read where the setting dialect says so"


def read_as(text: str) -> str:
    """Return the sentence that shows a user the query as it was read."""
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}.."
    return f"dialect = 'clickhouse' read the query as: {shown}"


def _refused(what: str, hint: str) -> UnsupportedSqlError:
    return UnsupportedSqlError(f"dialect = 'clickhouse' has no counterpart for {what}", hint=hint)


# Changes of the tree, in this order.


def _check(tree: exp.Expression) -> exp.Expression:
    """Refuse what would be left out or would mean something else."""
    for node in tree.find_all(exp.Select):
        if node.args.get("settings") or node.args.get("format"):
            raise _refused("SETTINGS or FORMAT inside of the query", "write them at its end")
        group = node.args.get("group")
        if group is not None and group.args.get("totals"):
            raise _refused("WITH TOTALS", "use GROUP BY .. WITH ROLLUP")
        for order in node.find_all(exp.Ordered):
            if order.args.get("with_fill"):
                raise _refused("WITH FILL", "join a sequence: explode(sequence(first, last))")
    for join in tree.find_all(exp.Join):
        words = {str(join.args.get(each) or "").upper() for each in ("method", "kind", "side")}
        if words & {"ASOF", "ANY", "PASTE"}:
            raise _refused(f"{min(words & {'ASOF', 'ANY', 'PASTE'})} JOIN", "use a window function over a plain JOIN")
        if "GLOBAL" in words or join.args.get("global_") or join.args.get("global"):
            # There is one server: GLOBAL says nothing.
            for each in ("global", "global_", "method"):
                join.set(each, None)
    for test in tree.find_all(exp.In):
        test.set("is_global", None)
    for call in tree.find_all(exp.ParameterizedAgg, exp.CombinedParameterizedAgg):
        name = str(call.this)
        if name.lower() != "quantiles":
            raise _refused(f"the aggregate function {name}(..)(..)", "use window functions, or a function of Spark")
    return tree


def _prewhere(tree: exp.Expression) -> exp.Expression:
    """Move PREWHERE into WHERE: the order of reading is decided here without it."""
    for select in tree.find_all(exp.Select):
        first = select.args.get("prewhere")
        if first is not None:
            select.set("prewhere", None)
            select.where(first.this, append=True, copy=False)
    return tree


def _final(tree: exp.Expression) -> exp.Expression:
    """Remove FINAL: every SELECT sees one row for each key."""
    for node in list(tree.find_all(exp.Final)):
        node.replace(node.this)
    return tree


def _sample(tree: exp.Expression) -> exp.Expression:
    for sample in tree.find_all(exp.TableSample):
        size = sample.args.get("size")
        if not isinstance(size, exp.Literal) or sample.args.get("offset"):
            raise _refused("this SAMPLE", "use TABLESAMPLE (10 PERCENT)")
        number = float(size.name)
        if number < 1:
            sample.set("size", None)
            sample.set("percent", exp.Literal.number(f"{number * 100:g}"))
    return tree


def _limit_by(tree: exp.Expression) -> exp.Expression:
    """Write LIMIT n BY a as the first n rows of each a, by the order of the query."""
    for select in tree.find_all(exp.Select):
        limit = select.args.get("limit")
        keys = limit.expressions if limit is not None else []
        if select.args.get("offset") is not None and select.args["offset"].expressions:
            raise _refused("LIMIT m, n BY", "use row_number() OVER (..) and QUALIFY")
        if limit is None or not keys:
            continue
        if any(select.args.get(each) for each in ("group", "distinct", "offset")) or limit.args.get("offset"):
            raise _refused("LIMIT BY beside GROUP BY, DISTINCT or OFFSET", "use row_number() OVER (..) and QUALIFY")
        order = select.args.get("order")
        window = exp.Window(
            this=exp.RowNumber(),
            partition_by=[key.copy() for key in keys],
            order=order.copy() if order is not None else exp.Order(expressions=[exp.Ordered(this=keys[0].copy())]),
        )
        select.set("limit", None)
        select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=limit.expression.copy())))
    return tree


def _named_values(tree: exp.Expression) -> exp.Expression:
    """Put the expression in the place of the name in WITH 1 AS one."""
    for select in list(tree.find_all(exp.Select)):
        given = select.args.get("with_") or select.args.get("with")
        if given is None:
            continue
        values = [each for each in given.expressions if not isinstance(each.this, exp.Query)]
        for value in values:
            name, meant = value.alias_or_name, value.this
            inner = meant.this if isinstance(meant, exp.Subquery) else meant
            value.pop()
            for column in list(select.find_all(exp.Column)):
                if column.name == name and not column.table:
                    column.replace(exp.paren(inner.copy()))
        if not given.expressions:
            given.pop()
    return tree


def _array_join(tree: exp.Expression) -> exp.Expression:
    for select in tree.find_all(exp.Select):
        for join in list(select.args.get("joins") or []):
            if str(join.args.get("kind") or "").upper() != "ARRAY":
                continue
            array, name = join.this, join.this.alias
            if join.expressions or not isinstance(array, exp.Alias):
                raise _refused("this ARRAY JOIN", "write it of one array that has a name: ARRAY JOIN a AS item")
            view = exp.Lateral(
                this=exp.Explode(this=array.this.copy()),
                view=True,
                outer=str(join.args.get("side") or "").upper() == "LEFT",
                alias=exp.TableAlias(this=exp.to_identifier(f"each_{name}"), columns=[exp.to_identifier(name)]),
            )
            select.append("laterals", view)
            join.pop()
    return tree


def _functions(tree: exp.Expression) -> exp.Expression:
    # What is inside comes first: a change keeps it.
    for node in reversed(list(tree.walk())):
        assert isinstance(node, exp.Expression)
        changed = _function(node)
        if changed is not node:
            node.replace(changed)
    return tree


def _function(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.DateDiff | exp.TimestampDiff):
        # Spark counts whole units, ClickHouse borders between them.
        unit = exp.Literal.string(str(node.args.get("unit") or "day").lower())
        return exp.Anonymous(this="unitDiff", expressions=[unit, node.expression, node.this])
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        # Of weeks and more, ClickHouse returns dates.
        start = _STARTS.get(_unit_of(node))
        if start is None or node.args.get("zone") is not None:
            raise _refused(f"the beginning of {_unit_of(node)} in a time zone or of this unit", "use toStartOfHour(t)")
        return exp.Anonymous(this=start, expressions=[node.this])
    if isinstance(node, exp.CastToStrType):
        return _cast(exp.cast(node.this, exp.DataType.build(node.args["to"].name, dialect=CLICKHOUSE)))
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Anonymous | exp.CombinedAggFunc):
        return _named(node)
    if isinstance(node, exp.ParameterizedAgg | exp.CombinedParameterizedAgg):
        levels = exp.Array(expressions=[each.copy() for each in node.expressions])
        return exp.Anonymous(this="percentile", expressions=[*node.args["params"], levels])
    if isinstance(node, exp.Dot) and node.expression.is_int:
        return exp.Dot(this=node.this, expression=exp.to_identifier(f"col{node.expression.name}"))
    if isinstance(node, exp.Struct) and any(isinstance(each, exp.PropertyEQ) for each in node.expressions):
        pairs = [(each.this, each.expression) for each in node.expressions]
        keys = [exp.Literal.string(key.name) if isinstance(key, exp.Identifier) else key for key, _ in pairs]
        items = [side for key, (_, value) in zip(keys, pairs, strict=True) for side in (key, value)]
        return exp.Anonymous(this="map", expressions=items)
    return _answered_otherwise(node)


def _answered_otherwise(node: exp.Expression) -> exp.Expression:
    """Replace an expression whose result differs in Spark by our function, or refuse it."""
    if isinstance(node, exp.DateAdd | exp.DateSub | exp.TimestampAdd | exp.TimestampSub):
        unit = _unit_of(node)
        if unit not in _STARTS or isinstance(node.expression, exp.Interval):
            raise _refused("this dateAdd or dateSub", "write t + INTERVAL 1 HOUR, or addHours(t, 1)")
        verb = "add" if isinstance(node, exp.DateAdd | exp.TimestampAdd) else "subtract"
        return exp.Anonymous(this=f"{verb}{unit.capitalize()}s", expressions=[node.this, node.expression])
    if isinstance(node, exp.Bracket):
        # Without an element ClickHouse returns a default of a type that is not known here: an error, never NULL.
        missing = exp.Literal.string("no such element, or NULL: its default in ClickHouse is not known here")
        found = exp.Anonymous(this="element_at", expressions=[node.this, *node.expressions])
        return exp.Coalesce(this=found, expressions=[exp.Anonymous(this="raise_error", expressions=[missing])])
    if isinstance(node, exp.DayOfWeekIso):
        return exp.Anonymous(this="toDayOfWeek", expressions=[node.this])
    if isinstance(node, exp.ArrayReverse):
        return exp.Anonymous(this="arrayReverse", expressions=[node.this])
    if isinstance(node, exp.Length):
        # ClickHouse counts the bytes of a text. Spark refuses arrays here.
        return exp.Anonymous(this="octet_length", expressions=[node.this])
    if isinstance(node, exp.Sub) and _is_day(node.this) and _is_day(node.expression):
        return exp.Anonymous(this="datediff", expressions=[node.this, node.expression])
    if isinstance(node, exp.TimeToStr):
        pattern = node.args["format"]
        if (
            not isinstance(pattern, exp.Literal)
            or node.args.get("zone")
            or _FORMAT_CODES.sub("", pattern.name).count("%")
        ):
            raise _refused("this formatDateTime", "use %Y %y %m %M %d %H %i %S %s %F %T %R %j, and no time zone")
        return exp.Anonymous(this="formatDateTime", expressions=[node.this, pattern])
    if isinstance(node, exp.Substring) and not (
        node.args.get("start") and node.args["start"].is_int and int(node.args["start"].name or 0) > 0
    ):
        raise _refused(
            "substring from anything but a number above 0", "write the position of its first character as a number"
        )
    if isinstance(node, exp.Split) and not node.expression.name:
        raise _refused("splitByString by nothing", "use split(s, '') without the dialect")
    for kinds, name, hint in _NODES_REFUSED:
        if isinstance(node, kinds):
            raise _refused(name, hint)
    return node


def _named(node: exp.Expression) -> exp.Expression:
    """Check a call that keeps its name."""
    name, count = node.name, len(node.expressions)
    low = name.lower()
    if low in _REFUSED or low.startswith(("jsonextract", "jsonhas", "simplejson", "visitparam")):
        raise _refused(name, _REFUSED.get(low, _OF_JSON))
    if low in _ZONE_FROM and count >= _ZONE_FROM[low]:
        raise _refused(f"a time zone in {name}", "write the time in the zone of the session, and leave the zone out")
    if low == "tostring" and count == 1 and _is_fraction(node.expressions[0]):
        raise _refused("toString of a number with a fraction", "write it as a text")
    if low == "tostartofinterval":
        return _interval_start(node)
    return node


def _interval_start(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    if len(arguments) == 2 and isinstance(arguments[1], exp.Interval) and arguments[1].this is not None:
        unit, number = _unit_of(arguments[1]), arguments[1].this.name
        count = int(number) if number.isdigit() else 0
        if count == 1 and unit in _STARTS:
            return exp.Anonymous(this=_STARTS[unit], expressions=[arguments[0]])
        # Divisors of a day begin at midnight in both systems.
        if count and unit in _PER_NEXT_UNIT and _PER_NEXT_UNIT[unit] % count == 0:
            return node
    raise _refused("this toStartOfInterval", "use an interval that divides a day, or one week, month, quarter or year")


def _cast(node: exp.Expression) -> exp.Expression:
    kind = node.args["to"]
    if kind.this in _UNSIGNED and not isinstance(node, exp.TryCast):
        return exp.Anonymous(this=_UNSIGNED[kind.this], expressions=[node.this])
    if any(each.this in _UNSIGNED for each in kind.find_all(exp.DataType)):
        raise _refused("a CAST to unsigned numbers inside of another type", "cast to signed ones: Array(Int64)")
    if any(each.is_string for each in kind.find_all(exp.Literal)):
        raise _refused("a time zone in CAST", "write the time in the zone of the session, and leave the zone out")
    if kind.this in exp.DataType.TEXT_TYPES and _is_fraction(node.this):
        raise _refused("a CAST of a number with a fraction to String", "write it as a text")
    return node


def _unit_of(node: exp.Expression) -> str:
    unit = node.args.get("unit")
    return unit.name.strip("'").upper() if isinstance(unit, exp.Expression) else ""


def _is_day(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in {"todate", "today", "yesterday"}


def _is_fraction(node: exp.Expression) -> bool:
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal) and not inner.is_string and not inner.is_int


def _types(tree: exp.Expression) -> exp.Expression:
    """Write types as tables store them: unsigned ones are wider."""
    for node in list(tree.find_all(exp.DataType)):
        stored = _TYPES.get(node.this)
        if stored is not None:
            node.replace(exp.DataType.build(stored, dialect=SPARK))
    return tree


#: Functions that return the beginning of a unit of time.
_STARTS = {
    "SECOND": "toStartOfSecond",
    "MINUTE": "toStartOfMinute",
    "HOUR": "toStartOfHour",
    "DAY": "toStartOfDay",
    "WEEK": "toMonday",
    "MONTH": "toStartOfMonth",
    "QUARTER": "toStartOfQuarter",
    "YEAR": "toStartOfYear",
}
#: Number of units in the next larger one.
_PER_NEXT_UNIT = {"SECOND": 60, "MINUTE": 60, "HOUR": 24}
_FORMAT_CODES = re.compile("%[YymMdHiSsFTRj]")
_OF_JSON = "use get_json_object(j, '$.a') without the dialect"
_UNSIGNED = {
    exp.DType.UTINYINT: "toUInt8",
    exp.DType.USMALLINT: "toUInt16",
    exp.DType.UINT: "toUInt32",
    exp.DType.UBIGINT: "toUInt64",
}
#: Functions whose results differ from ClickHouse's in Spark, with what to write instead.
_REFUSED = {
    **dict.fromkeys(("minif", "maxif", "anyif", "avgif"), "write min(if(condition, x, NULL)): NULL where no row fits"),
    **dict.fromkeys(("hasany", "hasall"), "use arrays_overlap or array_except without the dialect"),
}
#: Likewise, for expressions that the parser has a class for: classes, name, what to write instead.
_NODES_REFUSED: tuple[tuple[type[exp.Expression] | tuple[type[exp.Expression], ...], str, str], ...] = (
    ((exp.SHA, exp.SHA2, exp.MD5, exp.MD5Digest), "SHA1, SHA256 and MD5", "use sha2(x, 256) without the dialect"),
    ((exp.JSONExtract, exp.JSONExtractScalar), "JSONExtract", _OF_JSON),
    (exp.Format, "format", "use concat or format_string without the dialect"),
    (exp.Round, "round", "halves go to the even number there: use bround or round without the dialect"),
    (exp.ArraySum, "arraySum", "use aggregate(..) without the dialect"),
    (exp.ArrayContains, "has", "use array_contains without the dialect: it differs where there is NULL"),
)
#: Functions of time, and the number of arguments from which the last one is a time zone.
_ZONE_FROM = {
    **dict.fromkeys(("now", "today", "yesterday"), 1),
    **dict.fromkeys(("totimezone", "todatetime", "todatetime32", "todate", "todate32", "tohour", "tominute"), 2),
    **dict.fromkeys(("tosecond", "toyear", "toquarter", "tomonth", "todayofmonth", "todayofyear", "tomonday"), 2),
    **dict.fromkeys(("toyyyymm", "toyyyymmdd", "tounixtimestamp", "fromunixtimestamp", "toisoyear"), 2),
    **dict.fromkeys(("todatetime64", "now64"), 3),
}
_TYPES = {
    exp.DType.UTINYINT: "SMALLINT",
    exp.DType.USMALLINT: "INT",
    exp.DType.UINT: "BIGINT",
    exp.DType.UBIGINT: "DECIMAL(20, 0)",
    exp.DType.DATETIME: "TIMESTAMP",
    exp.DType.DATETIME64: "TIMESTAMP",
    exp.DType.DATE32: "DATE",
    exp.DType.FIXEDSTRING: "STRING",
}
_CHANGES = (_check, _prewhere, _final, _sample, _limit_by, _named_values, _array_join, _functions, _types)
