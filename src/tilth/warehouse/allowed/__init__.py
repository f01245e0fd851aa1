"""Texts of users: what Spark's parser finds in them, and what may stand there.

Covers: reading plans (logical_plans.py), the allow list (allow_list.py, allowed.toml), the functions of a JVM
(function_registry.py). Does not cover: ClickHouse's functions (tilth.clickhouse), the statements (tilth.statements).
"""
