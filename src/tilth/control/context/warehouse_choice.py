"""The warehouse that runs a statement's tasks: the statement's own, else one that its tables name, else `default`.

Covers: names in settings. Does not cover: whether it has workers (tilth.warehouse), which worker.

Tests: tests/unit/control/test_resends.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import sqlglot
from sqlglot import exp

from tilth.control.context.services import Call, Services
from tilth.model.table import TableDef
from tilth.model.text.quotes import with_backticks
from tilth.warehouse import QUERY_WAREHOUSE, table_warehouses

#: Texts of queries whose tables are remembered; longer ones are not read.
_TEXTS_MAX = 256
_CHARACTERS_MAX = 20_000


def warehouse_of_query(services: Services, call: Call, text: str) -> str:
    """Return the warehouse of a query."""
    if call.settings.warehouse:
        return call.settings.warehouse
    for database, name in _tables_in(text) if len(text) <= _CHARACTERS_MAX else ():
        table = services.catalog.tables.find(database or call.database, name)
        if isinstance(table, TableDef) and (named := table_warehouses(table.settings).queries):
            return named
    return QUERY_WAREHOUSE


def warehouse_of_write(call: Call, table: TableDef) -> str:
    """Return the warehouse of an INSERT, DELETE or UPDATE."""
    settings = call.settings
    named = settings.write_warehouse or settings.warehouse
    return named or table_warehouses(table.settings).write or QUERY_WAREHOUSE


def check_named(services: Services, settings: Mapping[str, str]) -> None:
    """Raises NotFoundError (WAREHOUSE_NOT_FOUND) for a warehouse that a table's settings name and that is not there."""
    for name in table_warehouses(settings).named:
        services.dispatcher.warehouse_named(name)


@lru_cache(_TEXTS_MAX)
def _tables_in(text: str) -> tuple[tuple[str, str], ...]:
    """Return database and name of the tables that a query names, in order; none where it is not understood."""
    try:
        tree = sqlglot.parse_one(with_backticks(text), read="spark")
    # It reads texts that Spark reads better: some fail its own assertions. The choice is a matter of speed only.
    except Exception:
        return ()
    tables = [each for each in tree.find_all(exp.Table) if isinstance(each.this, exp.Identifier)]
    return tuple(dict.fromkeys((each.db, each.name) for each in tables))
