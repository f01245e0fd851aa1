"""What docs/not-supported.md calls refused is refused by name, and what it says to write instead is understood."""

from __future__ import annotations

import re

import pytest

from tests.tidy.sources import ROOT
from tilth.base.errors import TilthError
from tilth.statements.registry import parse

PAGE = ROOT / "docs" / "not-supported.md"
ROW = re.compile(r"^\| `([A-Z][^`]*)` \| (.*) \|$", re.MULTILINE)
#: In backticks: a statement that is written out.
STATEMENT = re.compile(r"`((?:ALTER|BACKUP|CREATE|DROP|INSERT|RENAME|SHOW|SYSTEM|UNDROP|WITH) [^`]*)`")
ROWS: list[tuple[str, str]] = ROW.findall(PAGE.read_text())
ROWS_MIN = 40


def test_the_page_has_rows() -> None:
    assert len(ROWS) >= ROWS_MIN


@pytest.mark.parametrize("statement", [statement for statement, _ in ROWS])
def test_a_statement_of_the_page_is_refused_by_name(statement: str) -> None:
    with pytest.raises(TilthError) as raised:
        parse(statement)
    assert raised.value.code == "UNSUPPORTED_SYNTAX"


@pytest.mark.parametrize("statement", [text for _, instead in ROWS for text in STATEMENT.findall(instead)])
def test_what_is_to_be_written_instead_is_understood(statement: str) -> None:
    parse(statement)
