"""`tilth sql`: a shell with history and completion, and `-c` for scripts.

In the shell a statement ends with `;` and may span lines. `\\q` or Ctrl-D leaves, `\\?` tells what else there is.
With `-c` the rows go to standard output, everything else to standard error; the exit code is 1 after an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.console import Console

from tilth.base.errors import TilthError
from tilth.client.http import DEFAULT_URL, Connection, connect
from tilth.client.output import show, show_error

HELP = """\
  statement;       run it; a statement may span lines
  \\d               tables of this database        \\d t    columns of a table
  \\l               databases                      \\c db   change the database
  \\s               background services            \\q      leave
Statements are listed in docs/reference/sql.md."""

KEYWORDS = """SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN INSERT INTO VALUES CREATE TABLE DATABASE MATERIALIZED VIEW TO AS
ENGINE MergeTree Kafka PARTITION SETTINGS ALTER MODIFY SETTING RESET DROP TRUNCATE RENAME SHOW TABLES DATABASES DESCRIBE
OPTIMIZE FINAL SYSTEM START STOP RESTART CONSUME MERGES GC VERIFY EXPLAIN USE""".split()


class OutputFormat(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"


ACCEPT = {
    OutputFormat.CSV: "text/csv",
    OutputFormat.JSON: "application/json",
    OutputFormat.NDJSON: "application/x-ndjson",
}


def sql(
    command: Annotated[str | None, typer.Option("-c", "--command", help="Run this statement and leave.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Run the statements of a file and leave.")] = None,
    url: Annotated[str, typer.Option(help="The server's address.", envvar="TILTH_URL")] = DEFAULT_URL,
    database: Annotated[str, typer.Option("-d", "--database", help="The default database.")] = "default",
    output: Annotated[OutputFormat, typer.Option("--format", help="How rows are printed.")] = OutputFormat.TABLE,
) -> None:
    """Ask questions and give orders in SQL."""
    with connect(url, database=database) as connection:
        if command is not None:
            raise typer.Exit(_run_all(connection, [command], output))
        if file is not None:
            raise typer.Exit(_run_all(connection, _statements(file.read_text().splitlines(keepends=True)), output))
        if not sys.stdin.isatty():
            raise typer.Exit(_run_all(connection, _statements(sys.stdin), output))
        _shell(connection)


def _run_all(connection: Connection, statements: Iterable[str], output: OutputFormat) -> int:
    for statement in statements:
        if not _run(connection, statement, output):
            return 1
    return 0


def _run(connection: Connection, statement: str, output: OutputFormat) -> bool:
    try:
        if output is OutputFormat.TABLE:
            result = connection.sql(statement)
            show(Console(), result.arrow(), result.summary)
        else:
            sys.stdout.buffer.write(connection.raw(statement, accept=ACCEPT[output]))
            sys.stdout.buffer.flush()
    except TilthError as error:
        show_error(Console(stderr=True), error)
        return False
    return True


def _statements(lines: Iterable[str]) -> Iterable[str]:
    """Cuts lines into statements, each ended by a `;` at the end of a line."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if line.rstrip().endswith(";"):
            yield "".join(held)
            held = []
    if "".join(held).strip():
        yield "".join(held)


def _shell(connection: Connection) -> None:
    console = Console()
    session: PromptSession[str] = PromptSession(
        history=_history(), auto_suggest=AutoSuggestFromHistory(), completer=_completer(connection)
    )
    console.print(f"Tilth at {connection.url}. A statement ends with ; and \\? helps.", style="dim")
    held: list[str] = []
    while True:
        try:
            line = session.prompt("   ... " if held else f"{connection.database}> ")
        except KeyboardInterrupt:
            held = []
            continue
        except EOFError:
            return
        if not held and line.strip().startswith("\\"):
            if not _backslash(connection, console, line.strip()):
                return
        elif line.strip() or held:
            held.append(line)
            if line.rstrip().endswith(";"):
                _obey(connection, console, "\n".join(held))
                held = []


def _obey(connection: Connection, console: Console, statement: str) -> None:
    words = statement.rstrip("; \n").split()
    if len(words) == 2 and words[0].upper() == "USE":
        connection.database = words[1].strip("`")
        return
    with console.status("running"):
        try:
            result = connection.sql(statement)
        except TilthError as error:
            show_error(console, error)
            return
        except KeyboardInterrupt:
            console.print("left alone; the server may still be at it", style="dim")
            return
    show(console, result.arrow(), result.summary)


def _backslash(connection: Connection, console: Console, line: str) -> bool:
    """Obeys a shortcut; False when it is time to leave."""
    command, _, argument = line.partition(" ")
    match command:
        case "\\q":
            return False
        case "\\d":
            _obey(connection, console, f"DESCRIBE {argument}" if argument else "SHOW TABLES")
        case "\\l":
            _obey(connection, console, "SHOW DATABASES")
        case "\\c":
            connection.database = argument or "default"
        case "\\s":
            columns = "database, table, service, switch, state, reason, last_exception"
            _obey(connection, console, f"SELECT {columns} FROM system.bg_threads")
        case _:
            console.print(HELP)
    return True


def _history() -> History:
    path = Path.home() / ".tilth_history"
    try:
        path.touch()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer(connection: Connection) -> WordCompleter:
    """Words of the language and, when the server answers, names of databases and tables."""
    words = list(KEYWORDS)
    try:
        for database, table in connection.sql("SELECT database, name FROM system.tables").rows:
            words += [table, f"{database}.{table}"]
    except TilthError:
        pass
    return WordCompleter(words, ignore_case=True)
