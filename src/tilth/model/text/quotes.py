"""Double quotes in the text of SQL: where they stand, and the same text with other quotes. Pure.

Covers: distinguishing them from those in strings, names in backticks and comments. Does not cover: the meaning of a
statement (grammar). Always holds: double quotes name things in all SQL that Tilth reads.

Tests: tests/unit/model/text/test_literals.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilth.model.types import quoted

_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*+'  |  `(?:[^`]|``)*+`  |  --[^\n]*+  |  /\*.*?\*/  |  (?<!\w)[rR](?:'[^']*'|"[^"]*")
    | (?P<double>  "(?:[^"\\]|\\.|"")*+"  )
    """,
    re.VERBOSE | re.DOTALL,
)


def double_quoted(text: str) -> Iterator[str]:
    """Everything in double quotes, quotes and all, in order."""
    return (found["double"] for found in _TOKEN.finditer(text) if found["double"] is not None)


def with_backticks(text: str) -> str:
    """The text with backticks around the names that stand in double quotes."""

    def replaced(found: re.Match[str]) -> str:
        double = found["double"]
        return found[0] if double is None else quoted(double[1:-1].replace('""', '"'))

    return _TOKEN.sub(replaced, text)
