"""Rows of a query on their way into files, on a worker.

Covers: `spark.py`, which holds them in Spark's tasks and writes what it holds. Does not cover: what is written (INSERT
in sql/spark.py, DELETE and UPDATE in sql/rows). Always holds: files are written, nothing is committed here.
"""
