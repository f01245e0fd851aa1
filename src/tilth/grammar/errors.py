"""Errors in a statement's text, with their positions. Pure.

Always holds: every error has line and column, both counted from 1, of the text that was handed to `parse` or `split`.

Tests: tests/unit/grammar/test_queries.py.
"""

from __future__ import annotations

from tilth.base.errors import InvalidInputError


class SqlSyntaxError(InvalidInputError):
    """the statement cannot be read"""

    code = "SYNTAX_ERROR"

    @property
    def line(self) -> int:
        return int(self.facts["line"])

    @property
    def column(self) -> int:
        return int(self.facts["column"])


class UnsupportedSqlError(SqlSyntaxError):
    """the statement needs something that Tilth does not have"""

    code = "UNSUPPORTED_SYNTAX"


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def syntax_error(message: str, text: str, offset: int, *, hint: str = "") -> SqlSyntaxError:
    line, column = line_and_column(text, offset)
    return SqlSyntaxError(message, hint=hint, line=line, column=column)


def unsupported(message: str, text: str, offset: int, *, hint: str = "") -> UnsupportedSqlError:
    line, column = line_and_column(text, offset)
    return UnsupportedSqlError(message, hint=hint, line=line, column=column)
