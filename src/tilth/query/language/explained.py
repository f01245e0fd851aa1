"""EXPLAIN: finding such queries, removing the locations of files from Spark's plans, adding their tasks. Pure.

Covers: the folders and buckets behind `Location:`, the number of tasks and its origin. Does not cover: what else a plan
says, EXPLAIN GC and EXPLAIN MERGE.
"""

from __future__ import annotations

import re

from tilth.grammar.text.tokens import next_token

#: List of locations. Spark shortens long lists, and leaves out their closing bracket.
_LOCATION = re.compile(r"(Location: \w+ ?(?:\(\d+ paths?\))? ?\[)[^\n]*?(?=\](?:,|\n|$)|\.\.\.)")


def explains(text: str) -> bool:
    """Return whether the query is an EXPLAIN, whatever comments stand before it. Raises SqlSyntaxError."""
    return next_token(text, 0).text.upper() == "EXPLAIN"


def without_locations(plan: str) -> str:
    """Return Spark's text of a plan without the locations of files."""
    return _LOCATION.sub(r"\1files of a table", plan)


def with_tasks(plan: str, *, tasks: int, reason: str, shuffle_tasks: int) -> str:
    """Return Spark's text of a plan with the number of tasks that share a scan or a shuffle, and its origin.

    `shuffle_tasks`: those of the query's own session; another number is the user's.
    """
    shuffles = "" if shuffle_tasks == tasks else f"; shuffles: {shuffle_tasks}, by spark.sql.shuffle.partitions"
    return f"{plan.rstrip()}\n\n== Tasks ==\n{tasks}: {reason}{shuffles}\n"
