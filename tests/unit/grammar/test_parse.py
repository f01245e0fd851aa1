"""First words of statements: the longest that fit win, and no two begin alike."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError
from tilth.grammar.parse import Form, Forms
from tilth.grammar.statements import Query, Statement
from tilth.grammar.text.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Read(Statement):
    """What was read behind the first words."""

    form: str
    name: str = ""


def form(words: str, **given: object) -> Form:
    def parse(cursor: Cursor) -> Read:
        return Read(words, cursor.name("a name") if cursor.is_name() else "")

    return Form(words=words, parse=parse, **given)  # type: ignore[arg-type]


FORMS = Forms(
    [
        form("SHOW CREATE"),
        form("SHOW CREATE SHELF", fits=lambda cursor: cursor.is_name(2)),
        form("SHOW SHELVES", also=("SHOW BOARDS",)),
        form("SHOW NOTHING", is_listed=False),
        form("TURN"),
    ]
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("show create t", Read("SHOW CREATE", "t")),
        ("SHOW CREATE SHELF t", Read("SHOW CREATE SHELF", "t")),
        ("SHOW CREATE shelf", Read("SHOW CREATE", "shelf")),
        ("SHOW BOARDS", Read("SHOW SHELVES")),
        ("SHOW FULL SHELVES", Read("SHOW SHELVES")),
        ("SHOW NOTHING;", Read("SHOW NOTHING")),
        ("TURN t", Read("TURN", "t")),
        ("SELECT 1", Query(text="SELECT 1")),
    ],
)
def test_the_longest_words_that_fit_win(text: str, read: Statement) -> None:
    assert FORMS.parse(text) == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SHOW CREAT t", "expected CREATE or SHELVES, .*did you mean CREATE"),
        ("SHOE t", "expected a statement.*did you mean SHOW"),
        ("TURN t u", "expected the end of the statement"),
    ],
)
def test_an_unknown_word_is_told_with_those_that_are_there(text: str, message: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message):
        FORMS.parse(text)


def test_words_of_other_systems_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedSqlError, match="SHOW GRANTS is not supported"):
        FORMS.parse("SHOW GRANTS")


def test_two_statements_cannot_begin_alike() -> None:
    with pytest.raises(AssertionError, match="begin with TURN"):
        Forms([form("TURN"), form("TURN")])
