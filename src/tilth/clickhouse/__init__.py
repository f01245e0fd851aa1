"""ClickHouse beside Spark: its dialect of SELECT, and the functions that answer as its own do.

Covers: SELECTs and expressions in ClickHouse's dialect, written for Spark (dialect.py and its parts); functions of
ClickHouse as expressions of Spark (functions/). Does not cover: names of types and engines in definitions
(tilth.grammar), registering functions in a JVM (warehouse/allowed/function_registry.py).
Always holds: a function or a construct that is not listed is refused by name. See also: docs/reference/dialect.md.
"""
