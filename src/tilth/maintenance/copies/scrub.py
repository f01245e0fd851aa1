"""SCRUB: every byte of every copy is compared with its checksum from time to time.

Rule: docs/policies/replicas.md#scrubs.

Covers: what is read when, the bounds of a round, what becomes of a wrong copy. Does not cover: making copies
(replicate.py), what queries say of a damaged part (damage/book.py).
Always holds: what is read is bounded by a number of bytes a second; a restart goes on where the last round ended.

Tests: tests/unit/maintenance/copies/test_replicate.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import msgspec

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.units import show_bytes
from tilth.catalog import KnownFiles
from tilth.maintenance.copies.table_copies import TableCopies, batches
from tilth.maintenance.copies.task_spark import CopyFact, CopyItem
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.state import NEVER_MS
from tilth.model.part import DataFile, PartEvent
from tilth.storage import PartFileCorruptError

#: Maximum read by one round.
BYTES_MAX = 256 << 20
FILES_MAX = 2_000
#: The first check of a table that is old enough comes within this, so that a start does not check all of them.
FIRST_ROUND_MS = 3_600_000

_log = Log("maintenance")


class ScrubState(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of the reading of a table, as the catalog keeps it."""

    #: Time when all files had last been read.
    ended_ms: int = 0
    #: The last file that was read since then; empty: none.
    cursor: str = ""


@dataclass(slots=True)
class Scrubbed:
    """Files that were read, and copies of them that were wrong."""

    files: int = 0
    bytes: int = 0
    #: Bytes of all copies, also of files that have left meanwhile.
    read_bytes: int = 0
    #: Replica and file, with the reason.
    wrong: dict[tuple[int, str], str] = field(default_factory=dict)
    away: dict[int, str] = field(default_factory=dict)


class ScrubRoutine:
    """`tilth.maintenance.work.routine.Routine` for comparing files with their checksums."""

    kind = OpKind.SCRUB

    def __init__(self, table: TableCopies) -> None:
        self._table = table
        self._state: ScrubState | None = None
        self._first_ms = table.clock.now_ms() + crc32(table.uuid.encode()) % FIRST_ROUND_MS
        #: Time until which the bytes of the last round use up what may be read.
        self._rests_until_ms = 0

    def due_ms(self) -> int:
        settings = self._table.watch.settings.scrub
        if not settings.interval or not settings.bytes_per_second:
            return NEVER_MS
        if self._state is None:
            created_ms = self._table.watch.definition.created_ms
            return max(created_ms + int(settings.interval * 1000), self._first_ms)
        if self._state.cursor:
            return self._rests_until_ms
        created_ms = self._table.watch.definition.created_ms
        return max(self._state.ended_ms, created_ms) + int(settings.interval * 1000)

    def observe(self, event: PartEvent, partition: str) -> bool:
        return False

    def schedule(self, at_ms: int) -> None:
        """Do nothing: what is due follows from the time alone."""

    def poll(self, now_ms: int) -> None:
        if self._state is None and self.due_ms() <= now_ms:
            self._state = self._stored()

    def about(self) -> str:
        cursor = self._stored().cursor
        return f"the files behind {cursor}" if cursor else "all files"

    def waits(self) -> str:
        return ""

    def run(self) -> str:
        """Read the next files; return what was done."""
        state, table = self._stored(), self._table
        files = table.files()
        left = [files.live[name] for name in sorted(files.live) if name > state.cursor]
        rounds = batches(left, bytes_max=BYTES_MAX, files_max=FILES_MAX)
        scrubbed = self.compare(rounds[0]) if rounds else Scrubbed()
        now_ms = table.clock.now_ms()
        is_over = len(rounds) <= 1
        state = ScrubState(ended_ms=now_ms if is_over else state.ended_ms, cursor="" if is_over else rounds[0][-1].name)
        table.catalog.state.put(self._name, msgspec.msgpack.encode(state))
        self._state = state
        speed = table.watch.settings.scrub.bytes_per_second
        self._rests_until_ms = now_ms + scrubbed.read_bytes * 1000 // speed
        size = show_bytes(scrubbed.bytes)
        return f"{scrubbed.files} files with {size} compared, {len(scrubbed.wrong)} wrong copies"

    def compare(self, files: Sequence[DataFile]) -> Scrubbed:
        """Read all copies of these files; note the wrong ones."""
        facts = self._table.run([CopyItem(file=file) for file in files], self._table.folder)
        # A file that has left meanwhile may be missing.
        now = self._table.files()
        found = Scrubbed()
        for file, fact in zip(files, facts, strict=True):
            if file.name in now.live:
                self._judge(file, fact, found)
        self._note(found, now)
        found.read_bytes = sum(file.size for file in files) * len(self._table.root.locations)
        with self._table.server.counters.adding() as numbers:
            numbers.scrubbed_bytes += found.read_bytes
            numbers.wrong_copies += len(found.wrong)
        for file, fact in zip(files, facts, strict=True):
            if fact.is_lost and file.name in now.live:
                self._report(file, fact)
        return found

    def _judge(self, file: DataFile, fact: CopyFact, found: Scrubbed) -> None:
        found.files += 1
        found.bytes += file.size
        found.away |= fact.away
        found.wrong |= {(replica, file.name): reason for replica, reason in fact.wrong.items()}

    def _note(self, found: Scrubbed, files: KnownFiles) -> None:
        if self._table.root.replicas:
            self._table.catalog.copies.note(
                self._table.note(files.live[name], replica, reason) for (replica, name), reason in found.wrong.items()
            )
        for (replica, name), reason in found.wrong.items():
            _log.warning("copy_wrong", table=self._table.watch.name, file=name, replica=replica, reason=reason)

    def _report(self, file: DataFile, fact: CopyFact) -> None:
        """Let the book of damaged files have one that is right nowhere."""
        watch = self._table.watch
        error = PartFileCorruptError(file=self._table.folder.uri(file.name), because=next(iter(fact.wrong.values())))
        snapshot = self._table.catalog.parts.snapshot(watch.uuid)
        try:
            watch.damaged.report(error, snapshot.parts, snapshot.deltas)
        except TilthError as failed:
            _log.warning("damage_not_noted", table=watch.name, file=file.name, reason=failed)

    def _stored(self) -> ScrubState:
        stored = self._table.catalog.state.get(self._name)
        return ScrubState() if stored is None else msgspec.msgpack.decode(stored, type=ScrubState)

    @property
    def _name(self) -> str:
        return f"maintenance/scrub/{self._table.uuid}"
