"""Changes of expressions, from ClickHouse's dialect to Spark's: calls, operators, CAST, numbers.

Covers: what an expression is written as. Does not cover: clauses (dialect_queries.py), which functions there are
(dialect_words.py), what they compute (functions/exact.py). Always holds: a call that is not listed is refused
by name. Pure.

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from tilth.clickhouse.dialect_compares import alike, as_struct, compared, is_constant, is_natural, without_null
from tilth.clickhouse.dialect_json import JSON_CALLS, json_call
from tilth.clickhouse.dialect_words import (
    CALLS,
    CLICKHOUSE,
    MANY,
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
    # Inner nodes come first: a change keeps them.
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
        return call("arrayElement", node.this, *node.expressions)
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
    if isinstance(node, exp.Array):
        return _array(node)
    return _operator(node)


def _array(node: exp.Expression) -> exp.Expression:
    values = node.expressions
    if not values:
        raise refused("an array without elements", "write a condition on length(..) or empty(..)")
    if all(isinstance(each, exp.Null) for each in values):
        raise refused("an array of NULL alone", "write a condition on the value: x IS NULL")
    return exp.Array(expressions=alike([each.copy() for each in values]))


def _number(node: exp.Literal) -> exp.Expression:
    """A number with a fraction is a Float64 there, and a Decimal in Spark's SQL."""
    if not node.name.isdigit() and float(node.name) == 0 and isinstance(node.parent, exp.Neg):
        # Spark takes it for 0.0 where it compares expressions with each other.
        raise refused("the number -0.0", "leave its sign out")
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
        return as_struct(node)
    if isinstance(node, exp.Mod):
        return call("modulo", node.this, node.expression)
    if isinstance(node, exp.IntDiv):
        return _divided(node.this, node.expression)
    if isinstance(node, exp.Div):
        return call("divide", node.this, node.expression)
    if isinstance(node, exp.Neg) and not is_constant(node):
        return call("clickhouse_fits_signed", node.copy())
    return compared(node)


def _arithmetic(node: exp.Expression) -> exp.Expression:
    sides = (node.this, node.expression)
    shifted = None if isinstance(node, exp.Mul) else _shifted(node)
    if shifted is not None:
        return shifted
    if isinstance(node, exp.Sub) and not any(is_constant(each) or isinstance(each, exp.Interval) for each in sides):
        return call("clickhouse_fits_signed", call("minus", *sides))
    # No result of constants is too large.
    if all(is_constant(each) for each in sides):
        return node
    # A difference has a sign there; a sum and a product have one, unless both sides are unsigned.
    is_unsigned = not isinstance(node, exp.Sub) and any(is_natural(each) for each in sides)
    return call("clickhouse_fits" if is_unsigned else "clickhouse_fits_signed", node.copy())


def _divided(value: exp.Expression, by: exp.Expression) -> exp.Expression:
    """intDiv(x, y) takes both for signed numbers there, unless both are unsigned."""
    sides = ((value, by), (by, value))
    return call(
        "intDiv",
        *(
            each if is_constant(each) or is_natural(other) else call("clickhouse_fits_signed", each)
            for each, other in sides
        ),
    )


def _of_operator(kind: type) -> Callable[[exp.Expression], exp.Expression]:
    """Return what writes plus(a, b) as a + b is written."""

    def changed(node: exp.Expression) -> exp.Expression:
        if len(node.expressions) != 2:
            raise refused(f"{node.name} with {len(node.expressions)} arguments", WITHOUT)
        left, right = node.expressions
        return exp.paren(_arithmetic(kind(this=left, expression=right)))

    return changed


def _integer_division(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 2:
        raise refused(f"{node.name} with {len(node.expressions)} arguments", WITHOUT)
    return _divided(*node.expressions)


def _chosen(node: exp.Expression) -> exp.Expression:
    """if, ifNull, coalesce: the types of the values that may be the result depend on each other."""
    if any(isinstance(each, exp.Interval) for each in node.expressions):
        raise refused("an interval by itself", "write t + INTERVAL 1 HOUR")
    name, arguments = node.name.lower(), [each.copy() for each in node.expressions]
    counts = _CHOICES[name]
    if len(arguments) not in counts:
        raise refused(f"{node.name} with {len(arguments)} arguments", WITHOUT)
    if name == "if":
        return call("if", arguments[0], *alike(arguments[1:]))
    return call("coalesce", *alike(arguments))


def _negated(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 1:
        raise refused(f"negate with {len(node.expressions)} arguments", WITHOUT)
    return call("clickhouse_fits_signed", exp.Neg(this=exp.paren(node.expressions[0].copy())))


def _null_if(node: exp.Expression) -> exp.Expression:
    if len(node.expressions) != 2:
        raise refused(f"{node.name} with {len(node.expressions)} arguments", WITHOUT)
    return without_null(node)


def _of_each(node: exp.Expression) -> exp.Expression:
    """arrayExists and arrayAll take NULL for false."""
    arguments = node.expressions
    if len(arguments) != 2 or not isinstance(arguments[0], exp.Lambda):
        raise refused(f"this {node.name}", "write it of one array: arrayExists(x -> x > 1, a)")
    test = arguments[0].copy()
    test.set("this", call("coalesce", test.this, exp.false()))
    return call("arrayExists" if node.name.lower() == "arrayexists" else "arrayAll", test, arguments[1])


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
    is_argument = isinstance(parent, exp.Anonymous) and parent.name.lower() in _INTERVAL_CALLS
    if not isinstance(parent, exp.Add | exp.Sub) and not is_argument:
        raise refused("an interval by itself", "write t + INTERVAL 1 HOUR")


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
    if name not in PARAMETERS or len(values) != 1 or not levels or not all(is_constant(each) for each in levels):
        raise refused(f"the aggregate function {name}(..)(..)", "use window functions, or a function of Spark")
    written, is_list = PARAMETERS[name]
    if not is_list and len(levels) != 1:
        raise refused(f"{name} with {len(levels)} levels", "use quantiles or quantilesExact")
    is_plain = _is_plain(values[0])
    each = [call(_named(written, is_plain), values[0].copy(), level) for level in levels]
    return exp.Array(expressions=each) if is_list else each[0]


def _aggregate(written: str, *arguments: exp.Expression) -> exp.Expression:
    # The nullability of a condition is irrelevant.
    values = arguments[:1] if written.endswith("If") else arguments
    return call(_named(written, all(_is_plain(each) for each in values)), *arguments)


def _named(written: str, is_plain: bool) -> str:
    return written if is_plain else f"{_AGGREGATES.get(written, written)}_of_computed"


def _is_plain(node: exp.Expression) -> bool:
    """Return whether Spark and ClickHouse agree on whether it can be NULL: columns of tables, constants, and what
    operators make of them.
    """
    if is_constant(node):
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
    times = arguments[1:]
    if unit in _PER_NEXT_UNIT:
        times = [each if is_constant(each) else call("clickhouse_as_time", each) for each in times]
    return call("unitDiff", exp.Literal.string(unit.lower()), *times)


def _truncated(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    unit = arguments[0].name.upper() if arguments else ""
    if len(arguments) != 2 or unit not in _STARTS:
        raise refused(f"the beginning of {unit} in a time zone or of this unit", "use toStartOfHour(t)")
    # ClickHouse returns dates as the beginnings of weeks and longer units.
    return call("clickhouse_fits", call(_STARTS[unit], arguments[1]))


def _formatted(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    pattern = arguments[1] if len(arguments) == 2 else None
    if not isinstance(pattern, exp.Literal) or "%" in _FORMAT_CODES.sub("", pattern.name):
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
    if len(arguments) > _SEPARATED_MAX:
        raise refused(f"{node.name} with more than {_SEPARATED_MAX} texts", "write it in parts")
    return call("concatWithSeparator", separator, *(_as_text(each) for each in arguments))


def _split(node: exp.Expression) -> exp.Expression:
    arguments = node.expressions
    separator = arguments[0] if len(arguments) == 2 else None
    if not isinstance(separator, exp.Literal) or not separator.is_string or "\\" in separator.name:
        raise refused(f"this {node.name}", "write a constant separator, and a text")
    if not separator.name or (node.name.lower() == "splitbychar" and len(separator.name.encode()) > 1):
        raise refused(f"this separator in {node.name}", "write one letter, and in splitByString a text")
    return call("splitByString", separator, arguments[1])


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
    return compared(exp.Case(ifs=[exp.If(this=test, true=value) for test, value in pairs], default=arguments[-1]))


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
        # Divisors of a day begin at midnight in both systems. 60 minutes are an hour in Spark.
        if count and unit in _PER_NEXT_UNIT and _PER_NEXT_UNIT[unit] % count == 0 and (unit, count) != ("MINUTE", 60):
            return call("clickhouse_fits", call("toStartOfInterval", *arguments))
    raise refused("this toStartOfInterval", "use an interval that divides a day, or one week, month, quarter or year")


def _cast(node: exp.Expression) -> exp.Expression:
    kind = node.args["to"]
    if any(each.is_string for each in kind.find_all(exp.Literal)):
        raise refused("a time zone or a name in CAST", "write the time in the zone of the session")
    function = _CONVERSIONS.get(kind.this)
    if function is not None:
        return call(function, node.this)
    sizes = [each.name for each in kind.expressions]
    if kind.this is not exp.DType.DECIMAL or len(sizes) != 2 or not all(each.isdigit() for each in sizes):
        hint = "cast to numbers, Decimal(18, 2), String, Date or DateTime"
        raise refused(f"a CAST to {kind.sql(dialect=CLICKHOUSE)}", hint)
    return exp.Cast(this=call("clickhouse_with_digits", node.this, exp.Literal.number(sizes[1])), to=kind)


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
#: Texts that concatWithSeparator takes.
_SEPARATED_MAX = 9
_FORMAT_PARTS = re.compile(r"((?:[^{}]|\{\{|\}\})+)|(\{[0-9]*\})")
_DIGEST = "clickhouse_digest_"
_FORMAT_CODES = re.compile("%[YymdHiSsFTRj]")
#: Begins of the names of functions whose results can lie before 1970.
_MOVING = ("add", "subtract", "tomonday", "tostartofweek", "tostartofday", "tolastdayofmonth", "makedate")
_WHOLE_MAX = 2**64 - 1
#: Aggregates whose value without rows depends on whether their argument can be NULL, with the names of their lines.
_AGGREGATES = {
    **{f"clickhouse_{name}": f"clickhouse_{name}" for name in ("sum", "min", "max", "avg", "any")},
    **{f"{name}If": f"clickhouse_{name}_if" for name in ("sum", "min", "max", "avg", "any")},
    "argMin": "clickhouse_arg_min",
    "argMax": "clickhouse_arg_max",
}
_PLAIN_NODES = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Paren, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
)
_PLAIN_CALLS = frozenset(
    (
        *("clickhouse_fits", "clickhouse_fits_signed", "clickhouse_is_ordered", "minus", "divide", "modulo", "intDiv"),
        *("equals", "notEquals", "less", "lessOrEquals", "greater", "greaterOrEquals"),
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
_CALLS = {name.lower(): call for name, call in CALLS.items()}
#: Functions that return one of their values, and how many they take.
_CHOICES = {"if": range(3, 4), "ifnull": range(2, 3), "coalesce": range(1, MANY + 1)}
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
    "tuple": as_struct,
    "plus": _of_operator(exp.Add),
    "minus": _of_operator(exp.Sub),
    "multiply": _of_operator(exp.Mul),
    "negate": _negated,
    "intDiv": _integer_division,
    **dict.fromkeys(("if", "ifNull", "coalesce"), _chosen),
    "nullIf": _null_if,
    **dict.fromkeys(("arrayExists", "arrayAll"), _of_each),
    "format": _format,
    **dict.fromkeys(("concatWithSeparator", "concat_ws"), _separated),
    **dict.fromkeys(("splitByChar", "splitByString"), _split),
    "hex": _hex,
    **dict.fromkeys(("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"), _digest),
    "median": _median,
    **dict.fromkeys(JSON_CALLS, json_call),
}
_CHANGED_CALLS = {name.lower(): change for name, change in CHANGED_CALLS.items()}
#: Functions that take an interval.
_INTERVAL_CALLS = frozenset(name for name, change in _CHANGED_CALLS.items() if change in (_moved, _interval_start))
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
