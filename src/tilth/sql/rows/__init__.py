"""Rows that DELETE and UPDATE find, on a worker.

Covers: `spark.py`, which finds them by Spark and writes change segments. Does not cover: what becomes of the segments
(sql/changes.py). Always holds: files are written, nothing is committed here.
"""
