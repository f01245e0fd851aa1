"""Rows upright: each value on a line of its own, for results that are wider than the terminal.

Covers: the layout of names and values. Does not cover: when rows are upright (rows.py).
Always holds: a line is no longer than the terminal; a line of a value that goes on has no name before it, so that no
value can pass for another column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from tilth.client.printable import printable

#: A longer value is cut; lines of it are counted, too.
VALUE_CHARACTERS_MAX = 4_000
VALUE_LINES_MAX = 60
#: A value has so many columns of the terminal at least; names give way.
_VALUE_WIDTH_MIN = 10
#: Longest line above a row.
_HEADER_WIDTH = 72


def upright(console: Console, names: Sequence[str], rows: Sequence[Sequence[str | None]], *, is_cut: bool) -> None:
    """Print rows; None is NULL. `is_cut`: long values are cut, as on a screen."""
    width = console.width
    bar, line = (" | ", "-") if console.options.ascii_only else (" │ ", "─")
    shown = [printable(name) for name in names]
    name_width = min(max(map(cell_len, shown), default=0), max(1, (width - len(bar)) // 2), width - _VALUE_WIDTH_MIN)
    name_width = max(1, name_width)
    for number, row in enumerate(rows, start=1):
        header = f"{line * 2} row {number:,} "
        rule = header + line * max(0, min(width, _HEADER_WIDTH) - cell_len(header))
        lines = [Text(rule[:width], style="dim")]
        for name, value in zip(shown, row, strict=True):
            lines += _lines(name, _cut(value) if is_cut else value, bar=bar, name_width=name_width, width=width)
        # Printing costs more than the lines do.
        console.print(Text("\n").join(lines), soft_wrap=True)


def _lines(name: str, value: str | None, *, bar: str, name_width: int, width: int) -> Iterator[Text]:
    names = chop_cells(name, name_width) or [""]
    value_width = max(1, width - name_width - len(bar))
    values, style = (_pieces("NULL", value_width), "dim") if value is None else (_folded(value, value_width), "")
    for index in range(max(len(names), len(values))):
        left = names[index] if index < len(names) else ""
        right = values[index] if index < len(values) else ""
        padded = left + " " * (name_width - cell_len(left))
        yield Text.assemble((padded, "bold"), (bar, "dim"), (right, style))


def _folded(value: str, width: int) -> list[str]:
    """Return the value's lines, each folded at the width."""
    return [piece for line in value.split("\n") for piece in _pieces(printable(line), width)]


def _cut(value: str | None) -> str | None:
    if value is None:
        return None
    lines = value[:VALUE_CHARACTERS_MAX].split("\n")
    shown = "\n".join(lines[:VALUE_LINES_MAX])
    return value if len(shown) == len(value) else f"{shown}…\n… {len(value):,} characters in all"


def _pieces(line: str, width: int) -> list[str]:
    return chop_cells(line, width) if cell_len(line) > width else [line]
