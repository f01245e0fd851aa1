"""Double quotes in the text of SQL: where they stand, and the same text with other quotes. Pure.

Covers: distinguishing them from those in strings, names in backticks and comments. Does not cover: the meaning of a
statement (sql/grammar). Always holds: double quotes name things in all SQL that Tilth reads; in what
versions before that rule have stored, they hold texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tilth.model.types import quoted

_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.|'')*+'  |  `(?:[^`]|``)*+`  |  --[^\n]*+  |  /\*.*?\*/  |  (?<!\w)[rR](?:'[^']*'|"[^"]*")
    | (?P<double>  "(?:[^"\\]|\\.|"")*+"  )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Parts of a double-quoted text that are written otherwise in single quotes.
_INSIDE = re.compile(r"\\(.)|\"\"|'", re.DOTALL)


def double_quoted(text: str) -> Iterator[str]:
    """Everything in double quotes, quotes and all, in order."""
    return (found["double"] for found in _TOKEN.finditer(text) if found["double"] is not None)


def with_backticks(text: str) -> str:
    """The text with backticks around the names that stand in double quotes."""
    return _replaced(text, lambda inner: quoted(inner.replace('""', '"')))


def with_single_quotes(text: str) -> str:
    """The text with single quotes around the texts that stand in double quotes."""
    return _replaced(text, lambda inner: f"'{_INSIDE.sub(_as_single, inner)}'")


def _as_single(found: re.Match[str]) -> str:
    if found[0] == "'":
        return "\\'"
    return '"' if found[0] in ('\\"', '""') else found[0]


def _replaced(text: str, new: Callable[[str], str]) -> str:
    def replace(found: re.Match[str]) -> str:
        return found[0] if found["double"] is None else new(found["double"][1:-1])

    return _TOKEN.sub(replace, text)
