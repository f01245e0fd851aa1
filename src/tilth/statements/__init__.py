"""Statements in, answers out: what each statement does, on top of all other rooms.

Covers: the engine (engine.py) and a file for each family of statements: definitions of tables, views, storages and
warehouses (definitions), ALTER TABLE (alter), rows in (inserts), rows read and changed (rows), operation (operate).
Does not cover: their text (tilth.grammar), queries (tilth.query), HTTP (tilth.server).
Always holds: everything is checked before anything is written; no statement knows the engine.
See also: ARCHITECTURE.md for the folders, docs/reference/sql.md.
"""
