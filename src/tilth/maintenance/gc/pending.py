"""Times at which the partitions of a table are looked at again. Safe to use from several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.state import FAR_MS
from tilth.maintenance.work.watch import TableWatch


class PendingPartitions:
    """Pending partitions of one op and one table; the others have nothing to do."""

    def __init__(self, watch: TableWatch) -> None:
        self._lock = watch.lock
        self._due_ms: dict[str, int] = {}
        #: Time of the next query for partitions with anything to collect.
        self._ask_ms = FAR_MS

    def first_ms(self) -> int:
        """The earliest; FAR_MS where there is none."""
        with self._lock:
            return min([self._ask_ms, *self._due_ms.values()])

    def count(self) -> int:
        """Number of partitions that wait to be looked at."""
        with self._lock:
            return len(self._due_ms)

    def note(self, partition: str, at_ms: int) -> None:
        """The partition is looked at then, if not before."""
        with self._lock:
            self._due_ms[partition] = min(self._due_ms.get(partition, at_ms), at_ms)

    def note_ended(self, partition: str, due_ms: int, now_ms: int, *, pause: float) -> None:
        """Something there may go then; where that is over, somebody holds it: looked at again after a pause."""
        self.note(partition, due_ms if due_ms > now_ms else now_ms + int(pause * 1000))

    def schedule(self, at_ms: int) -> None:
        """Ask at that time, if not before, which partitions have anything to collect."""
        with self._lock:
            self._ask_ms = min(self._ask_ms, at_ms)

    def answer(self, now_ms: int, partitions: Callable[[], Iterable[str]]) -> None:
        """If it is time to ask: all that the answer names are looked at now."""
        with self._lock:
            if self._ask_ms > now_ms:
                return
        named = dict.fromkeys(partitions(), now_ms)
        with self._lock:
            self._ask_ms = FAR_MS
            self._due_ms |= named

    def each(self, done: Round, table: GcTable, collect: Callable[[Round, str, int], None]) -> None:
        """Collect in the partitions whose time has come, in all that a command names, until cancelled."""
        now_ms = table.clock.now_ms()
        known = table.catalog.parts.partitions(table.uuid)
        if done.is_command:
            partitions = [name for name in known if done.partition in (None, name)]
        else:
            partitions = self.claim(known, now_ms)
        done.partitions = len(partitions)
        for partition in partitions:
            if table.is_cancelled.is_set():
                break
            collect(done, partition, now_ms)

    def claim(self, partitions: Iterable[str], now_ms: int) -> list[str]:
        """Return the table's partitions whose time has come; they are not pending any more."""
        with self._lock:
            known = list(partitions)
            taken = [name for name in known if self._due_ms.get(name, FAR_MS) <= now_ms]
            there = set(known).difference(taken)
            self._due_ms = {name: at for name, at in self._due_ms.items() if name in there}
        return taken
