"""Expressions of an ALTER, checked by Spark's analysis before anything is made.

Covers: assignments and predicates of mutations, defaults of new columns, MATERIALIZED and ALIAS columns. Does not
cover: computing them (maintenance, ingest).
Always holds: what passes gives the same for a row whenever and in whichever order the parts are rewritten: no
randomness, no access to other rows or tables, and one instant for now().

Tests: tests/integration/sql/test_defaults_on_spark.py, tests/integration/sql/test_computed_columns.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tilth.formats import BadValueError, Reading, column_array
from tilth.model.computed import named_ids, recomputed, value_text
from tilth.model.table import Column, ColumnKind, Expression, Schema
from tilth.model.text.zones import UTC_NAMES, ZONE
from tilth.model.types import DataType, quoted, spark_name
from tilth.query.errors import BadMutationError
from tilth.query.language.coerce import is_assignable, is_narrowed
from tilth.query.language.values import literal
from tilth.query.snapshots.protocol import CheckedDefault, CheckedExpressions, ExpressionsTask
from tilth.query.worker.relations import FINE_TIME, QUERIES, TIME_WORDS, Edit, find_relations, frozen_times, rewrite
from tilth.warehouse import LogicalPlan, PlanNode, check_plan, make_active, parse_expression, parse_plan, read_plan

# A handle of a Java or PySpark object; py4j gives it no type.
Java = Any

_HEAD = "SELECT 1 WHERE "
_NAMED = frozenset({"Alias", "MultiAlias"})
_LAMBDA = "LambdaFunction"
#: Nodes that may name a column; every name in the body of a lambda function is of the second kind.
_NAMES = frozenset({"UnresolvedAttribute", "UnresolvedNamedLambdaVariable"})
_TIMES = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp"})
#: Spark takes such strings for times, as soon as one is written as a literal of a time or cast to one.
_NAMED_TIME = re.compile(r"\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_TIME_LITERAL = re.compile(rf"['\"]{_NAMED_TIME.pattern}", re.IGNORECASE)
_TIME_READERS = frozenset({"Cast", "ParseToDate", "ParseToTimestamp"})
_TIME_TYPES = frozenset({"date", "timestamp", "timestamp_ntz"})
_NUMBER = re.compile(r"(?:tinyint|smallint|int|bigint|float|double|decimal)\b")
#: `int(s)` is a cast, too.
_CAST_CALLS = re.compile(rf"{_NUMBER.pattern}\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Analysed:
    """An expression as Spark understands it."""

    #: The field that it makes.
    field: Java
    plan: LogicalPlan
    #: `True` if it is the same each time, apart from the time of day.
    is_deterministic: bool

    @property
    def is_of_now(self) -> bool:
        return any(_is_time(node) for node in self.plan.nodes)


class ExpressionChecker:
    """The expressions of one ALTER over the columns of its table. The session is nobody else's."""

    def __init__(
        self,
        session: Java,
        task: ExpressionsTask,
        model_type: Callable[[Java, DataType], DataType],
        to_stream: Callable[[pa.Table], bytes],
    ) -> None:
        """`model_type` turns Spark's types into ours, what is void into the other type; `to_stream` tables to bytes."""
        self._session = session
        self._task = task
        self._model_type = model_type
        self._to_stream = to_stream
        session.conf.set("spark.sql.ansi.enabled", "true")
        session.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
        session.conf.set("spark.sql.session.timeZone", task.zone)
        #: The expression that is being checked, and what Spark got of it, for the positions in its messages.
        self.text = ""
        self.sent = ""

    def original(self, position: int) -> int:
        """Map a position in Spark's text to one in the expression."""
        return max(0, position - len(_HEAD)) if self.sent.startswith(_HEAD) else position

    def check(self) -> CheckedExpressions:
        """Raises BadMutationError, UnknownColumnError and their kind, and Spark's own errors."""
        make_active(self._session)
        task = self._task
        columns = msgspec.structs.replace(task.schema, columns=task.schema.all_columns)
        rows = self._session.createDataFrame(self._session.sparkContext.emptyRDD(), columns.spark_ddl)
        assignments = [(column, self._assignment(rows, column, text)) for column, text in task.assignments]
        return CheckedExpressions(
            assignments=(*assignments, *recomputed(task.schema, dict(assignments))),
            predicate=self._predicate(rows) if task.predicate else "",
            defaults=tuple(self._default(rows, self._column(name)) for name in task.defaults),
        )

    def _assignment(self, rows: Java, name: str, text: str) -> str:
        column = self._column(name)
        fixed = self._fixed(text, column=name)
        self._check_value(column, self._constant(rows, fixed, column=name), literal(text))
        return fixed

    def _check_value(self, column: Column, field: Java, known: tuple[object] | None) -> None:
        """`known`: the value, where the expression is a literal."""
        given = field.dataType.simpleString()
        source = self._model_type(field.dataType, column.type)
        is_narrow = is_narrowed(source, column.type)
        if known is not None and (is_narrow or column.checks):
            _check_fits(column, known[0])
        if not is_assignable(source, column.type) or (is_narrow and known is None):
            raise BadMutationError(
                "a value might be lost on the way into the column",
                column=column.name,
                type=column.declared_type,
                given=given,
                hint="say with CAST what is wanted",
            )
        if field.nullable and not column.nullable:
            hint = f"write coalesce({self.text}, ..)"
            raise BadMutationError("a NOT NULL column may get NULL", column=column.name, hint=hint)

    def _predicate(self, rows: Java) -> str:
        # In ClickHouse, 1 takes every row.
        fixed = self._fixed("true" if self._task.predicate.strip() == "1" else self._task.predicate)
        given = self._constant(rows, fixed).dataType.simpleString()
        if given != "boolean":
            hint = "compare it with something; WHERE true takes every row"
            raise BadMutationError("WHERE takes a condition", given=given, predicate=self._task.predicate, hint=hint)
        return fixed

    def _default(self, rows: Java, column: Column) -> CheckedDefault:
        assert column.default is not None
        parsed = self._parse(column.default, column=column.name)
        expression = self._with_ids(parsed)
        if column.kind is ColumnKind.ALIAS or named_ids(expression):
            return self._over_columns(rows, column, parsed, expression)
        # Without columns: a default stands for itself.
        rows = self._session.range(1).select()
        analysed = self._analysed(rows, self.text, column=column.name)
        field = analysed.field
        self._check_default(column, field)
        if field.nullable and not column.nullable:
            raise BadMutationError(
                "the default of a NOT NULL column may be NULL", column=column.name, default=self.text
            )
        value = rows.selectExpr(f"CAST(({self.text}\n) AS {spark_name(column.type)}) AS v").toArrow()
        is_computed = not analysed.is_deterministic or analysed.is_of_now or self._has_time_literal(parsed)
        return CheckedDefault(column=column.name, value=self._to_stream(value), is_computed=is_computed)

    def _over_columns(self, rows: Java, column: Column, parsed: LogicalPlan, expression: Expression) -> CheckedDefault:
        if self._task.zone not in UTC_NAMES:
            hint = (
                f"SET {ZONE} = 'UTC' for this statement; from_utc_timestamp(t, 'Europe/Rome') has the clock of a zone"
            )
            message = "what is computed from other columns has times in UTC, whatever a session says"
            raise BadMutationError(message, column=column.name, expression=self.text, zone=self._task.zone, hint=hint)
        if self._has_time_literal(parsed):
            raise self._depends_on_time(column=column.name)
        field = self._constant(rows, self.text, column=column.name)
        self._check_default(column, field)
        return CheckedDefault(column=column.name, expression=expression, may_be_null=bool(field.nullable))

    def _check_default(self, column: Column, field: Java) -> None:
        if not is_assignable(self._model_type(field.dataType, column.type), column.type):
            raise BadMutationError(
                "the expression does not fit the column"
                if column.kind is not ColumnKind.DEFAULT
                else "the default does not fit the column",
                column=column.name,
                type=column.declared_type,
                given=field.dataType.simpleString(),
                hint="say with CAST what is wanted",
            )

    def _with_ids(self, parsed: LogicalPlan) -> Expression:
        """Return the expression that is being checked with the ids of its columns; names that are none stay."""
        pieces: list[str | int] = []
        at = 0
        for start, end, column, fields in columns_in(parsed, self._task.schema):
            pieces += [self.text[at:start], column.id, "".join(f".{quoted(name)}" for name in fields)]
            at = end
        pieces.append(self.text[at:])
        return tuple(piece for piece in pieces if piece != "")

    def _column(self, name: str) -> Column:
        column = self._task.schema.find_any(name)
        assert column is not None
        return column

    def _fixed(self, text: str, **facts: str) -> str:
        """Return the text with one instant for now() and its kin, closed so that anything may stand behind it."""
        parsed = self._parse(text, **facts)
        if self._has_time_literal(parsed):
            raise self._depends_on_time(**facts)
        text = self._without_aliases(parsed)
        self.sent = _HEAD + text
        if TIME_WORDS.search(text) and not any(TIME_WORDS.fullmatch(name) for name in self._task.schema.names):
            found = find_relations(parse_plan(self._session, self.sent), self.sent)
            edits = frozen_times(found, self._task.now_ms * 1000)
            text = rewrite(self.sent, edits or []).text[len(_HEAD) :]
        # A comment that runs to the end of the line would take what follows with it.
        return f"{text}\n" if "--" in text else text

    def _without_aliases(self, parsed: LogicalPlan) -> str:
        """Return the expression that is being checked with what ALIAS columns stand for: no file has them."""
        schema = self._task.schema
        edits = [
            Edit(start, end, value_text(column, schema) + "".join(f".{quoted(name)}" for name in fields))
            for start, end, column, fields in columns_in(parsed, schema)
            if column.kind is ColumnKind.ALIAS
        ]
        return rewrite(self.text, edits).text

    def _parse(self, text: str, **facts: str) -> LogicalPlan:
        """Return a checked expression. Raises BadMutationError, NotAllowedError and UnknownFunctionError."""
        self.text = self.sent = text
        parsed = parse_expression(self._session, text)
        if parsed.root.kind in _NAMED:
            raise BadMutationError("an expression here cannot have a name (AS ..)", expression=text, **facts)
        self._check_digits(parsed, **facts)
        if not QUERIES.isdisjoint(parsed.kinds):
            hint = (
                "a change can use only values of the row itself; join in a SELECT, INSERT the result into a new table"
            )
            raise BadMutationError("subqueries are not possible here", expression=text, hint=hint, **facts)
        check_plan(parsed)
        return parsed

    def _check_digits(self, parsed: LogicalPlan, **facts: str) -> None:
        """Raises BadMutationError for a time with digits that Spark would cut."""
        if any(FINE_TIME.search(self.text, node.start, node.end) for node in _time_literals(parsed)):
            raise BadMutationError("a time has microseconds at most", expression=self.text, **facts)

    def _has_time_literal(self, parsed: LogicalPlan) -> bool:
        """True if it contains `TIMESTAMP 'now'` or the like, which a literal has forgotten once it is parsed."""
        return any(_TIME_LITERAL.search(self.text, node.start, node.end) for node in _time_literals(parsed))

    def _depends_on_time(self, **facts: str) -> BadMutationError:
        hint = "write the time itself, as in TIMESTAMP '2026-01-31 12:00:00'"
        return BadMutationError("this depends on when it is computed", expression=self.text, hint=hint, **facts)

    def _check_texts(self, expression: LogicalPlan, **facts: str) -> None:
        """Raises BadMutationError where Spark makes numbers of texts by itself: the first that is none would end it."""
        if _CAST_CALLS.search(self.text):
            # Such a call cannot be distinguished from what Spark does by itself.
            return
        for node in expression.nodes:
            if node.kind != "Cast" or node.text("isUserSpecified"):
                continue
            text = node.children[0]
            if text.type == "string" and text.kind != "Literal" and _NUMBER.match(node.type):
                hint = "put the number in quotes, as in s = '7', or say with CAST or TRY_CAST what is wanted"
                message = "a text would be taken for a number"
                raise BadMutationError(message, expression=self.text, hint=hint, **facts)

    def _constant(self, rows: Java, text: str, **facts: str) -> Java:
        """Field that the expression makes; raises BadMutationError where its value changes with the time."""
        analysed = self._analysed(rows, text, **facts)
        if not analysed.is_deterministic:
            hint = "a retry of the same part must give the same rows"
            raise BadMutationError(
                "this expression gives another result each time", expression=self.text, hint=hint, **facts
            )
        if analysed.is_of_now:
            raise self._depends_on_time(**facts)
        return analysed.field

    def _analysed(self, rows: Java, text: str, **facts: str) -> _Analysed:
        frame = rows.selectExpr(text)
        project = frame._jdf.queryExecution().analyzed()
        if len(frame.schema.fields) != 1:
            raise BadMutationError("this is not one expression", expression=self.text, **facts)
        below = rows._jdf.queryExecution().analyzed()
        if _class(project) != "Project" or _class(project.child()) != _class(below):
            hint = "no aggregates, window functions, explode: a change can use only values of the row itself"
            raise BadMutationError("this cannot be computed row by row", expression=self.text, hint=hint, **facts)
        expression = project.projectList().apply(0)
        analysed = read_plan(self._session, expression)
        self._check_texts(analysed, **facts)
        return _Analysed(frame.schema.fields[0], analysed, bool(expression.deterministic()))


def columns_in(parsed: LogicalPlan, schema: Schema) -> list[tuple[int, int, Column, tuple[str, ...]]]:
    """Locations in an expression that name a column, in order, with the column and with the fields behind its name.

    Arguments of lambda functions are no columns.
    """
    found: dict[int, tuple[int, int, Column, tuple[str, ...]]] = {}
    #: Nodes with the names of the arguments of the lambda functions around them.
    stack: list[tuple[PlanNode, frozenset[str]]] = [(parsed.root, frozenset())]
    while stack:
        node, arguments = stack.pop()
        if node.kind == _LAMBDA:
            own = (each.text("nameParts")[0].lower() for each in node.children if each.role == "arguments")
            arguments |= frozenset(own)
        is_argument = node.role == "arguments" and node.holder is not None and node.holder.kind == _LAMBDA
        if node.kind in _NAMES and not is_argument:
            name, *fields = node.text("nameParts")
            column = None if name.lower() in arguments else schema.find_any(name)
            if column is not None:
                # The plan repeats the operand of CASE x WHEN .. for each WHEN.
                found[node.start] = (node.start, node.end, column, tuple(fields))
        stack.extend((child, arguments) for child in node.children)
    return [found[start] for start in sorted(found)]


def _time_literals(parsed: LogicalPlan) -> list[PlanNode]:
    return [node for node in parsed.nodes if node.kind == "Literal" and node.type in _TIME_TYPES]


def _is_time(node: PlanNode) -> bool:
    """True if its value changes with the time."""
    if node.kind not in _TIME_READERS:
        return node.kind in _TIMES
    if node.type not in _TIME_TYPES:
        return False
    return any(_NAMED_TIME.match(text) for text in node.children[0].text("value"))


def _check_fits(column: Column, value: object) -> None:
    try:
        column_array(column, [value], reading=Reading(), position=1)
    except BadValueError as error:
        raise BadMutationError(
            "the value does not fit the column",
            column=column.name,
            type=column.declared_type,
            given=value,
            why=error.facts.get("why", "NULL in a column that is NOT NULL"),
        ) from error


def _class(node: Java) -> str:
    return str(node.getClass().getSimpleName())
