"""The depth of a text, before Spark's parser sees it. Pure.

The parser's time grows with the square of the depth: it needs 2.6 s for 3,000 brackets and four minutes for 40,000, and
gives up in the end. Chains of operators, names and clauses cost it almost nothing.

Covers: brackets, CASE, types in types; what stands in strings, quoted names and comments does not count. Does not
cover: whether they match, which the parser checks.
"""

from __future__ import annotations

import re

from tilth.warehouse.errors import TooComplexError

#: Spark's parser itself gives up at about 400.
DEPTH_MAX = 250

_MARK = re.compile(
    r"""
      (?<!\w)[rR](?:'[^']*'|"[^"]*")  |  '(?:[^'\\]|\\.)*+'  |  "(?:[^"\\]|\\.)*+"  |  `[^`]*+`  |  --[^\n]*+
    | (?P<comment>  /\* )
    | (?P<open>     [(\[{]  |  \b(?:array|map|struct)\s*+<  |  (?<![\w.])case(?!\w) )
    | (?P<close>    [)\]}]  |  >  |  (?<![\w.])end(?!\w) )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
#: Last character of the opening mark, by the last character of the closing mark.
_OPENING = {")": "(", "]": "[", "}": "{", ">": "<", "d": "e"}


def check_depth(text: str) -> None:
    """Raises TooComplexError for a text that is nested more than `DEPTH_MAX` deep."""
    depth_max = _depth(text)
    if depth_max > DEPTH_MAX:
        hint = "write it with fewer brackets and operators, for instance a list behind IN"
        raise TooComplexError("the statement is nested too deep", depth=depth_max, depth_max=DEPTH_MAX, hint=hint)


def _depth(text: str) -> int:
    """Return the greatest depth; no more is counted once it is too great."""
    opened: list[str] = []
    deepest = position = 0
    while deepest <= DEPTH_MAX and (found := _MARK.search(text, position)) is not None:
        position = found.end()
        if found["comment"]:
            position = _comment_end(text, position)
        elif found["open"]:
            opened.append(found["open"][-1].lower())
            deepest = max(deepest, len(opened))
        elif found["close"] and opened and opened[-1] == _OPENING[found["close"][-1].lower()]:
            opened.pop()
    return deepest


def _comment_end(text: str, position: int) -> int:
    """Return the end of a comment, where comments nest."""
    depth = 1
    while depth and (found := _COMMENT_EDGE.search(text, position)) is not None:
        position = found.end()
        depth += 1 if found[0] == "/*" else -1
    return position if not depth else len(text)
