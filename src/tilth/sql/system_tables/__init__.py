"""System tables: what every room tells of itself, as rows.

Covers: one file for each table, with its columns' documentation. Does not cover: running queries over them
(lane.py). Always holds: rows are made when they are asked for and cost nothing otherwise; times are UTC. See
also: docs/reference/system-tables.md, which is made from these files.
"""

from tilth.sql.system_tables.registry import SYSTEM_TABLES, find_system_table, system_table_names
from tilth.sql.system_tables.table import ColumnDoc, SystemTable

__all__ = ["SYSTEM_TABLES", "ColumnDoc", "SystemTable", "find_system_table", "system_table_names"]
