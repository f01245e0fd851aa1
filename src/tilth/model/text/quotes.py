"""Quotes in the text of SQL: names in double quotes, strings with Spark's escapes, and the same text without. Pure.

Covers: distinguishing them from those in names in backticks and comments. Does not cover: the meaning of a statement
(grammar). Always holds: double quotes name things in all SQL that Tilth reads.

Tests: tests/unit/model/text/test_literals.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from tilth.model.types import quoted

#: Comments in comments that are followed; deeper ones end too early.
_COMMENT_LEVELS = 4


def _comment(levels: int) -> str:
    inner = rf"|{_comment(levels - 1)}" if levels else ""
    return rf"/\*(?:[^*/]++|\*(?!/)|/(?!\*){inner})*+\*/"


_TOKEN = re.compile(
    rf"""
      `(?:[^`]|``)*+`  |  --[^\n]*+  |  {_comment(_COMMENT_LEVELS)}  |  (?<!\w)[rR]"[^"]*"
    | (?P<raw>     (?<!\w)[rR]'[^']*'  )
    | (?P<single>  '(?:[^'\\]|\\.|'')*+'  )
    | (?P<double>  "(?:[^"\\]|\\.|"")*+"  )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Escapes of Spark's strings (SparkParserUtils.unescapeSQLString); `''` is a quote.
_ESCAPE = re.compile(r"''|\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)
#: Others stand for themselves; before % and _ the backslash stays, for LIKE.
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def double_quoted(text: str) -> Iterator[str]:
    """Everything in double quotes, quotes and all, in order."""
    return (found["double"] for found in _TOKEN.finditer(text) if found["double"] is not None)


def with_backticks(text: str) -> str:
    """The text with backticks around the names that stand in double quotes."""

    def replaced(found: re.Match[str]) -> str:
        double = found["double"]
        return found[0] if double is None else quoted(double[1:-1].replace('""', '"'))

    return _TOKEN.sub(replaced, text)


def with_standard_strings(text: str) -> str:
    """The text with each string as the SQL standard has it, in which a backslash is a backslash.

    Each has the value that it has for Spark: `'it\\'s'` becomes `'it''s'`, a raw string a common one.
    """

    def replaced(found: re.Match[str]) -> str:
        raw, single = found["raw"], found["single"]
        if raw is not None:
            return f"'{raw[2:-1]}'"
        return found[0] if single is None else "'" + spark_string(single[1:-1]).replace("'", "''") + "'"

    return _TOKEN.sub(replaced, text)


def spark_string(inner: str) -> str:
    """The value that Spark gives to a string whose text between the quotes this is; halves of a character are joined,
    lone ones become U+FFFD.
    """
    value = _ESCAPE.sub(_unescaped, inner)
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescaped(found: re.Match[str]) -> str:
    short, long, octal, other = found.groups()
    if short or long:
        number = int(short or long, 16)
        return chr(number) if number <= sys.maxunicode else "\ufffd"
    if octal:
        return chr(int(octal, 8))
    return "'" if other is None else _ESCAPED.get(other, other)
