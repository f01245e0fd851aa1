"""Evaluates a view so that a row which cannot be computed is marked and not raised.

    the view's plan          the guarded plan
    Project [cast(a), b]     Project [message, step, ok.c0, ok.c1]      step: NULL, or where computing the row failed
    +- Filter (a / b > 1)    +- Project [.., tryeval(struct(cast(a), b)) AS ok]
       +- rows                  +- .. the same for the condition, over rows with the numbers of their messages

Covers: views whose rows are made of one message each (Project, Filter, Generate), what other views compute of single
rows before these meet (Aggregate), and what to evaluate to learn why. Does not cover: running plans (rounds/spark.py),
other failures (rounds/failing_view.py).
Always holds: where the view's own plan does not fail, the guarded plan gives its rows; where it fails, for each row on
which it does a row with the message and the step.

Made of Spark's own expressions, reached through the JVM: checked on Spark 4.3. `TryEval` is NULL where its child
throws; a struct is never NULL itself, so around one it distinguishes failing from NULL.

Tests: tests/integration/ingest/test_ingest_views.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilth.ingest.views.nodes import class_of, listed

# Any: plans, expressions and attributes are handles of the JVM; pyspark gives them no types.
Node = Any

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
#: Expressions that cannot fail.
_SAFE = ("AttributeReference", "Literal")
#: Names that nobody gives to a column.
_STEP, _OK = "tilth:step", "tilth:ok"
#: The step of a row of the last node that fails as a whole and in no column alone.
_WHOLE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Expression that could not be computed, and the rows on which it fails."""

    #: Gives the rows on which the expression, or another one of the same node, fails: message, step, and what the node
    #: is given.
    plan: Node
    #: Over the columns of the plan; throws when it is evaluated.
    expression: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Plans and expressions to evaluate."""

    #: Plans of message and step, of rows that fail before the view's rows are made.
    before: tuple[Node, ...] = ()
    #: The view's rows behind message and step, where those before are left out; None: they are not made of one message
    #: each.
    guarded: Node | None = None
    #: Failing expressions by step. Steps above 0 are columns of the view, counted from 1.
    steps: Mapping[int, Failing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A plan of rows that know their message, and the step on which they failed."""

    plan: Node
    message: Node
    step: Node
    #: Beside these two.
    output: Sequence[Node]


def probes_of(session: Any, plan: Node, *, leaf: str) -> Probes:
    """The probes of an optimized plan. Its leaves of this class read the rows; their first column is the number of the
    row's message, which the plan itself does not know.
    """
    builder = _Builder(session, leaf)
    rows = builder.guarded(plan, is_last=True)
    if rows is not None and _identities(rows.output) != _identities(listed(plan.output())):
        rows = builder.with_columns(rows.plan, rows.message, rows.step, listed(plan.output()))
    guarded = None if rows is None else rows.plan
    return Probes(before=tuple(builder.before), guarded=guarded, steps=builder.steps)


class _Builder:
    """Makes guarded plans of the nodes of one view."""

    def __init__(self, session: Any, leaf: str) -> None:
        self._jvm = session._jvm
        self._leaf = leaf
        self.before: list[Node] = []
        self.steps: dict[int, Failing] = {}

    def guarded(self, node: Node, *, is_last: bool = False) -> _Rows | None:
        """The node's rows; None where they are not made of one message each."""
        kind = class_of(node)
        if kind == self._leaf:
            message, *output = listed(node.output())
            step = self._alias(_STEP, self._null_of(self._literal(0)))
            return self.with_columns(node, message, step, output)
        children = [self.guarded(child) for child in listed(node.children())]
        rows = children[0] if len(children) == 1 else None
        if rows is None:
            for each in filter(None, children):
                self._note_before(each, [])
            return None
        match kind:
            case "Project":
                return self._project(rows, listed(node.projectList()), is_last=is_last)
            case "Filter":
                tried, ok = self._tried(rows, [node.condition()])
                is_kept = self._new("Or", self._new("IsNull", ok), self._field(ok, 0))
                plan = self._node("Filter", is_kept, tried.plan)
                return self.with_columns(plan, tried.message, tried.step, tried.output)
            case "Generate":
                return self._generate(rows, node)
            case "Repartition" if not node.shuffle():
                return rows
            case "Aggregate":
                self._note_before(rows, [*listed(node.groupingExpressions()), *_inputs(node.aggregateExpressions())])
            case _:
                self._note_before(rows, [])
        return None

    def with_columns(self, plan: Node, message: Node, step: Node, output: Sequence[Node]) -> _Rows:
        """A plan's rows with these columns."""
        made = self._node("Project", self._sequence([message, step, *output]), plan)
        attributes = [each.toAttribute() for each in output]
        return _Rows(plan=made, message=message, step=step.toAttribute(), output=attributes)

    def _project(self, rows: _Rows, expressions: Sequence[Node], *, is_last: bool) -> _Rows:
        risky = {index: _value(each) for index, each in enumerate(expressions) if class_of(_value(each)) not in _SAFE}
        output = list(expressions)
        tried = rows
        if risky:
            tried, ok = self._tried(rows, list(risky.values()), columns=risky if is_last else None)
            for number, index in enumerate(risky):
                each = expressions[index]
                output[index] = self._alias(each.name(), self._field(ok, number), each.exprId())
        return self.with_columns(tried.plan, tried.message, tried.step, output)

    def _generate(self, rows: _Rows, node: Node) -> _Rows:
        inputs = listed(node.generator().children())
        self._note_before(rows, inputs)
        fails = self._new("Or", self._new("IsNotNull", rows.step), self._fails(inputs))
        well = self._node("Filter", self._new("Not", fails), rows.plan)
        made, none = node.generatorOutput(), self._sequence([])
        plan = self._node("Generate", node.generator(), none, node.outer(), node.qualifier(), made, well)
        return _Rows(plan=plan, message=rows.message, step=rows.step, output=[*rows.output, *listed(made)])

    def _note_before(self, rows: _Rows, expressions: Sequence[Node]) -> None:
        """Note the rows that have failed, and those on which these expressions fail."""
        risky = [each for each in expressions if class_of(each) not in _SAFE]
        if risky:
            rows, _ = self._tried(rows, risky)
        if self.steps:
            plan = self._node("Filter", self._new("IsNotNull", rows.step), rows.plan)
            self.before.append(self._node("Project", self._sequence([rows.message, rows.step]), plan))

    def _tried(
        self, rows: _Rows, expressions: Sequence[Node], *, columns: Mapping[int, Node] | None = None
    ) -> tuple[_Rows, Node]:
        """The rows with the step of those that fail now, and a struct of these expressions, NULL in all that fail.

        `columns`: of the last node, the expressions by their index; which of them fails is computed for such rows only.
        """
        struct = self._struct(expressions)
        is_new = self._new("IsNull", rows.step)
        ok = self._alias(_OK, self._new("If", is_new, self._new("TryEval", struct), self._null_of(struct)))
        tried = self._node("Project", self._sequence([rows.message, rows.step, *rows.output, ok]), rows.plan)
        fails = self._new("And", is_new, self._new("IsNull", ok.toAttribute()))
        # Beside the columns of a view, steps count down.
        number = _WHOLE if columns is not None else -1 - len(self.steps)
        which = self._literal(number)
        for index, each in reversed(list((columns or {}).items())):
            which = self._new("If", self._fails([each]), self._literal(index + 1), which)
        failing = self.with_columns(
            self._node("Filter", fails, tried), rows.message, self._alias(_STEP, which), rows.output
        )
        self.steps[number] = Failing(plan=failing.plan, expression=struct)
        for index, each in (columns or {}).items():
            self.steps[index + 1] = Failing(plan=failing.plan, expression=each)
        step = self._alias(_STEP, self._new("If", fails, which, rows.step))
        return self.with_columns(tried, rows.message, step, [*rows.output, ok.toAttribute()]), ok.toAttribute()

    # --- words of the JVM --------------------------------------------------------------------------------------------

    def _fails(self, expressions: Sequence[Node]) -> Node:
        return self._new("IsNull", self._new("TryEval", self._struct(expressions)))

    def _struct(self, expressions: Sequence[Node]) -> Node:
        named = (part for i, each in enumerate(expressions) for part in (self._literal(f"c{i}"), each))
        return self._new("CreateNamedStruct", self._sequence(named))

    def _field(self, struct: Node, index: int) -> Node:
        return self._new("GetStructField", struct, index, self._none())

    def _alias(self, name: str, expression: Node, identity: Node | None = None) -> Node:
        named = self._companion("NamedExpression").newExprId() if identity is None else identity
        empty = self._sequence([])
        return self._new("Alias", expression, name, named, empty, self._none(), empty)

    def _literal(self, value: str | int) -> Node:
        return self._companion("Literal").apply(value)

    def _null_of(self, expression: Node) -> Node:
        return self._companion("Literal").create(None, expression.dataType())

    def _new(self, name: str, *arguments: Any) -> Node:
        return getattr(self._package(_EXPRESSIONS), name)(*arguments)

    def _node(self, name: str, *arguments: Any) -> Node:
        return getattr(self._package(_PLANS), name)(*arguments)

    def _companion(self, name: str) -> Any:
        return getattr(getattr(self._package(_EXPRESSIONS), f"{name}$"), "MODULE$")

    def _package(self, name: str) -> Any:
        package = self._jvm
        for part in name.split("."):
            package = getattr(package, part)
        return package

    def _sequence(self, items: Iterable[Node]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()


def _identities(attributes: Iterable[Node]) -> list[int]:
    return [each.exprId().id() for each in attributes]


def _value(expression: Node) -> Node:
    """Return the expression that a name stands for."""
    return expression.child() if class_of(expression) == "Alias" else expression


def _inputs(expressions: Node) -> Iterator[Node]:
    """Yield the inputs of aggregate functions for each row, and the filters by which they leave rows out."""
    waiting = listed(expressions)
    while waiting:
        each = waiting.pop()
        if class_of(each) != "AggregateExpression":
            waiting += listed(each.children())
            continue
        yield from listed(each.aggregateFunction().children())
        if each.filter().isDefined():
            yield each.filter().get()
