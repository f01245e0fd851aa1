"""Changes of comparisons, from ClickHouse's dialect to Spark's: =, <, BETWEEN, IN, CASE x WHEN, values of one result.

Covers: which comparison is written as which function, what is said beside a comparison with a constant. Does not cover:
other expressions (dialect_calls.py), what the functions compute (clickhouse/functions/exact_comparisons.py).
Always holds: a comparison with a constant keeps its constant where Spark and ClickHouse agree on it, so that it can be
used for pruning. Pure.

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tilth.clickhouse.dialect_words import WITHOUT, call, refused

#: Smallest double that stands for several whole numbers.
_SHARED_FROM = 2**53
_ELEMENT = exp.to_identifier("element")
_STRUCT = "named_struct"


def compared(node: exp.Expression) -> exp.Expression:
    """Return a comparison as it is written for Spark; other nodes as they are."""
    if type(node) in _COMPARISONS:
        return _pair(type(node), node.this, node.expression, is_join=_is_of_join(node))
    change = _CHANGES.get(type(node))
    return node if change is None else change(node)


def is_constant(node: exp.Expression) -> bool:
    return isinstance(_inner(node), exp.Literal | exp.Boolean | exp.Null)


def is_natural(node: exp.Expression) -> bool:
    """Return whether it is a whole number that is not below 0, as it is written: of an unsigned type there."""
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def as_struct(node: exp.Expression) -> exp.Expression:
    """Write a tuple, whose elements are named by their positions."""
    named = [(exp.Literal.string(f"col{number}"), each) for number, each in enumerate(node.expressions, start=1)]
    if not named:
        raise refused("a tuple without elements", WITHOUT)
    return call(_STRUCT, *(each for pair in named for each in pair))


def without_null(node: exp.Expression) -> exp.Expression:
    """NULL where x = y; NaN equals nothing."""
    value, other = node.expressions
    equal = _pair(exp.EQ, value.copy(), other, is_join=False)
    return exp.If(this=equal, true=exp.null(), false=value)


def alike(values: list[exp.Expression]) -> list[exp.Expression]:
    """Return the values of one result, each checked against the next one: a Date and a DateTime do not go together."""
    found, behind = list[exp.Expression](), None
    for value in reversed(values):
        if is_constant(value):
            found.append(value)
            continue
        found.append(value if behind is None else call("clickhouse_beside", value, behind.copy()))
        behind = value
    return found[::-1]


def _pair(kind: type, left: exp.Expression, right: exp.Expression, *, is_join: bool) -> exp.Expression:
    """NaN equals nothing and is larger than nothing, which is said beside the comparison: its literal stays visible."""
    tuples = [_elements(each) for each in (left, right)]
    if tuples[0] and tuples[1]:
        return _of_tuples(kind, *tuples, is_join=is_join)
    is_of_null = isinstance(left, exp.Null) or isinstance(right, exp.Null)
    is_of_constant = is_constant(left) or is_constant(right)
    if is_of_null or not is_of_constant or any(_is_large(each) for each in (left, right)):
        if kind is exp.EQ and is_join and not is_of_constant:
            return call("clickhouse_join_equals", left, right)
        return call(_COMPARISONS[kind], left, right)
    node: exp.Expression = kind(this=left.copy(), expression=right.copy())
    # Only a NaN on the greater side is a match in Spark.
    greater = left if kind in (exp.GT, exp.GTE) else right if kind in (exp.LT, exp.LTE) else None
    if greater is None or is_constant(greater):
        return node
    return exp.paren(exp.and_(node, call("clickhouse_is_ordered", greater.copy())))


def _of_tuples(kind: type, left: list[exp.Expression], right: list[exp.Expression], *, is_join: bool) -> exp.Expression:
    if kind not in (exp.EQ, exp.NEQ) or len(left) != len(right):
        raise refused("this comparison of tuples", "compare their elements: a < x OR a = x AND b < y")
    if any(isinstance(_inner(each), exp.Null) for each in (*left, *right)):
        raise refused("NULL in a compared tuple", "write a IS NULL")
    pairs = [_pair(kind, *each, is_join=is_join) for each in zip(left, right, strict=True)]
    return exp.paren(exp.and_(*pairs) if kind is exp.EQ else exp.or_(*pairs))


def _elements(node: exp.Expression) -> list[exp.Expression]:
    """Return the elements of a tuple that is written out; empty: it is none."""
    inner = node.this if isinstance(node, exp.Paren) else node
    return inner.expressions[1::2] if isinstance(inner, exp.Anonymous) and inner.name == _STRUCT else []


def _is_of_join(node: exp.Expression) -> bool:
    """Return whether it joins tables: it stands behind ON, or behind WHERE where tables are joined without it."""
    if isinstance(node.find_ancestor(exp.Join, exp.Query), exp.Join):
        return True
    above = node.find_ancestor(exp.Where, exp.Query)
    select = above.parent if isinstance(above, exp.Where) else None
    if not isinstance(select, exp.Select) or any(
        not isinstance(each, exp.Column) for each in (node.this, node.expression)
    ):
        return False
    return any(not join.args.get("on") and not join.args.get("using") for join in select.args.get("joins") or [])


def _between(node: exp.Between) -> exp.Expression:
    """NaN is in no range; NOT BETWEEN, which is false of it there, cannot be distinguished from NOT (.. BETWEEN ..)."""
    value, low, high = node.this, node.args["low"], node.args["high"]
    if isinstance(node.parent, exp.Not):
        value, low, high = (
            each if is_constant(each) else call("clickhouse_no_nan", each) for each in (value, low, high)
        )
    if all(is_constant(each) and not _is_large(each) for each in (low, high)):
        return exp.Between(this=value, low=low, high=high)
    lower = _pair(exp.GTE, value.copy(), low, is_join=False)
    return exp.paren(exp.and_(lower, _pair(exp.LTE, value, high, is_join=False)))


def _in(node: exp.In) -> exp.Expression:
    """A list's NULL is no element there: a value that is not found is not in it."""
    query = node.args.get("query")
    if _elements(node.this):
        raise refused("IN with tuples", "use a JOIN, or compare the elements")
    if query is not None:
        return _in_query(node, query)
    values = [each for each in node.expressions if not isinstance(each, exp.Null)]
    if not values or any(not is_constant(each) for each in values):
        raise refused("IN with anything but constants or a query", "write x = a OR x = b")
    found: exp.Expression = exp.In(this=node.this, expressions=values)
    beside = []
    if any(_number(each) == 0 for each in values):
        beside.append("clickhouse_is_no_minus_zero")
    if any(_is_large(each) and _is_whole(each) for each in values):
        beside.append("clickhouse_is_exact_float")
    if any(_is_large(each) and not _is_whole(each) for each in values):
        beside.append("clickhouse_is_exact_whole")
    if beside:
        found = exp.paren(exp.and_(found, *(call(each, node.this.copy()) for each in beside)))
    return found


def _in_query(node: exp.In, query: exp.Expression) -> exp.Expression:
    inner = query.this if isinstance(query, exp.Subquery) else query
    if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
        raise refused("IN with a query of several columns", "use a JOIN")
    if isinstance(inner.expressions[0], exp.Star):
        raise refused("IN with SELECT *", "name the column")
    found = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("found"), columns=[_ELEMENT.copy()]))
    filled = (
        exp.select(call("clickhouse_member", exp.column(_ELEMENT.copy())))
        .from_(found)
        .where(exp.column(_ELEMENT.copy()).is_(exp.null()).not_())
    )
    return exp.In(this=call("clickhouse_member", node.this), query=exp.Subquery(this=filled))


def _case(node: exp.Case) -> exp.Expression:
    """CASE x WHEN a compares bit by bit there, NULL equals NULL, and a text is no date."""
    ifs = node.args["ifs"]
    value, default = node.args.get("this"), node.args.get("default")
    if value is not None:
        keys = [each.this for each in ifs]
        is_of_text = all(isinstance(key, exp.Literal) and key.is_string for key in keys)
        is_of_numbers = all(_number(key) is not None and not _is_large(key) for key in keys)
        if not is_of_text and not is_of_numbers:
            raise refused("CASE x WHEN with anything but texts or numbers", "write CASE WHEN x = y THEN ..")
        node.set("this", call(f"clickhouse_case_of_{'text' if is_of_text else 'number'}", value.copy()))
    results = [each.args["true"] for each in ifs] + ([] if default is None else [default])
    copies = alike([each.copy() for each in results])
    for each, result in zip(ifs, copies, strict=False):
        each.set("true", result)
    if default is not None:
        node.set("default", copies[-1])
    return node


def _if(node: exp.If) -> exp.Expression:
    if not isinstance(node.parent, exp.Case) and node.args.get("false") is not None:
        true, false = alike([node.args["true"].copy(), node.args["false"].copy()])
        node.set("true", true)
        node.set("false", false)
    return node


def _inner(node: exp.Expression) -> exp.Expression:
    return node.this if isinstance(node, exp.Neg | exp.Paren) else node


def _number(node: exp.Expression) -> float | None:
    """Return the value of a number; None: it is none."""
    inner = _inner(node)
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    return float(inner.name.rstrip("D"))


def _is_large(node: exp.Expression) -> bool:
    number = _number(node)
    return number is not None and number >= _SHARED_FROM


def _is_whole(node: exp.Expression) -> bool:
    return _inner(node).name.isdigit()


_COMPARISONS: dict[type, str] = {
    exp.EQ: "equals",
    exp.NEQ: "notEquals",
    exp.LT: "less",
    exp.LTE: "lessOrEquals",
    exp.GT: "greater",
    exp.GTE: "greaterOrEquals",
}
# Any: each change takes the nodes of its type.
_CHANGES: dict[type, Callable[..., exp.Expression]] = {
    exp.Between: _between,
    exp.In: _in,
    exp.Case: _case,
    exp.If: _if,
}
