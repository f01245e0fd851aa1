"""PART_GC of one table: what was replaced or dropped goes to the trash, then its files go, then the marks.

    visible -> hidden (a mark or a range) -> trash -> gone
                      phase 1, a record      phase 2, files

Covers: when a round is due, both phases, SYSTEM GC. Does not cover: verdicts (policy/gc.py), end times (catalog).
Always holds: the table's storage is never listed; an item that fails stays and stops no other; data goes before the
mark that hides it, because the catalog ends a mark only when nothing is left under it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import assert_never

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError
from tilth.base.failpoints import hit
from tilth.base.hybrid import milliseconds, pack
from tilth.base.logs import Log
from tilth.base.rand import Rng
from tilth.catalog import Catalog, TrashedPart, visibility
from tilth.maintenance.op import IoUsage, NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy import GcSettings, Rotation, select_for_gc
from tilth.maintenance.policy.gc import (
    Cutoff,
    GcEntry,
    TrashItem,
    TrashState,
    after_trash_round,
    cutoff,
    deleters,
    judge_empty_partition,
    judge_trash,
    move_pause,
    plan_moves,
    trash_limit,
    trash_pause,
)
from tilth.maintenance.state import Failure, ServiceState, failed_again, service_state
from tilth.maintenance.stats import GcReport
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.part import Part
from tilth.model.service import ServiceKind
from tilth.storage import remove_file

#: The first look at a table comes at a random time within this, so that a start does not read everything at once.
FIRST_LOOK_MS = 20_000
#: All partitions are looked at this often even if nothing was told of them.
LOOK_ALL_MS = 3_600_000
#: Rounds of SYSTEM GC: data, marks, ranges, and one that finds nothing.
NOW_ROUNDS_MAX = 5

_log = Log("maintenance")


@dataclass(slots=True, kw_only=True)
class _Round:
    """What one round has done so far."""

    partitions: int = 0
    moved: int = 0
    kept: int = 0
    removed: int = 0
    removed_bytes: int = 0
    in_trash: int = 0
    reason: str = ""

    def report(self) -> GcReport:
        return GcReport(
            partitions=self.partitions,
            moved=self.moved,
            kept=self.kept,
            removed=self.removed,
            removed_bytes=self.removed_bytes,
            in_trash=self.in_trash,
            reason=self.reason,
        )


class PartGcOp:
    """`tilth.maintenance.op.Op` for the garbage of one table."""

    kind = OpKind.PART_GC

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        root: str,
        rng: Rng,
        *,
        watch: TableWatch,
        owner: Owner,
        tally: Tally,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._rng = rng
        self._watch = watch
        self._owner = owner
        self._tally = tally
        #: One round at a time, of the background or of a command.
        self._round = threading.Lock()
        now_ms = clock.now_ms()
        #: When each partition may have something to move; those not in it have nothing.
        self._due_ms: dict[str, int] = {}
        #: When all partitions are looked at, whatever is known; none: the table was never used.
        has_been_used = catalog.parts.version(watch.uuid).counter > 0
        self._due_all_ms = now_ms + int(rng.random() * FIRST_LOOK_MS) if has_been_used else None
        self._pause_until_ms = 0
        self._trash_due_ms = now_ms + int(rng.random() * FIRST_LOOK_MS) if has_been_used else None
        #: Where phase 2 goes on; none before it was read, so that it goes on after a restart too.
        self._trash_state: TrashState | None = None
        self._trash_pass_due_ms: int | None = None
        self._trash_bytes = 0
        self._rotation = Rotation(last_time=now_ms / 1000)
        self._pushed: set[str] = set()
        self._empty_since: dict[str, float] = {}
        self._running = 0
        self._failure: Failure | None = None
        self._has_failed = False
        self._last_reason = ""
        self._is_cancelled = threading.Event()
        #: Rounds so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def _cursor_name(self) -> str:
        return f"maintenance/trash/{self._watch.uuid}"

    @property
    def _trash(self) -> TrashState:
        if self._trash_state is None:
            saved = self._catalog.state.get(self._cursor_name)
            self._trash_state = TrashState(cursor=saved.decode() if saved else None)
        return self._trash_state

    @property
    def due_ms(self) -> int:
        """When `stats` may say something new, if nothing is noticed before."""
        with self._watch.lock:
            moves = list(self._due_ms.values())
        if self._due_all_ms is not None:
            moves.append(self._due_all_ms)
        dues = [max(min(moves), self._pause_until_ms)] if moves else []
        if self._trash_due_ms is not None:
            dues.append(self._trash_due_ms)
        return max(min(dues, default=FAR_MS), 0 if self._failure is None else self._failure.until_ms)

    @property
    def running(self) -> int:
        """Rounds under way: 0 or 1."""
        return self._running

    def notice(self, partition: str, at_ms: int) -> None:
        """Something of the partition was hidden at that time."""
        due_ms = at_ms + int(self._watch.knobs.gc.old_parts_lifetime * 1000)
        with self._watch.lock:
            self._due_ms[partition] = min(self._due_ms.get(partition, due_ms), due_ms)
            self._pushed.add(partition)
            if self._due_all_ms is None:
                self._due_all_ms = at_ms + LOOK_ALL_MS
        self._watch.is_woken = True

    def notice_all(self) -> None:
        """News were lost, or the lifetimes have changed: everything is looked at again."""
        now_ms = self._clock.now_ms()
        with self._watch.lock:
            self._due_all_ms = now_ms
            self._trash_due_ms = now_ms
        self._watch.is_woken = True

    def cancel(self) -> None:
        """The table is gone or the server stops."""
        self._is_cancelled.set()

    def stats(self) -> OpStats | None:
        if self._is_cancelled.is_set():
            return None
        now_ms = self._clock.now_ms()
        if not self._watch.is_on(ServiceKind.GC, now_ms):
            return OpStats(is_runnable=False, about="stopped by the user")
        if self._failure is not None and now_ms < self._failure.until_ms:
            return OpStats(is_runnable=False, about=f"failed: {self._failure.reason}")
        if self._running:
            return OpStats(is_runnable=False, about="a round is running")
        is_move, is_removal = self._due(now_ms)
        if not is_move and not is_removal:
            return OpStats(is_runnable=False, about="nothing is due")
        return OpStats(
            is_runnable=True,
            io=IoUsage.HIGH if is_removal else IoUsage.LOW,
            # How much is known after the look only; something is enough to be considered.
            data_retained_bytes=max(1, self._trash_bytes if is_removal else 1),
            priority=self._watch.knobs.priority,
            about="files of the trash" if is_removal else "hidden parts",
        )

    def prepare(self) -> Prepared | NotPrepared:
        now_ms = self._clock.now_ms()
        is_move, is_removal = self._due(now_ms)
        if self._running or not (is_move or is_removal):
            return NotPrepared("nothing is due")
        self._running = 1
        phases = " and ".join(told for told, due in (("move", is_move), ("remove", is_removal)) if due)
        return Prepared(about=phases, work=(is_move, is_removal))

    def abandon(self, prepared: Prepared) -> None:
        self._running = 0

    def perform(self, prepared: Prepared) -> str:
        assert isinstance(prepared.work, tuple)
        is_move, is_removal = prepared.work
        done = _Round()
        self.wakeups += 1
        self.last_wakeup_ms = self._clock.now_ms()
        self._has_failed = False
        try:
            with self._round, self._tally.run(self.kind):
                if is_move:
                    self._move_round(done)
                if is_removal:
                    self._remove_round(done, self._watch.knobs.gc)
            if not self._has_failed:
                self._failure = None
        # Whatever it was, it stands in `system.bg_threads` and waits before the next try.
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._tally.collected(done.report())
            self._last_reason = done.reason
            self._running = 0
            self._watch.is_woken = True
        return f"{done.moved} to the trash, {done.removed} files removed, {done.kept + done.in_trash} stay"

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        """What `system.bg_threads` tells: the state, why, and the last failure that still stands."""
        switch = self._watch.switch(ServiceKind.GC)
        is_due = any(self._due(now_ms))
        state = service_state(
            is_switched_on=self._watch.is_on(ServiceKind.GC, now_ms),
            running=self._running,
            failure=self._failure,
            waiting=int(is_due),
        )
        match state:
            case ServiceState.STOPPED:
                reason = (switch.because if switch is not None else "") or "stopped by the user"
            case ServiceState.RUNNING:
                reason = "a round is running"
            case ServiceState.FAILED:
                assert self._failure is not None
                wait = max(0, self._failure.until_ms - now_ms) / 1000
                reason = f"{self._failure.reason}; failed {self._failure.count} times, next try in {wait:.0f} s"
            case ServiceState.WAITING:
                reason = "a round is due and waits for a free thread"
            case ServiceState.IDLE:
                reason = self._last_reason or "nothing is hidden"
            case _:
                assert_never(state)
        return state, reason, self._failure

    def run_now(self, *, is_forced: bool = False) -> GcReport:
        """Both phases for the whole table at once, as far as readers and transactions allow.

        `is_forced` takes all lifetimes for 0: what can be brought back is gone, readers without a lease may fail.
        """
        settings = self._watch.knobs.gc
        if is_forced:
            settings = replace(settings, old_parts_lifetime=0.0, trash_lifetime=0.0)
        done = _Round()
        try:
            with self._round, self._tally.run(self.kind):
                self._collect_now(done, settings)
        finally:
            self._tally.collected(done.report())
        return done.report()

    def _collect_now(self, done: _Round, settings: GcSettings) -> None:
        for _ in range(NOW_ROUNDS_MAX):
            before = done.moved
            done.kept = 0
            partitions = self._catalog.parts.partitions(self._watch.uuid)
            done.partitions = len(partitions)
            self._move(done, partitions, settings)
            if done.moved == before:
                break
        self._trash_state = TrashState()
        self._trash_pass_due_ms = None
        done.in_trash = 0
        while True:
            self._remove_round(done, settings)
            if self._trash.cursor is None:
                break

    # --- phase 1 ---

    def _due(self, now_ms: int) -> tuple[bool, bool]:
        is_all = self._due_all_ms is not None and self._due_all_ms <= now_ms
        with self._watch.lock:
            is_move = is_all or any(due_ms <= now_ms for due_ms in self._due_ms.values())
        is_move = is_move and self._pause_until_ms <= now_ms
        return is_move, self._trash_due_ms is not None and self._trash_due_ms <= now_ms

    def _move_round(self, done: _Round) -> None:
        now_ms = self._clock.now_ms()
        knobs = self._watch.knobs
        everything = self._catalog.parts.partitions(self._watch.uuid)
        with self._watch.lock:
            if self._due_all_ms is not None and self._due_all_ms <= now_ms:
                self._due_ms |= dict.fromkeys(everything, now_ms)
                self._due_all_ms = now_ms + LOOK_ALL_MS
            stats = dict(self._watch.stats)
            due = {name: None for name in everything if self._due_ms.get(name, now_ms + 1) <= now_ms}
            there = set(everything)
            # Those whose record is gone have nothing left.
            self._due_ms = {name: at for name, at in self._due_ms.items() if name in there}
            pushed = [name for name in self._pushed if name in due]
            self._pushed.difference_update(pushed)
        chosen = select_for_gc(
            stats,
            all_partitions=list(due),
            pushed=pushed[: knobs.gc_partitions.number],
            rotation=self._rotation,
            is_ready=True,
            settings=knobs.gc_partitions,
            now=now_ms / 1000,
            rng=self._rng,
        )
        self._rotation = chosen.rotation
        done.partitions = len(chosen.partitions)
        self._move(done, chosen.partitions, knobs.gc)
        # Each partition that was held back waits by itself, so the table only spreads its rounds out.
        pause = move_pause(has_moved=True, settings=knobs.gc, rng=self._rng)
        self._pause_until_ms = now_ms + int(pause * 1000)

    def _move(self, done: _Round, partitions: Sequence[str], settings: GcSettings) -> None:
        now_ms = self._clock.now_ms()
        limit = self._limit(now_ms, settings)
        for partition in partitions:
            if self._is_cancelled.is_set():
                return
            self._move_partition(done, partition, limit, settings, now_ms)

    def _limit(self, now_ms: int, settings: GcSettings) -> Cutoff:
        history = self._watch.knobs.history_seconds
        return cutoff(
            now_ms=now_ms,
            oldest_txn=self._catalog.transactions.oldest_running(),
            oldest_reader=self._catalog.readers.oldest(self._watch.uuid, now_ms),
            ahm=None if history < 0 else pack(max(0, now_ms - int(history * 1000))),
            settings=settings,
        )

    def _move_partition(self, done: _Round, partition: str, limit: Cutoff, settings: GcSettings, now_ms: int) -> None:
        uuid = self._watch.uuid
        entries = self._catalog.parts.entries(uuid, partition)
        if not entries:
            self._look_at_empty(partition, settings, now_ms)
            return
        self._empty_since.pop(partition, None)
        ended = {str(entry.name): (entry, end_ts) for entry, end_ts in visibility.end_times(entries)}
        verdicts = plan_moves(
            [GcEntry(name=name, commit_ts=e.commit_ts, end_ts=end_ts) for name, (e, end_ts) in ended.items()],
            limit,
            settings=settings,
        )
        moves = [ended[verdict.name] for verdict in verdicts if verdict.goes]
        staying = [verdict for verdict in verdicts if not verdict.goes]
        for first in range(0, len(moves), settings.move_batch):
            hit("gc.before_trash")
            done.moved += self._catalog.parts.move_to_trash(
                uuid, moves[first : first + settings.move_batch], fence=self._owner.fence(uuid), now_ms=now_ms
            )
            hit("gc.after_trash")
        done.kept += len(staying)
        if staying and not done.reason:
            done.reason = f"{staying[0].name}: {staying[0].reason}"
        self._plan_next(partition, [ended[verdict.name][1] for verdict in staying], moves, settings, now_ms)

    def _plan_next(
        self,
        partition: str,
        staying: Sequence[int],
        moves: Sequence[tuple[object, int]],
        settings: GcSettings,
        now_ms: int,
    ) -> None:
        """When the partition is looked at again, and the trash."""
        pause_ms = int(settings.pause * 1000)
        due_ms: int | None = None
        if moves:
            # What hid these is ended now.
            due_ms = now_ms
        elif staying:
            first = milliseconds(min(staying)) + int(settings.old_parts_lifetime * 1000) + 1
            due_ms = max(first, now_ms + pause_ms)
        parts = [(entry, end_ts) for entry, end_ts in moves if isinstance(entry, Part)]
        with self._watch.lock:
            if due_ms is None:
                self._due_ms.pop(partition, None)
            else:
                self._due_ms[partition] = due_ms
            if parts:
                at_ms = min(milliseconds(end_ts) for _, end_ts in parts) + int(settings.trash_lifetime * 1000) + 1
                self._trash_due_ms = at_ms if self._trash_due_ms is None else min(self._trash_due_ms, at_ms)
                self._trash_bytes += sum(entry.bytes for entry, _ in parts)

    def _look_at_empty(self, partition: str, settings: GcSettings, now_ms: int) -> None:
        since = self._empty_since.setdefault(partition, now_ms / 1000)
        verdict = judge_empty_partition(
            partition, empty_since=since, has_trash=False, now=now_ms / 1000, settings=settings
        )
        is_gone = verdict.goes and self._catalog.parts.drop_partition_record(self._watch.uuid, partition)
        with self._watch.lock:
            if is_gone:
                self._due_ms.pop(partition, None)
                self._empty_since.pop(partition, None)
                self._watch.stats.pop(partition, None)
            else:
                self._due_ms[partition] = now_ms + int(settings.pause_max * 1000)

    # --- phase 2 ---

    def _remove_round(self, done: _Round, settings: GcSettings) -> None:
        now_ms = self._clock.now_ms()
        uuid = self._watch.uuid
        after = None if self._trash.cursor is None else bytes.fromhex(self._trash.cursor)
        items, cursor = self._catalog.trash.items(
            uuid, after=after, limit=trash_limit(self._trash.hits, settings=settings)
        )
        snapshots = sorted(
            lease.snapshot_ts
            for lease in self._catalog.readers.list()
            if lease.table == uuid and lease.expires_ms > now_ms
        )
        going: list[TrashedPart] = []
        for item in items:
            if self._goes(item, snapshots, done, settings, now_ms):
                going.append(item)
        removed = self._remove_files(going)
        if removed:
            self._catalog.trash.remove(uuid, removed)
            hit("gc.after_remove")
        done.removed += len(removed)
        size = sum(item.item.part.bytes for item in removed)
        done.removed_bytes += size
        self._trash_bytes = max(0, self._trash_bytes - size)
        before = self._trash.cursor
        self._trash_state = after_trash_round(
            self._trash,
            last_seen=None if cursor is None else cursor.hex(),
            is_at_end=cursor is None,
            had_work=bool(removed),
        )
        if self._trash.cursor != before:
            self._catalog.state.put(self._cursor_name, (self._trash.cursor or "").encode())
        self._plan_trash(bool(removed), settings, now_ms)

    def _goes(
        self, item: TrashedPart, snapshots: Sequence[int], done: _Round, settings: GcSettings, now_ms: int
    ) -> bool:
        part, end_ts = item.item.part, item.item.end_ts
        verdict = judge_trash(
            TrashItem(name=str(part.name), commit_ts=part.commit_ts, end_ts=end_ts),
            now_ms=now_ms,
            snapshots=snapshots,
            settings=settings,
        )
        if verdict.goes:
            return True
        done.in_trash += 1
        done.reason = done.reason or f"{verdict.name}: {verdict.reason}"
        ends_ms = milliseconds(end_ts) + int(settings.trash_lifetime * 1000) + 1
        self._note_trash_due(max(ends_ms, now_ms + int(settings.pause * 1000)))
        return False

    def _note_trash_due(self, at_ms: int) -> None:
        known = self._trash_pass_due_ms
        self._trash_pass_due_ms = at_ms if known is None else min(known, at_ms)

    def _remove_files(self, items: Sequence[TrashedPart]) -> list[TrashedPart]:
        """Those whose file is gone now. One that cannot be removed stays in the trash and is told."""
        if not items:
            return []
        hit("gc.before_remove")
        count = deleters(self._trash.hits, deleters_max=self._watch.knobs.gc.deleters_max)
        with ThreadPoolExecutor(min(count, len(items)), thread_name_prefix="tilth-gc") as pool:
            errors = list(pool.map(self._remove_one, items))
        failed = [(item, error) for item, error in zip(items, errors, strict=True) if error]
        for item, error in failed[:1]:
            self._failed(TilthError("a file cannot be removed", file=item.item.part.file.name, reason=error))
            self._note_trash_due(self._clock.now_ms() + int(self._watch.knobs.gc.pause * 1000))
        return [item for item, error in zip(items, errors, strict=True) if not error]

    def _remove_one(self, item: TrashedPart) -> str:
        """Why it failed, or nothing."""
        try:
            remove_file(self._root, item.table, item.item.part.file)
        except (TilthError, OSError) as error:
            return str(error)
        return ""

    def _plan_trash(self, has_removed: bool, settings: GcSettings, now_ms: int) -> None:
        if self._trash.cursor is not None:
            pause = trash_pause(self._trash, has_removed=has_removed, settings=settings, rng=self._rng)
            self._trash_due_ms = now_ms + int(pause * 1000)
            return
        # The end of a pass: what stays tells when the next one is worth it.
        self._trash_due_ms, self._trash_pass_due_ms = self._trash_pass_due_ms, None

    def _failed(self, error: Exception) -> None:
        if isinstance(error, FencedError):
            self._owner.lose(self._watch.uuid)
        self._has_failed = True
        self._failure = failed_again(self._failure, reason=str(error), now_ms=self._clock.now_ms())
        _log.warning("gc_failed", table=self._watch.name, reason=error)
