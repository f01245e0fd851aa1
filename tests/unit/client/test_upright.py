"""Rows upright: when they are, and that nothing in them leaves its column."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console

from tilth.client.rows import Layout, show_rows
from tilth.client.upright import VALUE_CHARACTERS_MAX, VALUE_LINES_MAX

WIDE = pa.table({"name": ["one", None], "text": ["x" * 60, "y\nz"], "number": [1, 2]})


def shown(table: pa.Table, layout: Layout, *, width: int = 60, is_terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, height=30, force_terminal=is_terminal, color_system=None)
    show_rows(console, table, layout)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_value_stands_on_a_line_of_its_own() -> None:
    assert shown(WIDE, Layout.UPRIGHT).splitlines() == [
        "── row 1 " + "─" * 51,
        "name   │ one",
        "text   │ " + "x" * 51,
        "       │ " + "x" * 9,
        "number │ 1",
        "── row 2 " + "─" * 51,
        "name   │ NULL",
        "text   │ y",
        "       │ z",
        "number │ 2",
    ]


def test_wide_rows_are_upright_by_themselves_and_others_are_not() -> None:
    assert "row 1" in shown(WIDE, Layout.AUTO)
    assert "row 1" not in shown(WIDE, Layout.AUTO, width=120)
    assert "row 1" not in shown(WIDE, Layout.GRID)
    # "ab │ cdef" has nine columns.
    narrow = pa.table({"ab": ["1"], "cdef": ["2"]})
    assert "row 1" not in shown(narrow, Layout.AUTO, width=9)
    assert "row 1" in shown(narrow, Layout.AUTO, width=8)
    # Upright has nothing to give to a single column.
    assert "row 1" not in shown(pa.table({"t": ["x" * 500]}), Layout.AUTO)


@pytest.mark.parametrize("width", [1, 5, 12, 20, 41, 80])
def test_no_line_is_longer_than_the_terminal_and_no_value_passes_for_a_column(width: int) -> None:
    hostile = "a\x1b[2J\nfake │ 1\r\n── row 9 ──\u202e" + "日本語" * 20 + "\x00"
    table = pa.table({"a name that is long, with spaces\x1b": [hostile], "b": ["1"], "x" * 300: [None]})
    lines = shown(table, Layout.UPRIGHT, width=width).splitlines()
    assert all(cell_len(line) <= max(width, 6) for line in lines)
    assert "\x1b" not in "".join(lines)
    assert sum(line.startswith("──"[:width]) for line in lines) == 1
    assert not any(line.startswith("fake") for line in lines)


def test_long_values_are_cut_on_a_screen_only() -> None:
    long = pa.table({"a": ["x" * 1_000_000], "b": ["line\n" * 500]})
    out = shown(long, Layout.UPRIGHT, width=100)
    assert "1,000,000 characters in all" in out
    assert "2,500 characters in all" in out
    assert out.count("x") == VALUE_CHARACTERS_MAX
    assert out.count("line") == VALUE_LINES_MAX
    whole = shown(long, Layout.UPRIGHT, width=100_000, is_terminal=False)
    assert whole.count("x") == 1_000_000
    assert whole.count("line") == 500
