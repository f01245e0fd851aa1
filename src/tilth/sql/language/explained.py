"""EXPLAIN: which queries are one, and Spark's plans without the places of files. Pure.

Covers: the folders and buckets behind `Location:`. Does not cover: what else a plan says, EXPLAIN GC and EXPLAIN MERGE.
"""

from __future__ import annotations

import re

from tilth.sql.grammar.text.tokens import next_token

#: Spark cuts long lists, and then leaves out the bracket at their end.
_LOCATION = re.compile(r"(Location: \w+ ?(?:\(\d+ paths?\))? ?\[)[^\n]*?(?=\](?:,|\n|$)|\.\.\.)")


def explains(text: str) -> bool:
    """Return whether the query is an EXPLAIN, whatever comments stand before it. Raises SqlSyntaxError."""
    return next_token(text, 0).text.upper() == "EXPLAIN"


def without_places(plan: str) -> str:
    """Return Spark's text of a plan without the places where files are."""
    return _LOCATION.sub(r"\1files of a table", plan)
