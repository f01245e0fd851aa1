"""Masking of the literals in statements, for logs. Pure.

Covers: literals in the text of a statement, details of an error, which may repeat them. Does not cover: passwords and
keys (redact.py), lines that expire (control/log_masking.py).

Tests: tests/unit/control/test_log_masking.py.
"""

from __future__ import annotations

import re

from tilth.catalog import AuditSettings
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.text.tokens import Token, TokenKind, next_token

#: Replacement of a literal.
MASK = "?"

_ERROR = re.compile(r"([A-Z][A-Z_]+): .*", re.DOTALL)


def log_statement(audit: AuditSettings, statement: str) -> str:
    """Return the text of a statement for a new line of a log."""
    return mask_literals(statement) if audit.is_masking else statement


def log_outcome(audit: AuditSettings, outcome: str) -> str:
    """Return an outcome, which may be an error with its code, for a new line of a log."""
    return mask_details(outcome) if audit.is_masking else outcome


def mask_literals(statement: str) -> str:
    """Return the statement with `?` for each text, number and name in double quotes, and without comments; the rest
    after a text that is not closed is left out. A masked statement stays as it is.
    """
    pieces: list[str] = []
    end = 0
    try:
        while (token := next_token(statement, end)).kind is not TokenKind.END:
            gap = statement[end : token.start]
            pieces.append(gap if gap.isspace() else " " if gap and pieces else "")
            pieces.append(MASK if _is_literal(token) else token.text)
            end = token.end
    except SqlSyntaxError:
        pieces.append(f" {MASK}")
    return "".join(pieces)


def mask_details(outcome: str) -> str:
    """Return the code alone of an outcome that is an error: its message may repeat literals."""
    found = _ERROR.fullmatch(outcome)
    return outcome if found is None else found[1]


def _is_literal(token: Token) -> bool:
    return token.kind in (TokenKind.STRING, TokenKind.NUMBER) or token.text.startswith('"')
