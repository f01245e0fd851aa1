"""Files of tables that cannot be read: which, since when, why, and when they are good again.

A file enters the book when work on it has failed, or a query has not found it, and a check of the file itself
agrees: it is missing, or its size or checksum is not what was written. It leaves the book when size and checksum are
right again, which is checked as soon as its size, inode or time differs from what it was, and when its table does not
need it any more. The book is a value in the catalog: a restart begins with it.

Covers: knowing. Does not cover: reading the files (checks.py), what is done about it (left_out.py for merges and
flushes, query for queries).
Always holds: a store that is away is no damage; a file whose bytes are right is never in the book for long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import CorruptError, RetryError, TilthError, UnavailableError
from tilth.base.logs import Log
from tilth.catalog import Catalog, TableNotFoundError
from tilth.maintenance.damage.checks import ChecksHere, FileChecks
from tilth.maintenance.damage.task_spark import CheckedFile, FileFinding
from tilth.model.copy_note import CopyNote
from tilth.model.delta import Delta, by_file
from tilth.model.part import DataFile, Part
from tilth.model.snapshot import Snapshot
from tilth.storage import Folder, Roots, check_size, data_folder, stamp_of

#: Files that are remembered; more of them are a lost disk.
FILES_MAX = 1_000
#: Interval between two checks whether files are good again.
RECHECK_MS = 10_000
#: Hint for a part that cannot be read.
CURE = "restore the file from a backup, or DROP its PARTITION"

_NAME = "damaged_files"

_log = Log("maintenance")


class DamagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that cannot be read, as the catalog keeps it."""

    #: The table's uuid.
    table: str
    file: DataFile
    is_delta: bool
    reason: str
    since_ms: int
    #: Names of the parts that cannot be read for it.
    parts: tuple[str, ...]
    #: Size, inode and time of change when it was checked; empty: it was not there.
    stamp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file that a table needs, and who needs it."""

    file: DataFile
    is_delta: bool
    parts: tuple[str, ...]


class DamageBook:
    """Damaged files of all tables of this server. For any thread."""

    def __init__(self, clock: Clock, catalog: Catalog, root: Roots, checks: FileChecks | None = None) -> None:
        """`root`: the folders below which the tables' folders are. `checks`: reads files; None: in this process."""
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._checks = checks or ChecksHere()
        self._lock = threading.Lock()
        self._files = {(each.table, each.file.name): each for each in _decoded(catalog.state.get(_NAME))}
        self._checked_ms = 0
        self._thread: threading.Thread | None = None

    @property
    def next_recheck_ms(self) -> int:
        """Return when the files in the book are checked next."""
        return self._checked_ms + RECHECK_MS

    def all(self) -> list[DamagedFile]:
        """The damaged files of all tables."""
        with self._lock:
            return list(self._files.values())

    def of(self, table: str) -> dict[str, DamagedFile]:
        """The damaged files of the table, by name."""
        if not self._files:
            return {}
        with self._lock:
            return {name: each for (uuid, name), each in self._files.items() if uuid == table}

    def parts_of(self, table: str) -> dict[str, DamagedFile]:
        """The parts of the table that cannot be read, by name."""
        return {part: each for each in self.of(table).values() for part in each.parts}

    def report(
        self, table: str, error: Exception, parts: Iterable[Part], deltas: Iterable[Delta]
    ) -> DamagedFile | None:
        """Take note of the file that the error names; None where it names none of these, or the file is as it was."""
        if not isinstance(error, CorruptError) or not (path := error.facts.get("file")):
            return None
        wanted = _wanted(parts, deltas).get(path.rpartition("/")[2])
        return None if wanted is None else self._check(table, [wanted])[0]

    def has_other_copies(self, snapshot: Snapshot, error: TilthError) -> bool:
        """Return whether a query of the snapshot may succeed with copies in other replicas than those that it met;
        wrong ones are known then.
        """
        table = snapshot.table.uuid
        root = self._root.of(table)
        path = error.facts.get("file", "")
        wanted = _wanted(snapshot.parts, snapshot.deltas).get(path.rpartition("/")[2])
        if not root.replicas or wanted is None:
            return False
        if isinstance(error, CorruptError):
            return self._check(table, [wanted]) == [None]
        return isinstance(error, UnavailableError | RetryError)

    def check_sizes(self, snapshot: Snapshot) -> None:
        """Take note of all files of the snapshot that are missing, cut or too long, and check whether those in the
        book are good again. Raises StoreAwayError."""
        table = snapshot.table.uuid
        folder, known = data_folder(self._root, table), self.of(table)
        wrong: list[_Wanted] = []
        for name, wanted in _wanted(snapshot.parts, snapshot.deltas).items():
            if name in known:
                wrong += self._changed(known[name])
                continue
            try:
                check_size(folder, wanted.file, is_delta=wanted.is_delta)
            except CorruptError:
                wrong.append(wanted)
        self._check(table, wrong)

    def check_all(self, snapshot: Snapshot) -> None:
        """`check_sizes`, and the checksums of all files: reads every byte. Raises StoreAwayError."""
        self.check_sizes(snapshot)
        known = self.of(snapshot.table.uuid)
        wanted = _wanted(snapshot.parts, snapshot.deltas)
        self._check(snapshot.table.uuid, [each for name, each in wanted.items() if name not in known])

    def recheck(self, now_ms: int) -> None:
        """Check once in a while, on a thread of its own, whether files in the book are good again or not needed."""
        # A check in the future comes from a clock that was ahead.
        is_early = self._checked_ms <= now_ms < self.next_recheck_ms
        if not self._files or is_early or (self._thread is not None and self._thread.is_alive()):
            return
        self._checked_ms = now_ms
        self._thread = threading.Thread(target=self.recheck_now, name="tilth-damaged-files", daemon=True)
        self._thread.start()

    def recheck_now(self) -> None:
        """Check every file in the book."""
        with self._lock:
            known = list(self._files.values())
        for table in dict.fromkeys(each.table for each in known):
            try:
                self._recheck(table, [each for each in known if each.table == table])
            except TilthError as error:
                _log.warning("damaged_files_not_rechecked", table=table, reason=error)

    def _recheck(self, table: str, known: Sequence[DamagedFile]) -> None:
        try:
            snapshot = self._catalog.parts.snapshot(table)
        except TableNotFoundError:
            self._forget(known, "the table is gone")
            return
        needed = _wanted(snapshot.parts, snapshot.deltas)
        self._forget([each for each in known if each.file.name not in needed], "no part needs it any more")
        changed: list[_Wanted] = []
        for each in known:
            wanted = needed.get(each.file.name)
            if wanted is None:
                continue
            if wanted.parts != each.parts:
                self._note(msgspec.structs.replace(each, parts=wanted.parts))
            changed += self._changed(each)
        self._check(table, changed)

    def _changed(self, known: DamagedFile) -> list[_Wanted]:
        """Return the file if it is not as it was when it was checked last, to be checked again."""
        if stamp_of(data_folder(self._root, known.table), known.file.name) == known.stamp:
            return []
        return [_Wanted(known.file, known.is_delta, known.parts)]

    def _check(self, table: str, wanted: Sequence[_Wanted]) -> list[DamagedFile | None]:
        """Read files; return the entry of each damaged one, which is in the book then, and None for each other one."""
        if not wanted:
            return []
        folder = data_folder(self._root, table)
        # The stamps are older than the reads: a file that is written anew in between is checked again.
        stamps = [self._stamp(folder, each.file.name) for each in wanted]
        files = [CheckedFile(file=each.file, is_delta=each.is_delta) for each in wanted]
        states = self._checks.states(table, folder, files)
        return [self._judge(table, *found) for found in zip(wanted, stamps, states, strict=True)]

    def _stamp(self, folder: Folder, name: str) -> tuple[int, ...]:
        try:
            return stamp_of(folder, name)
        except (TilthError, OSError):
            # Reading the file gives the reason.
            return ()

    def _judge(self, table: str, wanted: _Wanted, stamp: tuple[int, ...], state: FileFinding) -> DamagedFile | None:
        now_ms = self._clock.now_ms()
        # Wrong copies are made anew where a right one is left.
        self._catalog.copies.note(
            CopyNote(table=table, replica=replica, file=wanted.file, since_ms=now_ms, reason=reason)
            for replica, reason in state.wrong.items()
        )
        with self._lock:
            before = self._files.get((table, wanted.file.name))
        if state.damaged:
            found = DamagedFile(
                table=table,
                file=wanted.file,
                is_delta=wanted.is_delta,
                reason=state.damaged,
                since_ms=now_ms if before is None else before.since_ms,
                parts=wanted.parts,
                stamp=stamp,
            )
            self._note(found)
            return found
        # A store that is away, or a check that nobody could make, says nothing about the file.
        if before is not None and not state.unknown:
            self._forget([before], "its bytes are right again")
        return None

    def _note(self, found: DamagedFile) -> None:
        key = found.table, found.file.name
        with self._lock:
            before = self._files.get(key)
            if before == found or (before is None and len(self._files) >= FILES_MAX):
                return
            self._files[key] = found
            self._keep([found])
        if before is None:
            _log.warning("file_damaged", table=found.table, file=found.file.name, reason=found.reason)

    def _forget(self, files: Sequence[DamagedFile], reason: str) -> None:
        if not files:
            return
        with self._lock:
            for each in files:
                self._files.pop((each.table, each.file.name), None)
            self._keep([], gone=files)
        for each in files:
            _log.info("file_not_damaged_any_more", table=each.table, file=each.file.name, reason=reason)

    def _keep(self, found: Sequence[DamagedFile], *, gone: Sequence[DamagedFile] = ()) -> None:
        """Add files to the stored book and remove others; entries of other servers stay. The caller holds the lock."""

        def step(stored: bytes | None) -> bytes:
            known = {(each.table, each.file.name): each for each in _decoded(stored)}
            for each in gone:
                known.pop((each.table, each.file.name), None)
            known |= {(each.table, each.file.name): each for each in found}
            return msgspec.msgpack.encode(list(known.values())[-FILES_MAX:])

        try:
            self._catalog.state.change(_NAME, step)
        except TilthError as error:
            # The files are known until the restart, and are found again after it.
            _log.warning("damaged_files_not_kept", reason=error)


def _decoded(stored: bytes | None) -> list[DamagedFile]:
    return msgspec.msgpack.decode(stored, type=list[DamagedFile]) if stored else []


def file_names(part: Part, changes: Mapping[str, Iterable[Delta]]) -> list[str]:
    """The names of the part's file and of those that change its rows."""
    return [part.file.name, *(delta.file.name for delta in changes.get(part.file.name, ()))]


def unreadable(
    parts: Iterable[Part], deltas: Iterable[Delta], damaged: Mapping[str, DamagedFile]
) -> dict[str, DamagedFile]:
    """Return the parts that cannot be read, by name, with the file that is why."""
    if not damaged:
        return {}
    changes = by_file(deltas)
    found: dict[str, DamagedFile] = {}
    for part in parts:
        file = next((damaged[name] for name in file_names(part, changes) if name in damaged), None)
        if file is not None:
            found[str(part.name)] = file
    return found


def _wanted(parts: Iterable[Part], deltas: Iterable[Delta]) -> dict[str, _Wanted]:
    """The files that these parts need, by name."""
    own = {part.file.name: _Wanted(part.file, False, (str(part.name),)) for part in parts}
    wanted = dict(own)
    for delta in deltas:
        changed = tuple(name for target in delta.targets if target.file in own for name in own[target.file].parts)
        if changed:
            wanted[delta.file.name] = _Wanted(delta.file, True, changed)
    return wanted
