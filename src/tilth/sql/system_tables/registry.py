"""All system tables by name."""

from __future__ import annotations

from difflib import get_close_matches

from tilth.catalog import TableNotFoundError
from tilth.sql.system_tables import (
    audit_log,
    bg_threads,
    columns,
    databases,
    deltas,
    dropped_tables,
    ingest_gaps,
    ingest_ledger,
    kafka_log,
    kafka_tables,
    leases,
    maintenance_choices,
    maintenance_ops,
    marks,
    metrics,
    mutations,
    part_log,
    partitions,
    parts,
    processes,
    query_log,
    readers,
    segments,
    servers,
    settings,
    table_versions,
    tables,
    tasks,
    transactions,
    trash,
    warehouses,
    workers,
)
from tilth.sql.system_tables.table import SystemTable

_MODULES = (
    audit_log,
    bg_threads,
    columns,
    databases,
    deltas,
    dropped_tables,
    ingest_gaps,
    ingest_ledger,
    kafka_log,
    kafka_tables,
    leases,
    maintenance_choices,
    maintenance_ops,
    marks,
    metrics,
    mutations,
    part_log,
    partitions,
    parts,
    processes,
    query_log,
    readers,
    segments,
    servers,
    settings,
    table_versions,
    tables,
    tasks,
    transactions,
    trash,
    warehouses,
    workers,
)
SYSTEM_TABLES: dict[str, SystemTable] = {module.TABLE.name: module.TABLE for module in _MODULES}


def system_table_names() -> list[str]:
    return sorted(SYSTEM_TABLES)


def find_system_table(name: str) -> SystemTable:
    """Without regard to case; raises TableNotFoundError with the names that are near."""
    found = SYSTEM_TABLES.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), SYSTEM_TABLES, n=3) or system_table_names()
        raise TableNotFoundError("no such system table", table=f"system.{name}", hint=f"there are: {', '.join(near)}")
    return found
