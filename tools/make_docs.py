"""Writes docs/reference from the code: settings, errors, command line, metrics, HTTP, system tables.

    python -m tools.make_docs            writes the pages
    python -m tools.make_docs --check    writes nothing; names the pages that are stale, exit code 1 if there are any

Covers: what can be read off declarations. Does not cover: docs/reference/sql.md, which is written by hand.
Always holds: the same code gives the same pages on every machine. See also: tests/docs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from starlette.routing import Route

import tilth
from tilth.base.clock import SystemClock
from tilth.base.errors import ErrorKind, TilthError
from tilth.base.ids import random_id
from tilth.base.settings import Setting, SettingGroup, SettingScope
from tilth.base.sources import variable_of
from tilth.base.units import show_bytes
from tilth.clickhouse.dialect_calls import CHANGED_CALLS
from tilth.clickhouse.dialect_words import (
    CALLS,
    MANY,
    NODES,
    NODES_REFUSED,
    OURS,
    PARAMETERS,
    REFUSED,
    REFUSED_FAMILIES,
)
from tilth.clickhouse.functions.functions import TABLE_FUNCTIONS
from tilth.clickhouse.functions.functions import functions as clickhouse_functions
from tilth.client.cli.main import app as command_line
from tilth.client.exit_codes import CANCELLED, EXIT_CODES, GOOD, OUTPUT_CLOSED, WRONG_COMMAND_LINE
from tilth.client.settings import SERVE_SETTINGS
from tilth.formats import FORMATS, cell_values
from tilth.ingest import library
from tilth.introspection.registry import SYSTEM_TABLES
from tilth.model.error_numbers import number_of
from tilth.model.wire import Health
from tilth.query.language.spark_settings import SPARK_SETTINGS
from tilth.server import METRICS, AppContext, build_app
from tilth.server.errors import STATUS, status_of
from tilth.warehouse import allow_list
from tools.function_cases import RULES
from tools.prose import wrapped

_EXPRESSION_SHOWN_MAX = 160

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "<!-- Made from the code by `python -m tools.make_docs`; do not edit. -->"

#: The list of the pages on errors.
ERROR_LIST = "README.md"
#: The page on files and variables.
CONFIGURE = "configure.md"

#: Title and description of each scope.
SCOPES = {
    SettingScope.NODE: (
        "Node",
        "Given once, at the start: `tilth serve --set name=value`, an environment variable "
        "(`TILTH_WAREHOUSE__QUERY_SLOTS`), "
        "the file of `tilth serve --config`, or `tilth.open(path, settings={..})`; see "
        f"[{CONFIGURE}](../operate/{CONFIGURE}).",
    ),
    SettingScope.SERVE: (
        "The command tilth serve",
        "Options of the command, which can also stand in the environment (`TILTH_LISTEN`) and in the config file.",
    ),
    SettingScope.TABLE: (
        "Table",
        "Of one MergeTree table: `CREATE TABLE .. SETTINGS name = value`, `ALTER TABLE t MODIFY SETTING name = value`.",
    ),
    SettingScope.KAFKA: (
        "Kafka table",
        "Of one Kafka table, given as those of a table; a change restarts its consumers by itself. Many names are also "
        "known without `kafka_`, or with it, as the last column tells.",
    ),
    SettingScope.WAREHOUSE: (
        "Warehouse",
        "Of one warehouse: `CREATE WAREHOUSE w SETTINGS name = value`, `ALTER WAREHOUSE w SETTINGS name = value`.",
    ),
    SettingScope.SESSION: (
        "Session",
        "Of one statement: `SELECT .. SETTINGS name = value`, or `?name=value` over HTTP. Some settings of Spark are "
        "accepted too; they are listed below.",
    ),
}


_WHO_MAY_CALL = """
## Who may call

There are no accounts: anybody who reaches the port can run any statement. Listen on an address that only your programs
can reach. Requests of browsers are checked, because a page of another site may have caused them:

- `Host` must be `localhost`, the address or name of `--listen` (for `0.0.0.0` and `::` any address and the name of the
  machine), or a name in the setting `server.allowed-hosts`. Otherwise the answer is 403 `HOST_REFUSED`.
- `Origin`, if present, must be the node's own or one of `server.allowed-origins`; pages of other sites cannot load
  anything from the node. Otherwise the answer is 403 `ORIGIN_REFUSED`.
- A `POST` of a browser needs a content type that requires a preflight request, for example `application/sql`. Otherwise
  the answer is 403 `CONTENT_TYPE_REFUSED`.

Programs send no `Origin`: `curl --data 'SELECT 1' http://127.0.0.1:7411/v1/sql` works without further options. No `GET`
changes anything.""".splitlines()


_SHELL = """
What is typed may span lines: Enter runs it once its last statement has ended. Databases, tables, columns, functions and
settings are completed as the server knows them; they are read in the background, once a minute at most and after each
statement that changes definitions. When the server does not answer, a line below the prompt says so.

A result that is wider than the terminal is shown upright, each value on a line of its own, and one that is longer in
`$PAGER`. Both are of the shell alone: `-c`, `-f` and standard input print a grid, but for statements that end with
`\\G`. Characters that a terminal would obey are shown as `\\x1b`, also with `--format` where the output is a terminal;
into a file or a pipe all bytes go as they are.

While a statement runs, a line on the terminal says how much of it is done: of a query or an INSERT .. SELECT the rows
and bytes that Spark has read and the part of its tasks that is done (`system.processes`), of an OPTIMIZE its merges
(`system.merges`), of an ALTER the parts that are rewritten (`system.mutations`). The seconds left are an estimate:
what is left takes as long as before.

`~/.tilth_history` keeps what was typed, for its user alone (mode 0600), without statements that may hold a password or
a key: those with names such as `password`, `token` or `secret`, and with functions and addresses that take credentials.
They can be repeated until the shell ends.""".splitlines()


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    makers: dict[str, Callable[[], Iterable[str]]] = {
        "settings.md": _settings_page,
        "functions.md": _functions_page,
        "dialect.md": _dialect_page,
        "errors.md": _errors_page,
        "cli.md": _cli_page,
        "metrics.md": _metrics_page,
        "http.md": _http_page,
        "system-tables.md": _system_tables_page,
    }
    return {name: wrapped("\n".join([MADE, *make()]).rstrip() + "\n") for name, make in makers.items()}


def main(arguments: Sequence[str]) -> int:
    """Writes or checks; returns the exit code."""
    stale = [name for name, text in pages().items() if _read(FOLDER / name) != text]
    if "--check" in arguments:
        print("\n".join(stale) or "the reference is current")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    print(f"written: {', '.join(stale) or 'nothing, all pages were current'}")
    return 0


def modules() -> Iterator[ModuleType]:
    """Every module of the package but those that are run or are for tests."""
    for found in pkgutil.walk_packages(tilth.__path__, "tilth."):
        if not found.name.endswith("__main__") and not found.name.startswith("tilth.testing"):
            yield importlib.import_module(found.name)


# Any: settings of every type stand in one list.
def settings() -> list[Setting[Any]]:
    """Every setting that is in a group of a room, by scope and name."""
    groups = [
        value
        for module in modules()
        if module.__name__.endswith(".settings")
        for value in vars(module).values()
        if isinstance(value, SettingGroup)
    ]
    found = {(one.scope, one.name): one for group in groups for one in group.all}
    return [found[key] for key in sorted(found)]


@dataclass(frozen=True, slots=True)
class ErrorDoc:
    """An error that has a code of its own."""

    code: str
    error: type[TilthError] | TilthError
    message: str
    module: str


@cache
def errors() -> tuple[ErrorDoc, ...]:
    """Every error that has a code of its own, by code: classes, and calls of `coded`."""
    list(modules())
    found = {TilthError}
    grown = [TilthError]
    while grown:
        grown = [sub for one in grown for sub in one.__subclasses__()]
        found |= {one for one in grown if "code" in vars(one) and one.__module__.startswith("tilth.")}
    docs = [ErrorDoc(one.code, one, _first_line(one), one.__module__) for one in found]
    return tuple(sorted([*docs, *_coded()], key=lambda one: (one.code, one.module)))


def _coded() -> Iterator[ErrorDoc]:
    """Yield the errors that the code makes by `GeneralError.coded("CODE", "message", ..)`."""
    classes: list[type[TilthError]] = [TilthError, *TilthError.__subclasses__()]
    general = {one.__name__: one for one in classes}
    package = Path(tilth.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "coded":
                code, message = (ast.literal_eval(each) for each in call.args)
                error = general[ast.unparse(call.func.value)].coded(code, message)
                module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
                yield ErrorDoc(code, error, message, module)


def _settings_page() -> Iterator[str]:
    yield "# Settings"
    for scope, (title, text) in SCOPES.items():
        yield from ("", f"## {title}", "", text, "")
        rows = [
            (f"`{one.name}`", _default(one), _allowed(one), one.doc, ", ".join(f"`{name}`" for name in one.aliases))
            for one in settings()
            if one.scope is scope
        ]
        yield from _table(("setting", "default", "allowed", "what it does", "also known as"), rows)
    yield from ("", "## Settings of Spark", "")
    yield "A statement can set these for itself; all others are refused with `NOT_ALLOWED`. The node's setting"
    yield "`warehouse.spark-conf` applies to all statements."
    yield from ("", ", ".join(f"`{name}`" for name in sorted(SPARK_SETTINGS)))
    yield from ("", "## Settings of librdkafka", "")
    yield "A Kafka table can have these in `kafka_extra_librdkafka_config`; others are refused. Secrets (*) are stored"
    yield "apart and shown as `[HIDDEN]`. Files (+) must be below the folder of `ingest.certificates-folder`; the value"
    yield "`probe` stands for the certificates of the system."
    signs = {name: "*" if name in library.SECRETS else "+" if name in library.FILES else "" for name in library.ALLOWED}
    yield from ("", ", ".join(f"`{name}`{sign}" for name, sign in sorted(signs.items())))
    yield from ("", "These are refused for the following reasons:", "")
    yield from _table(("prefix", "why", "what to do instead"), [(f"`{b}`", w, i) for b, w, i in library.REASONS])


# Any: as above.
def _default(setting: Setting[Any]) -> str:
    value = setting.default.value if isinstance(setting.default, Enum) else setting.default
    if setting.unit == "bytes" and isinstance(value, int) and value >= 1024:
        return show_bytes(value)
    if value in ("", (), None):
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else setting.default_text
    return f"{text} {setting.unit}".strip() if isinstance(value, int | float) else f"`{text}`"


# Any: as above.
def _allowed(setting: Setting[Any]) -> str:
    return {"str": "text"}.get(setting.allowed, setting.allowed)


def _errors_page() -> Iterator[str]:
    yield from ("# Errors", "")
    yield "Every error has a kind, which says what to do, a code, which programs may match, a message that names the"
    yield "thing, a hint, and over HTTP an id under which the node's log tells the story (`cause_id=..`)."
    yield "For tools that match them there is also the number of the error of ClickHouse, or of ByConity from 5000 on,"
    yield "that is most like it: `number` in the body, the header `X-ClickHouse-Exception-Code`, `exception_code` in"
    yield f"`system.query_log`. Several codes may have one number. [Each code has a page](../errors/{ERROR_LIST})"
    yield "with its cause and its cure; its address is printed with each error (`see: ..`) and is `page` in the body of"
    yield "an answer over HTTP."
    yield from ("", "## Kinds", "")
    text = {kind: comment_above(ErrorKind, kind.name) for kind in ErrorKind}
    yield from _table(
        ("kind", "status", "what it means"), [(f"`{k.value}`", str(STATUS[k]), text[k]) for k in ErrorKind]
    )
    yield from ("", "## Codes", "")
    rows = [
        (
            f"`{one.code}`",
            one.error.kind.value,
            str(status_of(one.error)),
            str(number_of(one.error)),
            one.message,
            f"`{one.module}`",
        )
        for one in errors()
    ]
    yield from _table(("code", "kind", "status", "number", "message", "where"), rows)


def _clickhouse_functions() -> Iterator[str]:
    yield ""
    yield "## ClickHouse's functions"
    yield ""
    yield "They stand for expressions of Spark and can be called wherever an expression stands. A name that Spark has"
    yield "too means what it means in Spark: `length` counts characters, `position` takes the shorter text first,"
    yield "`rand` is a number from 0 to 1, `xxHash64` has other values. A name that only ClickHouse has answers as it"
    yield "does there, which is compared with ClickHouse itself, or is an error that says what to write; it differs by"
    yield "[these rules](#differs-from-clickhouse-without-the-dialect) alone. Names that begin with `clickhouse_` are"
    yield "left out: they are what [ClickHouse's dialect](dialect.md) is written with."
    yield ""
    yield "| function | arguments | in Spark's SQL |"
    yield "|---|---|---|"
    for name, variants in sorted(clickhouse_functions().items(), key=lambda item: item[0].lower()):
        if name.startswith(OURS):
            continue
        for variant in variants:
            kinds = "any number" if variant.arguments is None else ", ".join(variant.arguments)
            yield f"| `{name}` | {kinds} | `{_in_cell(variant.expression)}` |"
    for name, queries in TABLE_FUNCTIONS.items():
        for count, query in enumerate(queries, start=1):
            yield f"| `{name}` in FROM | {', '.join(['number'] * count)} | `{_in_cell(query)}` |"


def _in_cell(expression: str) -> str:
    """Return the expression without characters that would end a cell; a very long one is cut."""
    shown = expression.replace("|", "\\|")
    return shown if len(shown) <= _EXPRESSION_SHOWN_MAX else f"{shown[:_EXPRESSION_SHOWN_MAX]} .."


def _functions_page() -> Iterator[str]:
    allowed = allow_list()
    yield from ("# Functions", "")
    yield "Queries, views, conditions and defaults can call these functions; Spark's reference describes them. Each"
    yield "computes a value from its arguments; none runs a program, reads a file or reveals anything about the node."
    yield "All other functions are refused. `current_user()`, `user` and `session_user()` return `tilth`."
    words = sorted(name for name in allowed.functions if name[0].isalpha())
    for title, names in (("Functions", words), ("Functions in FROM", sorted(allowed.table_functions))):
        yield from ("", f"## {title}", "", ", ".join(f"`{name}`" for name in names))
    yield from _clickhouse_functions()
    yield from ("", "## Differs from ClickHouse without the dialect", "")
    yield "`dialect = 'clickhouse'` answers as ClickHouse does in these cases, too, or refuses them. `uniq`"
    yield "and its kin count approximately in both systems, here to about 1 %."
    yield ""
    yield from _table(("ClickHouse", "here, in Spark's SQL"), list(RULES.values()))
    yield from ("", "## Refused", "")
    refused = [*allowed.refused_functions.items(), *allowed.refused_table_functions.items()]
    rows = [(f"`{name}`", one.why, one.instead) for name, one in sorted(refused)]
    yield from _table(("function", "why", "what to do instead"), rows)
    yield from ("", "## Other things that are refused in queries", "")
    what = {one.what: one.instead for one in allowed.refused_kinds.values()}
    yield from _table(("what", "what to do instead"), sorted(what.items()))


def _dialect_page() -> Iterator[str]:
    yield from ("# ClickHouse's dialect", "")
    yield "What a SELECT can have where `dialect = 'clickhouse'` is set. Answers are compared with those of ClickHouse"
    yield "itself, over NULL, NaN, the limits of types and other hostile values: they are the same, or an error. What"
    yield "is not listed is refused by name. [sql.md](sql.md#words-of-other-systems) says how the setting is given."
    yield ""
    yield "There is no type `Variant`: branches of `if`, `multiIf` and `CASE` without a common type in ClickHouse, as"
    yield "UInt64 beside numbers with a sign, are numbers here. ClickHouse refuses them where"
    yield "`use_variant_as_common_type` is 0; where it is 1, `toString` of their NULL is `''` there and NULL here."
    yield from ("", "## Functions", "")
    yield "A name that begins with `clickhouse_` is that of a function of Tilth that differs from Spark's."
    yield ""
    rows = []
    for name, call in sorted(CALLS.items(), key=lambda item: item[0].lower()):
        first, last = call.counts[0], call.counts[-1]
        count = str(first) if first == last else f"from {first}" if last == MANY else f"{first} to {last}"
        rows.append((f"`{name}`", count, f"`{call.written}`"))
    yield from _table(("function", "arguments", "written for Spark as a call of"), rows)
    yield from ("", "Changed in more than their names: " + ", ".join(f"`{name}`" for name in CHANGED_CALLS) + ".")
    yield "With parameters: " + ", ".join(f"`{name}(..)(x)`" for name in PARAMETERS) + "."
    yield from ("", "## Constructs", "")
    yield "The parts of a query, by the names that its parser gives them."
    yield ""
    parts = {kind.__name__: ", ".join(part.rstrip("_") for part in has.split()) for kind, has in NODES.items()}
    yield from _table(("construct", "parts"), [(f"`{name}`", has or "none") for name, has in parts.items()])
    yield from ("", "## Refused, and what to do", "")
    named = [(f"`{name}`", hint) for name, hint in sorted(REFUSED.items())]
    families = [(f"`{begin}..`", hint) for begin, hint in sorted(REFUSED_FAMILIES.items())]
    yield from _table(("what", "what to do instead"), [*NODES_REFUSED.values(), *named, *families])


def _cli_page() -> Iterator[str]:
    group: Any = typer.main.get_command(command_line)  # Any: typer carries its own copy of click
    yield from ("# Command line", "", "`tilth --version` tells the version; `tilth COMMAND --help` what stands here.")
    yield "Exit codes: 0 all went well, 1 it failed, 2 the command line was wrong; `tilth sql` has [one for each kind"
    yield "of error](#exit-codes-of-tilth-sql)."
    for name, command in _commands(group):
        yield from ("", f"## tilth {name}", "", str(command.help).strip(), "")
        rows = []
        for option in command.params:
            default = "required" if option.required else "" if option.default is None else f"`{_plain(option.default)}`"
            variable = f"`{option.envvar}`" if option.envvar else ""
            setting = option.name.replace("_", "-")
            if name == "serve" and SERVE_SETTINGS.has(setting):
                default = _default(SERVE_SETTINGS.find(setting)).replace("empty", "")
                variable = f"`{variable_of(setting)}`"
            kind = type(option.default)
            among = f" One of {', '.join(one.value for one in kind)}." if isinstance(option.default, Enum) else ""
            names = ", ".join(f"`{text}`" for text in option.opts)
            rows.append((names, default, variable, f"{option.help or ''}{among}"))
        yield from _table(("option", "default", "variable", "what it does"), rows)
    yield from ("", "## The shell", "", "`tilth sql` without `-c`, `-f` and redirected input is a shell:", "", "```")
    yield from importlib.import_module("tilth.client.shell.meta_commands").HELP.splitlines()
    yield "```"
    yield from (*_SHELL, "", "## Exit codes of tilth sql", "")
    yield "A script stops at its first error; the exit code says of which [kind](errors.md#kinds) that was:"
    yield ""
    codes = [(f"{GOOD}", "", "All went well.")]
    codes += [(f"{WRONG_COMMAND_LINE}", "", "The command line was wrong; nothing was sent.")]
    codes += [(f"{code}", f"`{kind.value}`", comment_above(ErrorKind, kind.name)) for kind, code in EXIT_CODES.items()]
    codes += [(f"{CANCELLED}", "", "Ctrl-C cancelled it.")]
    yield from _table(("exit code", "kind", "what it means"), sorted(codes, key=lambda row: int(row[0])))
    yield ""
    yield f"{OUTPUT_CLOSED} is also the code where whoever reads the output leaves before its end, as `head` does."


# Any: as above.
def _commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield commands with their names, those of groups with the group's name before."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def _plain(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _metrics_page() -> Iterator[str]:
    yield from (
        "# Metrics",
        "",
        "`GET /metrics`, in Prometheus' text format. Names that do not begin with `tilth_` are Kudu's.",
    )
    yield "`process_*` of the Prometheus client library tell of the node's own process; Spark's JVM is another one."
    yield ""
    rows = [
        (f"`{one.name}`", one.type.value, ", ".join(f"`{label}`" for label in one.labels), one.help) for one in METRICS
    ]
    yield from _table(("metric", "type", "labels", "what it is"), rows)


def _http_page() -> Iterator[str]:
    yield from ("# HTTP", "")
    yield "One port serves everything. A body larger than the node's setting `server.body-max` is refused with 413."
    yield from _WHO_MAY_CALL
    for route in _routes():
        methods = " | ".join(sorted(route.methods or (), key=("POST", "GET", "DELETE", "HEAD").index))
        yield from ("", f"## {methods} {route.path}", "", inspect.cleandoc(route.endpoint.__doc__ or ""))
    yield from ("", "## Forms of a result", "")
    rows = [
        (f"`{form.media_type}`", ", ".join(f"`{name}`" for name in (form.name, *form.aliases)))
        for form in FORMATS
        if form.write is not None
    ]
    yield from _table(("Accept", "FORMAT, in any case"), rows)
    yield from ("", "The first media type in `Accept` that is known counts; with none of them the answer is JSON:")
    yield '`{"columns": [{"name", "type"}], "rows": [[..]], "summary": {..}}`.'
    yield "The summary holds `query_id`, `elapsed_ms`, `rows`, `message`, `notices` (what has no effect)"
    yield "and `connection_settings` (what a client sends with the statements after SET)."
    yield ""
    yield _paragraph(cell_values.__doc__, "Always holds: ")
    yield "NDJSON tells columns of one name apart by a number: `a`, `a_2`. In CSV, NULL is `\\N` without quotes and an"
    yield 'empty string `""`; nested values are JSON text; NaN and infinities are `nan`, `inf` and `-inf`. The first'
    yield "line holds the names, unless `FORMAT CSV` or `header=absent` is requested."
    yield from (
        "",
        "## Errors",
        "",
        'The body is `{"error": {"code", "kind", "message", "hint", "id", "number", "page"}}`; `page` is the page',
        "on the code in this documentation, with cause and cure. The status follows the kind:",
        "",
    )
    yield from _table(("kind", "status"), [(f"`{kind.value}`", str(status)) for kind, status in STATUS.items()])
    yield from (
        "",
        "503 carries `Retry-After`. 413 is `BODY_TOO_LARGE`, 405 `METHOD_NOT_ALLOWED`, 403 a refused caller (above).",
        "All codes: [errors](errors.md).",
    )


def _routes() -> list[Route]:
    class Nothing:
        """Stands for the rooms; no route is called."""

        def __getattr__(self, name: str) -> Any:  # Any: it is never used
            raise AttributeError(name)

    nothing: Any = Nothing()  # Any: as above
    health = Health(status="ok", version="", server="", components={})
    doors = AppContext(
        clock=SystemClock(),
        statements=nothing,
        snapshots=nothing,
        health=lambda: health,
        ready=lambda: health,
        failed_services=dict,
        metrics=lambda: b"",
        maintenance=nothing,
        ids=random_id,
    )
    return [route for route in build_app(doors).routes if isinstance(route, Route)]


def _system_tables_page() -> Iterator[str]:
    yield from ("# System tables", "")
    yield "They answer without Spark, also when no worker is alive: `SELECT * FROM system.bg_threads`. Times are UTC."
    for name, table in sorted(SYSTEM_TABLES.items()):
        yield from ("", f"## system.{name}", "", table.doc, "")
        yield from _table(
            ("column", "type", "what it is"), [(f"`{c.name}`", str(c.type), c.doc) for c in table.all_columns]
        )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table without the columns that are empty in every row."""
    listed = [[" ".join(cell.replace("|", "\\|").split()) for cell in row] for row in rows]
    kept = [index for index in range(len(heads)) if any(row[index] for row in listed)]
    yield f"| {' | '.join(heads[index] for index in kept)} |"
    yield f"|{'---|' * len(kept)}"
    for row in listed:
        yield f"| {' | '.join(row[index] for index in kept)} |"


def comment_above(holder: type, name: str) -> str:
    """Return the `#:` lines above a field of a class."""
    lines = [line.strip() for line in inspect.getsource(holder).splitlines()]
    position = next(index for index, line in enumerate(lines) if line.startswith(f"{name} ="))
    text: list[str] = []
    while lines[position - 1 - len(text)].startswith("#:"):
        text.insert(0, lines[position - 1 - len(text)].removeprefix("#:").strip())
    return " ".join(text)


def _first_line(error: type[TilthError]) -> str:
    return (inspect.getdoc(error) or "").splitlines()[0]


def _paragraph(doc: str | None, start: str) -> str:
    """Return the text of a docstring behind these words, to its end."""
    text = inspect.cleandoc(doc or "").partition(start)[2]
    return text[:1].upper() + text[1:]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
