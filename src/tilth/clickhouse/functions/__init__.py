"""ClickHouse's functions as expressions of Spark.

Covers: those that mean the same in both dialects (functions.py), those that are exact in its dialect only (exact.py and
its parts), what needs Java (ClickHouseFunctions.java). Does not cover: who may call them
(warehouse/allowed/allow_list.py). Always holds: pure; an expression consists of functions of Spark.
"""
