"""System tables: the state of every room, as rows.

Covers: one file for each room's tables, with their columns' documentation; queries over them only (lane.py). Does not
cover: queries that read tables of rows too (statements/select.py). Always holds: rows are made when they are asked for
and cost nothing otherwise; times are UTC. See also: docs/reference/system-tables.md, which is made from these files.
"""

from tilth.sql.system_tables.registry import SYSTEM_TABLES, find_system_table, system_table_names
from tilth.sql.system_tables.table import ColumnDoc, SystemTable

__all__ = ["SYSTEM_TABLES", "ColumnDoc", "SystemTable", "find_system_table", "system_table_names"]
