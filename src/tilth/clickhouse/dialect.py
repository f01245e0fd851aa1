"""Reads SELECTs in ClickHouse's dialect and writes them for Spark, where `dialect = 'clickhouse'` is set.

Covers: reading, the changes one after the other, writing; expressions over columns in a table's definition. Does not
cover: the changes (dialect_queries.py, dialect_calls.py), which functions and constructs are read (dialect_words.py),
other statements.
Always holds: a function or construct that dialect_words.py does not name is refused by name; nothing is left out
silently, and sqlglot gives no call another meaning. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, cast

import sqlglot
from sqlglot import exp, transforms
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType

from tilth.base.errors import TilthError
from tilth.clickhouse import dialect_calls, dialect_queries
from tilth.clickhouse.dialect_sessions import check_session, check_times
from tilth.clickhouse.dialect_words import CLICKHOUSE, NO_COUNTERPART, NODES, NODES_REFUSED, OURS, WITHOUT, refused
from tilth.grammar import statements as st
from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.queries import select_of
from tilth.model.table import ColumnKind

_SELECT = "SELECT "
#: Longest part of a query that a refusal repeats.
_PART_SHOWN_MAX = 60
#: Syntax of ClickHouse that Spark does not have. An unreadable query without any of it is misspelled.
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
def reading(
    statement: st.Statement, name: str, spark: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[st.Statement, tuple[str, ...]]]:
    """Yield the statement as its dialect has it, with a notice that shows it; errors inside show it, too. `spark`: the
    session's settings of Spark.
    """
    if name != CLICKHOUSE:
        yield statement, ()
        return
    written = in_sparks_words(statement)
    if written is statement:
        yield statement, ()
        return
    check_session(spark, is_view=isinstance(statement, st.CreateView))
    select = select_of(written) or ", ".join(_expressions_of(written))
    check_times(select, spark)
    shown = read_as(select)
    outer = _OUTER_JOIN.search(_STRING.sub("''", select))
    try:
        yield written, (shown, _NULLS_OF_JOINS) if outer else (shown,)
    except TilthError as error:
        error.hint = f"{error.hint}; {shown}" if error.hint else shown
        raise


def in_sparks_words(statement: st.Statement) -> st.Statement:
    """Return the statement with its SELECT, or the expressions of its columns, written for Spark; others as they are.

    Raises SqlSyntaxError, and UnsupportedSqlError for what has no counterpart.
    """
    match statement:
        case st.Query(text=text) if text.lstrip()[:7].upper() != "EXPLAIN":
            return replace(statement, text=to_spark(text, is_headed=True))
        case st.InsertQuery(query=query):
            return replace(statement, query=to_spark(query))
        case st.CreateView(select=select):
            return replace(statement, select=to_spark(select))
        case st.CreateTable(columns=columns):
            written = tuple(_column_for_spark(column) for column in columns)
            return statement if written == columns else replace(statement, columns=written)
        case st.AlterTable(operations=operations):
            changed = tuple(_operation_for_spark(operation) for operation in operations)
            return statement if changed == operations else replace(statement, operations=changed)
        case _:
            return statement


def _operation_for_spark(operation: st.AlterOperation) -> st.AlterOperation:
    match operation:
        case st.AddColumn(column=column) | st.ModifyColumn(column=column):
            return replace(operation, column=_column_for_spark(column))
        case st.DescribeColumn(default=str(text), kind=kind):
            return replace(operation, default=_expression_for_spark(text, kind))
    return operation


def _column_for_spark(column: st.ColumnSpec) -> st.ColumnSpec:
    if column.default is None:
        return column
    return replace(column, default=_expression_for_spark(column.default, column.kind))


def _expression_for_spark(text: str, kind: ColumnKind) -> str:
    """Return the expression in Spark's words; a DEFAULT that names no column is read in the same way in both."""
    if kind is ColumnKind.DEFAULT and not _names_columns(text):
        return text
    return to_spark(f"{_SELECT}{text}").removeprefix(_SELECT)


def _names_columns(text: str) -> bool:
    try:
        tree = sqlglot.parse_one(f"{_SELECT}{text}", read=_ClickHouse)
    except (sqlglot.errors.SqlglotError, RecursionError):
        # A literal of Spark's, or nothing at all: whoever reads it next says so.
        return False
    return tree.find(exp.Column) is not None


def _expressions_of(statement: st.Statement) -> list[str]:
    match statement:
        case st.CreateTable(columns=columns):
            specs: Sequence[st.ColumnSpec | st.DescribeColumn] = columns
        case st.AlterTable(operations=operations):
            specs = [
                each.column if isinstance(each, st.AddColumn | st.ModifyColumn) else each
                for each in operations
                if isinstance(each, st.AddColumn | st.ModifyColumn | st.DescribeColumn)
            ]
        case _:
            specs = ()
    return [spec.default for spec in specs if spec.default is not None]


def to_spark(text: str, *, is_headed: bool = False) -> str:
    """Return the SELECT in Spark's words; `is_headed`: its columns are called what the user has written.

    Raises SqlSyntaxError, and UnsupportedSqlError for what has no counterpart.
    """
    try:
        tree = sqlglot.parse_one(text, read=_ClickHouse)
    except sqlglot.errors.ParseError as error:
        facts = error.errors[0] if error.errors else {}
        message = f"ClickHouse's dialect cannot be read here: {str(facts.get('description', error)).rstrip('.')}"
        hint = "check the spelling, or write the query in Spark's SQL and leave SETTINGS dialect out"
        raise SqlSyntaxError(message, hint=hint, line=facts.get("line", 1), column=facts.get("col", 1)) from error
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise refused("this query", "write it in Spark's SQL and leave SETTINGS dialect out") from error
    if not isinstance(tree, exp.Query):
        raise refused("this statement", "only SELECT is read in it")
    headings = [_heading(each) for each in _first(tree).expressions] if is_headed else []
    # Any: nodes of sqlglot have values of any type.
    for change in cast(list[Callable[[Any], Any]], _CHANGES):
        tree = change(tree)
    _head(tree, headings)
    try:
        return tree.sql(dialect=_Spark, normalize_functions=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise refused(f"this query ({reason})", "write it in Spark's SQL and leave SETTINGS dialect out") from error


def refusal_of(text: str) -> tuple[str, str]:
    """Return the message and the hint for a query that Spark cannot read because it is in ClickHouse's dialect; empty:
    it is not.
    """
    if not _MARKS.search(_STRING.sub("''", text)):
        return "", ""
    try:
        to_spark(text)
    except UnsupportedSqlError as error:
        what = error.message.partition(": line=")[0].removeprefix(NO_COUNTERPART)
        # With the setting, it would be refused as well.
        hint = "write it in Spark's SQL" if error.hint == WITHOUT else error.hint
        return f"{what} is neither read in Spark's SQL nor in ClickHouse's dialect here", hint
    except (SqlSyntaxError, RecursionError):
        return "", ""
    hint = "add SETTINGS dialect = 'clickhouse' to the query, or write it in Spark's SQL"
    return "the query is in ClickHouse's dialect, which is read where the setting dialect says so", hint


def read_as(text: str) -> str:
    """Return the sentence that shows a user the query as it was read."""
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}.."
    return f"dialect = 'clickhouse' read the query as: {shown}"


def _first(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT that names the columns of the answer."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree


def _heading(node: exp.Expr) -> str:
    """Return what a column of the answer is called; empty: what Spark calls it."""
    has_name = isinstance(node, exp.Alias | exp.Aliases | exp.Column | exp.Star | exp.Literal)
    return "" if has_name else node.sql(dialect=_ClickHouse, normalize_functions=False)


def _head(tree: exp.Expr, headings: Sequence[str]) -> None:
    select = _first(tree)
    if len(select.expressions) != len(headings):
        return
    columns = [
        exp.alias_(each, heading, quoted=True) if heading and not isinstance(each, exp.Alias) else each
        for each, heading in zip(select.expressions, headings, strict=True)
    ]
    select.set("expressions", columns)


# Changes of the tree, in this order.


def _check(tree: exp.Expression) -> exp.Expression:
    """Refuse what would be left out or would mean something else."""
    for node in tree.find_all(exp.Select):
        if node.args.get("settings") or node.args.get("format"):
            raise refused("SETTINGS or FORMAT inside of the query", "write them at its end")
        group = node.args.get("group")
        if group is not None and group.args.get("totals"):
            raise refused("WITH TOTALS", "add the totals by UNION ALL, with a SELECT of their own")
        for order in node.find_all(exp.Ordered):
            if order.args.get("with_fill"):
                raise refused("WITH FILL", "join a sequence: explode(sequence(first, last))")
    for join in tree.find_all(exp.Join):
        words = {str(join.args.get(each) or "").upper() for each in ("method", "kind", "side")}
        if words & {"ASOF", "ANY", "PASTE"}:
            raise refused(f"{min(words & {'ASOF', 'ANY', 'PASTE'})} JOIN", "use a window function over a plain JOIN")
        if "GLOBAL" in words or join.args.get("global_") or join.args.get("global"):
            # There is one server: GLOBAL says nothing.
            for each in ("global", "global_", "method"):
                join.set(each, None)
    for test in tree.find_all(exp.In):
        test.set("is_global", None)
    return tree


def _only_listed(tree: exp.Expression) -> exp.Expression:
    """Refuse what the lists do not name."""
    for node in tree.walk():
        kind = type(node)
        if kind in NODES_REFUSED:
            raise refused(*NODES_REFUSED[kind])
        if isinstance(node, exp.Anonymous) and node.name.lower().startswith(OURS):
            raise refused(node.name, WITHOUT)
        parts = NODES.get(kind)
        if parts is None:
            raise refused(f"{kind.__name__} in {_shown(node)}", WITHOUT)
        for part, value in node.args.items():
            if value not in (None, False, []) and part not in parts.split():
                raise refused(f"{part.upper().rstrip('_')} in {_shown(node)}", WITHOUT)
    return tree


def _shown(node: exp.Expr) -> str:
    try:
        text = node.sql(dialect=_ClickHouse)
    except (sqlglot.errors.SqlglotError, ValueError, RecursionError):
        return "this query"
    return text if len(text) <= _PART_SHOWN_MAX else f"{text[:_PART_SHOWN_MAX]}.."


_CHANGES = (
    _check,
    _only_listed,
    dialect_queries.prewhere,
    dialect_queries.final,
    dialect_queries.sample,
    dialect_queries.named_values,
    dialect_queries.limit_by,
    dialect_queries.array_join,
    dialect_queries.names,
    dialect_queries.using,
    dialect_queries.orders,
    dialect_calls.functions,
    dialect_calls.types,
)
