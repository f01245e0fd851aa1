"""Clauses of statements about files. Pure.

Tests: tests/unit/statements/files/test_copy_into.py, tests/unit/statements/files/test_export.py.
"""

from __future__ import annotations

from tilth.grammar.literals import parse_setting_value
from tilth.grammar.statements import SettingTexts
from tilth.grammar.text.cursor import Cursor
from tilth.query.snapshots.protocol import FileFormat

_FORMATS = tuple(FileFormat)


def parse_format(cursor: Cursor) -> FileFormat:
    """Read the name of a format."""
    return FileFormat(cursor.choose(*_FORMATS))


def parse_options(cursor: Cursor) -> SettingTexts:
    """Read `(NAME = value, ..)`; names are returned in capital letters."""
    cursor.expect_symbol("(")
    found: dict[str, str] = {}
    while True:
        token = cursor.peek()
        name = cursor.name("the name of an option").upper()
        if name in found:
            raise cursor.error(f"option {name} is given twice", at=token)
        cursor.expect_symbol("=")
        found[name] = parse_setting_value(cursor)
        if cursor.accept_symbol(")"):
            return tuple(found.items())
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')'")
