"""FLUSH of one table: row segments are sorted into parts, all that are there at once.

Covers: refreshes, which flushes one run has, the procedure. Does not cover: which segments go together
(flush/policy.py), the gain (gains.py), reserving, running, failures (maintenance/work), SYSTEM FLUSH (commands.py).
Always holds: age is that of the oldest row that waits, whenever the last flush was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tilth.base.units import show_bytes
from tilth.maintenance.flush.policy import FlushSpec, flush_runs
from tilth.maintenance.gains import flush_gain
from tilth.maintenance.kinds import OpKind, OpStats, Refused
from tilth.maintenance.one_part.procedure import OnePartProcedure
from tilth.maintenance.one_part.task_spark import MergeFacts
from tilth.maintenance.state import NEVER_MS, ServiceWork, newest
from tilth.maintenance.table.sources import ChangesOf, PartsNow, changes_of, delta_bytes, parts_now
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.failures import PartitionFailures
from tilth.maintenance.work.planner import (
    Busy,
    Denied,
    OpSnapshot,
    PartLogged,
    Planner,
    Renewed,
    WorkEnded,
    WorkEvent,
)
from tilth.model.delta import deleted_rows
from tilth.model.part import Part

#: Time between two refreshes of a table that changes.
REFRESH_BUSY_MS = 1_000
#: Events after which there may be other segments than at the last refresh.
_NEWS = frozenset({"new", "flush", "hide", "undrop", "mutate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Segments of one partition that become a part."""

    spec: FlushSpec
    #: The segments, and what changes them.
    sources: tuple[Part, ...]
    changes: ChangesOf

    @property
    def names(self) -> Sequence[str]:
        return self.spec.segments

    @property
    def partitions(self) -> Collection[str]:
        return (self.spec.partition,)

    @property
    def subject(self) -> str:
        return self.spec.partition

    @property
    def rows(self) -> int:
        """Rows without those that were deleted by then."""
        deleted = sum(deleted_rows(file, deltas) for file, deltas in self.changes.items())
        return sum(part.rows for part in self.sources) - deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """The flushes that the last observation found."""

    specs: tuple[FlushSpec, ...] = ()
    #: Number and bytes of all visible segments with their changes, reserved ones included.
    segments: int = 0
    bytes: int = 0

    @property
    def oldest_ms(self) -> int:
        """Time since which rows wait that could be flushed; 0 where there are none."""
        return self.specs[0].oldest_ms if self.specs else 0

    def without(self, partitions: Collection[str]) -> _Waiting:
        """Return the same without what is in these partitions, which cannot be flushed for now."""
        return replace(self, specs=tuple(spec for spec in self.specs if spec.partition not in partitions))

    def about(self, now_ms: int, gain: float) -> str:
        age = max(0, now_ms - self.oldest_ms) / 1000
        partitions = len({spec.partition for spec in self.specs})
        size = f"{self.segments} segments with {show_bytes(self.bytes)} in {partitions} partitions"
        return f"{size}, the oldest {age:.0f} s old, score {gain:g}"

    def why_nothing(self) -> str:
        if not self.segments:
            return "no segments"
        return f"{self.segments} segments are taken by other work, or wait after a failure"


class FlushPlanner(Planner[Flush]):
    """The row segments of one table that are worth flushing."""

    failures: PartitionFailures

    def __init__(self, context: TableContext) -> None:
        self._catalog = context.server.catalog
        self._settings = context.server.settings.flush
        self._watch = context.watch
        self.failures = PartitionFailures(OpKind.FLUSH, context.watch)
        self._waiting = _Waiting()
        #: Retry time of segments that are left out.
        self._retry_ms = NEVER_MS
        #: Segments that the last poll left out.
        self._out: frozenset[str] = frozenset()
        #: `True` if a flush has ended since the last poll.
        self._has_ended = False

    def observe(self, event: WorkEvent[Flush], now_ms: int) -> bool:
        match event:
            case PartLogged():
                return event.event.event in _NEWS
            case Denied() | WorkEnded():
                # A flush makes the known segments outdated; the next refresh follows at once.
                self._has_ended = True
                return True
            case Renewed():
                return True
        return False

    def refresh_due_ms(self, snapshot: OpSnapshot) -> int:
        if not snapshot.has_news:
            return self._retry_ms
        return min(self._retry_ms, 0 if self._has_ended else snapshot.refreshed_ms + REFRESH_BUSY_MS)

    def due_ms(self, snapshot: OpSnapshot) -> int:
        if snapshot.has_news:
            return self.refresh_due_ms(snapshot)
        if snapshot.running or not self._waiting.specs:
            # The end of a flush is an event.
            return self._retry_ms
        waiting = self._open(snapshot.now_ms)
        if waiting.specs:
            return min(waiting.oldest_ms + self._settings.threshold_secs * 1000, self._retry_ms)
        return min((failure.until_ms for failure in self.failures.all().values()), default=0)

    def refresh(self, snapshot: OpSnapshot, busy: Busy) -> None:
        self._has_ended = False
        self._retry_ms = NEVER_MS
        there = PartsNow(parts=(), changes={}) if self._watch.has_no_segments else self.read(None)
        segments = [part for part in there.parts if part.is_segment]
        self._out = frozenset(str(part.name) for part in segments) & busy.damaged
        if self._out:
            retries = self._watch.damaged.next_try_ms(snapshot.now_ms)
            self._retry_ms = min(retries, default=snapshot.now_ms + REFRESH_BUSY_MS)
        partitions = {part.name.partition for part in segments}
        self.failures.keep(lambda name, _: name in partitions)
        self._waiting = _Waiting(
            specs=tuple(each.spec for each in self.works(there, busy)),
            segments=len(segments),
            bytes=sum(part.bytes + delta_bytes(part, there.changes) for part in segments),
        )

    def choose(self, snapshot: OpSnapshot) -> OpStats:
        waiting = self._open(snapshot.now_ms)
        if not waiting.specs:
            return OpStats.idle(waiting.why_nothing())
        if snapshot.running:
            return OpStats.idle(f"{snapshot.running} flushes are running")
        gain = self._gain(waiting, snapshot.now_ms)
        about = waiting.about(snapshot.now_ms, gain)
        # Segments are files: a flush gives no memory back.
        return OpStats(is_runnable=True, perf_improvement=gain, logs_retained_bytes=waiting.bytes, about=about)

    def dequeue(self, snapshot: OpSnapshot, busy: Busy) -> Sequence[Flush] | Refused:
        failing = self.failures.waiting(snapshot.now_ms)
        works = [each for each in self.works(self.read(None), busy) if each.spec.partition not in failing]
        if works:
            return works
        # The segments of the last refresh are outdated.
        self._waiting = replace(self._waiting, specs=())
        self._has_ended = True
        return Refused("no segment can be flushed now")

    def status(self, snapshot: OpSnapshot) -> ServiceWork:
        known = self._watch.damaged.all()
        waiting = self._open(snapshot.now_ms)
        gain = self._gain(waiting, snapshot.now_ms)
        about = waiting.about(snapshot.now_ms, gain)
        return ServiceWork(
            running=snapshot.running,
            waiting=len(waiting.specs) if gain > 0 else 0,
            failure=newest([*self.failures.all().values(), *(known[name] for name in self._out if name in known)]),
            running_reason=f"{snapshot.running} flushes are running",
            waiting_reason=f"waits for a free thread: {about}",
            idle_reason=f"not worth it yet: {about}" if waiting.specs else waiting.why_nothing(),
        )

    def read(self, partition: str | None) -> PartsNow:
        """Return the visible segments of the partition, or of all; nothing where there are no segments."""
        if not self._catalog.parts.version(self._watch.uuid).segments:
            return PartsNow(parts=(), changes={})
        return parts_now(self._catalog, self._watch.uuid, None if partition is None else [partition])

    def works(self, there: PartsNow, busy: Busy, *, only: Collection[str] | None = None) -> list[Flush]:
        """Return the flushes that are possible; if segments are named, of none but those."""
        wanted = [part for part in there.parts if only is None or not part.is_segment or str(part.name) in only]
        specs = flush_runs(
            wanted,
            size_of=lambda part: part.bytes + delta_bytes(part, there.changes),
            busy=busy.all,
            # Read after the parts, so that none is missing which stands between two of them.
            mutations=self._catalog.mutations.pending(self._watch.uuid) if wanted else (),
        )
        found = [(spec, there.named(spec.segments)) for spec in specs]
        return [
            Flush(spec=spec, sources=sources, changes=changes_of(sources, there.changes)) for spec, sources in found
        ]

    def _open(self, now_ms: int) -> _Waiting:
        """Return the last observation, without flushes that failed and wait for their retry."""
        return self._waiting.without(self.failures.waiting(now_ms))

    def _gain(self, waiting: _Waiting, now_ms: int) -> float:
        if not waiting.specs:
            return 0.0
        return flush_gain(waiting.bytes, max(0, now_ms - waiting.oldest_ms), self._settings)


class FlushProcedure(OnePartProcedure[Flush]):
    """Procedure of a flush."""

    kind = OpKind.FLUSH
    verb = noun = "flush"
    event = "flush"

    def __init__(self, context: TableContext) -> None:
        super().__init__(context)
        self._counters = context.server.counters

    def about(self, works: Sequence[Flush]) -> str:
        size, count = sum(each.spec.size for each in works), sum(len(each.sources) for each in works)
        return f"{count} segments with {show_bytes(size)} into {len(works)} parts"

    def reason(self, work: Flush, facts: MergeFacts) -> str:
        return work.spec.about

    def input_bytes(self, work: Flush) -> int:
        return work.spec.size

    def report(self, work: Flush, facts: MergeFacts, duration_ms: int) -> str:
        if facts.made:
            with self._counters.adding() as numbers:
                numbers.flushed_bytes += sum(part.file.size for part in facts.made)
        deleted = f", {facts.rows_deleted} deleted rows left out" if facts.rows_deleted else ""
        return f"{len(work.sources)} segments of {work.spec.partition} in {duration_ms} ms{deleted}"

    def summary(self, works: Sequence[Flush], reports: Sequence[str]) -> str:
        segments, rows = sum(len(each.sources) for each in works), sum(each.rows for each in works)
        return f"{segments} segments, {rows} rows into {len(works)} parts"
