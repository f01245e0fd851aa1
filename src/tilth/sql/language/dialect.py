"""Reads SELECTs in ClickHouse's dialect and writes them for Spark, where `dialect = 'clickhouse'` is set.

Covers: what sqlglot carries over, and what it would carry over wrongly or leave as it is. Does not cover: functions
that keep their names (warehouse/allowed/clickhouse.py), statements that are not SELECTs.
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
#: Longest part of the written query that an error repeats.
_SHOWN_MAX = 400


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
    try:
        yield written, (shown,)
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
        tree = sqlglot.parse_one(text, read=CLICKHOUSE)
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
        start = _STARTS.get(str(node.args.get("unit") or "").strip("'").upper())
        return node if start is None else exp.Anonymous(this=start, expressions=[node.this])
    if isinstance(node, exp.JSONExtractScalar) and not isinstance(node.parent, exp.Coalesce):
        return exp.Coalesce(this=node.copy(), expressions=[exp.Literal.string("")])
    if isinstance(node, exp.CastToStrType):
        return exp.cast(node.this, exp.DataType.build(node.args["to"].name, dialect=CLICKHOUSE))
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
    return node


def _types(tree: exp.Expression) -> exp.Expression:
    """Write types as tables store them: unsigned ones are wider."""
    for node in list(tree.find_all(exp.DataType)):
        stored = _TYPES.get(node.this)
        if stored is not None:
            node.replace(exp.DataType.build(stored, dialect=SPARK))
    return tree


_STARTS = {
    "WEEK": "toMonday",
    "MONTH": "toStartOfMonth",
    "QUARTER": "toStartOfQuarter",
    "YEAR": "toStartOfYear",
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
