"""A progress bar while a statement runs: a spinner, the bar, rows, bytes, seconds left.

Covers: reading the progress of a statement, by SQL on a connection of its own; the bar. Does not cover: computing its
numbers (statement_progress.py).
Always holds: it is shown on a terminal only, and is erased at the end; a server that is slow, hangs or does not list
the statement delays nothing: the bar goes on without numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.units import show_bytes
from tilth.client.http import Connection
from tilth.client.printable import printable
from tilth.client.script import first_word
from tilth.client.settings import READING
from tilth.client.shell.relations import TablePath, condition, relations
from tilth.client.shell.statement_progress import Line, ProgressEstimator, StatementProgress

#: Time before the first reading: shorter statements are not watched.
BEGIN_SECONDS = 0.5
EVERY_SECONDS = 0.5
#: Each reading gives up after this.
READ_SECONDS_MAX = 5.0
#: Time after a reading that failed.
RETRY_SECONDS = 3.0
#: A statement is found among those under way by its beginning.
KNOWN_CHARACTERS = 1000
#: Narrower terminals have no room for the bar itself.
_BAR_COLUMNS_MIN = 100
_STATE_CHARACTERS_MAX = 40
_RUNNING = "running"
#: State of nearly all statements that take long; the word is enough.
_IN_SPARK = "running in Spark"
_SHARES = 1000

_PROCESSES = f"""SELECT substring(query, 1, {KNOWN_CHARACTERS}) AS query, database, state, elapsed, read_rows,
 read_bytes, total_rows_approx, tasks_done, tasks_total FROM system.processes ORDER BY started DESC LIMIT 50"""
#: It selects all columns, because an older server lacks `is_rebase`.
_MERGES = "SELECT * FROM system.merges WHERE {condition} LIMIT 1000"
_MUTATIONS = """SELECT parts_to_do, parts_done, state_reason FROM system.mutations
 WHERE {condition} AND NOT is_done AND NOT is_killed LIMIT 1000"""


class StatementProgressReader:
    """Reads the progress of one statement. Raises TilthErrors of the connection."""

    def __init__(self, clock: Clock, connection: Connection, statement: str) -> None:
        self._clock = clock
        self._connection = connection
        self._begin = statement[:KNOWN_CHARACTERS]
        self._estimator = ProgressEstimator()
        self._began = clock.monotonic()
        self._question = {"OPTIMIZE": _MERGES, "ALTER": _MUTATIONS}.get(first_word(statement), "")
        self._table = _first_table(statement, connection.database) if self._question else None

    def read(self) -> StatementProgress | None:
        """None: the server does not list the statement."""
        elapsed = self._clock.monotonic() - self._began
        if self._table is not None:
            lines = self._lines(self._question.format(condition=condition(self._table)))
            estimator = self._estimator
            estimate = estimator.of_merges if self._question is _MERGES else estimator.of_mutations
            return estimate(lines, elapsed)
        wanted = (self._begin, self._connection.database)
        mine = next(
            (line for line in self._lines(_PROCESSES) if (line.get("query"), line.get("database")) == wanted), None
        )
        return None if mine is None else self._estimator.of_process(mine)

    def _lines(self, question: str) -> list[Line]:
        result = self._connection.sql(question, READING)
        return [dict(zip(result.names, row, strict=True)) for row in result.rows]


class _Numbers(ProgressColumn):
    """Rows, bytes, seconds left."""

    #: They change with each refresh.
    max_refresh = None

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("numbers", "")), no_wrap=True)


class ProgressBar:
    """The progress bar, from the sending of a statement until its rows are shown."""

    def __init__(self, clock: Clock, errors: Console, connection: Connection, statement: str) -> None:
        is_shown = errors.is_terminal
        bar = (BarColumn(bar_width=20),) if errors.width >= _BAR_COLUMNS_MIN else ()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            *bar,
            _Numbers(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=errors, transient=True, disable=not is_shown)
        self._task = self._progress.add_task(_RUNNING, total=None)
        self._clock = clock
        self._connection = connection
        self._statement = statement
        self._over = threading.Event()
        self._is_shown = is_shown

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        if self._is_shown:
            threading.Thread(target=self._watch, name="tilth-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Erase the bar, without waiting for a server that hangs."""
        self._over.set()
        self._progress.stop()

    def count(self, rows: int) -> None:
        """Show the number of rows received; numbers of the server are not shown any more."""
        self._over.set()
        self._progress.update(
            self._task, description="receiving", total=None, numbers=f"{rows:,} {'row' if rows == 1 else 'rows'}"
        )

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Hide the bar inside, so that others can print."""
        self._progress.stop()
        yield
        self._progress.start()

    def _watch(self) -> None:
        if self._clock.wait(self._over, BEGIN_SECONDS):
            return
        with self._connection.beside(timeout_seconds=READ_SECONDS_MAX) as connection:
            reader = StatementProgressReader(self._clock, connection, self._statement)
            seconds = 0.0
            while not self._clock.wait(self._over, seconds):
                seconds = EVERY_SECONDS
                try:
                    progress = reader.read()
                except TilthError:
                    # The server is busy, older or away; the statement itself says so if it matters.
                    seconds = RETRY_SECONDS
                    continue
                if progress is not None and not self._over.is_set():
                    self._show(progress)

    def _show(self, progress: StatementProgress) -> None:
        state = _RUNNING if progress.state in ("", _IN_SPARK) else printable(progress.state[:_STATE_CHARACTERS_MAX])
        self._progress.update(
            self._task,
            description=state,
            total=None if progress.done is None else _SHARES,
            completed=int(_SHARES * (progress.done or 0.0)),
            numbers=numbers(progress),
        )


def numbers(progress: StatementProgress) -> str:
    """Return the numbers as they are shown: `1,200 of 9,000 rows, 1.2 MiB, 8 s left`."""
    shown = []
    if progress.rows:
        of = f" of {progress.total_rows:,}" if progress.total_rows and progress.total_rows >= progress.rows else ""
        shown.append(f"{progress.rows:,}{of} rows")
    elif progress.total_rows:
        shown.append(f"0 of {progress.total_rows:,} rows")
    if progress.bytes:
        shown.append(show_bytes(progress.bytes))
    if progress.done is not None:
        shown.append(f"{progress.done:.0%}")
    if progress.seconds_left is not None:
        shown.append(f"{_duration(progress.seconds_left)} left")
    return ", ".join(shown)


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole / 3600:.1f} h"


def _first_table(statement: str, database: str) -> TablePath | None:
    found = next((one.path for one in relations(statement)), None)
    return found.within(database) if found is not None else None
