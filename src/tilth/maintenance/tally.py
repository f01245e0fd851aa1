"""What maintenance has done since the start, in numbers for metrics.

Covers: counting. Does not cover: single runs, which the manager remembers, and what is true of a table (catalog).
Always holds: the numbers only grow, but for those under way; a table that goes takes none of them with it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilth.base.clock import Clock
from tilth.maintenance.op import OpKind
from tilth.maintenance.stats import RUN_MILLISECONDS, GcReport, MaintenanceNumbers, OpNumbers


@dataclass(slots=True)
class _Count:
    running: int = 0
    ended: int = 0
    milliseconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(RUN_MILLISECONDS) + 1))

    def add(self, milliseconds: float) -> None:
        self.ended += 1
        self.milliseconds += milliseconds
        self.counts[bisect_left(RUN_MILLISECONDS, milliseconds)] += 1

    def numbers(self) -> OpNumbers:
        return OpNumbers(
            running=self.running, ended=self.ended, milliseconds=self.milliseconds, counts=tuple(self.counts)
        )


@dataclass(slots=True)
class _Counts:
    runs: defaultdict[OpKind, _Count] = field(default_factory=lambda: defaultdict(_Count))
    expired: int = 0
    moved: int = 0
    removed: int = 0
    removed_bytes: int = 0
    #: Bytes that rounds of the other kinds of collecting freed.
    freed: defaultdict[OpKind, int] = field(default_factory=lambda: defaultdict(int))
    flushed_bytes: int = 0
    prepare_failed: int = 0
    choices: int = 0
    choosing_microseconds: float = 0.0


class Tally:
    """The numbers of one manager. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = _Counts()

    @contextmanager
    def run(self, kind: OpKind) -> Iterator[None]:
        """Counts what is done inside as one run, however it ends; of the background or of a command."""
        started = self._clock.monotonic()
        with self._lock:
            count = self._counts.runs[kind]
            count.running += 1
        try:
            yield
        finally:
            with self._lock:
                count.running -= 1
                count.add((self._clock.monotonic() - started) * 1000)

    def collected(self, report: GcReport) -> None:
        """What a round of collecting did, also one that broke off."""
        with self._lock:
            self._counts.expired += report.expired
            self._counts.moved += report.moved
            self._counts.removed += report.removed
            self._counts.removed_bytes += report.removed_bytes

    def freed(self, kind: OpKind, report: GcReport) -> None:
        """What a round of another kind of collecting did, also one that broke off."""
        with self._lock:
            self._counts.freed[kind] += report.removed_bytes
            if kind is not OpKind.DELETED_PART_GC:
                self._counts.moved += report.moved
                self._counts.removed += report.removed
                self._counts.removed_bytes += report.removed_bytes

    def flushed(self, size: int) -> None:
        """A flush made parts of so many bytes."""
        with self._lock:
            self._counts.flushed_bytes += size

    def chose(self, seconds: float) -> None:
        """One look with its choice or refusal took so long."""
        with self._lock:
            self._counts.choices += 1
            self._counts.choosing_microseconds += seconds * 1e6

    def prepare_failed(self) -> None:
        """What was chosen had nothing to do any more, or could not be prepared."""
        with self._lock:
            self._counts.prepare_failed += 1

    def numbers(self, waiting: Mapping[OpKind, int]) -> MaintenanceNumbers:
        """`waiting`: bytes at this moment, by the kind of op that is for them."""
        with self._lock:
            counts = self._counts
            return MaintenanceNumbers(
                merges=counts.runs[OpKind.MERGE].numbers(),
                mutations=counts.runs[OpKind.MUTATE].numbers(),
                collections=counts.runs[OpKind.PART_GC].numbers(),
                flushes=counts.runs[OpKind.FLUSH].numbers(),
                delta_flushes=counts.runs[OpKind.FLUSH_DELTAS].numbers(),
                minor_compactions=counts.runs[OpKind.MINOR_DELTA].numbers(),
                major_compactions=counts.runs[OpKind.MAJOR_DELTA].numbers(),
                log_collections=counts.runs[OpKind.LOG_GC].numbers(),
                history_collections=counts.runs[OpKind.HISTORY_GC].numbers(),
                deleted_part_collections=counts.runs[OpKind.DELETED_PART_GC].numbers(),
                flushed_bytes=counts.flushed_bytes,
                history_bytes=counts.freed[OpKind.HISTORY_GC],
                deleted_part_bytes=counts.freed[OpKind.DELETED_PART_GC],
                segment_bytes=waiting.get(OpKind.FLUSH, 0),
                history_waiting_bytes=waiting.get(OpKind.HISTORY_GC, 0),
                deleted_part_waiting_bytes=waiting.get(OpKind.DELETED_PART_GC, 0),
                expired=counts.expired,
                moved=counts.moved,
                removed=counts.removed,
                removed_bytes=counts.removed_bytes,
                prepare_failed=counts.prepare_failed,
                choices=counts.choices,
                choosing_microseconds=counts.choosing_microseconds,
            )
