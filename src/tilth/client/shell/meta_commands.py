"""Commands behind a backslash: what each one means. Pure.

Covers: their words and arguments. Does not cover: doing them (conversation.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tilth.client.rows import Layout

HELP = """\
  statement;         run it; a statement may span lines      statement\\G   its rows upright: a value a line
  \\d                 tables of this database                 \\d t          columns of a table
  \\l                 databases                               \\c db         change the database
  \\s                 background services                     \\?            these lines
  \\x [on|off|auto]   rows upright: always, never, where they are wider than the terminal (auto, at the start)
  \\pager [on|off]    what is longer than the screen in $PAGER (less -SFRX if that is not set)
  \\timing [on|off]   say how long the answer was waited for, and received
  \\watch [seconds]   repeat the last statement every 2 seconds, or so often; Ctrl-C ends it; it may only read
  \\e                 the last statement in $VISUAL or $EDITOR (vi); Ctrl-X Ctrl-E: what is being typed
  \\q                 leave (also exit, quit, Ctrl-D)
Tab completes, Ctrl-R searches what was typed before, Alt-Enter begins a new line. Ctrl-C cancels a statement that
runs, and forgets one that is not sent yet; twice within a second it leaves.
Statements are listed in docs/reference/sql.md."""

SERVICES = "SELECT database, table, service, switch, state, reason, last_exception FROM system.bg_threads"
WATCH_SECONDS = 2.0
WATCH_SECONDS_MIN = 0.1
WATCH_SECONDS_MAX = 86_400.0
#: Words that leave, beside \\q and Ctrl-D.
_LEAVING = ("exit", "quit", "logout", ":q")


class Argument(StrEnum):
    """Kind of the argument that a command takes; of a fixed set its words."""

    NONE = ""
    TABLE = "table"
    DATABASE = "database"
    SECONDS = "seconds"
    SWITCH = "on off"
    LAYOUT = "on off auto"


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    name: str
    about: str
    argument: Argument = Argument.NONE


COMMANDS = {
    command.name: command
    for command in (
        Command("\\?", "help"),
        Command("\\c", "change the database", Argument.DATABASE),
        Command("\\d", "tables, or columns of a table", Argument.TABLE),
        Command("\\e", "edit the last statement"),
        Command("\\l", "databases"),
        Command("\\pager", "a pager for long results", Argument.SWITCH),
        Command("\\q", "leave"),
        Command("\\s", "background services"),
        Command("\\timing", "time of each answer", Argument.SWITCH),
        Command("\\watch", "repeat the last statement", Argument.SECONDS),
        Command("\\x", "rows upright", Argument.LAYOUT),
    )
}


@dataclass(frozen=True, slots=True)
class Send:
    """Run this statement."""

    statement: str


@dataclass(frozen=True, slots=True)
class Leave:
    """End the conversation."""


@dataclass(frozen=True, slots=True)
class Say:
    """Print this: help, or why a command cannot be obeyed."""

    text: str


@dataclass(frozen=True, slots=True)
class SetLayout:
    """Show rows like this; None: the other way."""

    layout: Layout | None


@dataclass(frozen=True, slots=True)
class SetPager:
    """Use a pager, or none; None: the other of both."""

    is_on: bool | None


@dataclass(frozen=True, slots=True)
class SetTiming:
    """Say how long each answer took, or do not; None: the other of both."""

    is_on: bool | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Repeat the last statement."""

    seconds: float


@dataclass(frozen=True, slots=True)
class EditLast:
    """Open the last statement in an editor."""


Meaning = Send | Leave | Say | SetLayout | SetPager | SetTiming | Watch | EditLast
_SWITCH = {"": None, "on": True, "off": False}
_LAYOUTS = {"": None, "on": Layout.UPRIGHT, "off": Layout.GRID, "auto": Layout.AUTO}


def is_command(text: str) -> bool:
    """True if the text is for the shell, not for the server."""
    return text.lstrip().startswith("\\") or is_leaving(text)


def is_leaving(text: str) -> bool:
    return text.strip().rstrip(";").strip().lower() in _LEAVING


def meaning(text: str) -> Meaning:
    """Return what a command means."""
    if is_leaving(text):
        return Leave()
    name, _, argument = text.strip().rstrip("; ").partition(" ")
    argument = argument.strip()
    command = COMMANDS.get(name)
    if command is None:
        return Say(f"there is no command {name}\n{HELP}")
    match name:
        case "\\q":
            return Leave()
        case "\\d":
            return Send(f"DESCRIBE {argument}" if argument else "SHOW TABLES")
        case "\\l":
            return Send("SHOW DATABASES")
        case "\\c":
            return Send(f"USE {argument or 'default'}")
        case "\\s":
            return Send(SERVICES)
        case "\\e":
            return EditLast()
        case "\\watch":
            return _watch(argument)
        case "\\x" | "\\timing" | "\\pager":
            return _switch(command, argument.lower())
    return Say(HELP)


def _switch(command: Command, argument: str) -> Meaning:
    if argument and argument not in command.argument.value.split():
        return Say(f"{command.name} takes {' or '.join(command.argument.value.split())}, not {argument}")
    match command.name:
        case "\\x":
            return SetLayout(_LAYOUTS[argument])
        case "\\timing":
            return SetTiming(_SWITCH[argument])
    return SetPager(_SWITCH[argument])


def _watch(argument: str) -> Meaning:
    try:
        seconds = float(argument) if argument else WATCH_SECONDS
    except ValueError:
        seconds = math.nan
    # Not a number is within no limits.
    if not WATCH_SECONDS_MIN <= seconds <= WATCH_SECONDS_MAX:
        return Say(f"\\watch takes seconds from {WATCH_SECONDS_MIN:g} to {WATCH_SECONDS_MAX:g}, not {argument}")
    return Watch(seconds)
