"""EXPORT SELECT .. TO '..' and EXPORT TABLE t TO '..': the rows of a query to files of users.

Covers: the text, the folder, what an export that was killed has left. Does not cover: addresses
(storage/store/locations), writing (query/worker/export_spark.py).
Always holds: files go to a folder that has none, and none is written over; a manifest and `_SUCCESS` come last, when
every file is complete; while an export is under way its folder has a marker with its id, and one that was killed is
removed by the next, by the names that have the id.

Tests: tests/integration/sql/test_export_on_spark.py.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from tilth.base.cancel import apart
from tilth.base.errors import ConflictError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.base.settings import parse_bool
from tilth.catalog import LeaseHeldError
from tilth.control.context.audit import audited
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_query
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.literals import read_settings_clause
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name
from tilth.grammar.queries import QUERY_WORDS
from tilth.grammar.statements import Name, SettingTexts, WithSettings
from tilth.grammar.text.cursor import Cursor
from tilth.model.lease import Fence, Lease
from tilth.model.task import TaskKind
from tilth.model.types import quoted
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.damaged import QueryParts, check_reads_all, naming
from tilth.query.snapshots.protocol import EXPORT_MARKER, ExportedFile, ExportTask, FileFormat, QueryTask
from tilth.statements.errors import BadCopyOptionError, ExportRunsError
from tilth.statements.files.clauses import parse_format, parse_options
from tilth.statements.files.copy_into import user_folder
from tilth.statements.inserts.spark_tasks import tasks_max_of
from tilth.storage import (
    Folder,
    UserFolder,
    are_there,
    list_files,
    list_folder,
    make_folder,
    new_whole_file,
    read_file,
    remove_files,
)

MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"
_RUNS_HINT = "wait for its end, or choose another folder"
_log = Log("sql")
#: Folders to which statements of this process export.
_busy: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(WithSettings):
    """The rows of a query, or of a table, to files."""

    #: A query; empty: those of the table.
    query: str = ""
    name: Name | None = None
    address: str
    format: FileFormat
    options: SettingTexts = ()


def _parse_query(cursor: Cursor) -> Export:
    if not any(cursor.at(word) for word in QUERY_WORDS):
        raise cursor.expected("TABLE or a query", words=("TABLE", *QUERY_WORDS))
    query = cursor.expression("a query", lambda here: here.at("TO") and here.is_string(1))
    return _parse_target(cursor, query=query)


def _parse_table(cursor: Cursor) -> Export:
    return _parse_target(cursor, name=parse_name(cursor))


def _parse_target(cursor: Cursor, *, query: str = "", name: Name | None = None) -> Export:
    cursor.expect("TO")
    address = cursor.string("the address of a folder")
    cursor.expect("FORMAT")
    file_format = parse_format(cursor)
    options = parse_options(cursor) if cursor.accept("OPTIONS") else ()
    settings = read_settings_clause(cursor)
    return Export(query=query, name=name, address=address, format=file_format, options=options, settings=settings)


def _has_header(statement: Export) -> bool:
    """Raises BadCopyOptionError."""
    has_header = True
    for name, text in statement.options:
        if name != "HEADER" or statement.format is not FileFormat.CSV:
            hint = "EXPORT has one: HEADER = false, for CSV"
            raise BadCopyOptionError("no such option", option=name, value=text, hint=hint)
        try:
            has_header = parse_bool(text)
        except ValueError as error:
            raise BadCopyOptionError("true or false", option=name, value=text, hint="HEADER = false") from error
    return has_header


def export(services: Services, call: Call, statement: Export) -> Outcome:
    """Write the files. Raises BadLocationError, ExportRunsError, ConflictError (EXPORT_NOT_EMPTY, EXPORT_OVER), and
    what a query raises.
    """
    check_reads_all(call.settings)
    has_header, query = _has_header(statement), statement.query
    if statement.name is not None:
        table = table_of(services, call, statement.name, what="EXPORT TABLE")
        query = f"SELECT * FROM {quoted(table.database)}.{quoted(table.name)}"
    with audited(services, call, verb="EXPORT") as audit:
        named = user_folder(services, statement.address)
        folder = Folder(named.root, named.path)
        with _alone(services, named.address):
            exporting = _Exporting(services, call, folder, services.ids())
            exporting.begin(named)
            files = exporting.written(query, statement.format, has_header=has_header)
        rows = sum(each.rows for each in files)
        outcome = done(f"exported to {named.address}: {rows} rows in {len(files)} files")
        audit.outcome = outcome.message
    return outcome


@contextmanager
def _alone(services: Services, address: str) -> Iterator[None]:
    """Let no other statement of this catalog export to the folder. Raises ExportRunsError."""
    with _lock:
        is_free = address not in _busy
        _busy.update([address])
    if not is_free:
        raise ExportRunsError(address=address, hint=_RUNS_HINT)
    lease: Lease | None = None
    try:
        name = f"export/{hashlib.sha256(address.encode()).hexdigest()}"
        try:
            lease = services.catalog.leases.acquire(name, services.catalog.server)
        except LeaseHeldError as error:
            raise ExportRunsError(address=address, hint=_RUNS_HINT) from error
        yield
    finally:
        if lease is not None:
            services.catalog.leases.release(Fence(lease.name, lease.epoch))
        with _lock:
            _busy.discard(address)


class _Exporting:
    """One export under way."""

    def __init__(self, services: Services, call: Call, folder: Folder, export_id: str) -> None:
        self._services = services
        self._call = call
        self._folder = folder
        self._id = export_id

    def begin(self, named: UserFolder) -> None:
        """Remove what a killed export has left, and make the marker. Raises ConflictError (EXPORT_NOT_EMPTY)."""
        there = apart(lambda: list_folder(named), name="export-list", hint="nothing was written")
        marker = self._marker()
        left = [each.path.rpartition("/")[2] for each in there if marker and _is_of(each.path, marker)]
        others = [each.address for each in there if not (marker and _is_of(each.path, marker))]
        if others or are_there(self._folder, [SUCCESS]) == [True]:
            hint = "name a folder that has no files, or remove them: an export writes over none"
            raise ConflictError.coded(
                "EXPORT_NOT_EMPTY", "the folder has files", address=named.address, files=len(others), hint=hint
            )
        if marker is not None:
            _log.info("export_cleaned", cause_id=self._call.query_id, folder=named.address, files=len(left))
            remove_files(self._folder, [*left, MANIFEST, EXPORT_MARKER])
        make_folder(self._folder, fsync=True)
        with new_whole_file(self._folder, EXPORT_MARKER) as file:
            file.write(self._id.encode())

    def written(self, query: str, file_format: FileFormat, *, has_header: bool) -> Sequence[ExportedFile]:
        """Write all files, the manifest and `_SUCCESS`; where that fails, remove them."""
        try:
            files = self._run(query, file_format, has_header=has_header)
            hit("export.after_files")
            # An attempt that was not needed may have ended, too.
            self._remove(keep={each.name for each in files})
            self._put(MANIFEST, msgspec.json.encode({"query_id": self._call.query_id, "files": files}))
            self._put(SUCCESS, b"")
        except BaseException:
            self._remove(keep=set())
            remove_files(self._folder, [MANIFEST, EXPORT_MARKER])
            raise
        remove_files(self._folder, [EXPORT_MARKER])
        return files

    def _run(self, query: str, file_format: FileFormat, *, has_header: bool) -> list[ExportedFile]:
        services, call = self._services, self._call
        warehouse = warehouse_of_query(services, call, query)
        reading = QueryParts(services.damage, skips=False)
        with naming(reading.named), services.opened(call, seen=reading.seen):
            task = ExportTask(
                query=QueryTask(
                    query_id=call.sending_id, text=query, spark=dict(call.settings.spark), result_bytes_max=0
                ),
                id=self._id,
                format=file_format,
                folder=self._folder,
                has_header=has_header,
                tasks_max=tasks_max_of(services, call, warehouse),
            )
            spec = services.dispatcher.new_spec(
                TaskKind.QUERY,
                warehouse=warehouse,
                table="",
                payload=msgspec.msgpack.encode(task),
            )
            result = services.dispatcher.run(spec)
        return msgspec.msgpack.decode(result.payload, type=list[ExportedFile])

    def _marker(self) -> str | None:
        try:
            return bytes(read_file(self._folder, EXPORT_MARKER)).decode(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _put(self, name: str, data: bytes) -> None:
        with new_whole_file(self._folder, name) as file:
            file.write(data)

    def _remove(self, *, keep: set[str]) -> None:
        names = [each.path for each in list_files(self._folder) if _is_of(each.path, self._id)]
        remove_files(self._folder, [name for name in names if name not in keep])


def _is_of(path: str, export_id: str) -> bool:
    """Return whether a file was written by the export."""
    return path.rpartition("/")[2].startswith(f"part-{export_id}-")


KINDS = (
    StatementKind(
        value=Export,
        forms=(Form(words="EXPORT", parse=_parse_query), Form(words="EXPORT TABLE", parse=_parse_table)),
        perform=export,
        queue=Queue.QUERY,
    ),
)
