"""REPLICATE: what replicas of a table's storage lack is copied from those that have it.

Rule: docs/policies/replicas.md.

Covers: which copies are made when, replicas that have lost all, files that leave meanwhile. Does not cover: who finds
out what is missing (commits, scrub.py, reads that fail), the bytes (tilth.storage).
Always holds: a copy is made under a note that says that it is missing, and the note goes when the copy is there or
when nobody needs the file and the replica has none: what a kill leaves in a replica is found by its note.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilth.base.errors import TilthError, UnavailableError
from tilth.base.hybrid import milliseconds
from tilth.base.logs import Log
from tilth.base.retry import backoff_ms
from tilth.base.units import show_bytes
from tilth.maintenance.copies.table_copies import TableCopies
from tilth.maintenance.copies.task_spark import CopyItem
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.state import NEVER_MS
from tilth.model.copy_note import CopyNote
from tilth.model.part import DataFile, PartEvent
from tilth.storage import Folder, Replica, StoreRoot, call_replica, missing_copies, remove_copies, replicas_of

#: Poll interval of a table in a storage with replicas, when nothing is reported of it.
REFRESH_MS = 5_000
#: Delay after an event, so that events close together are one round.
NEWS_MS = 500
#: Time until all servers know of a replica, so that what they begin writes to it, or notes that it does not: a server
#: that has not polled for this long is gone, and its transactions with it.
KNOWN_MS = 10_000
#: Limits of one round.
FILES_MAX = 500
BYTES_MAX = 1 << 30
#: Notes of each replica that a poll counts.
COUNT_MAX = 10_000
#: Files of a replica that are checked in one call.
CHECKED_MAX = 1_000
#: A copy that could not be made waits from 1 s to so many doublings of it.
_DOUBLINGS_MAX = 6
#: Value for a replica without failures of its marker file: count, last time, reason.
_NEVER = (0, 0, "")
_ANEW = "the replica had lost its files"

_log = Log("maintenance")


class ReplicateRoutine:
    """`tilth.maintenance.work.routine.Routine` for missing copies."""

    kind = OpKind.REPLICATE

    def __init__(self, table: TableCopies) -> None:
        self._table = table
        self._due_ms = 0
        #: `True` if something has been reported, so that the table's own notes are read.
        self._has_news = False
        self._is_replicated = True
        #: State as of the last poll.
        self._waiting: list[CopyNote] = []
        self._troubles: list[str] = []
        #: Files that were leaving when a round met them: they are copied if they come back, and forgotten when gone.
        self._leaving: dict[str, DataFile] = {}
        #: Number of returns of each replica when its marker file was last seen.
        self._seen: dict[StoreRoot, int] = {}
        #: Failures with the marker file by replica: count, last time, reason.
        self._refused: dict[StoreRoot, tuple[int, int, str]] = {}

    def due_ms(self) -> int:
        return self._due_ms

    def observe(self, event: PartEvent, partition: str) -> bool:
        if not self._is_replicated:
            return False
        # A file that was leaving may have come back, or be gone.
        self._leaving = {}
        self._has_news = True
        self._due_ms = min(self._due_ms, event.at_ms + NEWS_MS)
        return True

    def schedule(self, at_ms: int) -> None:
        if self._is_replicated:
            self._has_news = True
            self._due_ms = min(self._due_ms, at_ms)

    def poll(self, now_ms: int) -> None:
        if self._due_ms > now_ms:
            return
        replicas = replicas_of(self._table.root)
        self._is_replicated = bool(replicas)
        if not replicas:
            self._due_ms = NEVER_MS
            return
        has_news, self._has_news = self._has_news, False
        age_ms, may_have = 0, True
        if not has_news:
            seen = self._table.server.noted_copies.lately()
            age_ms, may_have = seen.age_ms, seen.may_have(self._table.uuid)
        self._waiting = self._notes(replicas) if may_have else []
        troubles = {each.number: each.health.trouble or self._refusal(each) for each in replicas}
        self._troubles = [f"replica {number}: {trouble}" for number, trouble in troubles.items() if trouble]
        usable = {each.number for each in replicas if not each.health.trouble}
        is_due = any(self._is_due(note, usable, now_ms) for note in self._waiting)
        if not is_due and not self._unseen(replicas):
            # The interval begins with the reading.
            self._due_ms = now_ms + REFRESH_MS - min(age_ms, REFRESH_MS - NEWS_MS)

    def about(self) -> str:
        size = show_bytes(sum(note.bytes for note in self._waiting))
        return f"{len(self._waiting)} copies are missing, {size}" if self._waiting else "a check of the replicas"

    def waits(self) -> str:
        if not self._waiting and not self._troubles:
            return ""
        failed = next((f"; {note.error}" for note in self._waiting if note.error), "")
        return "; ".join([f"{len(self._waiting)} copies are missing{failed}", *self._troubles])

    def run(self) -> str:
        """One round; return what was done. Raises UnavailableError where none of its copies could be made."""
        replicas = replicas_of(self._table.root)
        for replica in self._unseen(replicas):
            self._check_marker(replica)
        usable = {each.number: each for each in replicas if not each.health.trouble}
        now_ms = self._table.clock.now_ms()
        notes = [note for note in self._notes(replicas) if self._is_due(note, usable.keys(), now_ms)]
        for note in notes:
            if note.file is None and not self._table.watch.is_cancelled.is_set():
                self._note_missing(note)
        report = self.copy([note for note in notes if note.file is not None])
        self._due_ms = self._table.clock.now_ms()
        return report

    def _notes(self, replicas: Sequence[Replica]) -> list[CopyNote]:
        """Return the first notes of each replica: none waits for another's."""
        copies, table = self._table.catalog.copies, self._table.uuid
        return [note for each in replicas for note in copies.of(table, replica=each.number, limit=COUNT_MAX)]

    def _unseen(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Return those that answer and may have come back with less than they had, whose turn it is."""
        now_ms, found = self._table.clock.now_ms(), []
        for each in replicas:
            failures, failed_ms, _ = self._refused.get(each.root, _NEVER)
            is_early = bool(failures) and _is_too_early(failed_ms, failures, now_ms)
            if not each.health.trouble and not is_early and self._seen.get(each.root) != each.health.returns:
                found.append(each)
        return found

    def _refusal(self, replica: Replica) -> str:
        return self._refused.get(replica.root, _NEVER)[2]

    def _check_marker(self, replica: Replica) -> None:
        returns = replica.health.returns
        try:
            if not call_replica(replica, lambda: replica.has_marker_now(self._table.uuid)):
                # The note comes before the marker: writers rely on the marker.
                self._table.catalog.copies.note([self._table.note(None, replica.number, _ANEW)])
                call_replica(replica, lambda: replica.write_marker(self._table.uuid))
        except (TilthError, OSError) as error:
            replica.health.note_error(error)
            failures = self._refused.get(replica.root, _NEVER)[0] + 1
            self._refused[replica.root] = failures, self._table.clock.now_ms(), str(error)
            return
        self._refused.pop(replica.root, None)
        self._seen[replica.root] = returns

    def _note_missing(self, whole: CopyNote) -> None:
        """Replace a note of all files by notes of single files."""
        table, folder, files = self._table, self._table.folder, self._table.files()
        noted = {_name(note) for note in table.catalog.copies.of(table.uuid, replica=whole.replica)}
        names = [file for file in (*files.live.values(), *files.leaving.values()) if file.name not in noted]
        for start in range(0, len(names), CHECKED_MAX):
            missing = missing_copies(folder, whole.replica, names[start : start + CHECKED_MAX])
            table.catalog.copies.note(table.note(file, whole.replica, _ANEW) for file in missing)
        table.settle([whole], folder)

    def copy(self, notes: Sequence[CopyNote]) -> str:
        """Make copies of the first notes; return what was done. Raises UnavailableError where none could be made."""
        folder, files = self._table.folder, self._table.files()
        self._leaving = files.leaving
        gone = [note for note in notes if _name(note) not in files.live and _name(note) not in files.leaving]
        self._forget(gone, folder)
        wanted = [note for note in notes if _name(note) in files.live][:FILES_MAX]
        size, count = 0, 0
        while count < len(wanted) and (not count or size + wanted[count].bytes <= BYTES_MAX):
            size += wanted[count].bytes
            count += 1
        if not count:
            return f"{len(gone)} notes of files that are gone were removed"
        wanted = wanted[:count]
        items = [CopyItem(file=note.file, replica=note.replica) for note in wanted if note.file]
        facts = self._table.run(items, folder)
        # One that has left meanwhile may have been removed before its copy was made.
        live = self._table.files().live
        made = [note for note, fact in zip(wanted, facts, strict=True) if not fact.error and _name(note) in live]
        failed = [(note, fact.error) for note, fact in zip(wanted, facts, strict=True) if fact.error]
        self._table.settle(made, folder)
        self._table.catalog.copies.fail(failed)
        copied = sum(fact.copied for fact in facts)
        with self._table.server.counters.adding() as numbers:
            numbers.copied_bytes += copied
        _log.info("copies_made", table=self._table.watch.name, files=len(made), bytes=copied, failed=len(failed))
        if failed and not made:
            raise UnavailableError("copies could not be made", copies=len(failed), because=failed[0][1])
        return f"{len(made)} copies made, {show_bytes(copied)}, {len(failed)} failed"

    def _forget(self, gone: Sequence[CopyNote], folder: Folder) -> None:
        """Remove what is left of files that nobody needs, then the notes."""
        for replica in dict.fromkeys(note.replica for note in gone):
            notes = [note for note in gone if note.replica == replica]
            remove_copies(folder, replica, [_name(note) for note in notes])
            self._table.settle(notes, folder)

    def _is_due(self, note: CopyNote, usable: Collection[int], now_ms: int) -> bool:
        """Return whether its replica answers and no wait holds it up. What is leaving is left alone."""
        if _name(note) in self._leaving or (note.file is None and self._is_early(note)):
            return False
        is_early = bool(note.failures) and _is_too_early(note.failed_ms, note.failures, now_ms)
        return note.replica in usable and not is_early

    def _is_early(self, whole: CopyNote) -> bool:
        """Return whether work may be under way that does not know of the note, or of the replica, and leaves it out."""
        oldest = self._table.catalog.transactions.oldest_running()
        now_ms = self._table.clock.now_ms()
        begun_ms = now_ms if oldest is None else milliseconds(oldest)
        # A time in the future comes from a clock that was wrong; commits note themselves what the replica lacks.
        return whole.since_ms <= now_ms + KNOWN_MS and begun_ms < whole.since_ms + KNOWN_MS


def _is_too_early(failed_ms: int, failures: int, now_ms: int) -> bool:
    """Return whether it is too early for another attempt; a failure in the future comes from a clock that was wrong."""
    return 0 <= now_ms - failed_ms < backoff_ms(failures - 1, base_ms=1000, doublings_max=_DOUBLINGS_MAX)


def _name(note: CopyNote) -> str:
    return "" if note.file is None else note.file.name
