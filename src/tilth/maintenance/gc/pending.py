"""Partitions of a table that a collector checks again: when, and for how many bytes. For any thread.

Tests: tests/unit/maintenance/gc/test_log_gc.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tilth.base.hybrid import milliseconds
from tilth.base.units import show_bytes
from tilth.maintenance.gc.round import GcTable, Round, promised_ms
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.table.settings import GcSettings
from tilth.maintenance.table.watch import TableWatch


class PendingPartitions:
    """Pending partitions of one op and one table; the others have nothing to do."""

    def __init__(self, watch: TableWatch) -> None:
        self._lock = watch.lock
        self._due_ms: dict[str, int] = {}
        #: Sum of the known bytes of each partition's pending parts.
        self._bytes: dict[str, int] = {}
        #: Time of the next query for partitions with anything to collect.
        self._query_ms = NEVER_MS

    def first_ms(self) -> int:
        """Return the earliest due time; NEVER_MS where there is none."""
        with self._lock:
            return min([self._query_ms, *self._due_ms.values()])

    def count(self) -> int:
        """Return the number of partitions that wait for their check."""
        with self._lock:
            return len(self._due_ms)

    def expect(self, partition: str) -> None:
        """Note that something waits in the partition, whose bytes are not known yet."""
        with self._lock:
            self._bytes.setdefault(partition, 0)

    def waiting(self) -> list[str]:
        """Return the partitions where something is known to wait."""
        with self._lock:
            return list(self._bytes)

    def retained(self) -> int:
        """Return the bytes that are known to wait."""
        with self._lock:
            return sum(self._bytes.values())

    def waits(self, text: str) -> str:
        """Say what waits, with how much of it in the text's gap; empty: nothing does."""
        size, partitions = self.retained(), self.count()
        if not size and not partitions:
            return ""
        # Parts that have ended since the last read have no known bytes yet.
        return text.format(f" with {show_bytes(size)}" if size else f" of {partitions} partitions")

    def plan(
        self,
        partition: str,
        ended: Sequence[tuple[int, int]],
        now_ms: int,
        settings: GcSettings,
        *,
        has_others: bool = False,
    ) -> None:
        """Note what waits there now, with the bytes and the end of each: the partition is due when the first may go.
        With `has_others` something else waits there, too."""
        with self._lock:
            if ended or has_others:
                self._bytes[partition] = sum(size for size, _ in ended)
            else:
                self._bytes.pop(partition, None)
        if ended:
            due_ms = min(milliseconds(end_ts) for _, end_ts in ended) + promised_ms(settings) + 1
            # A time that is over means that a reader holds a part.
            self.note(partition, due_ms if due_ms > now_ms else now_ms + int(settings.pause * 1000))

    def note(self, partition: str, at_ms: int) -> None:
        """Check the partition at that time, if not before."""
        with self._lock:
            self._due_ms[partition] = min(self._due_ms.get(partition, at_ms), at_ms)

    def schedule(self, at_ms: int) -> None:
        """Query at that time, if not before, which partitions have anything to collect."""
        with self._lock:
            self._query_ms = min(self._query_ms, at_ms)

    def answer(self, now_ms: int, partitions: Callable[[], Iterable[str]]) -> None:
        """Query the partitions if that is due; those of the answer are due now."""
        with self._lock:
            if self._query_ms > now_ms:
                return
        named = dict.fromkeys(partitions(), now_ms)
        with self._lock:
            self._query_ms = NEVER_MS
            self._due_ms |= named

    def each(self, done: Round, table: GcTable, collect: Callable[[Round, str, int], None]) -> None:
        """Collect in the partitions whose time has come, in all that a command names, until cancelled."""
        now_ms = table.clock.now_ms()
        known = table.catalog.parts.partitions(table.uuid)
        if done.is_command:
            partitions = [name for name in known if done.partition in (None, name)]
        else:
            partitions = self.dequeue(known, now_ms)
        done.partitions = len(partitions)
        for partition in partitions:
            if table.watch.is_cancelled.is_set():
                break
            collect(done, partition, now_ms)

    def dequeue(self, partitions: Iterable[str], now_ms: int) -> list[str]:
        """Return the table's partitions whose time has come; they are not pending any more."""
        with self._lock:
            known = list(partitions)
            due = [name for name in known if self._due_ms.get(name, NEVER_MS) <= now_ms]
            there = set(known).difference(due)
            self._due_ms = {name: at for name, at in self._due_ms.items() if name in there}
        return due
