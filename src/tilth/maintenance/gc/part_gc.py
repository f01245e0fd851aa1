"""PART_GC of one table: what was replaced or dropped goes to the trash, then its files go, then the marks.

    visible -> hidden (a mark, a rewrite or a range) -> trash -> gone
                                        phase 1, a record      phase 2, files

Covers: which phase is due, SYSTEM GC. Does not cover: rounds, failures and status (op.py), phase 1 (move.py), phase 2
(trash.py), partitions that expire (expiry.py), verdicts (policy.py), end times (catalog).
Always holds: an item that fails stays and stops no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.maintenance.gc.expiry import ExpiryPhase
from tilth.maintenance.gc.move import MovePhase, has_ended_entries
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.kinds import IoUsage, OpKind
from tilth.maintenance.state import NEVER_MS
from tilth.model.part import Part, PartEvent

#: Rounds of SYSTEM GC: expired partitions, data, marks, ranges, and one that finds nothing.
NOW_ROUNDS_MAX = 6


class PartGc:
    """`tilth.maintenance.gc.op.GcRoutine` for parts, marks and expired partitions."""

    kind = OpKind.PART_GC

    def __init__(self, table: GcTable, segments: PendingPartitions) -> None:
        """`segments`: where segments wait that have ended; they are for LOG_GC."""
        self._table = table
        self._expiry = ExpiryPhase(table)
        self._trash = TrashPhase(table)
        self._moves = MovePhase(table, self._expiry, self._trash, segments)
        #: Reason why something stayed in the last round.
        self._reason = ""

    @property
    def io(self) -> IoUsage:
        return IoUsage.HIGH if self._is_removal() else IoUsage.LOW

    def segments_moved(self, partition: str, left: Sequence[tuple[Part, int]]) -> None:
        """Note that segments have left the partition; these, with their ends, wait in the trash."""
        self._moves.data_moved(partition)
        self._trash.expect(left, self._table.settings)

    def due_ms(self) -> int:
        return min(self._moves.due_ms(), self._trash.due_ms())

    def observe(self, event: PartEvent, partition: str) -> bool:
        match event.event:
            case "merge" | "flush" | "mutate" | "hide" | "remove_deleted":
                self._moves.has_ended(partition, event.at_ms)
            case "new" | "undrop":
                self._moves.has_grown(partition, event.at_ms)
            case _:
                return False
        return True

    def has_leftovers(self) -> bool:
        watch = self._table.watch
        has_expiry = watch.definition.ttl is not None
        return has_ended_entries(watch.version) or has_expiry or not self._trash.is_empty

    def schedule(self, at_ms: int) -> None:
        self._expiry.forget()
        self._moves.schedule(at_ms)
        self._trash.schedule(at_ms)

    def poll(self, now_ms: int) -> None:
        """A round reads the entries itself; the one over all partitions is passed over where none has changed."""
        self._moves.pass_over(now_ms)

    def retained(self) -> int:
        return self._trash.bytes if self._is_removal() else 0

    def run(self, done: Round) -> str:
        if done.is_command:
            self._collect_now(done)
        else:
            self._run_due(done)
        expired = f"{done.expired} partitions expired, " if done.expired else ""
        return f"{expired}{done.moved} to the trash, {done.removed} files removed, {done.kept + done.in_trash} stay"

    def _run_due(self, done: Round) -> None:
        is_removal = self._is_removal()
        try:
            if self._is_move():
                self._moves.run(done)
            if is_removal:
                self._trash.run(done)
        finally:
            self._reason = done.reason

    def about(self) -> str:
        phases = (("hidden parts", self._is_move()), ("files of the trash", self._is_removal()))
        return " and ".join(phase for phase, is_due in phases if is_due)

    def waits(self) -> str:
        if self._reason:
            return self._reason
        now_ms = self._table.clock.now_ms()
        partitions, due_ms = self._moves.waits()
        if partitions:
            wait = max(0, due_ms - now_ms) / 1000
            return f"what is hidden in {partitions} partitions waits, of the first for {wait:.0f} s more"
        if self._moves.is_unread():
            return "not checked since the start"
        trash_ms = self._trash.due_ms()
        if trash_ms != NEVER_MS:
            return f"what is in the trash waits, the next check is in {max(0, trash_ms - now_ms) / 1000:.0f} s"
        return "nothing is hidden"

    def _collect_now(self, done: Round) -> None:
        for _ in range(NOW_ROUNDS_MAX):
            before = done.moved, done.expired
            done.kept = 0
            known = self._table.catalog.parts.counts(self._table.uuid)
            self._moves.collect(done, [name for name in known if done.partition in (None, name)], known)
            if (done.moved, done.expired) == before:
                break
        self._trash.collect_all(done)

    def _is_move(self) -> bool:
        return self._moves.due_ms() <= self._table.clock.now_ms()

    def _is_removal(self) -> bool:
        return self._trash.due_ms() <= self._table.clock.now_ms()
