"""A worker's Spark: its Java, its properties, its folders, its life, and functions run in its tasks.

Covers: the process (session.py) and what it starts with. Does not cover: whether it still answers
(tilth.warehouse.worker).
"""
