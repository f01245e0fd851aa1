"""COPY INTO t FROM '..': files of users into a table, each of them once.

Covers: the text, which files are loaded, the transaction. Does not cover: addresses (storage/store/locations), what is
in the files (query/worker/copy_spark.py), the ledger (catalog/offsets/loaded_files.py).
Always holds: rows pass in Spark's tasks only; one commit has the rows of all files and a line of the ledger for each,
and requires that nobody has loaded one of them meanwhile; a file that changed while it was read refuses the statement.

Tests: tests/integration/sql/test_copy_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from enum import StrEnum

import msgspec

from tilth.base.cancel import apart
from tilth.base.errors import InvalidInputError
from tilth.base.logs import Log
from tilth.base.settings import parse_bool, read_settings
from tilth.catalog import FileTakenError, LoadFile, TxnHandle, Update
from tilth.control.context.audit import audited
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.control.kinds import StatementKind
from tilth.control.slots import Queue
from tilth.grammar.literals import read_settings_clause
from tilth.grammar.parse import Form
from tilth.grammar.phrases import parse_name, parse_names
from tilth.grammar.statements import Name, SettingTexts, WithSettings
from tilth.grammar.text.cursor import Cursor
from tilth.model.loaded_file import LoadedFile
from tilth.model.part import WrittenPart
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Outcome, done
from tilth.query.snapshots.protocol import FileFormat, InsertTask, LoadFilesResult, LoadFilesTask
from tilth.statements.errors import BadCopyOptionError, FileChangedError
from tilth.statements.files.clauses import parse_format, parse_options
from tilth.statements.inserts.commit import Writing, commit_insert
from tilth.statements.inserts.insert import wait_for_merges
from tilth.statements.inserts.rows import OP, target_columns, target_of
from tilth.statements.inserts.spark_tasks import run_insert, tasks_max_of
from tilth.storage import (
    NodeStorageSettings,
    UserFile,
    UserFolder,
    changed_files,
    check_pattern,
    find_folder,
    is_like_pattern,
    list_folder,
    parse_root,
)

#: Maximum number of files of one COPY INTO.
FILES_MAX = 10_000
#: Maximum of SKIPPED_MAX: skipped rows are kept in the ledger.
SKIPPED_LIMIT = 10_000
#: Times that the files are chosen anew because others have loaded some of them.
TRIES_MAX = 3
_ON_ERROR = {"abort": False, "abort_statement": False, "skip": True, "continue": True}
_FOREIGN = {
    "FILEFORMAT": "write FORMAT PARQUET",
    "FILE_FORMAT": "write FORMAT PARQUET",
    "FORMAT_OPTIONS": "write OPTIONS (HEADER = true, ..)",
    "COPY_OPTIONS": "write OPTIONS (FORCE = true, ..)",
    "FILES": "name the file in FROM, or several by PATTERN '{..}*.json'",
    "BY": "columns are found by their names",
    "CREDENTIALS": "keys belong to a location of the setting storage.file-locations",
    "WITH": "keys belong to a location of the setting storage.file-locations",
}

_log = Log("sql")


class Changed(StrEnum):
    """Handling of a file that has changed since it was loaded."""

    ERROR = "error"
    SKIP = "skip"
    LOAD = "load"


class LedgerState(StrEnum):
    """State of a file that was found, for a table."""

    #: It is to be loaded.
    NEW = "new"
    #: It was loaded, and is as it was.
    LOADED = "loaded"
    #: It was loaded, and has changed since.
    CHANGED = "changed"
    #: It has changed before the time up to which the ledger has forgotten files.
    TOO_OLD = "too_old"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInto(WithSettings):
    """Files of users into a table."""

    name: Name
    columns: tuple[str, ...] = ()
    address: str
    format: FileFormat
    #: Pattern of their paths below the address; empty: all.
    pattern: str = ""
    options: SettingTexts = ()
    #: `True` if nothing is stored.
    is_check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Options of a COPY INTO."""

    #: Rows that may be skipped because they cannot be stored.
    skipped_max: int = 0
    #: `True` to load files again that were loaded before.
    force: bool = False
    changed: Changed = Changed.ERROR
    has_header: bool = False


@dataclass(slots=True)
class _Chosen:
    """Files to load, each with its record of an earlier load, and counts of the others."""

    files: list[tuple[UserFile, LoadedFile | None]] = field(default_factory=list)
    loaded: int = 0
    changed: int = 0
    too_old: int = 0

    @property
    def notes(self) -> str:
        """Return what the answer says of files that are not loaded; empty: there are none."""
        counts = {
            "loaded before": self.loaded,
            "changed since they were loaded": self.changed,
            "older than the ledger of files": self.too_old,
        }
        return "".join(f"; {count} files {why}" for why, count in counts.items() if count)


def parse_copy_into(cursor: Cursor) -> CopyInto:
    """Read what follows COPY INTO."""
    cursor.accept("TABLE")
    name = parse_name(cursor)
    columns = parse_names(cursor, "a column") if cursor.is_symbol("(") else ()
    cursor.expect("FROM")
    if cursor.is_symbol("(") or cursor.is_symbol("@"):
        raise cursor.refused(
            "COPY INTO reads an address",
            hint="FROM 's3://bucket/folder'; transform rows by INSERT .. SELECT afterwards",
        )
    address = cursor.string("the address of a folder or a file")
    _refuse_foreign(cursor)
    cursor.expect("FORMAT")
    cursor.accept_symbol("=")
    file_format = parse_format(cursor)
    pattern, is_check = "", False
    options: SettingTexts = ()
    if cursor.accept("PATTERN"):
        cursor.accept_symbol("=")
        pattern = cursor.string("a pattern of files")
    _refuse_foreign(cursor)
    if cursor.accept("OPTIONS"):
        options = parse_options(cursor)
    _refuse_foreign(cursor)
    if cursor.accept("VALIDATE"):
        cursor.expect("ONLY")
        is_check = True
    return CopyInto(
        name=name,
        columns=columns,
        address=address,
        format=file_format,
        pattern=pattern,
        options=options,
        is_check=is_check,
        settings=read_settings_clause(cursor),
    )


def _refuse_foreign(cursor: Cursor) -> None:
    for word, hint in _FOREIGN.items():
        if cursor.at(word):
            raise cursor.refused(f"{word} is not supported in COPY INTO", hint=hint)


def copy_options(texts: SettingTexts, file_format: FileFormat) -> CopyOptions:
    """Read the options. Raises BadCopyOptionError."""
    options, given = CopyOptions(), dict(texts)
    try:
        for name, text in texts:
            match name:
                case "ON_ERROR":
                    is_skipping = _ON_ERROR[text.lower()]
                    options = replace(options, skipped_max=1000 if is_skipping else 0)
                case "FORCE":
                    options = replace(options, force=parse_bool(text))
                case "CHANGED":
                    options = replace(options, changed=Changed(text.lower()))
                case "HEADER":
                    options = replace(options, has_header=parse_bool(text))
                case "SKIPPED_MAX":
                    pass
                case _:
                    known = "ON_ERROR, SKIPPED_MAX, FORCE, CHANGED, HEADER"
                    raise _bad_option("no such option", name, text, hint=f"the options are {known}")
        if "SKIPPED_MAX" in given:
            name, text = "SKIPPED_MAX", given["SKIPPED_MAX"]
            count = int(text)
            if not 1 <= count <= SKIPPED_LIMIT:
                raise ValueError(text)
            if not options.skipped_max:
                raise _bad_option("this option belongs to another", name, text, hint="add ON_ERROR = 'skip'")
            options = replace(options, skipped_max=count)
    except (ValueError, KeyError) as error:
        hint = (
            "ON_ERROR = 'abort' | 'skip', SKIPPED_MAX = 1 .. 10000, FORCE = true, HEADER = true, "
            "CHANGED = 'error' | 'skip' | 'load'"
        )
        raise _bad_option("the option has no such value", name, text, hint=hint) from error
    if options.has_header and file_format is not FileFormat.CSV:
        raise _bad_option("only CSV has a line of names", "HEADER", "true", hint="leave it out")
    return options


def _bad_option(message: str, name: str, value: str, *, hint: str) -> BadCopyOptionError:
    return BadCopyOptionError(message, option=name, value=value, hint=hint)


def copy_into(services: Services, call: Call, statement: CopyInto) -> Outcome:
    """Load the files that were not loaded yet. Raises BadLocationError, BadFileRowError, UnreadableFileError,
    FileChangedError, FileTakenError, and what an INSERT raises.
    """
    table = table_of(services, call, statement.name, what="COPY INTO")
    options = copy_options(statement.options, statement.format)
    if statement.pattern:
        check_pattern(statement.pattern)
    check_zone(call, statement)
    with audited(services, call, verb="COPY INTO", table=full_name(table)) as audit:
        folder = user_folder(services, statement.address)
        services.memory.check()
        for attempt in range(1, TRIES_MAX + 1):
            try:
                outcome = _loaded(services, call, statement, table, folder, options)
                break
            except FileTakenError as error:
                if attempt == TRIES_MAX:
                    raise
                _log.info("copy_again", cause_id=call.query_id, table=full_name(table), reason=error)
        audit.outcome = outcome.message
    return outcome


def check_zone(call: Call, statement: CopyInto) -> None:
    """Raises InvalidInputError (COPY_ZONE) where the session's zone is not that of times in files."""
    if statement.format.is_lines and call.zone is not UTC:
        hint = "leave spark.sql.session.timeZone at UTC, or give the columns a zone: DateTime('Europe/Berlin')"
        raise InvalidInputError.coded(
            "COPY_ZONE", "times without a zone in files are those of UTC", zone=call.zone_name, hint=hint
        )


def user_folder(services: Services, address: str) -> UserFolder:
    """Return the folder that a statement names. Raises BadLocationError."""
    settings = read_settings(NodeStorageSettings, services.node_settings.texts)
    return find_folder(address, map(parse_root, settings.file_locations), services.root.all().values())


def _loaded(
    services: Services, call: Call, statement: CopyInto, table: TableDef, folder: UserFolder, options: CopyOptions
) -> Outcome:
    listed = apart(lambda: list_folder(folder), name="copy-list", hint="nothing was loaded")
    files = [each for each in listed if is_wanted(each, folder, statement.pattern)]
    if not files:
        hint = "FROM names a folder or one file, PATTERN paths below it; names that begin with _ or . are left out"
        raise InvalidInputError.coded("NO_FILES", "there are no such files", address=folder.address, hint=hint)
    known = services.catalog.loaded_files.find(table.uuid, [each.address for each in files])
    forgotten_ms = services.catalog.loaded_files.forgotten_ms(table.uuid)
    chosen = choose_files(files, known, options, is_local=folder.root.is_local, forgotten_ms=forgotten_ms)
    if len(chosen.files) > FILES_MAX:
        hint = "load some of them at a time: PATTERN 'day=2026-01-*/*.parquet'"
        raise InvalidInputError.coded(
            "TOO_MANY_FILES", "too many files for one statement", files=len(chosen.files), limit=FILES_MAX, hint=hint
        )
    if not chosen.files:
        return done(f"nothing to copy into {full_name(table)}{chosen.notes}")
    copying = _CopyInto(services, call, statement, table, folder, options)
    if statement.is_check:
        rows, skipped = copying.checked([each for each, _ in chosen.files])
        text = f"can be copied into {full_name(table)}: {rows} rows of {len(chosen.files)} files"
        return done(f"{text}{_skipped_note(skipped)}{chosen.notes}")
    return _stored(copying, chosen.files, notes=chosen.notes)


def load_files(
    services: Services,
    call: Call,
    statement: CopyInto,
    table: TableDef,
    folder: UserFolder,
    files: Sequence[tuple[UserFile, LoadedFile | None]],
) -> Outcome:
    """Load files that were chosen, each with its record of an earlier load, in one commit. Raises as `copy_into`."""
    services.memory.check()
    options = copy_options(statement.options, statement.format)
    return _stored(_CopyInto(services, call, statement, table, folder, options), files)


def _stored(copying: _CopyInto, files: Sequence[tuple[UserFile, LoadedFile | None]], *, notes: str = "") -> Outcome:
    rows, skipped = copying.stored(files)
    text = f"copied into {copying.table_name}: {rows} rows of {len(files)} files"
    return done(f"{text}{_skipped_note(skipped)}{notes}", rows_written=rows)


def _skipped_note(count: int) -> str:
    return f"; {count} rows skipped, see system.skipped_rows" if count else ""


def is_wanted(file: UserFile, folder: UserFolder, pattern: str) -> bool:
    """Return whether a file of the folder is like the pattern; an empty one is that of all files."""
    below = file.path[len(folder.path) :].lstrip("/") or file.path.rpartition("/")[2]
    return not pattern or is_like_pattern(below, pattern)


def choose_files(
    files: Sequence[UserFile],
    known: Mapping[str, LoadedFile],
    options: CopyOptions,
    *,
    is_local: bool,
    forgotten_ms: int,
) -> _Chosen:
    """Return the files to load: those that are new, or wanted again. Raises FileChangedError.

    `forgotten_ms`: what changed before this time may have been loaded and forgotten.
    """
    chosen = _Chosen()
    for file in files:
        before = known.get(file.address)
        state = LedgerState.NEW if options.force else state_of_file(file, before, is_local, forgotten_ms)
        if state is LedgerState.NEW or (state is LedgerState.CHANGED and options.changed is Changed.LOAD):
            chosen.files.append((file, before))
        elif state is LedgerState.TOO_OLD:
            chosen.too_old += 1
        elif state is LedgerState.LOADED or before is None:
            chosen.loaded += 1
        elif options.changed is Changed.SKIP:
            chosen.changed += 1
        else:
            hint = "give new files new names; OPTIONS (CHANGED = 'load') loads it beside its old rows, 'skip' leaves it"
            raise FileChangedError(file=file.address, size=file.size, loaded_size=before.size, hint=hint)
    return chosen


def state_of_file(file: UserFile, before: LoadedFile | None, is_local: bool, forgotten_ms: int) -> LedgerState:
    """Return the state of a file with this line of the ledger; None: it has none."""
    if before is None:
        return LedgerState.TOO_OLD if file.modified_ms < forgotten_ms else LedgerState.NEW
    is_same = before.is_like(record_of(file, "", is_local=is_local))
    return LedgerState.LOADED if is_same else LedgerState.CHANGED


def record_of(file: UserFile, query_id: str, *, is_local: bool) -> LoadedFile:
    """Return a file's line of the ledger before its rows are known."""
    # A file of a local disk that was copied back has another inode.
    tag = "" if is_local else file.tag
    return LoadedFile(
        file=file.address, size=file.size, tag=tag, modified_ms=file.modified_ms, rows=0, query_id=query_id
    )


class _LargeRowError(Exception):
    """A row is large, so that batches of rows must be measured."""


class _CopyInto:
    """One try of a COPY INTO."""

    def __init__(
        self,
        services: Services,
        call: Call,
        statement: CopyInto,
        table: TableDef,
        folder: UserFolder,
        options: CopyOptions,
    ) -> None:
        self._services = services
        self._call = call
        self._statement = statement
        self._table = table
        self._folder = folder
        self._options = options
        self._tasks_max = tasks_max_of(services, call, warehouse_of_write(call, table))
        #: `True` when a row of the files was found to be large.
        self._is_measured = False

    @property
    def table_name(self) -> str:
        return full_name(self._table)

    def checked(self, files: Sequence[UserFile]) -> tuple[int, int]:
        """Read all rows and store none; return the number of rows, and of those that would be skipped."""
        return _counts(self._again(lambda: self._run(files, None)))

    def stored(self, files: Sequence[tuple[UserFile, LoadedFile | None]]) -> tuple[int, int]:
        """Store the rows and the ledger's lines in one commit; return as `checked`."""
        return _counts(self._again(lambda: self._stored(files)))

    def _again(self, act: Callable[[], LoadFilesResult]) -> LoadFilesResult:
        """Return the result; where a row is large, that of another try, whose batches are measured."""
        try:
            return act()
        except _LargeRowError:
            _log.info("copy_again", cause_id=self._call.query_id, reason="a row is large: batches of rows are measured")
            self._is_measured = True
            return act()

    def _stored(self, files: Sequence[tuple[UserFile, LoadedFile | None]]) -> LoadFilesResult:
        services, table = self._services, self._table
        wait_for_merges(services, self._call, services.catalog.throttle.delay(table))
        results: list[LoadFilesResult] = []

        def write(txn: TxnHandle) -> Sequence[WrittenPart]:
            given = [each for each, _ in files]
            result = self._run(given, txn)
            results.append(result)
            self._check_unchanged(given)
            return result.parts

        def ledger() -> list[Update]:
            updates: list[Update] = []
            for (file, before), found in zip(files, results[-1].files, strict=True):
                record = record_of(file, self._call.query_id, is_local=self._folder.root.is_local)
                loaded = msgspec.structs.replace(record, rows=found.rows, skipped=found.skipped)
                updates.append(LoadFile(table=table.uuid, loaded=loaded, before=before))
            return updates

        writing = Writing(
            table=table,
            actor=f"copy {self._call.query_id}",
            tasks=self._tasks_max,
            quorum=self._call.settings.insert_quorum,
            has_tasks=True,
            beside=ledger,
        )
        commit_insert(services, writing, write)
        return results[-1]

    def _run(self, files: Sequence[UserFile], txn: TxnHandle | None) -> LoadFilesResult:
        """Read the files in a task, and write their rows unless there is no transaction. Raises _LargeRowError."""
        services, call, table = self._services, self._call, self._table
        target = target_of(table)
        columns = target_columns(target, self._statement.columns)
        if target.key and not self._statement.columns and not self._is_positional:
            columns = (*columns, OP)
        insert = InsertTask(
            query_id=call.query_id,
            text="",
            spark=dict(call.settings.spark),
            target=table,
            root=services.root.of(table.uuid),
            columns=tuple(column.name for column in columns),
            is_partial=target.is_partial,
            txn=0 if txn is None else txn.id,
            tasks_max=self._tasks_max,
            quorum=call.settings.insert_quorum,
        )
        task = LoadFilesTask(
            insert=insert,
            format=self._statement.format,
            root=self._folder.root,
            paths=tuple(each.path for each in files),
            sizes=tuple(each.size for each in files),
            has_header=self._options.has_header,
            delimiter=call.settings.csv_delimiter,
            skip_unknown=call.settings.skip_unknown,
            skipped_max=self._options.skipped_max,
            is_check=self._statement.is_check,
            is_measured=self._is_measured,
        )
        size = sum(each.size for each in files)
        answer = run_insert(services, call, table, task, txn=txn, input_bytes=size)
        result = msgspec.msgpack.decode(answer, type=LoadFilesResult)
        if result.has_large_row:
            raise _LargeRowError
        return result

    @property
    def _is_positional(self) -> bool:
        return self._statement.format is FileFormat.CSV and not self._options.has_header

    def _check_unchanged(self, files: Sequence[UserFile]) -> None:
        """Raises FileChangedError where a file is not what it was before it was read."""
        changed = apart(lambda: changed_files(self._folder, files), name="copy-list", hint="nothing was loaded")
        if changed:
            hint = "wait until the files are complete, and run the statement again: nothing was stored"
            raise FileChangedError("a file has changed while it was read", file=changed[0].address, hint=hint)


def _counts(result: LoadFilesResult) -> tuple[int, int]:
    """Return the numbers of rows that were stored, or would be, and of those that were skipped."""
    return sum(each.rows for each in result.files), sum(len(each.skipped) for each in result.files)


KINDS = (
    StatementKind(
        value=CopyInto,
        forms=(Form(words="COPY INTO", parse=parse_copy_into),),
        perform=copy_into,
        queue=Queue.CHANGE,
    ),
)
