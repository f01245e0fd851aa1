"""Texts of users: what Spark's parser finds in them, what may stand there, and ClickHouse's functions.

Covers: reading plans (plans.py), the allow list (allow_list.py, allowed.toml), the functions of a JVM (registry.py,
clickhouse.py). Does not cover: the statements (tilth.sql).
"""
