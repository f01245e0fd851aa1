"""Content of a bundle for a bug report, and the archive.

Covers: what is read from a server, names and texts of entries, writing the archive. Does not cover: secrets
(tilth.doctor), the command (cli/bundle.py).
Always holds: no entry has rows of tables of users, and none has literals of statements: neither texts of statements,
nor their errors, nor messages that could not be decoded are read.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from tilth.base.errors import TilthError
from tilth.client.settings import BOUNDED_READING

if TYPE_CHECKING:
    from tilth.client.http import Connection

ROWS_MAX = 500
TEXT_CHARACTERS_MAX = 4 << 20
#: Statements without an answer in time, after which no more are sent to the server.
SILENT_MAX = 2

#: Columns of system tables; `*` where none of them may have something of a user's rows.
TABLES: dict[str, str] = {
    "alarms": "*",
    "bg_threads": "*",
    "kafka_tables": 'database, "table", consumer, state, reason, lag, lag_age, uncommitted, rounds, messages, "rows", '
    "dead, refused, bytes, last_commit, last_exception_time, slowed, activity, activity_since, last_poll, "
    "round_running_seconds, rate, bounded_by, last_round_seconds, view_seconds, next_attempt, server",
    "leases": "*",
    "lost_transactions": "*",
    "maintenance_ops": "*",
    "merges": "*",
    "metrics": "*",
    "processes": "query_id, kind, started, elapsed, state, queue, warehouse, task_id, read_rows, read_bytes, "
    "stages_done, stages_total, tasks_done, tasks_total, server",
    "query_log": 'query_id, kind, started, elapsed_ms, "rows", rows_written, result_bytes, parts_read, parts_pruned, '
    "error_code, exception_code, server",
    "replicas": "*",
    "servers": "*",
    "storages": "*",
    "tables": 'database, name, engine, uuid, "rows", bytes, parts, segments, version, last_commit, sort_key, '
    "unique_key, storage_policy, mutations_pending, created",
    "tasks": "*",
    "warehouses": "*",
    "workers": "*",
}
README = """A bundle of `tilth bundle` for a bug report.

It has: versions, settings without secrets, findings of `tilth doctor`, the state and the metrics of the server, system
tables about its work (the first {rows} rows of each), numbers and sizes of files in the node's folder, the ends of its
logs. It names databases, tables, columns, partitions, topics, hosts and folders.

It has no rows of tables, no messages, no texts of statements or of their errors, and no secrets: passwords, keys and
tokens were replaced by [HIDDEN], by their names, by their positions, and by their values where the settings name them.
Lines of logs and reasons of failures may quote a value in the message of an error: read them before you send it.
"""


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A file of the bundle."""

    name: str
    text: str

    @property
    def size(self) -> int:
        return len(self.text.encode("utf-8", "replace"))


def server_entries(connection: Connection) -> Iterator[BundleEntry]:
    """Yield what the server says of itself; where it does not answer any more, an entry says so and is the last."""
    try:
        yield BundleEntry("server/health.json", _json(connection.health()))
        yield BundleEntry("server/metrics.txt", connection.metrics())
    except TilthError as error:
        yield BundleEntry("server/away.txt", f"{error.message}\n")
        return
    statements = {"settings": 'SELECT name, scope, "value", source FROM system.settings WHERE is_set'}
    statements |= {table: f"SELECT {columns} FROM system.{table} LIMIT {ROWS_MAX}" for table, columns in TABLES.items()}
    silent = 0
    for name, statement in statements.items():
        try:
            rows = _rows(connection, statement)
        except TilthError as error:
            silent += 1
            rows = _json({"error": error.message})
        yield BundleEntry(f"server/{name}.jsonl", rows)
        if silent == SILENT_MAX:
            yield BundleEntry("server/away.txt", f"{silent} statements were not answered: no more were sent\n")
            return


def _rows(connection: Connection, statement: str) -> str:
    """Return a line of JSON for each row, or why the server refuses the statement. Raises ServerUnreachableError,
    AnswerLostError.
    """
    from tilth.client.errors import ServerError

    try:
        result = connection.sql(statement, BOUNDED_READING)
    except ServerError as error:
        return _json({"error": error.message})
    names = result.names
    return "".join(_json(dict(zip(names, row, strict=True))) for row in result.rows)


# Any: whatever has a form in JSON.
def _json(value: Any) -> str:
    return f"{msgspec.json.encode(value, enc_hook=str).decode()}\n"


def cleaned(entries: list[BundleEntry], clean: Callable[[str], str]) -> list[BundleEntry]:
    """Return the entries without secrets and cut off at `TEXT_CHARACTERS_MAX`; `clean` removes secrets."""
    return [BundleEntry(each.name, clean(each.text)[:TEXT_CHARACTERS_MAX]) for each in entries]


def write_archive(path: str, entries: list[BundleEntry], *, at: int) -> None:
    """Write a new .tar.gz that its owner alone can read. Raises OSError, also where there is such a file already.

    `at`: time of the files, in seconds since 1970.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for each in entries:
                data = each.text.encode("utf-8", "replace")
                info = tarfile.TarInfo(f"tilth-bundle/{each.name}")
                info.size, info.mtime, info.mode = len(data), at, 0o600
                archive.addfile(info, io.BytesIO(data))
    except OSError:
        # The disk is full: no half of an archive stays.
        os.unlink(path)
        raise
