"""ClickHouse's functions as expressions of Spark.

Covers: those that Spark computes alike (functions.py, times.py), those with exact expressions, some of them for its
dialect alone (exact.py and its parts), what needs Java (ClickHouseFunctions.java). Does not cover: who may call them
(warehouse/allowed/allow_list.py). Always holds: pure; an expression consists of functions of Spark.
"""
