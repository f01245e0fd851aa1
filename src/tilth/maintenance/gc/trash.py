"""Phase 2 of collecting: files of what lies in the trash for long enough are removed.

Covers: when the trash is read, which files go, the position at which the next round goes on. Does not cover: the
verdicts (policy.py).
Always holds: the table's storage is never listed; a file that cannot be removed stays in the trash and stops no other.

Tests: tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilth.base.errors import UnavailableError
from tilth.base.failpoints import hit
from tilth.base.hybrid import milliseconds
from tilth.catalog import TrashedPart
from tilth.maintenance.cleaner.current_replicas import remove_from_current
from tilth.maintenance.gc.policy import (
    TrashRecord,
    TrashState,
    after_trash_round,
    deleters,
    judge_snapshots,
    judge_trash,
    trash_limit,
    trash_pause,
)
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.table.settings import GcSettings
from tilth.model.part import Part
from tilth.storage import remove_data


class TrashPhase:
    """Phase 2 of one table."""

    def __init__(self, table: GcTable) -> None:
        self._table = table
        #: Time of the next round; none for a table that was never used.
        self._due_ms: int | None = None
        #: `True` while nothing has ever come into the trash.
        left = table.watch.leftovers
        self.is_empty = left is not None and not left.has_trash
        #: State to resume from, after a restart too; none until it is read.
        self._state: TrashState | None = None
        #: Time when what the current pass left is worth another one.
        self._pass_due_ms: int | None = None
        #: Bytes known to wait for removal.
        self.bytes = 0

    def schedule(self, at_ms: int) -> None:
        """Read the trash at that time, if not before; one that is empty is not read."""
        if self.is_empty:
            return
        self._due_ms = at_ms if self._due_ms is None else min(at_ms, self._due_ms)

    def due_ms(self) -> int:
        """Return when the next round is due."""
        return NEVER_MS if self._due_ms is None else self._due_ms

    def expect(self, parts: Sequence[tuple[Part, int]], settings: GcSettings) -> None:
        """These parts, each with its end, have come into the trash."""
        if not parts:
            return
        self.is_empty = False
        at_ms = min(milliseconds(end_ts) for _, end_ts in parts) + int(settings.trash_lifetime * 1000) + 1
        self._due_ms = at_ms if self._due_ms is None else min(self._due_ms, at_ms)
        self.bytes += sum(part.bytes for part, _ in parts)

    def collect_all(self, done: Round) -> None:
        """One pass over the whole trash of the table."""
        self._state = TrashState()
        self._pass_due_ms = None
        done.in_trash = 0
        while True:
            self.run(done)
            if self._known.cursor is None or self._table.watch.is_cancelled.is_set():
                break

    def run(self, done: Round) -> None:
        """One round: so many items from where the last one ended."""
        table, now_ms = self._table, self._table.clock.now_ms()
        before = self._known
        items, cursor = table.catalog.trash.items(
            table.uuid,
            after=None if before.cursor is None else bytes.fromhex(before.cursor),
            limit=trash_limit(before.hits, settings=done.settings),
        )
        snapshots = sorted(lease.snapshot_ts for lease in table.leases(now_ms)) if items else []
        over = [item for item in items if self._goes(item, snapshots, done, now_ms)]
        removed = self._remove(done, self._marked(over))
        if removed:
            hit("gc.before_forget")
            table.catalog.trash.remove(table.uuid, removed)
            hit("gc.after_remove")
        size = sum(item.item.part.bytes for item in removed)
        done.removed += len(removed)
        done.removed_bytes += size
        self.bytes = max(0, self.bytes - size)
        self._state = after_trash_round(
            before,
            last_seen=None if cursor is None else cursor.hex(),
            is_at_end=cursor is None,
            had_work=bool(removed),
        )
        if self._state.cursor != before.cursor:
            table.catalog.state.put(self._cursor_name, (self._state.cursor or "").encode())
        self._plan(self._state, done, has_removed=bool(removed), now_ms=now_ms)

    def remove_now(self, done: Round, items: Sequence[TrashedPart]) -> list[TrashedPart]:
        """Remove the files of these items, however short they have been here, unless a snapshot is read that needs one;
        return those that are gone. An item that cannot be removed stays for a round."""
        if not items:
            return []
        table = self._table
        snapshots = sorted(lease.snapshot_ts for lease in table.leases(table.clock.now_ms()))
        going = [item for item in items if not _is_read(item, snapshots)]
        removed = self._remove(done, self._marked(going))
        if removed:
            table.catalog.trash.remove(table.uuid, removed)
        done.removed += len(removed)
        done.removed_bytes += sum(item.item.part.bytes for item in removed)
        return removed

    @property
    def _cursor_name(self) -> str:
        return f"maintenance/trash/{self._table.uuid}"

    @property
    def _known(self) -> TrashState:
        if self._state is None:
            saved = self._table.catalog.state.get(self._cursor_name)
            self._state = TrashState(cursor=saved.decode() if saved else None)
        return self._state

    def _goes(self, item: TrashedPart, snapshots: Sequence[int], done: Round, now_ms: int) -> bool:
        part, end_ts = item.item.part, item.item.end_ts
        if done.partition is not None and part.name.partition != done.partition:
            return False
        verdict = judge_trash(
            TrashRecord(name=str(part.name), commit_ts=part.commit_ts, end_ts=end_ts),
            now_ms=now_ms,
            snapshots=snapshots,
            settings=done.settings,
        )
        if verdict.goes:
            return True
        done.in_trash += 1
        done.reason = done.reason or f"{verdict.name}: {verdict.reason}"
        ends_ms = milliseconds(end_ts) + int(done.settings.trash_lifetime * 1000) + 1
        self._note_due(max(ends_ms, now_ms + int(done.settings.pause * 1000)))
        return False

    def _note_due(self, at_ms: int) -> None:
        self._pass_due_ms = at_ms if self._pass_due_ms is None else min(self._pass_due_ms, at_ms)

    def _marked(self, items: Sequence[TrashedPart]) -> list[TrashedPart]:
        """Return the items that UNDROP PARTITION has not brought back and cannot bring back any more."""
        if not items:
            return []
        table = self._table
        return table.catalog.trash.mark_for_removal(table.uuid, items, fence=table.table_leases.fence(table.uuid))

    def _remove(self, done: Round, items: Sequence[TrashedPart]) -> list[TrashedPart]:
        """Return the items whose file is gone now. One that cannot be removed stays in the trash and is reported."""
        if not items:
            return []
        hit("gc.before_remove")
        table = self._table
        files = [item.item.part.file for item in items]
        count = deleters(self._known.hits, deleters_max=table.settings.deleters_max)
        failed = remove_from_current(
            table.catalog,
            table.root,
            [table.uuid],
            lambda roots: remove_data(roots, table.uuid, files, deleters=count),
        )
        if failed:
            done.failures.append(not_removed(failed))
            self._note_due(table.clock.now_ms() + int(table.settings.pause * 1000))
        return [item for item in items if item.item.part.file.name not in failed]

    def _plan(self, state: TrashState, done: Round, *, has_removed: bool, now_ms: int) -> None:
        if state.cursor is not None:
            pause = trash_pause(state, has_removed=has_removed, settings=done.settings, rng=self._table.rng)
            self._due_ms = now_ms + int(pause * 1000)
            return
        # The end of a pass: what stays decides when the next one is worth it.
        self._due_ms, self._pass_due_ms = self._pass_due_ms, None


def not_removed(failed: Mapping[str, Exception]) -> UnavailableError:
    """Return the error that says of files, by name, why the first of them is still there."""
    name, reason = next(iter(failed.items()))
    return UnavailableError("a file cannot be removed", file=name, files=len(failed), reason=reason)


def _is_read(item: TrashedPart, snapshots: Sequence[int]) -> bool:
    """True if a snapshot that somebody reads needs it."""
    part = item.item.part
    held = judge_snapshots(str(part.name), commit_ts=part.commit_ts, end_ts=item.item.end_ts, snapshots=snapshots)
    return held is not None
