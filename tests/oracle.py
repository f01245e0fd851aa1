"""The oracle tables of docs/policies, read by the tests of the policies: page and test cannot say different things.

A table stands below a heading `### title` of the page's section "Oracle". Its header names the columns.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[1] / "docs" / "policies"

#: Texts of the cells by column, without backticks.
Row = dict[str, str]


def oracle(page: str, title: str) -> list[Row]:
    """Return the rows of the table below that heading. Raises AssertionError where there is none."""
    tables = oracle_tables(page)
    assert title in tables, f"docs/policies/{page}.md has no oracle {title!r}, but {sorted(tables)}"
    return tables[title]


def oracle_tables(page: str) -> dict[str, list[Row]]:
    """Return all oracle tables of a page by their titles."""
    text = (PAGES / f"{page}.md").read_text()
    found = re.search(r"^## Oracle\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/policies/{page}.md has no section Oracle"
    sections = re.split(r"^### (.+)\n", found[1], flags=re.MULTILINE)
    return {title: _table(body) for title, body in zip(sections[1::2], sections[2::2], strict=True)}


def number(cell: str) -> float:
    """Return the number of a cell; `none` and texts raise ValueError."""
    return float(cell.replace(" ", ""))


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell such as `100, 20 x 1`: one hundred, then twenty ones."""
    found: list[float] = []
    for item in filter(None, (each.strip() for each in cell.split(","))):
        count, _, value = item.rpartition(" x ")
        found += [number(value)] * int(count or 1)
    return found


def names(cell: str) -> list[str]:
    """Return the words of a cell such as `p1, p3`; `none` is no word."""
    return [] if cell == "none" else [each.strip() for each in cell.split(",")]


def _table(body: str) -> list[Row]:
    lines = [line for line in body.splitlines() if line.startswith("|")]
    if len(lines) < 3:
        return []
    header, _, *rows = [_cells(line) for line in lines]
    return [dict(zip(header, row, strict=True)) for row in rows]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
