"""One pipe on the server that hosts its table: its polls, and what is known of it between two polls.

Covers: one listing for a poll, loads one after the other, files that fail, the state for people. Does not cover: when
polls are due and the switch (pipe_manager.py), verdicts (pipe_choice.py), a load (copy_into.py).
Always holds: a load is a statement of this server, with its line in the query log; the operator's list of locations is
read at each poll; before each load the switch is read; what is in memory alone only spares reads, so that another
server goes on from the catalog.

      +--due--> POLLING --files--> LOADING --none left--> IDLE
      |            |                  |
      |            +---- error -------+----> FAILED
      +---- after a wait, from IDLE or FAILED

Tests: tests/unit/statements/files/test_pipe_manager.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tilth.base.cancel import apart
from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.logs import Log
from tilth.control.context.services import Call, Services
from tilth.control.pipe_stats import PipeState
from tilth.control.running import Origin
from tilth.grammar.render import quoted_name
from tilth.grammar.statements import Name
from tilth.model.loaded_file import LoadedFile
from tilth.model.pipe import FailedFile, Pipe
from tilth.model.service import ServiceState
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Answer, Outcome
from tilth.query.settings import session_settings
from tilth.query.snapshots.protocol import FileFormat
from tilth.statements.errors import FileChangedError
from tilth.statements.files.copy_into import (
    CopyInto,
    CopyOptions,
    copy_options,
    is_wanted,
    load_files,
    record_of,
    user_folder,
)
from tilth.statements.files.pipe_choice import (
    LOAD_BYTES_MAX,
    LOAD_FILES_MAX,
    SETTLED_MS,
    FilesSeen,
    FileVerdict,
    LoadBlame,
    batches_of,
    blame,
    in_order,
    judge,
    wait_ms,
)
from tilth.statements.inserts.rows import target_columns, target_of
from tilth.storage import UserFile, UserFolder, check_folder, check_pattern, list_folder

#: Loads of one poll: then the folder is listed again.
LOADS_MAX = 32
#: Files that failed and are still there; with more of them, a poll fails before it loads anything.
FAILED_MAX = 10_000
#: Files that were loaded and whose lines of the ledger are not read again.
REMEMBERED_MAX = 200_000
#: Length of an error that is kept with its file.
_ERROR_CHARACTERS_MAX = 2_000

_log = Log("pipes")

#: Function that runs an action as a statement: its text, the name of the table, settings, the origin, the action.
RunInside = Callable[[str, Name, Mapping[str, str], Origin, Callable[[Call], Outcome]], Answer]


@dataclass(slots=True)
class PipeCounts:
    """Counts of one pipe, for the sums of all."""

    polls: int = 0
    failures: int = 0
    loads: int = 0
    files: int = 0
    rows: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Files of one listing, each with its verdict."""

    folder: UserFolder
    files: Sequence[tuple[UserFile, FileVerdict]]
    loaded: Mapping[str, LoadedFile]
    failed: Mapping[str, FailedFile]

    def of(self, verdict: FileVerdict) -> list[UserFile]:
        return [file for file, given in self.files if given is verdict]


def statement_of(pipe: Pipe, table: TableDef) -> CopyInto:
    """Return the statement that the pipe repeats."""
    return CopyInto(
        name=Name(table.database, table.name),
        columns=pipe.columns,
        address=pipe.address,
        format=FileFormat(pipe.format),
        pattern=pipe.pattern,
        options=pipe.options,
        settings=pipe.settings,
    )


def checked_copy(services: Services, statement: CopyInto, table: TableDef) -> tuple[CopyOptions, UserFolder]:
    """Return the options and the folder of a statement that a pipe repeats. Raises BadCopyOptionError,
    BadSettingError, UnknownColumnError, InvalidInputError for a wrong pattern, and BadLocationError.
    """
    options = copy_options(statement.options, statement.format)
    session_settings(dict(statement.settings))
    target_columns(target_of(table), statement.columns)
    if statement.pattern:
        check_pattern(statement.pattern)
    return options, user_folder(services, statement.address)


def find_files(
    services: Services,
    pipe: Pipe,
    table: TableDef,
    *,
    seen: Mapping[str, UserFile],
    remembered: Mapping[str, LoadedFile] | None = None,
) -> Found:
    """List the folder once and judge each file. Raises BadLocationError, BadCopyOptionError, BadSettingError and
    UnknownColumnError for what has become wrong since the pipe was created, and the errors of the store.

    `remembered`: lines of the ledger that were read before.
    """
    options, folder = checked_copy(services, statement_of(pipe, table), table)

    def listed() -> list[UserFile]:
        check_folder(folder)
        return list_folder(folder)

    files = apart(listed, name="pipe-list", hint="nothing was loaded")
    wanted = [each for each in files if is_wanted(each, folder, pipe.pattern)]
    is_local = folder.root.is_local
    known = remembered or {}
    sure = {
        each.address: known[each.address]
        for each in wanted
        if each.address in known and known[each.address].is_like(record_of(each, "", is_local=is_local))
    }
    rest = [each.address for each in wanted if each.address not in sure]
    loaded = sure | services.catalog.loaded_files.find(table.uuid, rest)
    failed = services.catalog.pipes.failed(pipe)
    judged = FilesSeen(
        loaded=loaded,
        failed=failed,
        seen=seen,
        forgotten_ms=services.catalog.loaded_files.forgotten_ms(table.uuid),
        schema_version=table.schema_version,
        kind=folder.root.kind,
        changed=options.changed,
        now_ms=services.clock.now_ms(),
    )
    verdicts = [(each, judge(each, judged)) for each in wanted]
    return Found(folder=folder, files=verdicts, loaded=loaded, failed=failed)


@dataclass(slots=True)
class _Memory:
    """Memory of a pipe beside the catalog."""

    #: New files of the last poll that may still grow.
    seen: dict[str, UserFile] = field(default_factory=dict)
    #: Lines of the ledger.
    loaded: dict[str, LoadedFile] = field(default_factory=dict)
    #: Failures of the pipe while a file was loaded alone.
    troubles: dict[str, int] = field(default_factory=dict)
    #: Maximum number of files of the next load.
    files_max: int = LOAD_FILES_MAX


class PipeRun:
    """A pipe of a table that this server hosts. One thread polls, any thread reads the state."""

    def __init__(self, services: Services, run: RunInside, pipe: Pipe, *, may_begin: Callable[[Pipe], bool]) -> None:
        """`may_begin`: whether the pipe may begin something now, by its switch and its host."""
        self._services = services
        self._clock = services.clock
        self._run = run
        self._may_begin = may_begin
        self._memory = _Memory()
        self._lock = threading.Lock()
        #: Lock that is held while a load begins: whoever holds it after a switch knows that none begins any more.
        self._beginning = threading.Lock()
        self._origin: Origin | None = None
        self._is_over = False
        #: `True` if the definition has changed since the last poll began.
        self._is_changed = False
        self.counts = PipeCounts()
        self._state = PipeState(
            pipe=pipe,
            database="",
            table="",
            state=ServiceState.IDLE,
            reason="it has not polled yet",
            next_poll_ms=self._clock.now_ms(),
        )

    @property
    def state(self) -> PipeState:
        with self._lock:
            return self._state

    @property
    def pipe(self) -> Pipe:
        return self.state.pipe

    def follow(self, table: TableDef) -> None:
        """Use the present name of the table."""
        self._note(database=table.database, table=table.name)

    def adopt(self, pipe: Pipe) -> None:
        """Go on with a definition that has changed: poll at once, and forget what has failed."""
        self._memory = _Memory()
        self._is_changed = True
        self._note(pipe=pipe, failures=0, next_poll_ms=self._clock.now_ms())

    def end(self, reason: str) -> None:
        """Begin nothing more, and cancel a load under way."""
        self._is_over = True
        with self._beginning:
            origin = self._origin
        if origin is not None:
            origin.cancel(reason)

    def wait_begun(self) -> None:
        """Return when no load begins that has read a switch before this call."""
        with self._beginning:
            pass

    def poll(self) -> None:
        """List the folder once and load what is new. Errors are in the state."""
        self._is_changed = False
        pipe = self.pipe
        self.counts.polls += 1
        polled_ms = self._clock.now_ms()
        try:
            table = self._services.catalog.tables.by_id(pipe.table)
            if not isinstance(table, TableDef):
                self._note(reason="the table is gone", next_poll_ms=polled_ms + pipe.every_ms)
                return
            self.follow(table)
            self._note(state=ServiceState.RUNNING, reason="lists the folder")
            is_more = self._poll(pipe, table)
        # The pipe goes on after a wait, whatever a poll raises.
        except Exception as error:
            self._failed(error, polled_ms)
            return
        wait = 0 if is_more or self._is_changed else pipe.every_ms
        if self._memory.seen:
            wait = min(wait, SETTLED_MS)
        self._note(
            state=ServiceState.IDLE,
            failures=0,
            polls=self.counts.polls,
            last_poll_ms=polled_ms,
            next_poll_ms=self._clock.now_ms() + wait,
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _poll(self, pipe: Pipe, table: TableDef) -> bool:
        """Return whether the folder is to be listed again at once."""
        memory = self._memory
        found = find_files(self._services, pipe, table, seen=memory.seen, remembered=memory.loaded)
        present = {each.address for each, _ in found.files}
        memory.loaded = _remembered(found.loaded)
        memory.seen = {each.address: each for each in found.of(FileVerdict.SETTLING)}
        memory.troubles = {name: count for name, count in memory.troubles.items() if name in present}
        over = {each.address for each in found.of(FileVerdict.LOADED)} | (found.failed.keys() - present)
        self._services.catalog.pipes.clear(pipe, sorted(found.failed.keys() & over))
        changed = [
            _failed_file(
                each, found.folder, table, _changed_error(each, found.loaded[each.address]), self._clock.now_ms()
            )
            for each in found.of(FileVerdict.CHANGED)
        ]
        self._record(pipe, changed)
        failed = len(found.of(FileVerdict.FAILED)) + len(changed)
        new = in_order(found.of(FileVerdict.LOAD), memory.troubles)
        self._note(files_found=len(found.files), files_failed=failed, files_waiting=len(new))
        self._note(reason=_summary(found, failed))
        if failed > FAILED_MAX:
            hint = "remove the files, or correct them and ALTER PIPE .. REFRESH; system.pipe_errors lists them"
            raise InvalidInputError.coded(
                "TOO_MANY_FAILED_FILES", "too many files could not be loaded", files=failed, limit=FAILED_MAX, hint=hint
            )
        return self._load_all(pipe, table, found, new)

    def _load_all(self, pipe: Pipe, table: TableDef, found: Found, new: Sequence[UserFile]) -> bool:
        """Load the files batch by batch; return whether some are left that may be loaded at once."""
        memory = self._memory
        waiting = deque(batches_of(new, files_max=memory.files_max, bytes_max=LOAD_BYTES_MAX))
        for _ in range(LOADS_MAX):
            if not waiting:
                return False
            batch = waiting.popleft()
            try:
                if not self._load(pipe, table, found, batch):
                    return False
            except TilthError as error:
                whose, file = blame(error, batch)
                rest = [each for each in batch if each is not file]
                match whose:
                    case LoadBlame.FILE if file is not None:
                        now_ms, query_id = self._clock.now_ms(), self.state.last_query_id
                        self._record(pipe, [_failed_file(file, found.folder, table, error, now_ms, query_id)])
                        self._note(files_failed=self.state.files_failed + 1)
                    case LoadBlame.GROWING if file is not None:
                        memory.seen[file.address] = file
                    case LoadBlame.SOME:
                        half = len(batch) // 2
                        waiting.extendleft((batch[half:], batch[:half]))
                        rest = []
                    case LoadBlame.CHOOSE_ANEW:
                        _log.info("pipe_chooses_anew", pipe=pipe.name, table=full_name(table), reason=error)
                        return False
                    case _:
                        self._slow_down(batch)
                        raise
                if rest:
                    waiting.appendleft(rest)
            self._note(files_waiting=sum(map(len, waiting)))
        return bool(waiting)

    def _load(self, pipe: Pipe, table: TableDef, found: Found, batch: Sequence[UserFile]) -> bool:
        """Load files in one commit; return False where the pipe must not begin it now."""
        files = [(each, found.loaded.get(each.address)) for each in batch]
        statement, origin = statement_of(pipe, table), Origin(name=f"pipe {pipe.name}")

        def act(call: Call) -> Outcome:
            self._note(last_query_id=call.query_id, reason=f"loads {len(batch)} files")
            return load_files(self._services, call, statement, table, found.folder, files)

        with self._beginning:
            if self._is_over or not self._may_begin(pipe):
                self._note(reason=f"stopped before {len(batch)} files")
                return False
            self._origin = origin
        try:
            text = f"COPY INTO {full_name(table)} BY PIPE {quoted_name(pipe.name)}: {len(batch)} files"
            answer = self._run(text, statement.name, dict(pipe.settings), origin, act)
        finally:
            self._origin = None
        memory, counts = self._memory, self.counts
        memory.files_max = min(LOAD_FILES_MAX, 2 * memory.files_max)
        self._services.catalog.pipes.clear(pipe, [each.address for each in batch if each.address in found.failed])
        counts.loads += 1
        counts.files += len(batch)
        counts.rows += answer.rows_written
        self._note(files_loaded=counts.files, rows_loaded=counts.rows, last_load_ms=self._clock.now_ms())
        return True

    def _slow_down(self, batch: Sequence[UserFile]) -> None:
        """Load fewer files at a time after a failure of the pipe, and one that was alone behind the others."""
        self._memory.files_max = max(1, len(batch) // 2)
        if len(batch) == 1:
            address = batch[0].address
            self._memory.troubles[address] = self._memory.troubles.get(address, 0) + 1

    def _record(self, pipe: Pipe, failed: Sequence[FailedFile]) -> None:
        if not failed:
            return
        self._services.catalog.pipes.fail(pipe, failed)
        self.counts.failed += len(failed)
        last = failed[-1]
        self._note(last_error_code=last.code, last_error=last.error, last_error_ms=last.failed_ms)
        for each in failed:
            _log.warning("pipe_file_failed", pipe=pipe.name, file=each.file, code=each.code, reason=each.error)

    def _failed(self, error: Exception, polled_ms: int) -> None:
        known = error if isinstance(error, TilthError) else None
        code, now_ms = "INTERNAL_ERROR" if known is None else known.code, self._clock.now_ms()
        text = f"{type(error).__name__}: {error}" if known is None else str(known)
        before = self.state
        failures = before.failures + 1
        self.counts.failures += 1
        self._note(
            state=ServiceState.FAILED,
            reason=text,
            failures=failures,
            polls=self.counts.polls,
            last_poll_ms=polled_ms,
            next_poll_ms=now_ms + (0 if self._is_changed else wait_ms(before.pipe.every_ms, failures)),
            last_error_code=code,
            last_error=text,
            last_error_ms=now_ms,
        )
        _log.warning(
            "pipe_failed", pipe=before.pipe.name, table=before.table, failures=failures, code=code, reason=text
        )

    # Any: values of every field.
    def _note(self, **changed: object) -> None:
        with self._lock:
            self._state = replace(self._state, **changed)  # type: ignore[arg-type]  # fields by name


def _remembered(loaded: Mapping[str, LoadedFile]) -> dict[str, LoadedFile]:
    """Return lines of the ledger without their skipped rows, which may be many; none where there are too many lines."""
    if len(loaded) > REMEMBERED_MAX:
        return {}
    return {name: msgspec.structs.replace(each, skipped=()) for name, each in loaded.items()}


def _failed_file(
    file: UserFile, folder: UserFolder, table: TableDef, error: TilthError, now_ms: int, query_id: str = ""
) -> FailedFile:
    record = record_of(file, "", is_local=folder.root.is_local)
    return FailedFile(
        file=record.file,
        size=record.size,
        tag=record.tag,
        modified_ms=record.modified_ms,
        schema_version=table.schema_version,
        code=error.code,
        error=str(error)[:_ERROR_CHARACTERS_MAX],
        failed_ms=now_ms,
        query_id=query_id,
    )


def _changed_error(file: UserFile, before: LoadedFile) -> TilthError:
    return FileChangedError(file=file.address, size=file.size, loaded_size=before.size)


def _summary(found: Found, failed: int) -> str:
    """Return what a poll has found, for people."""
    counts = {
        "new": len(found.of(FileVerdict.LOAD)),
        "failed": failed,
        "may still grow": len(found.of(FileVerdict.SETTLING)),
        "older than the ledger of files": len(found.of(FileVerdict.TOO_OLD)),
    }
    more = "".join(f", {count} {what}" for what, count in counts.items() if count)
    return f"{len(found.files)} files{more}" if found.files else "no files there"
