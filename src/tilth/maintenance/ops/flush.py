"""FLUSH of one table: row segments are sorted into parts, all that are there at once.

Covers: looking, taking segments, running, the wait after failures, SYSTEM FLUSH. Does not cover: which segments go
together (policy/flush_runs.py), what it is worth (policy/flush_scores.py), one flush and its commit (flush_work.py,
attempt.py), the slot it runs in (manager.py).
Always holds: a segment is taken by one flush or rewrite at a time and given back when its outcome is known; the set of
taken ones is copied before parts are read; age is that of the oldest row that waits, whenever the last flush was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from tilth.base.cancel import carried, raise_if_cancelled
from tilth.base.clock import Clock
from tilth.base.errors import CorruptError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.units import show_bytes
from tilth.catalog import Catalog
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.damage import CURE
from tilth.maintenance.op import NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.ops.attempt import Attempts, Translator, translation_of
from tilth.maintenance.ops.failures import PartitionFailures
from tilth.maintenance.ops.flush_work import Flush, FlushRecipe
from tilth.maintenance.ops.sources import PartsNow, changes_of, delta_bytes, parts_now
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy.flush_runs import FlushSpec, flush_runs
from tilth.maintenance.policy.flush_scores import flush_gain
from tilth.maintenance.policy.settings import FlushSettings
from tilth.maintenance.state import (
    Failure,
    ServiceState,
    ServiceWork,
    is_failure,
    newest,
    service_told,
)
from tilth.maintenance.stats import FlushReport
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.part import Part, PartEvent
from tilth.model.service import ServiceKind
from tilth.warehouse import Dispatcher, TaskCancelledError

#: Between two looks at a table that changes.
LOOK_BUSY_MS = 1_000
#: Parts of one run at once; the warehouse's slots bound it further.
FLUSH_THREADS = 4
FLUSH_WAIT_MS = 600_000
#: After these there may be other segments than the last look saw.
_TELLING_EVENTS = frozenset({"new", "flush", "hide", "undrop", "mutate"})


class DamagedSegmentsError(CorruptError):
    """segments that cannot be read were not flushed; all others were"""

    code = "SEGMENTS_DAMAGED"


class FlushStuckError(UnavailableError):
    """segments could not be flushed in time"""

    code = "FLUSH_STUCK"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """What the last look saw."""

    specs: tuple[FlushSpec, ...] = ()
    #: Of all visible segments with their changes, those that are taken too.
    segments: int = 0
    bytes: int = 0

    @property
    def oldest_ms(self) -> int:
        """Since when rows wait that could be flushed; 0 where there are none."""
        return self.specs[0].oldest_ms if self.specs else 0

    def without(self, partitions: Collection[str]) -> _Waiting:
        """Where nothing of these partitions can be flushed for now."""
        return replace(self, specs=tuple(spec for spec in self.specs if spec.partition not in partitions))

    def about(self, now_ms: int, gain: float) -> str:
        age = max(0, now_ms - self.oldest_ms) / 1000
        partitions = len({spec.partition for spec in self.specs})
        told = f"{self.segments} segments with {show_bytes(self.bytes)} in {partitions} partitions"
        return f"{told}, the oldest {age:.0f} s old, score {gain:g}"


class FlushOp:
    """`tilth.maintenance.op.Op` for the row segments of one table."""

    kind = OpKind.FLUSH
    service = ServiceKind.FLUSH

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        *,
        settings: FlushSettings,
        switched_off_by: str,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
        told: Callable[[str, str], None],
        tally: Tally,
        translator: Translator = translation_of,
    ) -> None:
        """`switched_off_by`: the setting that is off, empty: none; `told(partition, reason)` takes refusals for the
        record; `translator` brings over what changes in segments while they are flushed.
        """
        self._clock = clock
        self._catalog = catalog
        self._settings = settings
        self._switched_off_by = switched_off_by
        self._watch = watch
        self._told = told
        self._tally = tally
        self._attempts = Attempts(
            clock,
            catalog,
            dispatcher,
            root,
            FlushRecipe(root, watch=watch, flushed=tally.flushed),
            watch=watch,
            owner=owner,
            cleaner=cleaner,
            translator=translator,
        )
        self._waiting = _Waiting()
        #: When segments that are left out are tried again.
        self._retry_ms = FAR_MS
        #: Flushes under way, of the background and of commands.
        self._running = 0
        self._failures = PartitionFailures(self.kind, watch)
        #: Segments that the last look left out.
        self._out: frozenset[str] = frozenset()
        self._has_news = True
        #: Whether a flush has ended since the last look.
        self._has_ended = False
        self._is_cancelled = threading.Event()
        #: Looks so far, and when the last one was.
        self.wakeups = 0
        self.last_wakeup_ms = 0

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def running(self) -> int:
        return self._running

    @property
    def live_txns(self) -> set[int]:
        """Transactions that this op works on, or whose outcome it still has to find out."""
        return self._attempts.txns

    @property
    def due_ms(self) -> int:
        """When `stats` may say something new, if nothing is noticed before."""
        if self._attempts.has_unknown:
            return 0
        if self._switched_off_by:
            return FAR_MS
        if self._has_news:
            return 0 if self._has_ended else self.last_wakeup_ms + LOOK_BUSY_MS
        if self._running or not self._waiting.specs:
            # The end of a flush is noticed.
            return self._retry_ms
        waiting = self._open(self._clock.now_ms())
        if waiting.specs:
            return min(waiting.oldest_ms + self._settings.threshold_secs * 1000, self._retry_ms)
        return min((failure.until_ms for failure in self._failures.all().values()), default=0)

    def observe(self, event: PartEvent, partition: str) -> None:
        """A line of the part log about this table."""
        if event.event in _TELLING_EVENTS:
            self._notice()

    def notice_all(self) -> None:
        """News were lost, or definition, settings or mutations have changed."""
        self._notice()

    def cancel(self) -> None:
        """The table is gone or the server stops: no new flush, running ones are asked to end."""
        self._is_cancelled.set()
        self._attempts.cancel_all()

    def cancel_partition(self, partition: str | None) -> int:
        """Flushes of the partition are asked to end, all for none; returns how many run."""
        return self._attempts.cancel(lambda flush: partition in (None, flush.spec.partition))

    def stats(self) -> OpStats | None:
        now_ms = self._clock.now_ms()
        if self._is_cancelled.is_set():
            return None
        self._resolve_unknown()
        if not self._watch.is_on(self.service, now_ms):
            return OpStats.idle("stopped by the user")
        if self._switched_off_by:
            return OpStats.idle(f"{self._switched_off_by} is off")
        if self._is_look_due(now_ms):
            self._look(now_ms)
        waiting = self._open(now_ms)
        if not waiting.specs:
            return OpStats.idle(_why_nothing(waiting))
        if self._running:
            return OpStats.idle(f"{self._running} flushes are running")
        gain = self._gain(waiting, now_ms)
        return OpStats(
            is_runnable=True,
            ram_anchored_bytes=waiting.bytes,
            logs_retained_bytes=waiting.bytes,
            perf_improvement=gain,
            priority=self._watch.knobs.priority,
            about=waiting.about(now_ms, gain),
        )

    def prepare(self) -> Prepared | NotPrepared:
        there, specs = self._read(None)
        failing = self._failures.waiting(self._clock.now_ms())
        flushes = self._take(there, [spec for spec in specs if spec.partition not in failing])
        if not flushes:
            # What the last look saw is old.
            self._has_ended = True
            self._notice()
            return NotPrepared("no segment can be flushed now")
        size, count = sum(each.spec.size for each in flushes), sum(len(each.sources) for each in flushes)
        return Prepared(about=f"{count} segments with {show_bytes(size)} into {len(flushes)} parts", work=flushes)

    def abandon(self, prepared: Prepared) -> None:
        for flush in _work_of(prepared):
            self._give_back(flush)

    def perform(self, prepared: Prepared) -> str:
        flushes = _work_of(prepared)
        with self._tally.run(self.kind):
            errors = [error for error in self._perform(flushes) if error is not None]
        if errors:
            raise errors[0]
        rows = sum(each.rows for each in flushes)
        return f"{sum(len(each.sources) for each in flushes)} segments, {rows} rows into {len(flushes)} parts"

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        with self._watch.lock:
            out = self._out
        known = self._watch.damaged.all()
        failure = newest([*self._failures.all().values(), *(known[name] for name in out if name in known)])
        waiting = self._open(now_ms)
        gain = self._gain(waiting, now_ms)
        about = waiting.about(now_ms, gain)
        work = ServiceWork(
            running=self._running,
            waiting=len(waiting.specs) if gain > 0 else 0,
            failure=failure,
            running_reason=f"{self._running} flushes are running",
            waiting_reason=f"waits for a free thread: {about}",
            idle_reason=f"not worth it yet: {about}" if waiting.specs else _why_nothing(waiting),
        )
        if self._switched_off_by:
            return ServiceState.STOPPED, f"{self._switched_off_by} is off", failure
        return service_told(self._watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def flush_now(self, partition: str | None = None) -> FlushReport:
        """Flushes every segment that is visible now, and waits for flushes and rewrites of them that are under way.

        Raises what a flush failed with, and FlushStuckError when other work holds segments for too long. Raises
        DamagedSegmentsError, when all others are flushed, for segments that cannot be read.
        """
        started, deadline_ms = self._clock.monotonic(), self._clock.now_ms() + FLUSH_WAIT_MS
        done: list[Flush] = []
        wanted: frozenset[str] | None = None
        while not self._is_cancelled.is_set():
            raise_if_cancelled()
            there, specs = self._read(partition, only=wanted)
            segments = [part for part in there.parts if part.is_segment]
            out = self._left_out(segments, self._clock.now_ms())
            left = frozenset(str(part.name) for part in segments) - out
            # What comes later is not waited for.
            wanted = left if wanted is None else wanted & left
            if not wanted:
                self._check_none(out)
                break
            flushes = self._take(there, specs)
            if not flushes:
                self._wait(deadline_ms, len(wanted))
                continue
            with self._tally.run(self.kind):
                errors = self._perform(flushes)
            done += [each for each, error in zip(flushes, errors, strict=True) if error is None]
            failed = [error for error in errors if error is not None and is_failure(error)]
            # Segments that a failed flush found to be damaged are left out from now on, and named in the end.
            if failed and self._watch.damaged.left_out(self._clock.now_ms()) <= out:
                raise failed[0]
        return FlushReport(
            segments=sum(len(each.sources) for each in done),
            parts=sum(each.rows > 0 for each in done),
            rows=sum(each.rows for each in done),
            bytes=sum(each.spec.size for each in done),
            seconds=self._clock.monotonic() - started,
        )

    def _check_none(self, out: Collection[str]) -> None:
        """Raises DamagedSegmentsError for segments that were left out."""
        if out:
            known = self._watch.damaged.all()
            because = next((known[name].reason for name in sorted(out) if name in known), "")
            raise DamagedSegmentsError(table=self._watch.name, segments=len(out), because=because, hint=CURE)

    # --- looking ---

    def _is_look_due(self, now_ms: int) -> bool:
        # What is known ends with a flush; the next look follows at once.
        if now_ms >= self._retry_ms:
            return True
        return self._has_news and (self._has_ended or now_ms - self.last_wakeup_ms >= LOOK_BUSY_MS)

    def _look(self, now_ms: int) -> None:
        self.wakeups += 1
        self.last_wakeup_ms = now_ms
        self._has_news = self._has_ended = False
        self._retry_ms = FAR_MS
        try:
            there, specs = self._read(None)
        except TilthError:
            # What was not read is still news: the next look reads it.
            self._has_news = True
            raise
        segments = [part for part in there.parts if part.is_segment]
        out = self._left_out(segments, now_ms)
        if out:
            self._retry_ms = min(self._watch.damaged.next_try_ms(now_ms), default=now_ms + LOOK_BUSY_MS)
        partitions = {part.name.partition for part in segments}
        self._failures.keep(lambda name, _: name in partitions)
        self._waiting = _Waiting(
            specs=tuple(specs),
            segments=len(segments),
            bytes=sum(part.bytes + delta_bytes(part, there.changes) for part in segments),
        )

    def _read(self, partition: str | None, *, only: frozenset[str] | None = None) -> tuple[PartsNow, list[FlushSpec]]:
        """What is visible, and what could be flushed of it; of the segments none but those named, if some are."""
        taken = self._watch.taken.now() | self._watch.damaged.left_out(self._clock.now_ms())
        if not self._catalog.parts.version(self._watch.uuid).segments:
            return PartsNow(parts=(), changes={}), []
        there = parts_now(self._catalog, self._watch.uuid, None if partition is None else [partition])
        wanted = [part for part in there.parts if only is None or not part.is_segment or str(part.name) in only]
        specs = flush_runs(
            wanted,
            size_of=lambda part: part.bytes + delta_bytes(part, there.changes),
            taken=taken,
            # Read after the parts, so that none is missing which stands between two of them.
            mutations=self._catalog.mutations.pending(self._watch.uuid),
        )
        return there, specs

    def _left_out(self, segments: Sequence[Part], now_ms: int) -> frozenset[str]:
        """Of these segments those that cannot be read."""
        damaged = self._watch.damaged.left_out(now_ms)
        self._out = frozenset(str(part.name) for part in segments if str(part.name) in damaged)
        return self._out

    def _open(self, now_ms: int) -> _Waiting:
        """What the last look saw, without what has failed a moment ago."""
        return self._waiting.without(self._failures.waiting(now_ms))

    def _gain(self, waiting: _Waiting, now_ms: int) -> float:
        if not waiting.specs:
            return 0.0
        return flush_gain(waiting.bytes, max(0, now_ms - waiting.oldest_ms), self._settings)

    def _notice(self) -> None:
        self._has_news = True
        self._watch.is_woken = True

    # --- taking and giving back ---

    def _take(self, there: PartsNow, specs: Sequence[FlushSpec]) -> list[Flush]:
        """Those whose segments nobody has taken meanwhile, counted as running."""
        flushes: list[Flush] = []
        for spec in specs:
            sources = there.named(spec.segments)
            if not self._watch.taken.take(spec.segments):
                continue
            with self._watch.lock:
                self._running += 1
            flushes.append(Flush(spec=spec, sources=sources, changes=changes_of(sources, there.changes)))
        return flushes

    def _give_back(self, flush: Flush, *, keeps_parts: bool = False) -> None:
        with self._watch.lock:
            self._running -= 1
        if not keeps_parts:
            self._watch.taken.give_back(flush.spec.segments)
        self._has_ended = True
        self._notice()

    def _wait(self, deadline_ms: int, count: int) -> None:
        """For other work that has taken the segments."""
        if self._clock.now_ms() >= deadline_ms:
            raise FlushStuckError(
                table=self._watch.name, segments=count, hint="see system.bg_threads for what holds them"
            )
        self._watch.taken.wait()
        self._resolve_unknown()

    # --- doing ---

    def _perform(self, flushes: Sequence[Flush]) -> list[Exception | None]:
        """The error of each that did not land."""
        if len(flushes) == 1:
            return [self._perform_one(flushes[0])]
        with ThreadPoolExecutor(min(FLUSH_THREADS, len(flushes)), thread_name_prefix="tilth-flush") as pool:
            return list(pool.map(carried(self._perform_one), flushes))

    def _perform_one(self, flush: Flush) -> Exception | None:
        keeps_parts = False
        try:
            self._attempts.perform(flush)
        except UnknownOutcomeError as error:
            keeps_parts = True
            return error
        # Whatever it was, the others go on, and it is told.
        except Exception as error:
            self._missed(flush, error)
            return error
        else:
            self._failures.succeeded(flush.spec.partition)
            self._watch.damaged.read(flush.spec.segments)
            return None
        finally:
            self._give_back(flush, keeps_parts=keeps_parts)

    def _resolve_unknown(self) -> None:
        for flush, error in self._attempts.resolve():
            if error is not None:
                self._missed(flush, error)
            self._watch.taken.give_back(flush.spec.segments)
            self._has_ended = True
            self._notice()

    def _missed(self, flush: Flush, error: Exception) -> None:
        """What follows from a flush that did not land; a failure stands in `system.bg_threads` and waits.

        Where a file of one segment is damaged, that segment alone waits.
        """
        partition, now_ms = flush.spec.partition, self._clock.now_ms()
        if isinstance(error, TaskCancelledError) or not is_failure(error):
            # A drop or a stop of the server, or the table went on without us.
            self._told(partition, str(error))
            return
        name = self._watch.damaged.found(error, flush.sources, flush.changes, now_ms)
        if name is None:
            self._failures.failed(partition, error, now_ms)
        else:
            self._told(partition, f"segment {name} is left out: {error}")


def _why_nothing(waiting: _Waiting) -> str:
    if not waiting.segments:
        return "no segments"
    return f"{waiting.segments} segments are taken by other work, or wait after a failure"


def _work_of(prepared: Prepared) -> list[Flush]:
    assert isinstance(prepared.work, list)
    return prepared.work
