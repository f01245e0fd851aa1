"""A result for people: a table that fits the screen, and times and counts in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from tilth.model.wire import Summary

#: A screen of rows; more are counted, not shown.
ROWS_SHOWN_MAX = 1_000
CELL_CHARACTERS_MAX = 200
NUMERIC = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"}


def show(console: Console, table: pa.Table, summary: Summary) -> None:
    """Prints rows, or what was done where there are none."""
    if table.num_columns:
        console.print(_grid(table))
        left = table.num_rows - ROWS_SHOWN_MAX
        if left > 0:
            console.print(f"... and {left:,} more rows (use LIMIT, or -c with --format csv)", style="dim")
    if summary.message:
        console.print(summary.message)
    rows = f"{table.num_rows:,} rows, " if table.num_columns else ""
    console.print(f"{rows}{summary.elapsed_ms / 1000:.3f} s", style="dim")


def show_error(console: Console, error: Exception) -> None:
    """Prints what went wrong, what to do, and the id that the log knows."""
    code = getattr(error, "code", type(error).__name__)
    message, hint, cause_id = getattr(error, "message", str(error)), getattr(error, "hint", ""), getattr(error, "id", "")
    console.print(Text.assemble((f"{code} ", "bold red"), message))
    if hint:
        console.print(Text.assemble(("  what to do: ", "bold"), hint))
    if cause_id:
        console.print(Text(f"  id: {cause_id}", style="dim"))


def _grid(table: pa.Table) -> Table:
    grid = Table(show_edge=False, header_style="bold")
    for field in table.schema:
        is_number = str(field.type) in NUMERIC or str(field.type).startswith("decimal")
        grid.add_column(Text(field.name), justify="right" if is_number else "left", overflow="fold")
    for row in zip(*(column.to_pylist() for column in table.slice(0, ROWS_SHOWN_MAX).columns), strict=True):
        grid.add_row(*map(_cell, row))
    return grid


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return Text(text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…")
