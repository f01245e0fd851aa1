"""Changes of expressions, from ClickHouse's dialect to Spark's: calls, operators, CAST, numbers.

Covers: what an expression is written as. Does not cover: clauses (dialect_queries.py), which functions there are
(dialect_words.py), what they compute (warehouse/allowed/exact.py). Always holds: a call that is not listed is refused
by name. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from tilth.sql.language.dialect_json import JSON_CALLS, json_call
from tilth.sql.language.dialect_words import (
    CALLS,
    CLICKHOUSE,
    OURS,
    PARAMETERS,
    REFUSED,
    REFUSED_FAMILIES,
    SPARK,
    WITHOUT,
    call,
    refused,
)


def functions(tree: exp.Expression) -> exp.Expression:
    # What is inside comes first: a change keeps it.
    for node in reversed(list(tree.walk())):
        assert isinstance(node, exp.Expression)
        changed = _changed(node)
        if changed is not node:
            node.replace(changed)
    return tree


def _changed(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc):
        return node if node.name.startswith(OURS) else _called(node)
    if isinstance(node, exp.ParameterizedAgg | exp.CombinedParameterizedAgg):
        return _with_parameters(node)
    if isinstance(node, exp.CastToStrType):
        return _cast(exp.cast(node.this, exp.DataType.build(node.args["to"].name, dialect=CLICKHOUSE)))
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Bracket):
        return call("clickhouse_element", node.this, *node.expressions)
    if isinstance(node, exp.Dot) and node.expression.is_int:
        return exp.Dot(this=node.this, expression=exp.to_identifier(f"col{node.expression.name}"))
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Literal):
        inner = exp.Column(this=node.args["table"], table=node.args.get("db"))
        return exp.Dot(this=inner, expression=exp.to_identifier(f"col{node.name}"))
    if isinstance(node, exp.Window):
        return _window(node)
    if isinstance(node, exp.Interval):
        _check_interval(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _number(node)
    if isinstance(node, exp.Array) and not node.expressions:
        raise refused("an array without elements", "write a condition on length(..) or empty(..)")
    return _operator(node)


def _number(node: exp.Literal) -> exp.Expression:
    """A number with a fraction is a Float64 there, and a Decimal in Spark's SQL."""
    if node.name.isdigit():
        if int(node.name) > _WHOLE_MAX:
            raise refused(f"the number {node.name}", "write it as a text, and CAST it to a Decimal")
        return node
    return exp.Literal.number(f"{node.name}D") if node.name.replace(".", "", 1).isdigit() else node


def _window(node: exp.Window) -> exp.Expression:
    """Aggregates over windows, none of which is empty."""
    spec = node.args.get("spec")
    if spec is not None and (spec.args.get("start_side") == "FOLLOWING" or spec.args.get("end_side") == "PRECEDING"):
        raise refused("a window without the present row", "let it begin or end with CURRENT ROW")
    call = node.this
    name = call.name if isinstance(call, exp.Anonymous) else ""
    written = _OF_WINDOWS.get(name)
    if written is None:
        raise refused(f"{name or 'this expression'} OVER", WITHOUT)
    call.set("this", written)
    return node


def _operator(node: exp.Expression) -> exp.Expression:
    """Write an operator that differs between the systems as a function of ours."""
    if isinstance(node, exp.DPipe):
        return call("concat", *(_as_text(side) for side in (node.this, node.expression)))
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return _arithmetic(node)
    if isinstance(node, exp.Tuple):
        return _tuple(node)
    if isinstance(node, exp.Mod):
        return call("clickhouse_modulo", node.this, node.expression)
    if isinstance(node, exp.IntDiv):
        return call("clickhouse_int_div", node.this, node.expression)
    if isinstance(node, exp.Div):
        return call("clickhouse_divide", node.this, node.expression)
    if type(node) in _COMPARISONS:
        return _compared(node)
    if isinstance(node, exp.In):
        return _in(node)
    return node


def _arithmetic(node: exp.Expression) -> exp.Expression:
    sides = (node.this, node.expression)
    shifted = None if isinstance(node, exp.Mul) else _shifted(node)
    if shifted is not None:
        return shifted
    if isinstance(node, exp.Sub) and not any(_is_constant(each) or isinstance(each, exp.Interval) for each in sides):
        return call("clickhouse_fits", call("clickhouse_minus", *sides))
    # Of constants nothing is too large.
    return node if all(_is_constant(each) for each in sides) else call("clickhouse_fits", node.copy())


def _shifted(node: exp.Expression) -> exp.Expression | None:
    """t + INTERVAL 24 HOUR as addHours(t, 24): as an interval, Spark takes them for a day, which may have 23 hours."""
    sides = [(node.this, node.expression), *([(node.expression, node.this)] if isinstance(node, exp.Add) else [])]
    for time, step in sides:
        interval = step.unnest()
        unit, count = "", None
        if isinstance(interval, exp.Interval):
            unit, count = _unit_of(interval), interval.this
        elif isinstance(interval, exp.Anonymous) and interval.name.lower().startswith("tointerval"):
            unit, count = interval.name[len("toInterval") :].upper(), interval.expressions[0]
        if unit not in _PER_NEXT_UNIT:
            continue
        if not isinstance(count, exp.Expression):
            raise refused("this interval", "write INTERVAL 1 HOUR")
        if isinstance(count, exp.Literal) and count.is_string:
            count = exp.Literal.number(count.name)
        verb = "subtract" if isinstance(node, exp.Sub) else "add"
        return call("clickhouse_fits", call(f"{verb}{unit.capitalize()}s", time.copy(), count.copy()))
    return None


def _check_interval(node: exp.Expression) -> None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    is_argument = isinstance(parent, exp.Anonymous) and parent.name.lower() in _CHANGED_CALLS
    if not isinstance(parent, exp.Add | exp.Sub) and not is_argument:
        raise refused("an interval by itself", "write t + INTERVAL 1 HOUR")


def _tuple(node: exp.Expression) -> exp.Expression:
    """Elements are called by their places."""
    named = [(exp.Literal.string(f"col{place}"), each) for place, each in enumerate(node.expressions, start=1)]
    if not named:
        raise refused("a tuple without elements", WITHOUT)
    return call("named_struct", *(each for pair in named for each in pair))


def _compared(node: exp.Expression) -> exp.Expression:
    """NaN equals nothing and is larger than nothing, which is said beside the comparison: its literal stays visible."""
    left, right = node.this, node.expression
    is_of_null = isinstance(left, exp.Null) or isinstance(right, exp.Null)
    if is_of_null or (not _is_constant(left) and not _is_constant(right)):
        if isinstance(node, exp.EQ) and isinstance(node.find_ancestor(exp.Join, exp.Query), exp.Join):
            return call("clickhouse_join_equals", left, right)
        return call(_COMPARISONS[type(node)], left, right)
    # Only a NaN on the greater side is a match in Spark.
    greater = left if isinstance(node, exp.GT | exp.GTE) else right if isinstance(node, exp.LT | exp.LTE) else None
    if greater is None or _is_constant(greater):
        return node
    return exp.paren(exp.and_(node.copy(), call("clickhouse_is_ordered", greater.copy())))


def _in(node: exp.In) -> exp.Expression:
    """A list's NULL is no element there: a value that is not found is not in it."""
    query = node.args.get("query")
    if query is not None:
        inner = query.this if isinstance(query, exp.Subquery) else query
        if isinstance(node.this, exp.Tuple) or not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            raise refused("IN with a query of several columns", "use a JOIN")
        if isinstance(inner.expressions[0], exp.Star):
            raise refused("IN with SELECT *", "name the column")
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
        raise refused("IN with anything but constants or a query", "write x = a OR x = b")
    return exp.In(this=node.this, expressions=values)


def _is_constant(node: exp.Expression) -> bool:
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.Boolean | exp.Null)


def _as_text(node: exp.Expression) -> exp.Expression:
    return node if isinstance(node, exp.Literal) and node.is_string else call("clickhouse_to_string", node)


def _called(node: exp.Expression) -> exp.Expression:
    """Write a call as the list says; refuse what it does not name."""
    name, arguments = node.name, node.expressions
    low = name.lower()
    change = _CHANGED_CALLS.get(low)
    if change is not None:
        return change(node)
    listed = _CALLS.get(low)
    if listed is None:
        raise refused(name, _hint(low))
    if low in _ZONE_FROM and len(arguments) >= _ZONE_FROM[low]:
        raise refused(f"a time zone in {name}", "write the time in the zone of the session, and leave the zone out")
    if len(arguments) not in listed.counts:
        raise refused(f"{name} with {len(arguments)} arguments", WITHOUT)
    if any(isinstance(each, exp.Alias) for each in arguments):
        raise refused(f"names in the arguments of {name}", WITHOUT)
    if listed.written in _AGGREGATES:
        return _aggregate(listed.written, *arguments)
    if low.startswith("tointerval"):
        _check_interval(node)
    written = exp.Anonymous(this=listed.written, expressions=arguments)
    return call("clickhouse_fits", written) if low.startswith(_MOVING) else written


def _hint(low: str) -> str:
    if low in REFUSED:
        return REFUSED[low]
    family = next((hint for begin, hint in REFUSED_FAMILIES.items() if low.startswith(begin)), None)
    return family or WITHOUT


def _with_parameters(node: exp.Expression) -> exp.Expression:
    name, levels, values = node.name, node.expressions, node.args["params"]
    if name not in PARAMETERS or len(values) != 1 or not levels or not all(_is_constant(each) for each in levels):
        raise refused(f"the aggregate function {name}(..)(..)", "use window functions, or a function of Spark")
    written, is_list = PARAMETERS[name]
    if not is_list and len(levels) != 1:
        raise refused(f"{name} with {len(levels)} levels", "use quantiles or quantilesExact")
    is_plain = _is_plain(values[0])
    each = [call(_named(written, is_plain), values[0].copy(), level) for level in levels]
    return exp.Array(expressions=each) if is_list else each[0]


def _aggregate(written: str, *arguments: exp.Expression) -> exp.Expression:
    # The nullability of a condition is irrelevant.
    values = arguments[:1] if written.endswith("_if") else arguments
    return call(_named(written, all(_is_plain(each) for each in values)), *arguments)


def _named(written: str, is_plain: bool) -> str:
    return written if is_plain else f"{written}_of_computed"


def _is_plain(node: exp.Expression) -> bool:
    """Return whether Spark and ClickHouse agree on whether it can be NULL: columns of tables, constants, and what
    operators make of them.
    """
    if _is_constant(node):
        return True
    if isinstance(node, exp.Column):
        return _is_of_table(node)
    if isinstance(node, _PLAIN_NODES) or (isinstance(node, exp.Anonymous) and node.name in _PLAIN_CALLS):
        inner = node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.args.get("expression")]
        return all(_is_plain(each) for each in inner if isinstance(each, exp.Expression))
    return False


def _is_of_table(node: exp.Column) -> bool:
    """Return whether a column is one of a table: no result of a query, no other name of an expression."""
    select = node.find_ancestor(exp.Select)
    if select is None:
        return False
    start = select.args.get("from_") or select.args.get("from")
    sources = [each.this for each in (start, *select.args.get("joins", ())) if each is not None]
    queries = {each.alias.lower() for each in node.root().find_all(exp.CTE)}
    names = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)}
    is_table = all(isinstance(each, exp.Table) and each.name.lower() not in queries for each in sources)
    return bool(sources) and is_table and node.name.lower() not in names


def _concat(node: exp.Expression) -> exp.Expression:
    if not node.expressions:
        raise refused("concat of nothing", WITHOUT)
    return call("concat", *(_as_text(each) for each in node.expressions))


def _moved(node: exp.Expression) -> exp.Expression:
    """dateAdd(HOUR, 1, t) as addHours(t, 1)."""
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 3 or unit not in _STARTS or isinstance(arguments[1], exp.Interval):
        raise refused("this dateAdd or dateSub", "write t + INTERVAL 1 HOUR, or addHours(t, 1)")
    verb = "subtract" if "sub" in node.name.lower() else "add"
    return call("clickhouse_fits", call(f"{verb}{unit.capitalize()}s", arguments[2], arguments[1]))


def _difference(node: exp.Expression) -> exp.Expression:
    """Spark counts whole units, ClickHouse borders between them."""
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 3 or unit not in _STARTS:
        raise refused("this dateDiff", "write dateDiff('hour', from, to) without a time zone")
    return call("unitDiff", exp.Literal.string(unit.lower()), arguments[1], arguments[2])


def _truncated(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 2 or unit not in _STARTS:
        raise refused(f"the beginning of {unit} in a time zone or of this unit", "use toStartOfHour(t)")
    # Of weeks and more, ClickHouse returns dates.
    return call("clickhouse_fits", call(_STARTS[unit], arguments[1]))


def _formatted(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    pattern = arguments[1] if len(arguments) == 2 else None
    if not isinstance(pattern, exp.Literal) or _FORMAT_CODES.sub("", pattern.name).count("%"):
        raise refused("this formatDateTime", "use %Y %y %m %d %H %i %S %s %F %T %R %j, and no time zone")
    return call("formatDateTime", arguments[0], pattern)


def _format(node: exp.Expression) -> exp.Expression:
    """format('{0}-{}', ..) as the parts of its pattern and the arguments between them."""
    pattern, arguments = (node.expressions or [None])[0], node.expressions[1:]
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or not arguments:
        raise refused("this format", "write a constant pattern, and arguments")
    found: list[tuple[str, str]] = _FORMAT_PARTS.findall(pattern.name)
    parts: list[exp.Expression] = []
    used = 0
    for text, placeholder in found:
        if not placeholder:
            parts.append(exp.Literal.string(text.replace("{{", "{").replace("}}", "}")))
            continue
        index = int(placeholder[1:-1]) if len(placeholder) > 2 else used
        used += 1
        if index >= len(arguments):
            raise refused("this format", "write as many arguments as the pattern has placeholders")
        parts.append(_as_text(arguments[index].copy()))
    is_numbered = {len(placeholder) > 2 for _, placeholder in found if placeholder}
    if len(is_numbered) > 1 or "".join(text + placeholder for text, placeholder in found) != pattern.name:
        raise refused("this format", "write each placeholder as {}, or each with its number, as {0}")
    # An argument that is NULL makes the result NULL, also where the pattern does not name it.
    return call("concat", *parts, *(call("left", _as_text(each.copy()), exp.Literal.number(0)) for each in arguments))


def _separated(node: exp.Expression) -> exp.Expression:
    separator, arguments = (node.expressions or [None])[0], node.expressions[1:]
    if not isinstance(separator, exp.Literal) or not separator.is_string or not arguments:
        raise refused(f"this {node.name}", "write a constant separator, and texts")
    joined = [part for each in arguments for part in (separator.copy(), _as_text(each))]
    return call("concat", *joined[1:])


def _split(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    separator = arguments[0] if len(arguments) == 2 else None
    if not isinstance(separator, exp.Literal) or not separator.is_string or "\\" in separator.name:
        raise refused(f"this {node.name}", "write a constant separator, and a text")
    if not separator.name or (node.name.lower() == "splitbychar" and len(separator.name.encode()) > 1):
        raise refused(f"this separator in {node.name}", "write one letter, and in splitByString a text")
    return call("clickhouse_split", separator, arguments[1])


def _hex(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 1:
        raise refused(f"hex with {len(node.expressions)} arguments", WITHOUT)
    inner = node.expressions[0]
    is_digest = isinstance(inner, exp.Anonymous) and inner.name.startswith(_DIGEST)
    return inner if is_digest else call("clickhouse_hex", inner)


def _digest(node: exp.Expression) -> exp.Expression:
    """Digests are bytes there, and hexadecimal texts in Spark."""
    parent = node.parent
    if not isinstance(parent, exp.Anonymous) or parent.name.lower() != "hex" or len(node.expressions) != 1:
        raise refused(f"{node.name} outside of hex", f"write hex({node.name}(x))")
    return call(f"{_DIGEST}{node.name.lower()}", *node.expressions)


def _median(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 1:
        raise refused(f"median with {len(node.expressions)} arguments", WITHOUT)
    return _aggregate("clickhouse_quantile", node.expressions[0], exp.Literal.number("0.5D"))


def _many_ifs(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise refused(
            f"multiIf with {len(arguments)} arguments", "write a condition and a value, .., and the value else"
        )
    pairs = zip(arguments[:-1:2], arguments[1:-1:2], strict=True)
    return exp.Case(ifs=[exp.If(this=test, true=value) for test, value in pairs], default=arguments[-1])


def _exploded(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 1:
        raise refused("arrayJoin of several arrays", WITHOUT)
    return call("explode", node.expressions[0])


def _interval_start(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    if len(arguments) == 2 and isinstance(arguments[1], exp.Interval) and arguments[1].this is not None:
        unit, number = _unit_of(arguments[1]), arguments[1].this.name
        count = int(number) if number.isdigit() else 0
        if count == 1 and unit in _STARTS:
            return call("clickhouse_fits", call(_STARTS[unit], arguments[0]))
        # Divisors of a day begin at midnight in both systems.
        if count and unit in _PER_NEXT_UNIT and _PER_NEXT_UNIT[unit] % count == 0:
            if unit == "HOUR":
                return call("clickhouse_fits", call("clickhouse_in_utc", call("toStartOfInterval", *arguments)))
            size = exp.Literal.number(count * _SECONDS[unit])
            return call("clickhouse_fits", call("clickhouse_start_of_seconds", arguments[0], size))
    raise refused("this toStartOfInterval", "use an interval that divides a day, or one week, month, quarter or year")


def _cast(node: exp.Expression) -> exp.Expression:
    kind = node.args["to"]
    if any(each.is_string for each in kind.find_all(exp.Literal)):
        raise refused("a time zone or a name in CAST", "write the time in the zone of the session")
    function = _CONVERSIONS.get(kind.this)
    if function is not None:
        return call(function, node.this)
    if any(each.this not in _CAST_AS_THEY_ARE for each in kind.find_all(exp.DataType)):
        raise refused(f"a CAST to {kind.sql(dialect=CLICKHOUSE)}", "cast to numbers, String, Date or DateTime")
    return node


def _unit_of(node: exp.Expression) -> str:
    unit = node.args.get("unit")
    return unit.name.strip("'").upper() if isinstance(unit, exp.Expression) else ""


def types(tree: exp.Expression) -> exp.Expression:
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
_SECONDS = {"SECOND": 1, "MINUTE": 60}
_FORMAT_PARTS = re.compile(r"((?:[^{}]|\{\{|\}\})+)|(\{[0-9]*\})")
_DIGEST = "clickhouse_digest_"
_FORMAT_CODES = re.compile("%[YymdHiSsFTRj]")
#: Begins of the names of functions whose results can lie before 1970.
_MOVING = ("add", "subtract", "tomonday", "tostartofweek", "tostartofday", "tolastdayofmonth")
_ELEMENT = exp.to_identifier("element")
_WHOLE_MAX = 2**64 - 1
#: Aggregates whose value without rows depends on whether their argument can be NULL.
_AGGREGATES = frozenset(
    f"clickhouse_{name}{suffix}" for name in ("sum", "min", "max", "avg", "any") for suffix in ("", "_if")
) | {"clickhouse_arg_min", "clickhouse_arg_max"}
_PLAIN_NODES = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
)
_PLAIN_CALLS = frozenset(
    f"clickhouse_{name}"
    for name in (
        *("fits", "minus", "divide", "modulo", "int_div", "is_ordered", "equals", "not_equals"),
        *("less", "less_or_equals", "greater", "greater_or_equals"),
    )
)
#: Functions with OVER, as they are written there.
_OF_WINDOWS = {
    **{
        f"clickhouse_{name}{computed}": f"clickhouse_window_{name}"
        for name in ("sum", "avg", "min", "max")
        for computed in ("", "_of_computed")
    },
    **{name: name for name in ("count", "row_number", "rank", "dense_rank")},
}
_COMPARISONS: dict[type, str] = {
    exp.EQ: "clickhouse_equals",
    exp.NEQ: "clickhouse_not_equals",
    exp.LT: "clickhouse_less",
    exp.LTE: "clickhouse_less_or_equals",
    exp.GT: "clickhouse_greater",
    exp.GTE: "clickhouse_greater_or_equals",
}
_CALLS = {name.lower(): call for name, call in CALLS.items()}
#: Functions that are changed in more than their names.
CHANGED_CALLS: dict[str, Callable[[exp.Expression], exp.Expression]] = {
    "concat": _concat,
    **dict.fromkeys(("dateAdd", "dateSub", "date_add", "date_sub"), _moved),
    **dict.fromkeys(("timestampAdd", "timestampSub", "timestamp_add", "timestamp_sub"), _moved),
    **dict.fromkeys(("dateDiff", "date_diff"), _difference),
    **dict.fromkeys(("dateTrunc", "date_trunc"), _truncated),
    "formatDateTime": _formatted,
    "toStartOfInterval": _interval_start,
    "multiIf": _many_ifs,
    "arrayJoin": _exploded,
    "tuple": _tuple,
    "format": _format,
    **dict.fromkeys(("concatWithSeparator", "concat_ws"), _separated),
    **dict.fromkeys(("splitByChar", "splitByString"), _split),
    "hex": _hex,
    **dict.fromkeys(("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"), _digest),
    "median": _median,
    **dict.fromkeys(JSON_CALLS, json_call),
}
_CHANGED_CALLS = {name.lower(): change for name, change in CHANGED_CALLS.items()}
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
