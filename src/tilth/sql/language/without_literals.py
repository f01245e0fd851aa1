"""Statements without the values in them, as logs keep them. Pure.

Covers: values in the text of a statement, errors that may repeat them. Does not cover: passwords and keys (redact.py),
when values are left out (sql/control/old_values.py).
"""

from __future__ import annotations

import re

from tilth.sql.grammar.errors import SqlSyntaxError
from tilth.sql.grammar.text.tokens import Token, TokenKind, next_token

#: In place of a value.
HIDDEN_VALUE = "?"

_ERROR = re.compile(r"([A-Z][A-Z_]+): .*", re.DOTALL)


def without_literals(text: str) -> str:
    """Return the statement with `?` for each text, number and name in double quotes, and without comments; what follows
    a text that is not closed is left out. Applied again it changes nothing.
    """
    pieces: list[str] = []
    end = 0
    try:
        while (token := next_token(text, end)).kind is not TokenKind.END:
            gap = text[end : token.start]
            pieces.append(gap if gap.isspace() else " " if gap and pieces else "")
            pieces.append(HIDDEN_VALUE if _is_value(token) else token.text)
            end = token.end
    except SqlSyntaxError:
        pieces.append(f" {HIDDEN_VALUE}")
    return "".join(pieces)


def without_details(outcome: str) -> str:
    """Return the code alone of an outcome that is an error: its message may repeat values."""
    found = _ERROR.fullmatch(outcome)
    return outcome if found is None else found[1]


def _is_value(token: Token) -> bool:
    return token.kind in (TokenKind.STRING, TokenKind.NUMBER) or token.text.startswith('"')
