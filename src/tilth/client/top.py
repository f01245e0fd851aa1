"""Frames of `tilth top`: what system tables say now, as lines for a terminal. Pure.

Covers: sections with their statements, order and cut of rows, columns that a narrow terminal has no room for. Does not
cover: reading, keys, the screen (cli/top.py).
Always holds: characters that a terminal would obey are shown, not sent; a frame is no higher than the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tilth.base.units import show_bytes, show_count
from tilth.client.printable import printable

#: Rows of a statement; more than a screen has.
ROWS_MAX = 200
#: Rows of a section whose height nothing bounds.
ROWS_WITHOUT_SCREEN = 20
#: Lines of the header, and of a section beside its rows: its title and the names of its columns.
HEADER_LINES = 2
SECTION_LINES = 2
_CELL_MAX = 400

# Any: a cell is whatever the column's type is in Python.
Row = tuple[Any, ...]


def _text(value: Any) -> str:  # Any: as in a row
    return "" if value is None else printable(str(value)[:_CELL_MAX])


def _count(value: Any) -> str:  # Any: as in a row
    return "" if value is None else show_count(round(value))


def _bytes(value: Any) -> str:  # Any: as in a row
    return "" if value is None else show_bytes(int(value))


def _seconds(value: Any) -> str:  # Any: as in a row
    if value is None:
        return ""
    seconds = max(0, round(value))
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes} min" if hours < 2 else f"{hours} h" if hours < 48 else f"{hours // 24} d"


def _share(value: Any) -> str:  # Any: as in a row
    return "" if value is None else f"{100 * min(max(value, 0.0), 1.0):.0f} %"


@dataclass(frozen=True, slots=True)
class TopColumn:
    """A column of a section."""

    title: str
    show: Callable[[Any], str] = _text
    #: Least width of a terminal that has room for it.
    width_min: int = 0

    @property
    def is_number(self) -> bool:
        return self.show is not _text


@dataclass(frozen=True, slots=True)
class TopSection:
    """A part of the screen: the rows of one statement."""

    title: str
    columns: tuple[TopColumn, ...]
    statement: str
    #: Sentence where there are no rows.
    empty: str
    #: Function that makes the cells of a row that are shown, of a row of the answer.
    convert: Callable[[Row], Row] = lambda row: row


def _with_age(row: Row) -> Row:
    """Replace the time in the third column by the seconds since then; the last column is the time of the server."""
    *cells, now = row
    since = cells[2]
    cells[2] = None if since is None else (now - since).total_seconds()
    return tuple(cells)


def _with_progress(row: Row) -> Row:
    """Replace the time in the fourth column by the seconds since then, and the estimate in the fifth one by the share
    of it that has passed.
    """
    *cells, now = row
    seconds, estimated = (now - cells[3]).total_seconds(), cells[4]
    cells[3], cells[4] = seconds, seconds / estimated if estimated else None
    return tuple(cells)


SECTIONS: tuple[TopSection, ...] = (
    TopSection(
        "alarms",
        (
            TopColumn("severity"),
            TopColumn("what is wrong"),
            TopColumn("for", _seconds, 60),
            TopColumn("what to do", width_min=120),
            TopColumn("server", width_min=140),
        ),
        f"SELECT severity, sentence, since, todo, server, now() AS now FROM system.alarms LIMIT {ROWS_MAX}",
        "nothing needs a person",
        _with_age,
    ),
    TopSection(
        "queries",
        (
            TopColumn("for", _seconds),
            TopColumn("kind", width_min=100),
            TopColumn("state", width_min=60),
            TopColumn("done", _share, 60),
            TopColumn("rows read", _count, 80),
            TopColumn("bytes read", _bytes, 120),
            TopColumn("query"),
        ),
        "SELECT elapsed, kind, state, CASE WHEN tasks_total > 0 THEN 1.0 * tasks_done / tasks_total END, read_rows, "
        "read_bytes, substr(query, 1, 300) FROM system.processes WHERE coalesce(queue, '') <> 'watch' "
        f"AND query NOT LIKE '%FROM system.processes%' ORDER BY elapsed DESC LIMIT {ROWS_MAX}",
        "no query runs",
    ),
    TopSection(
        "tasks",
        (
            TopColumn("kind"),
            TopColumn("state", width_min=60),
            TopColumn("table"),
            TopColumn("for", _seconds),
            TopColumn("of estimate", _share, 80),
            TopColumn("worker", width_min=100),
        ),
        'SELECT kind, state, "table", coalesce(started, created), CASE WHEN started IS NOT NULL THEN estimated_seconds '
        "END, worker, now() AS now FROM system.tasks WHERE ended IS NULL AND kind <> 'consume' ORDER BY created "
        f"LIMIT {ROWS_MAX}",
        "no task runs or waits",
        _with_progress,
    ),
    TopSection(
        "consumers",
        (
            TopColumn("Kafka table"),
            TopColumn("#", width_min=80),
            TopColumn("activity", width_min=60),
            TopColumn("lag", _count),
            TopColumn("messages/s", _count),
            TopColumn("left", _seconds, 80),
            TopColumn("bounded by", width_min=120),
        ),
        "SELECT concat(database, '.', \"table\"), consumer, activity, lag, rate, seconds_left, bounded_by "
        f"FROM system.kafka_tables ORDER BY lag DESC NULLS LAST LIMIT {ROWS_MAX}",
        "no Kafka table is read",
    ),
    TopSection(
        "backlog",
        (
            TopColumn("kind"),
            TopColumn("tables", _count),
            TopColumn("may run", _count),
            TopColumn("running", _count),
        ),
        "SELECT kind, count(*), sum(CASE WHEN is_runnable THEN 1 ELSE 0 END) AS runnable, sum(running) "
        f"FROM system.maintenance_ops GROUP BY kind ORDER BY runnable DESC, kind LIMIT {ROWS_MAX}",
        "there is no background work",
    ),
    TopSection(
        "workers",
        (
            TopColumn("worker"),
            TopColumn("state"),
            TopColumn("tasks", _count),
            TopColumn("load", _share),
            TopColumn("free memory", _bytes, 80),
            TopColumn("free disk", _bytes, 100),
            TopColumn("server", width_min=120),
        ),
        "SELECT name, state, running, CASE WHEN cores > 0 THEN 1.0 - free_cores / cores END, free_memory_bytes, "
        f"free_disk_bytes, server FROM system.workers ORDER BY name LIMIT {ROWS_MAX}",
        "there is no worker",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Choices of the person at the keyboard."""

    section: int = 0
    #: Column by which rows of a section are sorted, by section; the statement's own order where there is none.
    sorted_by: Mapping[int, int] = field(default_factory=dict)
    #: First row that is shown of the chosen section.
    first: int = 0
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopAnswers:
    """Answers of the server that came last."""

    url: str
    #: State of the server, as a sentence; empty: it has not answered yet.
    state: str = ""
    is_well: bool = False
    #: Rows, or the reason why there are none, by section; a section that was not read yet is missing.
    rows: Mapping[int, Sequence[Row] | str] = field(default_factory=dict)
    #: Reason why the server does not answer now; empty: it does.
    trouble: str = ""
    #: Time of the last answer; empty: there was none.
    at: str = ""


def sorted_rows(rows: Sequence[Row], column: int | None) -> list[Row]:
    """Return the rows, greatest first; empty cells come last."""
    if column is None:
        return list(rows)
    there = [row for row in rows if row[column] is not None]
    return sorted(there, key=lambda row: row[column], reverse=True) + [row for row in rows if row[column] is None]


def bounded(view: TopView, answers: TopAnswers, *, height: int) -> TopView:
    """Return the view with its first row no later than the last rows need, so that `up` has an effect at once."""
    found = answers.rows.get(view.section, ())
    count = 0 if isinstance(found, str) else len(found)
    return replace(view, first=min(view.first, max(0, count - _rooms(answers, view, height)[view.section])))


def frame(answers: TopAnswers, view: TopView, *, width: int, height: int | None) -> RenderableType:
    """Return what is shown on a terminal of this size; `height`: None without a screen."""
    parts: list[RenderableType] = list(_header(answers, view))
    room = _rooms(answers, view, height)
    for number, section in enumerate(SECTIONS):
        parts += _section(section, answers.rows.get(number), view, number, width=width, lines=room[number])
    return Group(*parts)


def _header(answers: TopAnswers, view: TopView) -> tuple[Text, Text]:
    state = answers.state or "waiting for the first answer"
    style = "bold green" if answers.is_well and not answers.trouble else "bold red"
    first = Text.assemble(
        ("tilth top  ", "bold"), f"{answers.url}  ", (printable(state), style if answers.state else "")
    )
    if answers.trouble:
        since = f", since {answers.at}" if answers.at else ""
        second = Text(f"the server does not answer{since}; it is tried again: {printable(answers.trouble)}", "bold red")
    else:
        paused = "PAUSED  " if view.is_paused else ""
        second = Text(f"{paused}{answers.at}  q quit  p pause  s sort  Tab or arrows: section, rows", style="dim")
    for line in (first, second):
        line.no_wrap, line.overflow = True, "ellipsis"
    return first, second


def _rooms(answers: TopAnswers, view: TopView, height: int | None) -> list[int]:
    """Return the number of rows that each section has room for: one for each, the rest for the chosen one, and what
    that does not need for the others.
    """
    wanted = [len(rows) if not isinstance(rows := answers.rows.get(n, ""), str) else 0 for n in range(len(SECTIONS))]
    if height is None:
        return [min(each, ROWS_WITHOUT_SCREEN) for each in wanted]
    # The last line stays free, so that the terminal does not scroll.
    left = height - HEADER_LINES - SECTION_LINES * len(SECTIONS) - 1
    rooms = [0] * len(SECTIONS)
    order = [view.section, *(n for n in range(len(SECTIONS)) if n != view.section)]
    for share in (1, 3, ROWS_MAX):
        for number in order:
            more = min(left, max(0, min(share, wanted[number]) - rooms[number]))
            if more > 0:
                rooms[number] += more
                left -= more
    return rooms


def _section(
    section: TopSection, rows: Sequence[Row] | str | None, view: TopView, number: int, *, width: int, lines: int
) -> list[RenderableType]:
    is_chosen = number == view.section
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(f"{'>' if is_chosen else ' '} {section.title}", "bold reverse" if is_chosen else "bold")
    if rows is None:
        return [title]
    if isinstance(rows, str):
        title.append(f"  {printable(rows)}", "red")
        return [title]
    if not rows:
        title.append(f"  {section.empty}", "dim")
        return [title]
    column = view.sorted_by.get(number)
    if column is not None:
        title.append(f"  by {section.columns[column].title}", "dim")
    first = min(view.first, max(0, len(rows) - lines)) if is_chosen else 0
    shown = sorted_rows(rows, column)[first : first + lines]
    if len(shown) < len(rows):
        more = f"{ROWS_MAX} or more" if len(rows) >= ROWS_MAX else str(len(rows))
        title.append(f"  {first + 1} to {first + len(shown)} of {more}" if shown else f"  {more}", "dim")
    if not shown:
        return [title]
    return [title, _grid(section, shown, width)]


def _grid(section: TopSection, rows: Sequence[Row], width: int) -> Table:
    there = [(number, each) for number, each in enumerate(section.columns) if width >= each.width_min]
    grid = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for _, column in there:
        justify = "right" if column.is_number else "left"
        grid.add_column(column.title, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]  # one of two words
    for row in rows:
        grid.add_row(*(Text(column.show(row[number])) for number, column in there))
    return grid
