"""The reference says what the code is: generated pages are not stale, and every statement has its example."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

import pytest

from tests.tidy.sources import ROOT
from tilth.client.script import statements
from tilth.grammar.statements import AlterOperation, AlterTable
from tilth.grammar.text.script import split
from tilth.introspection.registry import SYSTEM_TABLES
from tilth.server import METRICS
from tilth.statements.registry import KINDS, parse
from tools import make_docs

FOLDER = ROOT / "docs" / "reference"
pages = cache(make_docs.pages)


def blocks() -> list[str]:
    """The examples of the SQL page, those that need a broker, a bucket or a second server too."""
    return re.findall(
        r"^```sql(?: broker| storage| servers)?\n(.*?)^```", (FOLDER / "sql.md").read_text(), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_generated_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "run `make docs`"


def test_no_page_is_empty_and_no_cell_is_missing() -> None:
    for name, text in pages().items():
        last_cells = re.findall(r"^\|.*\| *\|$", text, re.MULTILINE)
        assert len(text) > 500, name
        if name != "settings.md":
            assert last_cells == [], name


def test_every_setting_error_metric_and_system_table_is_there() -> None:
    assert [one.name for one in make_docs.settings() if f"| `{one.name}` |" not in pages()["settings.md"]] == []
    assert [one.code for one in make_docs.errors() if f"| `{one.code}` |" not in pages()["errors.md"]] == []
    assert [one.name for one in METRICS if f"| `{one.name}` |" not in pages()["metrics.md"]] == []
    assert [name for name in SYSTEM_TABLES if f"## system.{name}" not in pages()["system-tables.md"]] == []


def test_every_statement_has_an_example() -> None:
    parsed = [parse(text) for block in blocks() for text in split(block)]
    shown: set[type] = {type(statement) for statement in parsed}
    shown |= {type(one) for statement in parsed if isinstance(statement, AlterTable) for one in statement.operations}
    wanted: set[type] = {*KINDS, *get_args(AlterOperation)}
    assert {kind.__name__ for kind in wanted - shown} == set()


def test_examples_are_cut_alike_by_client_and_server() -> None:
    for block in blocks():
        assert [one.text for one in statements(block)] == [text.rstrip() for text in split(block)]
