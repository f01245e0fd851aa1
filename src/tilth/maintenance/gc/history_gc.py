"""HISTORY_GC: deltas that no allowed read needs go, and the times of versions that none can name.

Rule: docs/policies/history.md#history_gc.

Covers: deltas that ended, deltas whose parts are gone for good, the times of versions. Does not cover: parts that ended
(part_gc.py), row segments (log_gc.py).
Always holds: a delta goes only where it ended before what readers, running transactions and allowed reads of the past
may need, or where none of its parts is there any more, not even in the trash; the file goes first, then the record, so
that no file is left that nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tilth.base.failpoints import hit
from tilth.base.hybrid import pack
from tilth.base.units import show_bytes
from tilth.maintenance.cleaner.current_replicas import remove_from_current
from tilth.maintenance.gc.pending import PendingPartitions
from tilth.maintenance.gc.policy import GcEntry, Verdict, judge_ended
from tilth.maintenance.gc.round import GcTable, Round, promised_ms
from tilth.maintenance.gc.trash import not_removed
from tilth.maintenance.kinds import IoUsage, OpKind
from tilth.model.delta import Delta
from tilth.model.history import ancient_mark
from tilth.model.part import Part, PartEvent
from tilth.storage import remove_data

#: Events that make deltas, events that end deltas, and events that end deltas if the partition has any.
_MAKING_EVENTS = frozenset({"delete", "flush_deltas", "minor_delta", "major_delta"})
_ENDING_EVENTS = frozenset({"flush_deltas", "minor_delta", "major_delta"})
_REPLACING_EVENTS = frozenset({"merge", "flush", "mutate", "remove_deleted"})
#: Events of garbage collection itself: they make no version of the table.
_WITHOUT_VERSION = frozenset({"trash", "remove"})
#: Minimum interval between two trims of a table's versions.
TRIM_PERIOD_MS = 600_000
#: Records that one transaction of the catalog forgets.
REMOVE_BATCH = 1_000
#: Requests to remove files at a time.
DELETERS = 4
_TRASH_BATCH = 1_000


class HistoryGc:
    """`tilth.maintenance.gc.op.GcRoutine` for what only reads of the past need."""

    kind = OpKind.HISTORY_GC
    io = IoUsage.HIGH

    def __init__(self, table: GcTable) -> None:
        self._table = table
        self._pending = PendingPartitions(table.watch)
        #: Time of the next trim of versions; none while there is no new one.
        self._trim_ms: int | None = None

    def due_ms(self) -> int:
        first = self._pending.first_ms()
        return first if self._trim_ms is None else min(first, self._trim_ms)

    def observe(self, event: PartEvent, partition: str) -> bool:
        promised = promised_ms(self._table.settings)
        if self._trim_ms is None and event.event not in _WITHOUT_VERSION:
            self._trim_ms = event.at_ms + max(promised, TRIM_PERIOD_MS)
        if event.event in _MAKING_EVENTS:
            self._pending.expect(partition)
        has_deltas = partition in self._pending.waiting()
        if event.event in _ENDING_EVENTS or (has_deltas and event.event in _REPLACING_EVENTS):
            self._pending.note(partition, event.at_ms + promised + 1)
        elif has_deltas and event.event == "remove":
            # Its file is gone: what changed nothing else is worth nothing.
            self._pending.note(partition, event.at_ms)
        else:
            return False
        return True

    def has_leftovers(self) -> bool:
        left = self._table.watch.leftovers
        return left is None or left.has_deltas or left.has_ended_deltas

    def schedule(self, at_ms: int) -> None:
        self._pending.schedule(at_ms)

    def poll(self, now_ms: int) -> None:
        self._pending.answer(now_ms, self._with_deltas)

    def _with_deltas(self) -> set[str]:
        return {delta.partition for delta in self._table.catalog.parts.deltas(self._table.uuid, is_all=True)}

    def retained(self) -> int:
        return self._pending.retained()

    def about(self) -> str:
        return self.waits() or "a check is due"

    def waits(self) -> str:
        return self._pending.waits("ended deltas{} wait until nothing needs them")

    def run(self, done: Round) -> str:
        self._pending.each(done, self._table, self._collect)
        versions = self._trim(done)
        forgot = f", {versions} versions forgotten" if versions else ""
        return f"{done.removed} deltas removed, {show_bytes(done.removed_bytes)}, {done.kept} stay{forgot}"

    def _collect(self, done: Round, partition: str, now_ms: int) -> None:
        table = self._table
        deltas = table.catalog.parts.deltas(table.uuid, partition, is_all=True)
        orphans = self._orphans(partition, deltas)
        limit = table.ancient_limit(done.settings, is_background=not done.is_command)
        snapshots = sorted(lease.snapshot_ts for lease in table.leases(now_ms)) if deltas else []
        going: list[Delta] = []
        staying: list[tuple[Delta, Verdict]] = []
        for delta in deltas:
            if delta.file.name in orphans:
                going.append(delta)
            elif delta.end_ts:
                entry = GcEntry(name=delta.file.name, commit_ts=delta.commit_ts, end_ts=delta.end_ts)
                verdict = judge_ended(entry, limit, snapshots)
                if verdict.goes:
                    going.append(delta)
                else:
                    staying.append((delta, verdict))
        table.forget_versions([delta.end_ts for delta in going])
        for first in range(0, len(going), REMOVE_BATCH):
            self._remove(done, going[first : first + REMOVE_BATCH])
        done.kept += len(staying)
        if staying and not done.reason:
            done.reason = f"{staying[0][1].name}: {staying[0][1].reason}"
        ended = [(delta.bytes, delta.end_ts) for delta, _ in staying]
        self._pending.plan(partition, ended, now_ms, table.settings, has_others=len(going) < len(deltas))

    def _orphans(self, partition: str, deltas: Sequence[Delta]) -> set[str]:
        """Files of the deltas of which no part is there any more, neither in the table nor in its trash."""
        unknown = _without_parts(deltas, self._files(partition))
        if not unknown:
            return set()
        # A part that is on its way between the two is seen in one of them: in the trash, or then in the table.
        unknown = _without_parts(unknown, self._trashed())
        unknown = _without_parts(unknown, self._files(partition))
        return {delta.file.name for delta in unknown}

    def _files(self, partition: str) -> set[str]:
        entries = self._table.catalog.parts.entries(self._table.uuid, partition)
        return {entry.file.name for entry in entries if isinstance(entry, Part)}

    def _trashed(self) -> set[str]:
        files: set[str] = set()
        after: bytes | None = None
        while True:
            items, after = self._table.catalog.trash.items(self._table.uuid, after=after, limit=_TRASH_BATCH)
            files.update(item.item.part.file.name for item in items)
            if after is None:
                return files

    def _remove(self, done: Round, deltas: Sequence[Delta]) -> None:
        table = self._table
        # A server that has lost the table must remove nothing, and no reservation checks that before the files go.
        fence = table.table_leases.fence(table.uuid)
        table.catalog.leases.check(fence)
        hit("history_gc.before_remove")
        files = [delta.file for delta in deltas]
        failed = remove_from_current(
            table.catalog,
            table.root,
            [table.uuid],
            lambda roots: remove_data(roots, table.uuid, files, deleters=DELETERS),
        )
        gone = [delta for delta in deltas if delta.file.name not in failed]
        hit("history_gc.after_remove")
        table.catalog.parts.remove_deltas(table.uuid, gone, fence=fence)
        done.removed += len(gone)
        done.removed_bytes += sum(delta.bytes for delta in gone)
        if failed:
            self._pending.note(deltas[0].partition, table.clock.now_ms() + int(table.settings.pause * 1000))
            raise not_removed(failed)

    def _trim(self, done: Round) -> int:
        """Forget versions that no allowed read can name; return how many."""
        now_ms = self._table.clock.now_ms()
        if not done.is_command and (self._trim_ms is None or self._trim_ms > now_ms):
            return 0
        self._trim_ms = None
        mark = ancient_mark(pack(now_ms), done.settings.history)
        return self._table.catalog.history.trim(self._table.uuid, pack(now_ms) if mark is None else mark)


def _without_parts(deltas: Iterable[Delta], files: Collection[str]) -> list[Delta]:
    return [delta for delta in deltas if not any(target.file in files for target in delta.targets)]
