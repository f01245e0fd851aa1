"""Rows on a terminal: a grid, upright, or texts of several lines as they are.

Covers: cells, cuts, what is below the rows. Does not cover: formats for programs (shell/run.py).
Always holds: characters that a terminal would obey are shown, not sent.

Tests: tests/unit/client/cli/test_shell.py, tests/unit/client/test_out_of_range_times.py,
tests/unit/client/test_upright.py.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilth.client.out_of_range_times import readable
from tilth.client.output import show_notices
from tilth.client.printable import printable, printable_lines
from tilth.client.upright import upright

if TYPE_CHECKING:
    from tilth.model.wire import Summary

#: A screen of rows; more are counted, not shown.
ROWS_SHOWN_MAX = 1_000
CELL_CHARACTERS_MAX = 200
#: A result of more texts is a table.
_DOCUMENTS_MAX = 10
_ZERO_FRACTION = re.compile(r"\.0+(?=Z?$)")
#: Between two columns of a grid.
_SEPARATOR_WIDTH = 3


class Layout(StrEnum):
    """Layout of rows on a terminal."""

    GRID = "grid"
    UPRIGHT = "upright"
    #: Upright where a grid of several columns is wider than the terminal.
    AUTO = "auto"


def show(console: Console, table: pa.Table, summary: Summary) -> None:
    """Print rows, or what was done where there are none."""
    show_rows(console, table)
    show_outcome(console, summary, rows=table.num_rows if table.num_columns else None)


def show_rows(console: Console, table: pa.Table, layout: Layout = Layout.GRID) -> None:
    """Print the first rows of a result: `ROWS_SHOWN_MAX` of them are enough, others are not read."""
    if _is_document(table):
        for text in _values(table.column(0)):
            console.print(Text(printable_lines(str(text))), soft_wrap=True)
    elif table.num_columns and _is_upright(console, table, layout):
        shown = table.slice(0, ROWS_SHOWN_MAX)
        rows = [[_text(value) for value in row] for row in zip(*map(_values, shown.columns), strict=True)]
        upright(console, table.column_names, rows, is_cut=console.is_terminal)
    elif table.num_columns:
        console.print(_grid(table, is_cut=console.is_terminal))


def show_outcome(console: Console, summary: Summary, *, rows: int | None) -> None:
    """Print the line below the rows. `rows`: how many the result has; None: it has no columns."""
    left = (rows or 0) - ROWS_SHOWN_MAX
    if left > 0:
        console.print(Text(f"... and {left:,} more rows (use LIMIT, or --format csv)", style="dim"))
    if summary.message:
        console.print(Text(printable_lines(summary.message)))
    show_notices(console, summary)
    counted = f"{rows:,} {'row' if rows == 1 else 'rows'}, " if rows is not None else ""
    console.print(Text(f"{counted}{summary.elapsed_ms / 1000:.3f} s", style="dim"))


def _is_document(table: pa.Table) -> bool:
    """True if the rows are texts of several lines, as those of SHOW CREATE and EXPLAIN."""
    if table.num_columns != 1 or table.num_rows > _DOCUMENTS_MAX or not pa.types.is_string(table.column(0).type):
        return False
    return any("\n" in text for text in table.column(0).to_pylist() if text is not None)


def _is_upright(console: Console, table: pa.Table, layout: Layout) -> bool:
    if layout is not Layout.AUTO:
        return layout is Layout.UPRIGHT
    shown = table.slice(0, ROWS_SHOWN_MAX)
    widths = [
        max(cell_len(cell.plain) for cell in (Text(printable(name)), *(_cell(v, is_cut=True) for v in _values(column))))
        for name, column in zip(shown.column_names, shown.columns, strict=True)
    ]
    return len(widths) > 1 and sum(widths) + _SEPARATOR_WIDTH * (len(widths) - 1) > console.width


def _grid(table: pa.Table, *, is_cut: bool) -> Table:
    grid = Table(show_edge=False, header_style="bold")
    for field in table.schema:
        grid.add_column(
            Text(printable(field.name)), justify="right" if _is_number(field.type) else "left", overflow="fold"
        )
    shown = table.slice(0, ROWS_SHOWN_MAX)
    for row in zip(*map(_values, shown.columns), strict=True):
        grid.add_row(*(_cell(value, is_cut=is_cut) for value in row))
    return grid


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow))


def _values(column: pa.ChunkedArray) -> list[object]:
    arrow = column.type
    column = readable(pa.table([column], names=["c"])).column(0)
    if pa.types.is_timestamp(arrow) or pa.types.is_time(arrow):
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else _ZERO_FRACTION.sub("", text.replace("T", " ")) for text in texts]
    if pa.types.is_date(arrow):
        return list(column.cast(pa.string()).to_pylist())
    return list(column.to_pylist())


def _cell(value: object, *, is_cut: bool) -> Text:
    text = _text(value)
    if text is None:
        return Text("NULL", style="dim")
    return Text(
        printable(text[: CELL_CHARACTERS_MAX - 1] + "…" if is_cut and len(text) > CELL_CHARACTERS_MAX else text)
    )


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
