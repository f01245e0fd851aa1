"""The ops about copies of one table's files, and SYSTEM SCRUB.

Covers: wiring, the gain of a round, the command. Does not cover: what rounds do (replicate.py, scrub.py), the
switch, failures, status (work/routine.py, work/op.py).
Always holds: a command and the background take turns.

Tests: tests/unit/maintenance/copies/test_replicate.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tilth.base.cancel import raise_if_cancelled
from tilth.base.errors import UnavailableError
from tilth.maintenance.copies.replicate import ReplicateRoutine
from tilth.maintenance.copies.scrub import BYTES_MAX, FILES_MAX, Scrubbed, ScrubRoutine
from tilth.maintenance.copies.table_copies import TableCopies, batches
from tilth.maintenance.kinds import OpStats
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.routine import RoutineOp
from tilth.model.copy_note import CopyNote
from tilth.storage import StoreRoot

#: Gains for the scheduler (docs/policies/scheduling.md#gains): rows that one more failure may destroy come before
#: merges, the search for damage behind everything.
REPLICATE_GAIN = 100.0
SCRUB_GAIN = 0.001
#: Rounds of copying of one command.
ROUNDS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubRow:
    """One row of SYSTEM SCRUB: the copies of a table's files in one replica."""

    #: Number of the replica; 0 if the storage has no replicas.
    replica: int
    root: str
    #: Files read, and their bytes.
    files: int
    bytes: int
    #: Copies that differed from what was written, and how many still do.
    wrong: int
    left: int
    is_ok: bool
    detail: str


class CopyOp(RoutineOp):
    """The op of one of the two routines."""

    def __init__(
        self,
        routine: ReplicateRoutine | ScrubRoutine,
        table: TableCopies,
        *,
        gain: float,
        one_at_a_time: threading.Lock,
    ) -> None:
        super().__init__(routine, table)
        self._copies = routine
        self._gain = gain
        self._one_at_a_time = one_at_a_time
        self._counters = table.server.counters

    def benefit(self) -> OpStats:
        return OpStats(is_runnable=True, perf_improvement=self._gain, about=self.routine.about())

    def round(self) -> str:
        with self._one_at_a_time, self._counters.run(self.kind):
            report = self._copies.run()
        self.succeeded()
        return report


class CopyCommands:
    """The ops of one table's copies, and the command about them. For any thread."""

    def __init__(self, context: TableContext) -> None:
        self._table = TableCopies(context.server, context.watch)
        self._replicate, self._scrub = ReplicateRoutine(self._table), ScrubRoutine(self._table)
        self._one_at_a_time = threading.Lock()
        self.ops = (
            self._op(self._replicate, REPLICATE_GAIN),
            self._op(self._scrub, SCRUB_GAIN),
        )

    def scrub_now(self) -> list[ScrubRow]:
        """Compare all copies of all files, and copy good ones over wrong ones; return a row for each location."""
        found = Scrubbed()
        files = self._table.files().live
        for some in batches([files[name] for name in sorted(files)], bytes_max=BYTES_MAX, files_max=FILES_MAX):
            raise_if_cancelled()
            # The background waits for one batch at most.
            with self._one_at_a_time:
                compared = self._scrub.compare(some)
            found.files += compared.files
            found.bytes += compared.bytes
            found.wrong |= compared.wrong
            found.away |= compared.away
        self._repair(found)
        return self._rows(found)

    def _repair(self, found: Scrubbed) -> None:
        """Make copies as long as there are fewer after a round than before."""
        notes = self._notes(found)
        for _ in range(ROUNDS_MAX):
            if not notes:
                break
            raise_if_cancelled()
            try:
                with self._one_at_a_time:
                    self._replicate.copy(notes)
            except UnavailableError:
                # The rows say which copies are left, and why.
                break
            before, notes = notes, self._notes(found)
            if len(notes) >= len(before):
                break

    def _notes(self, found: Scrubbed) -> list[CopyNote]:
        """Return the notes of wrong copies that are still to be made."""
        if not self._table.root.replicas:
            return []
        notes = self._table.catalog.copies.of(self._table.uuid)
        return [note for note in notes if note.file is not None and (note.replica, note.file.name) in found.wrong]

    def _rows(self, found: Scrubbed) -> list[ScrubRow]:
        if self._table.root.replicas:
            left = {(note.replica, note.file.name) for note in self._notes(found) if note.file is not None}
        else:
            left = set(found.wrong)
        return [self._row(number, location, found, left) for number, location in enumerate(self._table.root.locations)]

    def _row(self, number: int, location: StoreRoot, found: Scrubbed, left: set[tuple[int, str]]) -> ScrubRow:
        wrong = {name: reason for (replica, name), reason in found.wrong.items() if replica == number}
        still = sum(replica == number for replica, _ in left)
        away = found.away.get(number, "")
        return ScrubRow(
            replica=number,
            root=location.uri,
            files=0 if away else found.files,
            bytes=0 if away else found.bytes,
            wrong=len(wrong),
            left=still,
            is_ok=not still and not away,
            detail=away or "; ".join(wrong.values())[:1000],
        )

    def _op(self, routine: ReplicateRoutine | ScrubRoutine, gain: float) -> CopyOp:
        return CopyOp(routine, self._table, gain=gain, one_at_a_time=self._one_at_a_time)
