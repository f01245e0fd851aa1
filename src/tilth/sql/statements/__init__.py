"""Statements: one file a family, each from the parsed statement to its outcome.

Covers: what each statement checks, asks of other rooms, commits and answers. Does not cover: INSERT (inserts), the
choice of the function and the query log (engine.py).
Always holds: everything is checked before anything is written; no statement knows the engine.
"""
