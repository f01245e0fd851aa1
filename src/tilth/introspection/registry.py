"""All system tables by name."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

import pyarrow as pa

from tilth.catalog import TableNotFoundError
from tilth.control.context.services import Services
from tilth.introspection import tables
from tilth.introspection.system_table import SystemTable

#: Tables of ClickHouse and ByConity, with what shows the same here.
_INSTEAD = {
    **dict.fromkeys(("cnch_tables", "cnch_databases"), "system.tables, system.databases"),
    **dict.fromkeys(("cnch_kafka_tables", "cnch_kafka_log"), "system.kafka_tables, system.kafka_log"),
    **dict.fromkeys(("merge_tree_settings", "build_options"), "system.settings"),
    **dict.fromkeys(("clusters", "cnch_servers", "vw", "virtual_warehouses"), "system.servers, system.workers"),
    **dict.fromkeys(("server_part_log", "cnch_part_log", "detached_parts"), "system.part_log, system.parts"),
    **dict.fromkeys(("cnch_transactions", "cnch_transaction_records"), "system.transactions"),
    **dict.fromkeys(
        ("cnch_parts_info", "parts_columns", "cnch_parts_columns", "data_skipping_indices"), "system.parts"
    ),
    **dict.fromkeys(("cnch_table_info", "cnch_table_host", "dedup_workers"), "system.bg_threads, system.tables"),
    **dict.fromkeys(
        ("cnch_trash_items", "cnch_tables_history", "dropped_tables_parts"), "system.trash, system.dropped_tables"
    ),
    **dict.fromkeys(("query_thread_log", "session_log"), "system.processes, system.query_log"),
    **dict.fromkeys(
        ("events", "asynchronous_metrics", "errors", "trace_log", "text_log"), "system.metrics, system.query_log"
    ),
    **dict.fromkeys(("mutations_log", "asynchronous_inserts"), "system.mutations, system.segments"),
    **dict.fromkeys(("functions", "data_type_families", "formats"), "SHOW FUNCTIONS; docs/reference has the rest"),
    **dict.fromkeys(("users", "roles", "grants", "quotas"), "nothing: there are no accounts"),
    **dict.fromkeys(("disks", "storage_policies"), "system.storages"),
    **dict.fromkeys(("one", "numbers"), "SELECT without FROM, or FROM numbers(10)"),
    "dictionaries": "use tables instead",
}


def _tables() -> Iterator[SystemTable]:
    """Yield each `SystemTable` that a module of the folder `tables` holds."""
    for found in iter_modules(tables.__path__):
        module = import_module(f"{tables.__name__}.{found.name}")
        yield from (each for each in vars(module).values() if isinstance(each, SystemTable))


SYSTEM_TABLES: dict[str, SystemTable] = {table.name: table for table in sorted(_tables(), key=lambda each: each.name)}


def system_table_names() -> list[str]:
    return sorted(SYSTEM_TABLES)


def find_system_table(name: str) -> SystemTable:
    """Find a table without regard to case; raises TableNotFoundError with the names that are near."""
    found = SYSTEM_TABLES.get(name.lower())
    if found is None:
        instead = _INSTEAD.get(name.lower())
        if instead is not None:
            raise TableNotFoundError("no such system table", table=f"system.{name}", hint=f"here: {instead}")
        near = get_close_matches(name.lower(), SYSTEM_TABLES, n=3) or system_table_names()
        raise TableNotFoundError("no such system table", table=f"system.{name}", hint=f"there are: {', '.join(near)}")
    return found


def build_system_table(services: Services, name: str) -> pa.Table:
    """Return the rows of the system table with this name. Raises TableNotFoundError."""
    return find_system_table(name).build(services)
