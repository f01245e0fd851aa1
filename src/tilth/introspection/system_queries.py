"""Queries over system tables only: DataFusion, in this process, in milliseconds, with no worker alive.

Covers: recognizing such queries, and answering them. Does not cover: queries that also read tables of rows.
Always holds: a system table's rows are made when the query names it, and only then; nothing else is read, no file and
no table of DataFusion's own; nothing is changed.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pyarrow as pa
import sqlglot
from sqlglot import exp

from tilth.introspection.pushdown import pushdown_of
from tilth.introspection.system_query_child import SYSTEM_DATABASE, SystemTables, planned
from tilth.introspection.system_query_process import answered_apart, may_run_long
from tilth.model.pushdown import EVERYTHING, Pushdown
from tilth.model.text.quotes import with_backticks, with_standard_strings
from tilth.query.errors import BadQueryError, UnknownColumnError
from tilth.warehouse import allow_list

_UNKNOWN_COLUMN = re.compile(r"No field named (.+?)\.(?:\s|$)")
_VALID_FIELDS = re.compile(r"Valid fields are (.+?)\.?$", re.DOTALL)
# It would write statements that it reads as mere commands, such as EXPLAIN, to standard error.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

#: Rows of a system table by its name.
BuildRows = Callable[[str, Pushdown], pa.Table]
_QUALIFIER = re.compile(r"\bsystem\.\w+\.")


class NotASystemQueryError(Exception):
    """DataFusion does not understand the query; Spark may."""


def system_tables_of(text: str, database: str) -> list[str] | None:
    """System tables that a query reads, or None if it reads anything else, nothing at all, or is not understood."""
    if SYSTEM_DATABASE not in text.lower() and database.lower() != SYSTEM_DATABASE:
        return None
    tree = _parsed(with_backticks(text))
    if not isinstance(tree, exp.Query) or any(_is_refused(call) for call in tree.find_all(exp.Func)):
        # Spark refuses it with the reason.
        return None
    defined = {one.alias_or_name.lower() for one in tree.find_all(exp.CTE)}
    names: list[str] = []
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.catalog:
            return None
        if not table.db and table.name.lower() in defined:
            continue
        if (table.db or database).lower() != SYSTEM_DATABASE:
            return None
        names.append(table.name.lower())
    return names or None


def _parsed(text: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(text, read="spark")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None


def _is_refused(call: exp.Func) -> bool:
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
    return name.lower() in allow_list().refused_functions


def answer_from_system(text: str, build: BuildRows, *, before_long: Callable[[], None] = lambda: None) -> pa.Table:
    """The rows of a query over system tables, of which `build` makes what is wanted at least.

    `before_long` is called before one that may take long. Raises UnknownColumnError, BadQueryError, what `build` and
    `before_long` raise, and NotASystemQueryError for what DataFusion cannot plan.
    """
    named = with_backticks(text)
    # DataFusion reads a backslash as a character, not as an escape.
    request = with_standard_strings(named)
    tree = _parsed(named)
    wanted = EVERYTHING if tree is None else pushdown_of(tree, named)
    tables = SystemTables(lambda name: build(name, wanted))
    try:
        frame = planned(request, tables)
    # DataFusion raises bare ValueErrors and Exceptions.
    except Exception as error:
        if tables.error is not None:
            raise tables.error from error
        raise _refused(error) from error
    rows = {name: table.num_rows for name, table in tables.made.items()}
    if tree is None or may_run_long(tree, rows):
        before_long()
        return _readable(answered_apart(request, tables.made))
    try:
        return _readable(frame.to_arrow_table())
    except Exception as error:
        raise BadQueryError(_first_line(error)) from error


def _refused(error: Exception) -> Exception:
    text = str(error)
    unknown = _UNKNOWN_COLUMN.search(text)
    if unknown is None:
        return NotASystemQueryError(_first_line(error))
    valid = _VALID_FIELDS.search(text)
    hint = f"the columns are: {_QUALIFIER.sub('', valid[1])}" if valid else ""
    return UnknownColumnError(column=unknown[1], hint=hint)


def _readable(table: pa.Table) -> pa.Table:
    """Remove the types that only DataFusion has, and qualifiers in the names of computed columns."""
    fields = [pa.field(_QUALIFIER.sub("", field.name), _plain(field.type)) for field in table.schema]
    return table.rename_columns([field.name for field in fields]).cast(pa.schema(fields))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return kind


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
