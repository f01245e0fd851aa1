"""Phase 1 of collecting: records that nobody needs any more leave the table for the trash.

Covers: which partitions are read when, what moves, partitions that are empty. Does not cover: the verdicts
(policy.py), end times (catalog).
Always holds: a partition without reports costs nothing but a rare read; data moves before the mark that hides
it, because the catalog ends a mark only when nothing is left under it.

Tests: tests/unit/maintenance/merge/test_op.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilth.base.failpoints import hit
from tilth.base.hybrid import milliseconds
from tilth.catalog import TableVersion, visibility
from tilth.maintenance.gc.expiry import ExpiryPhase
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.policy import (
    Cutoff,
    GcEntry,
    is_round_due,
    judge_empty_partition,
    kept_ms,
    move_pause,
    plan_moves,
    select_for_gc,
)
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.gc.trash import TrashPhase
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.table.partition_counts import Rotation
from tilth.model.part import Entry, Part

#: Time between two reads of all partitions of a table that has changed, even if nothing was reported of them.
REFRESH_ALL_MS = 3_600_000
#: Visible parts of the partitions that are read from one view; entries that have ended come on top.
READ_PARTS_MAX = 5_000


class MovePhase:
    """Phase 1 of one table."""

    def __init__(
        self,
        table: GcTable,
        expiry: ExpiryPhase,
        trash: TrashPhase,
        segments: PendingPartitions,
    ) -> None:
        """`segments`: where segments wait that have ended, which are not moved here."""
        self._table = table
        self._expiry = expiry
        self._trash = trash
        self._segments = segments
        #: Time when each partition may have something to move; others have nothing. Under the watch's lock.
        self._due_ms: dict[str, int] = {}
        self._pushed: set[str] = set()
        #: Partitions where something had ended and nothing could move, with the limit of collection then.
        self._held: dict[str, int] = {}
        #: Partitions where something has ended and waits, with the time when it may go.
        self._ended: dict[str, int] = {}
        #: Time of the next full scan; none for a table that was never used.
        self._due_all_ms: int | None = None
        #: `True` if a full scan has begun, and the number of the table's commits before the last one.
        self._has_scanned = False
        self._scanned_commits = -1
        self._pause_until_ms = 0
        self._rotation = Rotation(last_time=table.clock.now_ms() / 1000)
        self._empty_since: dict[str, float] = {}

    def due_ms(self) -> int:
        """Return when the next round is due."""
        with self._table.watch.lock:
            times = list(self._due_ms.values())
        if self._due_all_ms is not None:
            times.append(self._due_all_ms)
        return max(min(times), self._pause_until_ms) if times else NEVER_MS

    def schedule(self, at_ms: int) -> None:
        """Read all partitions at that time, if not before."""
        with self._table.watch.lock:
            self._due_all_ms = at_ms if self._due_all_ms is None else min(at_ms, self._due_all_ms)
            self._scanned_commits = -1
            self._held.clear()

    def pass_over(self, now_ms: int) -> None:
        """Put the scan of all partitions off where nothing can have ended, expired or emptied since the last one."""
        table = self._table
        if self._due_all_ms is None or self._due_all_ms > now_ms:
            return
        if table.watch.version.counter != self._scanned_commits:
            version = table.catalog.parts.version(table.uuid)
            if has_ended_entries(version) or table.watch.definition.ttl is not None:
                return
            self._scanned_commits = version.counter
        with table.watch.lock:
            self._has_scanned = True
            self._due_all_ms = now_ms + REFRESH_ALL_MS

    def has_ended(self, partition: str, at_ms: int) -> None:
        """Something of the partition was hidden at that time."""
        due_ms = at_ms + kept_ms(self._table.settings) + 1
        with self._table.watch.lock:
            self._note(partition, due_ms, at_ms)
            self._ended[partition] = min(self._ended.get(partition, due_ms), due_ms)
            self._pushed.add(partition)
            self._held.pop(partition, None)

    def data_moved(self, partition: str) -> None:
        """Note that segments have left the partition: what hid them has nothing to hide any more."""
        now_ms = self._table.clock.now_ms()
        with self._table.watch.lock:
            self._note(partition, now_ms, now_ms)
            self._held.pop(partition, None)
        self._table.watch.is_woken = True

    def waits(self) -> tuple[int, int]:
        """Return in how many partitions entries that have ended wait, and when the first of them may go."""
        with self._table.watch.lock:
            return len(self._ended), min(self._ended.values(), default=NEVER_MS)

    def is_unread(self) -> bool:
        """True if partitions may have entries of before this server began that were not read yet."""
        return not self._has_scanned and self._due_all_ms is not None

    def has_grown(self, partition: str, at_ms: int) -> None:
        """The partition has new rows, which may expire."""
        ends_ms = self._expiry.known_ms(partition)
        if ends_ms == NEVER_MS:
            return
        with self._table.watch.lock:
            self._note(partition, max(at_ms, ends_ms or 0), at_ms)

    def run(self, done: Round) -> None:
        """One round over the partitions whose time has come, or as many of them as a round takes."""
        table, now_ms = self._table, self._table.clock.now_ms()
        commits = table.watch.version.counter
        counts = table.catalog.parts.counts(table.uuid)
        everything = list(counts)
        with table.watch.lock:
            if self._due_all_ms is not None and self._due_all_ms <= now_ms:
                self._due_ms |= dict.fromkeys(everything, now_ms)
                self._due_all_ms = now_ms + REFRESH_ALL_MS
                self._has_scanned, self._scanned_commits = True, commits
            stats = dict(table.watch.stats)
            there = set(everything)
            # Partitions whose record is gone have nothing left.
            self._due_ms = {name: at for name, at in self._due_ms.items() if name in there}
            due = [name for name in everything if self._due_ms.get(name, NEVER_MS) <= now_ms]
            pushed = [name for name in self._pushed if self._due_ms.get(name, NEVER_MS) <= now_ms]
            pushed = pushed[: table.watch.settings.gc_partitions.number]
            self._pushed.difference_update(pushed)
        chosen = select_for_gc(
            stats,
            all_partitions=due,
            pushed=pushed,
            rotation=self._rotation,
            is_ready=True,
            settings=table.watch.settings.gc_partitions,
            now=now_ms / 1000,
            rng=table.rng,
        )
        self._rotation = chosen.rotation
        self.collect(done, chosen.partitions, counts)
        # Each partition that was held back waits by itself, so the table only spreads its rounds out.
        pause = move_pause(has_moved=True, settings=done.settings, rng=table.rng)
        self._pause_until_ms = now_ms + int(pause * 1000)

    def collect(self, done: Round, partitions: Sequence[str], counts: Mapping[str, int]) -> None:
        """Move what can move in these partitions. `counts`: visible parts of each partition that the table has."""
        now_ms = self._table.clock.now_ms()
        limit = self._table.limit(done.settings, is_background=not done.is_command)
        done.partitions = len(partitions)
        read = [name for name in partitions if not self._is_held(done, name, limit, now_ms)]
        for batch in _batches(read, counts):
            entries = self._table.catalog.parts.entries_of(self._table.uuid, batch, among=counts)
            for partition in batch:
                if self._table.watch.is_cancelled.is_set():
                    return
                self._judge(done, partition, entries[partition], limit, now_ms)

    def _is_held(self, done: Round, partition: str, limit: Cutoff, now_ms: int) -> bool:
        """Return whether the limit is that of before, so that reading the entries would find nothing."""
        held_ts = None if done.is_command else self._held.get(partition)
        may_expire = (self._expiry.known_ms(partition) or 0) <= now_ms
        if held_ts is None or may_expire or is_round_due(limit, last_gc_ts=held_ts):
            return False
        done.reason = done.reason or f"{partition}: held back by {limit.hold}"
        self._plan(partition, now_ms + int(done.settings.pause * 1000))
        return True

    def _judge(self, done: Round, partition: str, entries: Sequence[Entry], limit: Cutoff, now_ms: int) -> None:
        if not entries:
            with self._table.watch.lock:
                self._ended.pop(partition, None)
            self._judge_empty(done, partition, now_ms)
            return
        self._empty_since.pop(partition, None)
        self._expiry.judge(done, partition, entries, now_ms)
        self._move(done, partition, entries, limit, now_ms)

    def _move(self, done: Round, partition: str, entries: Sequence[Entry], limit: Cutoff, now_ms: int) -> None:
        table, settings = self._table, done.settings
        ends_of = visibility.end_times(entries)
        segments = [(e.bytes, end) for e, end in ends_of if isinstance(e, Part) and e.is_segment]
        if segments:
            self._segments.plan(partition, segments, now_ms, table.settings)
        # Segments go by a rule of their own.
        ended = {str(e.name): (e, end) for e, end in ends_of if not (isinstance(e, Part) and e.is_segment)}
        verdicts = plan_moves(
            [GcEntry(name=name, commit_ts=e.commit_ts, end_ts=end_ts) for name, (e, end_ts) in ended.items()],
            limit,
            settings=settings,
        )
        moves = [ended[verdict.name] for verdict in verdicts if verdict.goes]
        table.forget_versions([end_ts for _, end_ts in moves])
        staying = [verdict for verdict in verdicts if not verdict.goes]
        if moves:
            # Whatever becomes of the commits.
            self._trash.is_empty = False
        for first in range(0, len(moves), settings.move_batch):
            hit("gc.before_trash")
            done.moved += table.catalog.parts.move_to_trash(
                table.uuid,
                moves[first : first + settings.move_batch],
                fence=table.table_leases.fence(table.uuid),
                now_ms=now_ms,
            )
            hit("gc.after_trash")
        done.kept += len(staying)
        if staying and not done.reason:
            done.reason = f"{staying[0].name}: {staying[0].reason}"
        # Entries that history alone holds may go although the limit has not risen.
        is_held = bool(staying) and not moves and all(ended[each.name][1] >= limit.gc_ts for each in staying)
        with table.watch.lock:
            if is_held:
                self._held[partition] = limit.gc_ts
            else:
                self._held.pop(partition, None)
        ends = [milliseconds(ended[verdict.name][1]) for verdict in staying]
        self._trash.expect([(entry, end_ts) for entry, end_ts in moves if isinstance(entry, Part)], settings)
        self._plan_next(done, partition, ends, has_moved=bool(moves), now_ms=now_ms)

    def _plan_next(self, done: Round, partition: str, ends: Sequence[int], *, has_moved: bool, now_ms: int) -> None:
        """Note when the partition is read again."""
        times = []
        ends_ms = self._expiry.known_ms(partition)
        if ends_ms is None:
            # It was dropped just now.
            times.append(now_ms + kept_ms(done.settings))
        elif ends_ms != NEVER_MS:
            # One that has expired and is still there was refused.
            times.append(max(ends_ms, now_ms + int(done.settings.pause * 1000)))
        if has_moved:
            # The entries that hid these have ended now.
            times.append(now_ms)
        elif ends:
            times.append(max(min(ends) + kept_ms(done.settings) + 1, now_ms + int(done.settings.pause * 1000)))
        with self._table.watch.lock:
            if has_moved or ends:
                self._ended[partition] = times[-1]
            else:
                self._ended.pop(partition, None)
        self._plan(partition, min(times, default=None))

    def _plan(self, partition: str, due_ms: int | None) -> None:
        with self._table.watch.lock:
            if due_ms is None:
                self._due_ms.pop(partition, None)
            else:
                self._due_ms[partition] = due_ms

    def _note(self, partition: str, due_ms: int, at_ms: int) -> None:
        """Under the lock."""
        self._due_ms[partition] = min(self._due_ms.get(partition, due_ms), due_ms)
        if self._due_all_ms is None:
            self._due_all_ms = at_ms + REFRESH_ALL_MS

    def _judge_empty(self, done: Round, partition: str, now_ms: int) -> None:
        since = self._empty_since.setdefault(partition, now_ms / 1000)
        verdict = judge_empty_partition(
            partition, empty_since=since, has_trash=False, now=now_ms / 1000, settings=done.settings
        )
        # The catalog refuses while there is trash.
        is_gone = verdict.goes and self._table.catalog.parts.drop_partition_record(self._table.uuid, partition)
        if not is_gone:
            self._plan(partition, now_ms + int(done.settings.pause_max * 1000))
            return
        self._plan(partition, None)
        self._empty_since.pop(partition, None)
        with self._table.watch.lock:
            self._held.pop(partition, None)
            self._ended.pop(partition, None)
            self._table.watch.stats.pop(partition, None)


def has_ended_entries(version: TableVersion) -> bool:
    """Return whether the table may have entries that have ended, or that hide others: not while every part that was
    ever made is visible.
    """
    return version.parts_added != version.parts + version.segments


def _batches(partitions: Iterable[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the partitions in batches of bounded size, each of one partition at least."""
    batch: list[str] = []
    size = 0
    for partition in partitions:
        if batch and size + sizes[partition] > READ_PARTS_MAX:
            yield batch
            batch, size = [], 0
        batch.append(partition)
        size += sizes[partition]
    if batch:
        yield batch
