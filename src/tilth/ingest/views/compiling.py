"""Spark's optimized plans of views to programs of Arrow kernels.

Covers: the plans and expressions that have a kernel. Does not cover: running kernels (kernels.py).
Always holds: a view with an expression that has no kernel with exactly its meaning is computed by Spark as a whole, and
the reason is known. So is one with a class of another version of Spark; those of 4.3 are known.

Tests: tests/integration/ingest/test_view_kernels.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilth.ingest.views.kernels import Expr, Filter, Project, ViewKernel
from tilth.ingest.views.nodes import class_of, listed, nodes_of
from tilth.model.table import Column, TableDef
from tilth.model.text.times import DAY_US, date_text
from tilth.model.types import INTEGER_BITS, DataType, Kind, Simple, spark_name

# Any: plans and expressions are handles of the JVM; pyspark gives them no types.
Node = Any

_INTEGERS = frozenset(INTEGER_BITS)
_NUMBERS = _INTEGERS | {Kind.FLOAT64}
#: Kinds whose values Arrow casts to wider numbers as Spark does.
_WIDENED = _INTEGERS | {Kind.FLOAT32}
_TIMES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
_COMPARED = _NUMBERS | _TIMES | {Kind.STRING, Kind.BOOLEAN}
_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply"}
_COMPARISONS = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_JUNCTIONS = {"And": "and", "Or": "or"}
_TESTS = {"IsNull": "is_null", "IsNotNull": "is_not_null"}
_OF_TEXT = {"Upper": "upper", "Lower": "lower", "Length": "length"}
#: Microseconds of the units that these count.
_COUNTS = {"SecondsToTimestamp": 1_000_000, "MillisToTimestamp": 1_000, "MicrosToTimestamp": 1}
_UTC = frozenset({"UTC", "Etc/UTC", "Z", "GMT"})
_DIGITS_MAX = 12
#: Levels of an expression; pickle, which sends programs to tasks, ends at about three times as many.
_DEPTH_MAX = 80
#: Words for the present in Spark's literals of times.
_PRESENT = re.compile(r"\b(?:now|today|yesterday|tomorrow)\b", re.IGNORECASE)
_KINDS = {kind.value: kind for kind in Kind}


class NotCompiledError(Exception):
    """an expression has no kernel"""


def compile_plan(plan: Node, names: Mapping[str, str]) -> tuple[tuple[Filter | Project, ...], list[tuple[Expr, str]]]:
    """Return the steps of a plan over a LogicalRDD, and its columns over them with their types in Spark's words.

    `names`: the columns that the plan needs, as they are decoded, by their names in lower case. Raises NotCompiledError
    with the reason.
    """
    try:
        steps = _steps(plan, names)
        outputs = [(Expr("column", value=_name(each)), _type(each)) for each in listed(plan.output())]
    except NotCompiledError:
        raise
    except Exception as error:  # whatever py4j raises for classes of another version of Spark
        raise NotCompiledError(f"Spark's plan is not known: {type(error).__name__}") from error
    return steps, outputs


def kernel_or_reason(
    session: Any,
    plans: tuple[Node, Node],
    select: str,
    needed: Sequence[str],
    matched: Mapping[str, int],
    target: TableDef,
    *,
    constant: Callable[[Column], object],
) -> tuple[ViewKernel | None, str]:
    """Return the view's program, or None and the reason why Spark has to compute it.

    `plans`: the analyzed and the optimized plan of the text `select`. `needed`: columns that the view reads. `matched`:
    position of the view's column by column of the target. `constant`: value of a column that the view does not fill.
    """
    analyzed, optimized = plans
    try:
        # The optimizer has replaced now() by the present time, but the program serves all rounds.
        if _has_present(session, analyzed) or _PRESENT.search(select):
            raise NotCompiledError("the present time, or another value of the session, has no kernel")
        steps, outputs = compile_plan(optimized, {name.lower(): name for name in needed})
        columns = tuple((c.name, _column(c, outputs, matched.get(c.name), constant)) for c in target.schema.columns)
        _check_times((*steps, Project(columns)), select)
    except NotCompiledError as error:
        return None, str(error)
    return ViewKernel(steps, columns), ""


def _column(
    column: Column, outputs: Sequence[tuple[Expr, str]], position: int | None, constant: Callable[[Column], object]
) -> Expr:
    """Return a column of the target."""
    if position is None:
        if column.expression or column.is_default_computed:
            raise NotCompiledError(f"column {column.name} of the target is computed")
        return Expr("literal", value=constant(column), type=column.type)
    made, given = outputs[position]
    if given == spark_name(column.type):
        return made
    # `_match` of views.py lets only such columns through that fit the target.
    if _KINDS.get(given) not in _WIDENED or not isinstance(column.type, Simple):
        raise NotCompiledError(f"a cast of {given} to {spark_name(column.type)} has no kernel")
    return Expr("cast", (made,), type=column.type)


def _has_present(session: Any, analyzed: Node) -> bool:
    """Return whether an analyzed plan has an expression of the present or of the session, such as now()."""
    try:
        current = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        return any(node.containsPattern(current) for node in nodes_of(analyzed))
    except Exception as error:  # as in `compile_plan`
        raise NotCompiledError(f"Spark's plan is not known: {type(error).__name__}") from error


def _check_times(steps: Sequence[Filter | Project], select: str) -> None:
    """Raises NotCompiledError for a literal of a time whose date is not in the view's text.

    Spark's parser and optimizer read texts such as 'now' as the present, however they are spelled.
    """
    for step in steps:
        expressions = [step.condition] if isinstance(step, Filter) else [each for _, each in step.columns]
        for literal in _times_in(expressions):
            assert isinstance(literal.type, Simple)
            day = literal.value if literal.type.kind is Kind.DATE else literal.value // DAY_US
            if date_text(day) not in select:
                raise NotCompiledError("a time whose date is not in the view's text has no kernel")


def _times_in(expressions: Iterable[Expr]) -> Iterator[Expr]:
    for each in expressions:
        yield from _times_in(each.args)
        is_time = each.op == "literal" and isinstance(each.type, Simple) and each.type.kind in _TIMES
        if is_time and isinstance(each.value, int):
            yield each


def _steps(plan: Node, names: Mapping[str, str]) -> tuple[Filter | Project, ...]:
    match class_of(plan):
        case "LogicalRDD":
            given = [(_name(each), names.get(each.name().lower())) for each in listed(plan.output())]
            return (Project(tuple((name, Expr("column", value=column)) for name, column in given if column)),)
        case "Project":
            made = [(_name(each), _expression(each)) for each in listed(plan.projectList())]
            return (*_steps(plan.child(), names), Project(tuple(made)))
        case "Filter":
            return (*_steps(plan.child(), names), Filter(_expression(plan.condition())))
        case other:
            raise NotCompiledError(f"{other} has no kernel")


def _name(attribute: Node) -> str:
    return f"c{attribute.exprId().id()}"


def _type(node: Node) -> str:
    return str(node.dataType().catalogString())


def _kind(node: Node) -> Kind | None:
    return _KINDS.get(_type(node))


def _expression(node: Node, depth: int = 0) -> Expr:
    kind = class_of(node)
    if depth > _DEPTH_MAX:
        raise NotCompiledError(f"an expression of more than {_DEPTH_MAX} levels has no kernel")
    if kind == "AttributeReference":
        return Expr("column", value=_name(node))
    if kind == "Alias":
        return _expression(node.child(), depth + 1)
    if kind == "Literal":
        return _literal(node)
    children = listed(node.children())
    found = _operator(kind, node, children) or _function(kind, node, children)
    if found is None:
        given = ", ".join(_type(each) for each in children)
        raise NotCompiledError(f"{node.prettyName()} of {given} has no kernel")
    op, value, operands, data_type = found
    return Expr(op, tuple(_expression(each, depth + 1) for each in operands), value, data_type)


#: Function, further argument, operands, and type of a cast.
_Found = tuple[str, Any, Sequence[Node], DataType | None]


def _operator(kind: str, node: Node, children: Sequence[Node]) -> _Found | None:
    kinds = {_kind(each) for each in children}
    is_one_kind = len(kinds) == 1
    if kind in _ARITHMETIC and is_one_kind and kinds <= _NUMBERS:
        return _ARITHMETIC[kind], None, children, None
    if kind == "Divide" and kinds == {Kind.FLOAT64}:
        return "divide", None, children, None
    if kind == "UnaryMinus" and kinds <= _NUMBERS:
        return "negate", None, children, None
    if kind in _COMPARISONS and is_one_kind and kinds <= _COMPARED:
        return _COMPARISONS[kind], None, children, None
    if kind in _JUNCTIONS:
        return _JUNCTIONS[kind], None, children, None
    if kind == "Not":
        return "not", None, children, None
    if kind in _TESTS:
        return _TESTS[kind], None, children, None
    if kind == "In" and is_one_kind and kinds <= _COMPARED - {Kind.FLOAT64} - _TIMES:
        literals = [_literal(each).value for each in children[1:] if class_of(each) == "Literal"]
        if len(literals) == len(children) - 1 and None not in literals:
            return "is_in", tuple(literals), children[:1], None
    return None


def _function(kind: str, node: Node, children: Sequence[Node]) -> _Found | None:
    kinds = [_kind(each) for each in children]
    if kind == "Cast":
        return _cast(node, children)
    if kind == "Round" and kinds[0] is Kind.FLOAT64 and class_of(children[1]) == "Literal":
        digits = _literal(children[1]).value
        return ("round", digits, children[:1], None) if 0 <= digits <= _DIGITS_MAX else None
    if kind in _OF_TEXT and kinds == [Kind.STRING]:
        return _OF_TEXT[kind], None, children, None
    if kind == "Concat" and children and set(kinds) == {Kind.STRING}:
        return "concat", None, children, None
    if kind == "Coalesce" and len(set(kinds)) == 1 and None not in kinds:
        return "coalesce", None, children, None
    if kind in ("If", "CaseWhen") and None not in kinds and len(children) % 2:
        return "case", None, children, None
    if kind in _COUNTS and kinds[0] in _INTEGERS:
        return "times", _COUNTS[kind], children, Simple(Kind.TIMESTAMP)
    return None


def _cast(node: Node, children: Sequence[Node]) -> _Found | None:
    given, wanted = _kind(children[0]), _kind(node)
    if given is None or wanted is None:
        return None
    if given is Kind.TIMESTAMP and wanted is Kind.DATE and str(node.timeZoneId().get()) in _UTC:
        return "day", None, children, None
    # A whole number that a narrower type does not hold makes the rows unfit.
    is_exact = given in _INTEGERS and wanted in _NUMBERS | {Kind.STRING}
    if given == wanted or is_exact or (given is Kind.BOOLEAN and wanted is Kind.STRING):
        return "cast", None, children, Simple(wanted)
    return None


def _literal(node: Node) -> Expr:
    kind, value = _kind(node), node.value()
    if kind is None or kind not in _COMPARED:
        raise NotCompiledError(f"a literal of type {_type(node)} has no kernel")
    if value is not None and kind is Kind.STRING:
        value = str(value.toString())
    return Expr("literal", value=value, type=Simple(kind))
