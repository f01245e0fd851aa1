"""Reads SELECTs in ClickHouse's dialect and writes them for Spark, where `dialect = 'clickhouse'` is set.

Covers: how a query's tree is changed. Does not cover: which functions and constructs are read (dialect_words.py), what
the functions compute (warehouse/allowed/exact.py), statements that are not SELECTs.
Always holds: a function or construct that dialect_words.py does not name is refused by name; nothing is left out
silently, and sqlglot gives no call another meaning. Pure.
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
from sqlglot.tokenizer_core import TokenType

from tilth.base.errors import TilthError
from tilth.sql.grammar import CreateView, InsertQuery, Query, SqlSyntaxError, Statement, UnsupportedSqlError
from tilth.sql.language.dialect_words import CALLS, NODES, NODES_REFUSED, PARAMETERS, REFUSED, REFUSED_FAMILIES

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
    """ClickHouse's dialect with calls and indexes as they are written: the parser gives none another meaning."""

    INDEX_OFFSET = 0

    # Base classes are made at run time.
    class Tokenizer(ClickHouse.Tokenizer):
        KEYWORDS: ClassVar = {**ClickHouse.Tokenizer.KEYWORDS, "MOD": TokenType.MOD}

    class Parser(ClickHouse.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {"CAST": ClickHouse.Parser.FUNCTION_PARSERS["CAST"]}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": ClickHouse.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        FUNC_TOKENS: ClassVar = {*ClickHouse.Parser.FUNC_TOKENS, TokenType.MOD}

        def _parse_limit(
            self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False
        ) -> exp.Expr | None:
            """LIMIT 2 BY k LIMIT 4: the second one is kept as a part of the first."""
            limit: exp.Expr | None = super()._parse_limit(this, top, skip_limit_token)
            if isinstance(limit, exp.Limit) and limit.expressions and self._curr.token_type == TokenType.LIMIT:
                limit.set("then", super()._parse_limit())
            return limit


class _Spark(Spark):
    """Spark as it is today: QUALIFY is not written as a subquery with a further column."""

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
        if any(select.args.get(each) for each in ("group", "distinct", "offset", "qualify")):
            raise _refused("LIMIT BY beside GROUP BY, DISTINCT, QUALIFY or OFFSET", "use row_number() OVER (..)")
        order = select.args.get("order")
        named = _aliases_of(select)
        window = exp.Window(
            this=_call("row_number"),
            partition_by=[_resolved(key.copy(), named) for key in keys],
            order=_resolved(order.copy(), named)
            if order is not None
            else exp.Order(expressions=[exp.Ordered(this=_resolved(keys[0].copy(), named))]),
        )
        select.set("limit", limit.args.get("then"))
        select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=limit.expression.copy())))
    return tree


def _named_values(tree: exp.Expression) -> exp.Expression:
    """Put the expression in the place of the name in WITH 1 AS one."""
    for select in list(tree.find_all(exp.Select)):
        given = select.args.get("with_") or select.args.get("with")
        if given is None:
            continue
        for value in [each for each in given.expressions if each.args.get("scalar")]:
            name, meant = value.alias_or_name, value.this
            value.pop()
            # A query keeps its parentheses.
            inner = meant.copy() if isinstance(meant, exp.Subquery) else exp.paren(meant.copy())
            for column in list(select.find_all(exp.Column)):
                if column.name == name and not column.table:
                    column.replace(inner.copy())
        if not given.expressions:
            given.pop()
    return tree


def _aliases_of(select: exp.Select) -> dict[str, exp.Expression]:
    """What the names of a SELECT's columns mean: a name stands before a column of the tables."""
    return {
        each.alias: each.this
        for each in select.expressions
        if isinstance(each, exp.Alias) and not (isinstance(each.this, exp.Column) and each.this.name == each.alias)
    }


def _resolved(root: exp.Expression, named: dict[str, exp.Expression], known: tuple[str, ...] = ()) -> exp.Expression:
    """The tree with what each name means in its place. A name inside of what it means itself is a column."""
    for column in [each for each in _of_this_query(root) if isinstance(each, exp.Column)]:
        meant = named.get(column.name) if not column.table else None
        if meant is None or column.name == (known or ("",))[-1]:
            continue
        if column.name in known or len(known) >= _NAMES_DEEP_MAX:
            raise _refused("names that mean each other", "give them other names")
        inner = _resolved(exp.paren(meant.copy()), named, (*known, column.name))
        if column is root:
            return inner
        column.replace(inner)
    return root


def _of_this_query(root: exp.Expression) -> Iterator[exp.Expr]:
    """Nodes of the tree without those of queries inside."""
    yield from root.walk(prune=lambda node: isinstance(node, exp.Query) and id(node) != id(root))


def _names(tree: exp.Expression) -> exp.Expression:
    """Write what a name of SELECT means wherever it is used but in ORDER BY, where Spark prefers the name as well."""
    for select in reversed(list(tree.find_all(exp.Select))):
        named = _aliases_of(select)
        if not named:
            continue
        _exploded_names(select, named)
        for item in select.expressions:
            inner = item.this if isinstance(item, exp.Alias) else item
            if isinstance(item, exp.Alias):
                item.set("this", _resolved(inner, named, (item.alias,)))
            elif not isinstance(inner, exp.Column):
                _resolved(inner, named)
        for part in ("where", "having", "qualify"):
            if select.args.get(part) is not None:
                _resolved(select.args[part], named)
        group = select.args.get("group")
        for key in list(group.expressions) if group is not None else []:
            # A number would be the place of a column.
            if not (isinstance(key, exp.Column) and isinstance(named.get(key.name), exp.Literal)):
                key.replace(_resolved(key.copy(), named))
    return tree


def _exploded_names(select: exp.Select, named: dict[str, exp.Expression]) -> None:
    """Make rows of an array before the names that mean its elements are used: in WHERE, in GROUP BY."""
    for item in select.expressions:
        meant = item.this if isinstance(item, exp.Alias) else None
        if not isinstance(meant, exp.Anonymous) or meant.name.lower() != "arrayjoin" or len(meant.expressions) != 1:
            continue
        if not any(select.args.get(each) for each in ("where", "group", "having", "qualify")):
            continue
        name, view = item.alias, f"each_{item.alias}"
        if select.args.get("from_") is None:
            select.from_("(SELECT 0) AS nothing", dialect=SPARK, copy=False)
        lateral = exp.Lateral(
            this=exp.Explode(this=meant.expressions[0].copy()),
            view=True,
            alias=exp.TableAlias(this=exp.to_identifier(view), columns=[exp.to_identifier(name)]),
        )
        select.append("laterals", lateral)
        column = exp.column(name, table=view)
        item.set("this", column)
        named[name] = column.copy()


def _orders(tree: exp.Expression) -> exp.Expression:
    """NaN stands behind all numbers in ClickHouse, and in Spark before them where the order is descending."""
    for order in list(tree.find_all(exp.Order)):
        select, keys = order.parent, []
        for key in order.expressions:
            value = key.this
            if isinstance(value, exp.Literal) and value.is_int and isinstance(select, exp.Select):
                place = int(value.name) - 1
                item = select.expressions[place] if place < len(select.expressions) else None
                value = item.this if isinstance(item, exp.Alias) else item
            if key.args.get("desc") and value is not None and not isinstance(value, exp.Star | exp.Literal):
                keys.append(exp.Ordered(this=_call("clickhouse_is_unordered", value.copy()), nulls_first=True))
            keys.append(key)
        order.set("expressions", keys)
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


def _only_listed(tree: exp.Expression) -> exp.Expression:
    """Refuse what the lists do not name."""
    for node in tree.walk():
        kind = type(node)
        if kind in NODES_REFUSED:
            raise _refused(*NODES_REFUSED[kind])
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith(_OURS):
            raise _refused(node.name, _WITHOUT)
        parts = NODES.get(kind)
        if parts is None:
            raise _refused(f"{kind.__name__} in {_shown(node)}", _WITHOUT)
        for part, value in node.args.items():
            if value not in (None, False, []) and part not in parts.split():
                raise _refused(f"{part.upper().rstrip('_')} in {_shown(node)}", _WITHOUT)
    return tree


def _shown(node: exp.Expr) -> str:
    try:
        text = node.sql(dialect=_ClickHouse)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        return "this query"
    return text if len(text) <= _PART_SHOWN_MAX else f"{text[:_PART_SHOWN_MAX]}.."


def _functions(tree: exp.Expression) -> exp.Expression:
    # What is inside comes first: a change keeps it.
    for node in reversed(list(tree.walk())):
        assert isinstance(node, exp.Expression)
        changed = _changed(node)
        if changed is not node:
            node.replace(changed)
    return tree


def _changed(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc):
        return node if node.name.startswith(_OURS) else _called(node)
    if isinstance(node, exp.ParameterizedAgg | exp.CombinedParameterizedAgg):
        return _with_parameters(node)
    if isinstance(node, exp.CastToStrType):
        return _cast(exp.cast(node.this, exp.DataType.build(node.args["to"].name, dialect=CLICKHOUSE)))
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Bracket):
        return _call("clickhouse_element", node.this, *node.expressions)
    if isinstance(node, exp.Dot) and node.expression.is_int:
        return exp.Dot(this=node.this, expression=exp.to_identifier(f"col{node.expression.name}"))
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Literal):
        inner = exp.Column(this=node.args["table"], table=node.args.get("db"))
        return exp.Dot(this=inner, expression=exp.to_identifier(f"col{node.name}"))
    if isinstance(node, exp.Window):
        return _window(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _number(node)
    if isinstance(node, exp.Array) and not node.expressions:
        raise _refused("an array without elements", "write a condition on length(..) or empty(..)")
    return _operator(node)


def _number(node: exp.Literal) -> exp.Expression:
    """A number with a fraction is a Float64 there, and a Decimal in Spark's SQL."""
    if node.name.isdigit():
        if int(node.name) > _WHOLE_MAX:
            raise _refused(f"the number {node.name}", "write it as a text, and CAST it to a Decimal")
        return node
    return exp.Literal.number(f"{node.name}D") if node.name.replace(".", "", 1).isdigit() else node


def _window(node: exp.Window) -> exp.Expression:
    """Aggregates over windows, none of which is empty."""
    spec = node.args.get("spec")
    if spec is not None and (spec.args.get("start_side") == "FOLLOWING" or spec.args.get("end_side") == "PRECEDING"):
        raise _refused("a window without the present row", "let it begin or end with CURRENT ROW")
    call = node.this
    name = call.name if isinstance(call, exp.Anonymous) else ""
    written = _OF_WINDOWS.get(name)
    if written is None:
        raise _refused(f"{name or 'this expression'} OVER", _WITHOUT)
    call.set("this", written)
    return node


def _operator(node: exp.Expression) -> exp.Expression:
    """Write an operator that differs between the systems as a function of ours."""
    if isinstance(node, exp.DPipe):
        return _call("concat", *(_as_text(side) for side in (node.this, node.expression)))
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return _arithmetic(node)
    if isinstance(node, exp.Tuple):
        return _tuple(node)
    if isinstance(node, exp.Mod):
        return _call("clickhouse_modulo", node.this, node.expression)
    if isinstance(node, exp.IntDiv):
        return _call("clickhouse_int_div", node.this, node.expression)
    if isinstance(node, exp.Div):
        return _call("clickhouse_divide", node.this, node.expression)
    if type(node) in _COMPARISONS:
        return _compared(node)
    if isinstance(node, exp.In):
        return _in(node)
    return node


def _arithmetic(node: exp.Expression) -> exp.Expression:
    sides = (node.this, node.expression)
    if isinstance(node, exp.Sub) and not any(_is_constant(each) or isinstance(each, exp.Interval) for each in sides):
        return _call("clickhouse_fits", _call("clickhouse_minus", *sides))
    # Of constants nothing is too large.
    return node if all(_is_constant(each) for each in sides) else _call("clickhouse_fits", node.copy())


def _tuple(node: exp.Expression) -> exp.Expression:
    """Elements are called by their places."""
    named = [(exp.Literal.string(f"col{place}"), each) for place, each in enumerate(node.expressions, start=1)]
    if not named:
        raise _refused("a tuple without elements", _WITHOUT)
    return _call("named_struct", *(each for pair in named for each in pair))


def _compared(node: exp.Expression) -> exp.Expression:
    """NaN equals nothing and is larger than nothing, which is said beside the comparison: its literal stays visible."""
    left, right = node.this, node.expression
    if not _is_constant(left) and not _is_constant(right):
        if isinstance(node, exp.EQ) and isinstance(node.find_ancestor(exp.Join, exp.Query), exp.Join):
            return _call("clickhouse_join_equals", left, right)
        return _call(_COMPARISONS[type(node)], left, right)
    # Only a NaN on the greater side is a match in Spark.
    greater = left if isinstance(node, exp.GT | exp.GTE) else right if isinstance(node, exp.LT | exp.LTE) else None
    if greater is None or _is_constant(greater):
        return node
    return exp.paren(exp.and_(node.copy(), _call("clickhouse_is_ordered", greater.copy())))


def _in(node: exp.In) -> exp.Expression:
    """A list's NULL is no element there: a value that is not found is not in it."""
    query = node.args.get("query")
    if query is not None:
        inner = query.this if isinstance(query, exp.Subquery) else query
        if isinstance(node.this, exp.Tuple) or not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            raise _refused("IN with a query of several columns", "use a JOIN")
        if isinstance(inner.expressions[0], exp.Star):
            raise _refused("IN with SELECT *", "name the column")
        found = exp.Subquery(
            this=inner, alias=exp.TableAlias(this=exp.to_identifier("found"), columns=[_ELEMENT.copy()])
        )
        filled = (
            exp.select(exp.column(_ELEMENT.copy()))
            .from_(found)
            .where(exp.column(_ELEMENT.copy()).is_(exp.null()).not_())
        )
        return exp.In(this=node.this, query=exp.Subquery(this=filled))
    values = [each for each in node.expressions if not isinstance(each, exp.Null)]
    if not values or any(not _is_constant(each) for each in values):
        raise _refused("IN with anything but constants or a query", "write x = a OR x = b")
    return exp.In(this=node.this, expressions=values)


def _is_constant(node: exp.Expression) -> bool:
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.Boolean | exp.Null)


def _call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _as_text(node: exp.Expression) -> exp.Expression:
    return node if isinstance(node, exp.Literal) and node.is_string else _call("clickhouse_to_string", node)


def _called(node: exp.Expression) -> exp.Expression:
    """Write a call as the list says; refuse what it does not name."""
    name, arguments = node.name, node.expressions
    low = name.lower()
    change = _CHANGES_OF_CALLS.get(low)
    if change is not None:
        return change(node)
    call = _CALLS.get(low)
    if call is None:
        raise _refused(name, _hint(low))
    if low in _ZONE_FROM and len(arguments) >= _ZONE_FROM[low]:
        raise _refused(f"a time zone in {name}", "write the time in the zone of the session, and leave the zone out")
    if len(arguments) not in call.counts:
        raise _refused(f"{name} with {len(arguments)} arguments", _WITHOUT)
    if any(isinstance(each, exp.Alias) for each in arguments):
        raise _refused(f"names in the arguments of {name}", _WITHOUT)
    written = exp.Anonymous(this=call.written, expressions=arguments)
    return _call("clickhouse_fits", written) if low.startswith(_MOVING) else written


def _hint(low: str) -> str:
    if low in REFUSED:
        return REFUSED[low]
    family = next((hint for begin, hint in REFUSED_FAMILIES.items() if low.startswith(begin)), None)
    return family or _WITHOUT


def _with_parameters(node: exp.Expression) -> exp.Expression:
    name, levels, values = node.name, node.expressions, node.args["params"]
    if name not in PARAMETERS or len(values) != 1 or not levels or not all(_is_constant(each) for each in levels):
        raise _refused(f"the aggregate function {name}(..)(..)", "use window functions, or a function of Spark")
    if name == "quantile" and len(levels) != 1:
        raise _refused(f"quantile with {len(levels)} levels", "use quantiles")
    if name == "quantile":
        return _call("clickhouse_quantile", values[0], levels[0])
    return exp.Array(expressions=[_call("clickhouse_quantile", values[0].copy(), level) for level in levels])


def _concat(node: exp.Expression) -> exp.Expression:
    if not node.expressions:
        raise _refused("concat of nothing", _WITHOUT)
    return _call("concat", *(_as_text(each) for each in node.expressions))


def _moved(node: exp.Expression) -> exp.Expression:
    """dateAdd(HOUR, 1, t) as addHours(t, 1)."""
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 3 or unit not in _STARTS or isinstance(arguments[1], exp.Interval):
        raise _refused("this dateAdd or dateSub", "write t + INTERVAL 1 HOUR, or addHours(t, 1)")
    verb = "subtract" if "sub" in node.name.lower() else "add"
    return _call("clickhouse_fits", _call(f"{verb}{unit.capitalize()}s", arguments[2], arguments[1]))


def _difference(node: exp.Expression) -> exp.Expression:
    """Spark counts whole units, ClickHouse borders between them."""
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 3 or unit not in _STARTS:
        raise _refused("this dateDiff", "write dateDiff('hour', from, to) without a time zone")
    return _call("unitDiff", exp.Literal.string(unit.lower()), arguments[1], arguments[2])


def _truncated(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 2 or unit not in _STARTS:
        raise _refused(f"the beginning of {unit} in a time zone or of this unit", "use toStartOfHour(t)")
    # Of weeks and more, ClickHouse returns dates.
    return _call("clickhouse_fits", _call(_STARTS[unit], arguments[1]))


def _formatted(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    pattern = arguments[1] if len(arguments) == 2 else None
    if not isinstance(pattern, exp.Literal) or _FORMAT_CODES.sub("", pattern.name).count("%"):
        raise _refused("this formatDateTime", "use %Y %y %m %d %H %i %S %s %F %T %R %j, and no time zone")
    return _call("formatDateTime", arguments[0], pattern)


def _many_ifs(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise _refused(
            f"multiIf with {len(arguments)} arguments", "write a condition and a value, .., and the value else"
        )
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    return exp.Case(ifs=[exp.If(this=test, true=value) for test, value in pairs], default=arguments[-1])


def _exploded(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 1:
        raise _refused("arrayJoin of several arrays", _WITHOUT)
    return _call("explode", node.expressions[0])


def _interval_start(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    if len(arguments) == 2 and isinstance(arguments[1], exp.Interval) and arguments[1].this is not None:
        unit, number = _unit_of(arguments[1]), arguments[1].this.name
        count = int(number) if number.isdigit() else 0
        if count == 1 and unit in _STARTS:
            return _call("clickhouse_fits", _call(_STARTS[unit], arguments[0]))
        # Divisors of a day begin at midnight in both systems.
        if count and unit in _PER_NEXT_UNIT and _PER_NEXT_UNIT[unit] % count == 0:
            return _call("toStartOfInterval", *arguments)
    raise _refused("this toStartOfInterval", "use an interval that divides a day, or one week, month, quarter or year")


def _cast(node: exp.Expression) -> exp.Expression:
    kind = node.args["to"]
    if any(each.is_string for each in kind.find_all(exp.Literal)):
        raise _refused("a time zone or a name in CAST", "write the time in the zone of the session")
    function = _CONVERSIONS.get(kind.this)
    if function is not None:
        return _call(function, node.this)
    if any(each.this not in _CAST_AS_THEY_ARE for each in kind.find_all(exp.DataType)):
        raise _refused(f"a CAST to {kind.sql(dialect=CLICKHOUSE)}", "cast to numbers, String, Date or DateTime")
    return node


def _unit_of(node: exp.Expression) -> str:
    unit = node.args.get("unit")
    return unit.name.strip("'").upper() if isinstance(unit, exp.Expression) else ""


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
_FORMAT_CODES = re.compile("%[YymdHiSsFTRj]")
_WITHOUT = "it was not compared with ClickHouse: write the query in Spark's SQL and leave SETTINGS dialect out"
#: Begins of the names of functions whose results can lie before 1970.
_MOVING = ("add", "subtract", "tomonday", "tostartofweek")
#: Begin of the names of functions that the changes write.
_OURS = "clickhouse_"
_ELEMENT = exp.to_identifier("element")
_PART_SHOWN_MAX = 60
_WHOLE_MAX = 2**64 - 1
#: Functions with OVER, as they are written there.
_OF_WINDOWS = {
    **{f"clickhouse_{name}": f"clickhouse_window_{name}" for name in ("sum", "avg", "min", "max")},
    **{name: name for name in ("count", "row_number", "rank", "dense_rank")},
}
#: Names that mean other names, which mean other names.
_NAMES_DEEP_MAX = 10
_COMPARISONS: dict[type, str] = {
    exp.EQ: "clickhouse_equals",
    exp.NEQ: "clickhouse_not_equals",
    exp.LT: "clickhouse_less",
    exp.LTE: "clickhouse_less_or_equals",
    exp.GT: "clickhouse_greater",
    exp.GTE: "clickhouse_greater_or_equals",
}
_CALLS = {name.lower(): call for name, call in CALLS.items()}
_CHANGES_OF_CALLS: dict[str, Callable[[exp.Expression], exp.Expression]] = {
    "concat": _concat,
    **dict.fromkeys(("dateadd", "datesub", "date_add", "date_sub"), _moved),
    **dict.fromkeys(("timestampadd", "timestampsub", "timestamp_add", "timestamp_sub"), _moved),
    **dict.fromkeys(("datediff", "date_diff"), _difference),
    **dict.fromkeys(("datetrunc", "date_trunc"), _truncated),
    "formatdatetime": _formatted,
    "tostartofinterval": _interval_start,
    "multiif": _many_ifs,
    "arrayjoin": _exploded,
    "tuple": _tuple,
}
#: Types of a CAST that are written as a function.
_CONVERSIONS = {
    exp.DType.UTINYINT: "toUInt8",
    exp.DType.USMALLINT: "toUInt16",
    exp.DType.UINT: "toUInt32",
    exp.DType.UBIGINT: "toUInt64",
    exp.DType.TINYINT: "toInt8",
    exp.DType.SMALLINT: "toInt16",
    exp.DType.INT: "toInt32",
    exp.DType.BIGINT: "toInt64",
    exp.DType.FLOAT: "toFloat32",
    exp.DType.DOUBLE: "toFloat64",
    exp.DType.TEXT: "clickhouse_to_string",
    exp.DType.DATE: "clickhouse_to_date",
    exp.DType.DATETIME: "clickhouse_to_datetime",
}
_CAST_AS_THEY_ARE = {exp.DType.DECIMAL}
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
_CHANGES = (
    _check,
    _only_listed,
    _prewhere,
    _final,
    _sample,
    _named_values,
    _limit_by,
    _array_join,
    _names,
    _orders,
    _functions,
    _types,
)
