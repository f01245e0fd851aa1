"""The statement that a large body of text begins with.

Covers: INSERT .. FORMAT in front of its rows. Does not cover: the rows (streamed.py).
Always holds: a text that is no such statement, or whose beginning does not show it, is left to the parser of whole
statements.

Tests: tests/unit/server/test_bodies.py.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.base.units import KIB
from tilth.formats import Format, find_format
from tilth.grammar.insert import parse_insert
from tilth.grammar.parse import Form, Forms
from tilth.grammar.statements import InsertData, Name, SettingTexts
from tilth.statements.inserts.bodies.streamed import is_cut

#: The rows begin before this position of the text.
HEAD_BYTES_MAX = 64 * KIB
_FORMS = Forms((Form(words="INSERT", parse=parse_insert),))


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertHead:
    """An INSERT without its rows."""

    name: Name
    format: Format
    columns: tuple[str, ...] = ()
    settings: SettingTexts = ()
    #: The statement without its rows.
    text: str
    #: Size of the statement in front of its rows.
    size: int = 0


def route_head(database: str, table: str, form: Format) -> InsertHead:
    """Return the INSERT of a request that names table and format by its address and headers."""
    return InsertHead(
        name=Name(database, table), format=form, text=f"INSERT INTO {database}.{table} FORMAT {form.name}"
    )


def read_head(begin: bytes) -> InsertHead | None:
    """Return the INSERT at the beginning of a text whose rows can be read in pieces; None: it is none."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin[:HEAD_BYTES_MAX])
        statement, _ = _FORMS.parse_noticed(text)
    except (TilthError, UnicodeDecodeError, RecursionError):
        # The parser of the whole text says what is wrong with it.
        return None
    if not isinstance(statement, InsertData) or not statement.data or not text.endswith(statement.data):
        return None
    form = find_format(statement.format)
    if form is None or form.read is None or not is_cut(form):
        return None
    head = text[: len(text) - len(statement.data)]
    return InsertHead(
        name=statement.name,
        format=form,
        columns=statement.columns,
        settings=statement.settings,
        text=head.rstrip(),
        size=len(head.encode()),
    )
