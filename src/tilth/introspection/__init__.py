"""The state of every room as rows: system tables, queries over them, SHOW and EXPLAIN.

Covers: one file for each room's tables (tables), with their columns' documentation; queries over them only
(system_queries.py). Does not cover: queries that read tables of rows too (statements/rows/select.py).
Always holds: rows are made when they are queried and cost nothing otherwise; times are UTC; no worker is needed.
See also: docs/reference/system-tables.md, which is made from these files.
"""
