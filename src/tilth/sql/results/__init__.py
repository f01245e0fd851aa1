"""A query's rows, from Spark to whoever asked.

Covers: `spark.py`, which collects them as Arrow. Does not cover: running the query (sql/spark.py), the form of the
answer (server). Always holds: what is collected is bounded.
"""
