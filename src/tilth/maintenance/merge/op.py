"""MERGE of one table: which ranges of parts wait to be merged, and what one merge is.

Covers: refreshes, the waiting merges, the procedure. Does not cover: which ranges are worth it (choice.py, policy),
reserving, running, failures (maintenance/work), OPTIMIZE and EXPLAIN (commands.py).
Always holds: merges that wait have their parts reserved; with a new refresh they give way to better ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tilth.base.retry import Retry
from tilth.base.units import show_bytes
from tilth.catalog import PartitionParts
from tilth.maintenance.kinds import OpKind, OpStats, Refused
from tilth.maintenance.merge.choice import MergeChoice
from tilth.maintenance.merge.policy.candidates import Effort, MergeRefusal, MergeSelection, MergeSpec
from tilth.maintenance.merge.policy.partitions import BackOff, postpone, select_for_merge
from tilth.maintenance.merge.policy.size_tiered import submittable
from tilth.maintenance.one_part.procedure import OnePartProcedure
from tilth.maintenance.one_part.task_spark import MergeFacts
from tilth.maintenance.state import NEVER_MS, ServiceWork, newest, rule_of
from tilth.maintenance.table.partition_counts import PartitionStats, Rotation, with_partitions
from tilth.maintenance.table.settings import PartitionStrategy
from tilth.maintenance.table.sources import ChangesOf, PartsNow, changes_of, parts_by_partition, parts_now, read_bytes
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.failures import PartitionFailures
from tilth.maintenance.work.part_work import PartWorkOp
from tilth.maintenance.work.planner import (
    Busy,
    Cancelled,
    Denied,
    OpSnapshot,
    PartLogged,
    Planner,
    Renewed,
    Stopped,
    WorkEnded,
    WorkEvent,
    is_left_alone,
)
from tilth.model.delta import Delta
from tilth.model.part import Part
from tilth.storage import Expiry, TableLayout

#: Time between two refreshes of a table that changes, and bounds of that time while it does not: ranges become worth
#: merging by age too, the more slowly the older they are.
REFRESH_BUSY_MS = 1_000
REFRESH_QUIET_MIN_MS = 10_000
REFRESH_QUIET_MAX_MS = 600_000
#: The longest time between refreshes once all partitions were read.
REFRESH_SETTLED_MAX_MS = 6 * 3_600_000
#: Parts of one partition that a refresh reads, the oldest; the rest waits until these are fewer.
PARTS_MAX = 20_000
#: Events after which a part may fold its deltas alone, once it is old enough.
_DELTA_EVENTS = frozenset({"delete", "flush_deltas", "minor_delta", "major_delta"})
#: Events after which the parts differ from the last refresh.
_NEWS = frozenset({"new", "merge", "flush", "remove_deleted", "hide", "undrop", "mutate"})
DISABLED = "disable_compaction is on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Parts of one partition that become one, or several key ranges that count as one."""

    spec: MergeSpec
    #: Filled in when it is loaded.
    sources: tuple[Part, ...] = ()
    changes: ChangesOf = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str]:
        return self.spec.parts

    @property
    def partitions(self) -> Collection[str]:
        return (self.spec.partition,)

    @property
    def subject(self) -> str:
        return self.spec.partition


class MergePlanner(Planner[Merge]):
    """The merges of one table that are worth doing."""

    failures: PartitionFailures

    def __init__(self, context: TableContext, choice: MergeChoice) -> None:
        server = context.server
        self._catalog = server.catalog
        self._first_reads = server.first_reads
        self._rng = server.rng
        self._workers = server.workers
        self._rewrite_slots = server.rewrite_slots
        self._watch = context.watch
        self._choice = choice
        self.failures = PartitionFailures(OpKind.MERGE, context.watch)
        self._waiting: list[Merge] = []
        #: The one of them that the last choice was about.
        self._next: Merge | None = None
        self._rotation = Rotation()
        self._postponed: dict[str, BackOff] = {}
        self._visible_bytes: dict[str, float] = {}
        self._refusals: dict[str, MergeRefusal] = {}
        #: `True` if the last poll found a merge.
        self._is_fruitful = False
        self.next_refresh_ms = 0
        self._news_ms = 0
        #: Partitions that were read since the last news.
        self._seen: set[str] = set()
        #: Times, by partition, from which its age makes a merge worth it where nothing else changes; NEVER_MS: no age.
        self._ripe_ms: dict[str, int] = {}
        #: Number of workers for which some partition has few enough parts; 0: there is no such partition.
        self._holding_workers = 0
        #: Due times, by partition, of the first part to be written anew for its expired rows.
        self._rewrites_ms: dict[str, int] = {}

    @property
    def held(self) -> Sequence[Merge]:
        return self._waiting

    @property
    def refusals(self) -> list[tuple[str, str]]:
        return [(refusal.partition, refusal.reason) for refusal in self._refusals.values()]

    def observe(self, event: WorkEvent[Merge], now_ms: int) -> bool:
        match event:
            case PartLogged():
                if event.event.event in _DELTA_EVENTS:
                    self._changed_rows(event.partition, now_ms)
                return event.event.event in _NEWS and self._noticed(event.event.at_ms)
            case Renewed():
                # Times in the future come from a clock that was ahead.
                self._news_ms = min(self._news_ms, now_ms)
                past = now_ms / 1000
                self._postponed = {name: each for name, each in self._postponed.items() if each.since <= past}
                return self._noticed(now_ms)
            case Stopped():
                self._waiting = []
            case Cancelled(partition=partition):
                self._waiting = [each for each in self._waiting if partition not in (None, each.spec.partition)]
            case Denied(work=work):
                self._waiting = [each for each in self._waiting if each != work]
                return self._noticed(now_ms)
            case WorkEnded(error=error):
                if error is not None and is_left_alone(error):
                    # The known parts of the table are outdated: no haste.
                    self._is_fruitful = False
                    if rule_of(error) is Retry.STOP:
                        self._waiting = []
                return self._noticed(now_ms)
        return False

    def refresh_due_ms(self, snapshot: OpSnapshot) -> int:
        if self._watch.settings.merge.is_disabled:
            return NEVER_MS
        if self._is_fruitful and not self._waiting:
            # While refreshes lead to merges, the next one follows at once.
            return 0
        if snapshot.has_news:
            return snapshot.refreshed_ms + REFRESH_BUSY_MS
        if self._holding_workers > self._workers():
            return 0
        return NEVER_MS if self._waiting else self.next_refresh_ms

    def due_ms(self, snapshot: OpSnapshot) -> int:
        if self._waiting:
            return 0
        if self._watch.settings.merge.is_disabled:
            return NEVER_MS
        return snapshot.refreshed_ms + REFRESH_BUSY_MS if snapshot.has_news else self.next_refresh_ms

    def refresh(self, snapshot: OpSnapshot, busy: Busy) -> None:
        """Do one round of selection; what it finds waits in order."""
        now_ms = snapshot.now_ms
        # Older choices give way: with more parts there are better ranges.
        self._waiting = []
        if self._holding_workers > self._workers():
            self._forget_ripening()
        failing = self.failures.waiting(now_ms)
        settings = self._watch.settings.merge_partitions
        with self._watch.lock:
            stats = dict(self._watch.stats)
        first = self._first_reads.pop(self._watch)
        counts = self._catalog.parts.counts(self._watch.uuid) if first is None else _counts(first)
        everything = list(counts)
        if settings.strategy is PartitionStrategy.PARTS:
            stats = self._choice.with_counts(stats, counts)
        chosen = select_for_merge(
            stats,
            all_partitions=everything,
            expired=failing.keys(),
            postponed=self._postponed,
            counts=counts,
            rotation=self._rotation,
            is_ready=True,
            settings=settings,
            now=now_ms / 1000,
            rng=self._rng,
        )
        self._rotation = chosen.rotation
        others = counts.keys() - failing.keys() - set(chosen.partitions)
        due = [name for name, due_ms in self._rewrites_ms.items() if due_ms <= now_ms and name in others]
        chosen = with_partitions(chosen, due[: max(1, settings.number)], "rows have expired here")
        ripe = [name for name, ripe_ms in self._ripe_ms.items() if ripe_ms <= now_ms and name in others]
        chosen = with_partitions(chosen, ripe[: max(1, settings.number)], "its parts are old enough by now")
        self._seen.update(chosen.partitions)
        parts, changes, expired = self._read(chosen.partitions, first, now_ms)
        self._rewrites_ms = {name: due_ms for name, due_ms in self._rewrites_ms.items() if name in counts}
        found = self._choice.select(parts, changes, being_merged=busy.all, effort=Effort.NORMAL, now_ms=now_ms)
        selection = MergeSelection(specs=found.specs, refusals=(*found.refusals, *expired))
        self._remember(selection, counts=counts, stats=stats, partitions=chosen.partitions, parts=parts, now_ms=now_ms)
        self._note_ripening(chosen.partitions, parts, changes, counts, busy, has_specs=bool(found.specs), now_ms=now_ms)
        self.next_refresh_ms = min(
            [
                self._quiet_refresh_ms(now_ms, everything),
                *(failure.until_ms for failure in failing.values()),
                *self._watch.damaged.next_try_ms(now_ms),
                *(
                    max(due_ms, now_ms + REFRESH_QUIET_MIN_MS)
                    for name, due_ms in self._rewrites_ms.items()
                    if name not in failing
                ),
            ]
        )
        self._waiting = [Merge(spec=spec) for spec in selection.specs[: self._room(snapshot)]]
        self._is_fruitful = bool(self._waiting)

    def choose(self, snapshot: OpSnapshot) -> OpStats:
        if self._watch.settings.merge.is_disabled:
            self._waiting = []
            return OpStats.idle(DISABLED)
        if not self._waiting:
            return OpStats.idle("nothing worth merging")
        # Waiting merges are counted already; the limit is computed as if the first one did not wait.
        bytes_max = self._rewrite_slots.merge_bytes_max()
        self._next = next((each for each in self._waiting if bytes_max is None or each.spec.size <= bytes_max), None)
        if self._next is None:
            first = self._waiting[0].spec
            kept = "the last slot is kept for small merges while rows come in"
            return OpStats.idle(f"{first.partition}: {show_bytes(first.size)} are to be merged, {kept}")
        if self._room(snapshot) == 0:
            return OpStats.idle(f"{snapshot.running} merges are running, more are not allowed")
        spec = self._next.spec
        return OpStats(
            is_runnable=True,
            perf_improvement=self._choice.gain(spec, visible_bytes=self._visible_bytes, now=snapshot.now_ms / 1000),
            about=f"{spec.partition}: {spec.reason}",
        )

    def dequeue(self, snapshot: OpSnapshot, busy: Busy) -> Sequence[Merge] | Refused:
        merge, self._next = self._next, None
        if merge is None or merge not in self._waiting:
            return Refused("no merge is waiting")
        self._waiting = [each for each in self._waiting if each != merge]
        return [merge]

    def load(self, work: Merge, names: Sequence[str]) -> Merge | None:
        there = parts_now(self._catalog, self._watch.uuid, [work.spec.partition])
        found = there.named(names)
        if len(found) < len(names):
            return None
        return Merge(spec=work.spec, sources=found, changes=changes_of(found, there.changes))

    def status(self, snapshot: OpSnapshot) -> ServiceWork:
        failures = (self.failures.newest(), self._watch.damaged.newest())
        first = next(iter(self._refusals.values()), None)
        idle = "nothing worth merging" if first is None else f"{first.partition}: {first.reason}"
        return ServiceWork(
            running=snapshot.running,
            waiting=len(self._waiting),
            failure=newest(each for each in failures if each is not None),
            running_reason=f"{snapshot.running} merges are running, {len(self._waiting)} are waiting",
            waiting_reason=f"{len(self._waiting)} merges wait for a free thread",
            idle_reason=DISABLED if self._watch.settings.merge.is_disabled else idle,
        )

    def postponed_until(self) -> dict[str, float]:
        """Return, by partition, the end of its back-off in seconds since 1970."""
        wait = self._watch.settings.merge_partitions.postpone_time
        return {name: each.since + wait for name, each in self._postponed.items()}

    def _noticed(self, at_ms: int) -> bool:
        """Note that parts of the table came or went, or what may be done with them has changed, at that time or now."""
        self._forget_ripening()
        self._news_ms = max(self._news_ms, at_ms)
        return True

    def _forget_ripening(self) -> None:
        """Read all partitions again, one after the other."""
        self._seen.clear()
        self._ripe_ms.clear()
        self._holding_workers = 0

    def _changed_rows(self, partition: str, now_ms: int) -> None:
        """Note that rows of the partition have changed: its parts weigh more, and one may fold its deltas alone."""
        if partition in self._seen:
            self._seen.discard(partition)
            self._ripe_ms.pop(partition, None)
            self._news_ms = max(self._news_ms, now_ms)
            self.next_refresh_ms = min(self.next_refresh_ms, now_ms + REFRESH_QUIET_MIN_MS)

    def _note_ripening(
        self,
        partitions: Sequence[str],
        parts: Sequence[Part],
        changes: ChangesOf,
        counts: Mapping[str, int],
        busy: Busy,
        *,
        has_specs: bool,
        now_ms: int,
    ) -> None:
        """Note for the partitions that were read, where nothing is worth merging, when their age alone changes that."""
        self._ripe_ms = {name: at for name, at in self._ripe_ms.items() if name in counts and name not in partitions}
        if has_specs:
            return
        found = self._choice.ripening(parts, changes, being_merged=busy.all, now_ms=now_ms)
        for partition in partitions:
            seconds = found[partition].seconds if partition in found else inf
            # The second is for what is rounded.
            self._ripe_ms[partition] = NEVER_MS if seconds == inf else now_ms + round(seconds * 1000) + 1000
        if any(each.is_held for each in found.values()):
            self._holding_workers = self._workers()

    def _room(self, snapshot: OpSnapshot) -> int:
        settings = self._watch.settings.merge
        return submittable(workers=self._workers(), pending=0, running=snapshot.running, settings=settings)

    def _read(
        self, partitions: Sequence[str], first: Mapping[str, PartitionParts] | None, now_ms: int
    ) -> tuple[list[Part], dict[str, tuple[Delta, ...]], list[MergeRefusal]]:
        """Read the parts of partitions that do not expire, and their deltas, in one read of the catalog."""
        parts: list[Part] = []
        changes: dict[str, tuple[Delta, ...]] = {}
        expired: list[MergeRefusal] = []
        if first is None:
            there = parts_by_partition(self._catalog, self._watch.uuid, partitions, parts_max=PARTS_MAX)
        else:
            there = {name: PartsNow(parts=first[name].parts, changes={}) for name in partitions}
        for partition, members in there.items():
            self._watch.damaged.keep(partition, {str(part.name) for part in members.parts})
            self._visible_bytes[partition] = float(sum(part.bytes for part in members.parts))
            self._rewrites_ms.pop(partition, None)
            if self._choice.is_expired(members.parts, now_ms):
                expired.append(
                    MergeRefusal(partition=partition, reason="all its rows have expired", should_postpone=True)
                )
            else:
                parts += members.parts
                changes |= members.changes
                if (due_ms := self._choice.rewrite_due_ms(members.parts)) is not None:
                    self._rewrites_ms[partition] = due_ms
        return parts, changes, expired

    def _quiet_refresh_ms(self, now_ms: int, everything: Sequence[str]) -> int:
        """Return when the next observation is if there are no news until then: by then ages have changed noticeably."""
        quiet_ms = now_ms - self._news_ms
        if self._seen.issuperset(everything):
            settled_ms = now_ms + REFRESH_SETTLED_MAX_MS
            by_time_ms = now_ms + max(REFRESH_QUIET_MIN_MS, min(quiet_ms // 4, REFRESH_SETTLED_MAX_MS))
            # A partition that is old enough and gave nothing, as while little is merged of it, is tried again.
            ripe = [self._ripe_ms.get(name, now_ms) for name in everything]
            later = [each if each > now_ms + REFRESH_BUSY_MS else by_time_ms for each in ripe]
            return max(now_ms + REFRESH_QUIET_MIN_MS, min([settled_ms, *later]))
        return now_ms + max(REFRESH_QUIET_MIN_MS, min(quiet_ms // 10, REFRESH_QUIET_MAX_MS))

    def _remember(
        self,
        selection: MergeSelection,
        *,
        counts: Mapping[str, int],
        stats: Mapping[str, PartitionStats],
        partitions: Sequence[str],
        parts: Sequence[Part],
        now_ms: int,
    ) -> None:
        there = {part.name.partition for part in parts}
        empty = [partition for partition in partitions if partition not in there]
        postponed = [refusal.partition for refusal in selection.refusals if refusal.should_postpone]
        self._postponed = postpone(
            self._postponed,
            [*empty, *postponed],
            stats=stats,
            now=now_ms / 1000,
            postpone_time=self._watch.settings.merge_partitions.postpone_time,
        )
        wanted = {spec.partition for spec in selection.specs}
        known, examined = counts.keys(), set(partitions)
        self.failures.keep(lambda name, _: name in known and (name not in examined or name in wanted))
        self._refusals = {refusal.partition: refusal for refusal in selection.refusals}


def _counts(partitions: Mapping[str, PartitionParts]) -> dict[str, int]:
    return {name: each.counted for name, each in partitions.items()}


class MergeProcedure(OnePartProcedure[Merge]):
    """Procedure of a merge."""

    kind = OpKind.MERGE
    verb = noun = "merge"
    event = "merge"

    def __init__(self, context: TableContext, choice: MergeChoice) -> None:
        super().__init__(context)
        self._clock = context.server.clock
        self._counters = context.server.counters
        self._choice = choice

    def about(self, works: Sequence[Merge]) -> str:
        [merge] = works
        return f"{merge.spec.partition}: {merge.spec.reason}"

    def reason(self, work: Merge, facts: MergeFacts) -> str:
        return f"{work.spec.reason}{_fewer(facts)}"

    def ranges(self, work: Merge) -> int:
        return self._choice.ranges_of(len(work.spec.parts), work.spec.size)

    def input_bytes(self, work: Merge) -> int:
        return read_bytes(work.sources, work.changes)

    def expired(self, layout: TableLayout) -> Expiry | None:
        ttl = self._choice.ttl_in_force
        if ttl is None or all(column.id != ttl.column.id for column in layout.schema.columns):
            return None
        return Expiry(column=ttl.column.name, below=ttl.below(self._clock.now_ms()))

    def report(self, work: Merge, facts: MergeFacts, duration_ms: int) -> str:
        left_out = ((facts.rows_deleted, "deleted"), (facts.rows_expired, "expired"))
        without = "".join(f", {rows} {why} rows left out" for rows, why in left_out if rows)
        cut = ""
        if len(facts.written) > 1:
            with self._counters.adding() as numbers:
                numbers.merge_ranges += len(facts.written)
            read = f"{show_bytes(facts.bytes_in)} read, {show_bytes(facts.task_bytes_max)} at most by one"
            cut = f", by {len(facts.written)} tasks: {read}"
        return f"{len(work.sources)} parts of {work.spec.partition} in {duration_ms} ms{cut}{_fewer(facts)}{without}"


def _fewer(facts: MergeFacts) -> str:
    """Return why a merge was not cut into as many ranges as it was to be; empty if it was."""
    if not facts.why_fewer:
        return ""
    made = "it was not cut" if len(facts.written) == 1 else f"only {len(facts.written)} key ranges"
    return f"; {made}, because {facts.why_fewer}"


MergeOp = PartWorkOp[Merge, MergeFacts]
