"""Reads `dateDiff('day', a, b)`, which Spark's parser takes for its own function of another form. Pure.

Tests: tests/unit/grammar/test_grammar_foreign.py.
"""

from __future__ import annotations

import re

from tilth.grammar.text.tokens import TokenKind, next_token

_CALL = re.compile(r"\bdate_?diff\s*\(\s*'", re.IGNORECASE)
#: An INSERT of data, without strings or comments before it. Data may be long, and searching it is slow.
_BEFORE_DATA = re.compile(r"\s*insert\b[^'\"`/-]*?\bformat\b", re.IGNORECASE)
#: Names as long as those that they replace, so that positions in messages fit.
_NAMES = {"datediff": "unitDiff", "date_diff": "unit_diff"}
_OTHER_NAME = re.compile(r"\bunit(_d|D)iff(?=\s*\()")


def with_unit_diff(text: str) -> str:
    """Return the text with another name for the function where its first argument is a string; no position in it moves.

    What follows FORMAT in an INSERT is data and is not read. Raises SqlSyntaxError for what is not closed.
    """
    if _BEFORE_DATA.match(text) or not _CALL.search(text):
        return text
    pieces: list[str] = []
    token = next_token(text, 0)
    is_insert, at = token.text.upper() == "INSERT", 0
    while token.kind is not TokenKind.END:
        word = token.text.lower()
        if is_insert and word == "format":
            break
        if token.kind is TokenKind.WORD and word in _NAMES:
            bracket = next_token(text, token.end)
            if bracket.text == "(" and next_token(text, bracket.end).kind is TokenKind.STRING:
                pieces += [text[at : token.start], _NAMES[word]]
                at = token.end
        token = next_token(text, token.end)
    return "".join([*pieces, text[at:]])


def without_unit_diff(text: str) -> str:
    """Return the text of an expression with the function's own name."""
    return _OTHER_NAME.sub(r"date\1iff", text)
