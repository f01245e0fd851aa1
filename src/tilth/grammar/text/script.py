"""A script to its statements. Pure.

Always holds: a `;` in a string, a quoted name or a comment ends nothing. Data behind `INSERT .. FORMAT` ends at a
line that is empty, at a `;` that ends a line, or with the script.

Tests: tests/unit/grammar/test_queries.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import TokenKind

_DATA_END = re.compile(r";[ \t\r]*(?:\n|\Z)|\n[ \t\r]*\n")
#: Words after which a FORMAT in an INSERT is not ours.
_NO_DATA = frozenset(("SELECT", "WITH", "VALUES"))


def split(text: str) -> list[str]:
    """The statements, each without its `;` and without the comments before it; each can be given to `parse`.

    Raises SqlSyntaxError for a string, a quoted name or a comment that is not closed.
    """
    return [text[start:end] for start, end in ranges(text)]


def ranges(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each statement begins and ends. Raises as `split`, at the statement that is not closed."""
    cursor = Cursor(text)
    while cursor.peek().kind is not TokenKind.END:
        if cursor.accept_symbol(";"):
            continue
        start = cursor.peek().start
        yield start, _statement_end(cursor)


def _statement_end(cursor: Cursor) -> int:
    """Move behind one statement and return where its text ends."""
    may_have_data = cursor.at("INSERT")
    depth = 0
    while not cursor.at_end:
        token = cursor.advance()
        depth += (token.text == "(") - (token.text == ")")
        word = token.text.upper() if token.kind is TokenKind.WORD else ""
        may_have_data = may_have_data and word not in _NO_DATA
        if may_have_data and depth == 0 and word == "FORMAT" and cursor.is_name() and not cursor.is_word("VALUES"):
            cursor.advance()
            return _data_end(cursor)
    return cursor.last_end


def _data_end(cursor: Cursor) -> int:
    found = _DATA_END.search(cursor.text, cursor.last_end)
    if found is None:
        cursor.jump(len(cursor.text))
        return len(cursor.text)
    cursor.jump(found.end())
    return found.start()
