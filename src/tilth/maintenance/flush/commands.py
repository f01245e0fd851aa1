"""SYSTEM FLUSH: the segments of one table become parts at a user's word, waited for.

Tests: tests/unit/maintenance/flush/test_op.py.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tilth.base.cancel import raise_if_cancelled
from tilth.base.errors import CorruptError, UnavailableError
from tilth.maintenance.damage.book import CURE
from tilth.maintenance.flush.op import Flush, FlushPlanner, FlushProcedure
from tilth.maintenance.one_part.task_spark import MergeFacts
from tilth.maintenance.state import is_failure
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.part_work import PartWorkOp

FLUSH_WAIT_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport:
    """Report of SYSTEM FLUSH."""

    segments: int
    #: Parts made of them; none of segments whose rows are all deleted.
    parts: int
    #: Rows of those parts.
    rows: int
    #: Bytes of the segments with their changes.
    bytes: int
    seconds: float


class DamagedSegmentsError(CorruptError):
    """segments that cannot be read were not flushed; all others were"""

    code = "SEGMENTS_DAMAGED"


class FlushCommands:
    """The op of one table's row segments, and SYSTEM FLUSH. For any thread."""

    def __init__(self, context: TableContext) -> None:
        self._clock = context.server.clock
        self._watch = context.watch
        self._planner = FlushPlanner(context)
        self.op: PartWorkOp[Flush, MergeFacts] = PartWorkOp(context, self._planner, FlushProcedure(context))

    def flush_now(self, partition: str | None = None) -> FlushReport:
        """Flush every segment that is visible now, and wait for flushes and rewrites of them that are under way.

        Raises what a flush failed with, and UnavailableError when other work holds segments for too long. Raises
        DamagedSegmentsError, when all others are flushed, for segments that cannot be read.
        """
        started, deadline_ms = self._clock.monotonic(), self._clock.now_ms() + FLUSH_WAIT_MS
        done: list[Flush] = []
        wanted: frozenset[str] | None = None
        while not self.op.is_cancelled:
            raise_if_cancelled()
            busy = self.op.busy(self._clock.now_ms())
            there = self._planner.read(partition)
            segments = frozenset(str(part.name) for part in there.parts if part.is_segment)
            left = segments - busy.damaged
            # Segments that come later are not waited for.
            wanted = left if wanted is None else wanted & left
            if not wanted:
                self._check_none(segments & busy.damaged)
                break
            flushes = self.op.begin(self._planner.works(there, busy, only=wanted))
            if not flushes:
                self._wait(deadline_ms, len(wanted))
                continue
            results = self.op.run(flushes)
            done += [each for each, result in zip(flushes, results, strict=True) if isinstance(result, str)]
            failed = [result for result in results if isinstance(result, Exception) and is_failure(result)]
            # Segments that a failed flush found to be damaged are left out from now on, and named in the end.
            if failed and self._watch.damaged.left_out(self._clock.now_ms()) <= segments & busy.damaged:
                raise failed[0]
        return FlushReport(
            segments=sum(len(each.sources) for each in done),
            parts=sum(each.rows > 0 for each in done),
            rows=sum(each.rows for each in done),
            bytes=sum(each.spec.size for each in done),
            seconds=self._clock.monotonic() - started,
        )

    def _check_none(self, out: Collection[str]) -> None:
        if out:
            known = self._watch.damaged.all()
            because = next((known[name].reason for name in sorted(out) if name in known), "")
            raise DamagedSegmentsError(table=self._watch.name, segments=len(out), because=because, hint=CURE)

    def _wait(self, deadline_ms: int, count: int) -> None:
        if self._clock.now_ms() >= deadline_ms:
            raise UnavailableError.coded(
                "FLUSH_STUCK",
                "segments could not be flushed in time",
                table=self._watch.name,
                segments=count,
                hint="see system.bg_threads for what holds them",
            )
        self._watch.reserved.wait()
        self.op.resolve()
