"""The shell of `tilth sql`: lines in, statements out, with history, completion and what is behind a backslash.

Covers: the conversation. Does not cover: running a statement (run.py), when one has ended (client/script.py).
"""

from __future__ import annotations

from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.console import Console
from rich.text import Text

from tilth.base.errors import TilthError
from tilth.client.cli.options import OutputFormat
from tilth.client.cli.run import run
from tilth.client.http import Connection
from tilth.client.output import show_error
from tilth.client.script import cut

HELP = """\
  statement;       run it; a statement may span lines
  \\d               tables of this database        \\d t    columns of a table
  \\l               databases                      \\c db   change the database
  \\s               background services            \\q      leave (also exit, quit, Ctrl-D)
Ctrl-C cancels a statement that runs, and forgets the lines of one that is not sent yet.
Statements are listed in docs/reference/sql.md."""

KEYWORDS = """SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN INSERT INTO VALUES FORMAT CREATE TABLE DATABASE MATERIALIZED
VIEW TO AS ENGINE MergeTree Kafka PARTITION SETTINGS ALTER MODIFY SETTING RESET DROP UNDROP TRUNCATE RENAME SHOW TABLES
DATABASES DESCRIBE EXISTS OPTIMIZE FINAL SYSTEM START STOP RESTART CONSUME OFFSET MERGES GC VERIFY REPLAY DEAD
LETTERS USE""".split()

#: Words that leave, beside \\q and Ctrl-D.
_LEAVING = ("exit", "quit", "logout", ":q")
SERVICES = "SELECT database, table, service, switch, state, reason, last_exception FROM system.bg_threads"


def converse(connection: Connection, console: Console, errors: Console, output: OutputFormat) -> None:
    """Return when the user leaves."""
    session: PromptSession[str] = PromptSession(
        history=_history(), auto_suggest=AutoSuggestFromHistory(), completer=_completer(connection, errors)
    )
    console.print(Text(f"Tilth at {connection.url}. A statement ends with ; and \\? helps.", style="dim"))
    held = ""
    while True:
        try:
            line = session.prompt("   ... " if held else f"{connection.database}> ")
        except KeyboardInterrupt:
            held = ""
            continue
        except EOFError:
            return
        if not held and line.strip().rstrip(";").lower() in _LEAVING:
            return
        if not held and line.strip().startswith("\\"):
            statement = _meant(connection, console, line.strip())
            if statement is None:
                return
            statements = [statement] if statement else []
        else:
            statements, held = cut(f"{held}{line}\n")
        for statement in statements:
            if not _obey(connection, console, errors, statement, output):
                break


def _obey(connection: Connection, console: Console, errors: Console, statement: str, output: OutputFormat) -> bool:
    """Run a shortcut or a statement; return false when the later statements of the line must not be sent."""
    try:
        run(connection, console, errors, statement, output)
    except TilthError as error:
        show_error(errors, error)
        return False
    except KeyboardInterrupt:
        errors.print(Text("cancelled: the server ends the statement, unless it is being committed", style="dim"))
        return False
    return True


def _meant(connection: Connection, console: Console, line: str) -> str | None:
    """Return the statement behind a shortcut, empty when there is none to send; None when it is time to leave."""
    command, _, argument = line.rstrip("; ").partition(" ")
    argument = argument.strip()
    match command:
        case "\\q":
            return None
        case "\\d":
            return f"DESCRIBE {argument}" if argument else "SHOW TABLES"
        case "\\l":
            return "SHOW DATABASES"
        case "\\c":
            return f"USE {argument or 'default'}"
        case "\\s":
            return SERVICES
    console.print(Text(HELP))
    return ""


def _history() -> History:
    path = Path.home() / ".tilth_history"
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer(connection: Connection, errors: Console) -> WordCompleter:
    """Complete words of the language and, when the server answers, names of databases and tables."""
    words = list(KEYWORDS)
    try:
        for row in connection.sql("SELECT concat(database, '.', name) FROM system.tables").rows:
            words += [str(row[0]), str(row[0]).partition(".")[2]]
    except TilthError as error:
        show_error(errors, error)
    return WordCompleter(words, ignore_case=True)
