"""`tilth top`: health, alarms, queries, tasks, consumers, backlog and workers, live in a terminal.

Covers: reading the server again and again, keys, the screen. Does not cover: frames (client/top.py).
Always holds: statements only read and leave no line in `system.query_log`; a server that is away, slow or hung stops
neither keys nor the clock of the screen, and is tried again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live

from tilth.base.errors import TilthError
from tilth.client.options import UrlOption
from tilth.client.output import console_of
from tilth.client.settings import BOUNDED_READING, DEFAULT_URL
from tilth.client.top import SECTIONS, Row, TopAnswers, TopSection, TopView, bounded, frame

if TYPE_CHECKING:
    from tilth.client.http import Connection

#: Time for one answer, in seconds.
ANSWER_SECONDS_MAX = 10.0
#: Time between two frames while nothing is pressed.
_FRAME_SECONDS = 0.25


def top(
    url: UrlOption = DEFAULT_URL,
    every: Annotated[float, typer.Option(help="Seconds between two readings.", min=0.5, max=3600)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and leave, as for a script.")] = False,
) -> None:
    """Show what a server does now: alarms, queries, tasks, consumers, backlog, workers. Keys: q leaves, p pauses, s
    sorts by the next column, Tab and arrows choose section and rows. With --once the exit code is 1 if the server does
    not answer.
    """
    from tilth.client.http import connect

    console = console_of()
    if not once and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise typer.BadParameter("the live view needs a terminal; --once prints one frame", param_hint="--once")
    try:
        connection = connect(url, timeout_seconds=ANSWER_SECONDS_MAX)
    except TilthError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    with connection:
        if once:
            answers = read(connection, TopAnswers(url=url))
            console.print(frame(answers, TopView(section=-1), width=console.width, height=None))
            raise typer.Exit(1 if answers.trouble else 0)
        _run(connection, console, TopAnswers(url=url), every)


def read(connection: Connection, before: TopAnswers) -> TopAnswers:
    """Read everything once; where the server does not answer, return what was known before, with the trouble."""
    try:
        health = connection.health()
        rows: dict[int, list[Row] | str] = {}
        for number, section in enumerate(SECTIONS):
            rows[number] = _rows(connection, section)
    except TilthError as error:
        return replace(before, trouble=error.message)
    wrong = [f"{name}: {state}" for name, state in health.components.items() if state != "ok"]
    return TopAnswers(
        url=connection.url,
        state=f"server {health.server} {health.version}: {'; '.join(wrong) or 'all components work'}",
        is_well=not wrong,
        rows=rows,
        at=f"{datetime.now(UTC):%H:%M:%S} UTC",
    )


def _rows(connection: Connection, section: TopSection) -> list[Row] | str:
    """Return the rows, or why this statement fails. Raises what says that the server does not answer."""
    from tilth.client.errors import ServerError

    try:
        return [section.convert(row) for row in connection.sql(section.statement, BOUNDED_READING).rows]
    except ServerError as error:
        return error.message


class Reader:
    """Reads the server on a thread of its own until it is stopped."""

    def __init__(self, read_once: Callable[[TopAnswers], TopAnswers], first: TopAnswers, every: float) -> None:
        self._read_once = read_once
        self._every = every
        self._is_over = threading.Event()
        self._may_read = threading.Event()
        self._may_read.set()
        self.answers = first
        # A daemon: an answer that does not come must not keep the terminal.
        self._thread = threading.Thread(target=self._run, name="tilth-top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._may_read.set()

    def pause(self, is_paused: bool) -> None:
        (self._may_read.clear if is_paused else self._may_read.set)()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._may_read.wait()
            self.answers = self._read_once(self.answers)
            self._is_over.wait(self._every)


def after_key(view: TopView, key: str) -> TopView | None:
    """Return the view after a key; None: the person leaves."""
    count = len(SECTIONS)
    match key:
        case "q" | "Q":
            return None
        case "p" | " ":
            return replace(view, is_paused=not view.is_paused)
        case "tab" | "right":
            return replace(view, section=(view.section + 1) % count, first=0)
        case "backtab" | "left":
            return replace(view, section=(view.section - 1) % count, first=0)
        case "down":
            return replace(view, first=view.first + 1)
        case "up":
            return replace(view, first=max(0, view.first - 1))
        case "s":
            columns = len(SECTIONS[view.section].columns)
            column = view.sorted_by.get(view.section, -1) + 1
            others = {number: each for number, each in view.sorted_by.items() if number != view.section}
            return replace(view, sorted_by=others | ({view.section: column} if column < columns else {}))
        case _ if key.isdecimal() and 1 <= int(key) <= count:
            return replace(view, section=int(key) - 1, first=0)
    return view


def _run(connection: Connection, console: Console, first: TopAnswers, every: float) -> None:
    from tilth.client.keys import raw_keys

    reader, view = Reader(lambda before: read(connection, before), first, every), TopView()
    reader.start()
    try:
        with raw_keys(sys.stdin.fileno()) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                shown = frame(reader.answers, view, width=console.width, height=console.height)
                live.update(shown, refresh=True)
                for key in keys.read(_FRAME_SECONDS):
                    after = after_key(view, key)
                    if after is None:
                        return
                    view = bounded(after, reader.answers, height=console.height)
                reader.pause(view.is_paused)
    except KeyboardInterrupt:
        return
    finally:
        reader.stop()
