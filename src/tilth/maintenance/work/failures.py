"""The failures of one op's work that still stand, by partition: what has failed waits, longer each time.

Does not cover: how long (state.py), mutations, whose failures are those of parts (mutate/failures.py).

Tests: tests/unit/maintenance/work/test_part_work.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.logs import Log
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.state import Failure, failed_again, newest
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.planner import PartWork

_log = Log("maintenance")


class PartitionFailures:
    """Failures by partition, of one op of one table; `tilth.maintenance.work.planner.WorkFailures`. Where a file of one
    part is damaged, that part alone waits."""

    def __init__(self, kind: OpKind, watch: TableWatch) -> None:
        self._kind = kind
        self._watch = watch
        self._failures: dict[str, Failure] = {}

    def has_any(self) -> bool:
        return bool(self._failures)

    def landed(self, work: PartWork) -> None:
        with self._watch.lock:
            for partition in work.partitions:
                self._failures.pop(partition, None)
        self._watch.damaged.read(work.names)

    def missed(self, work: PartWork, error: Exception, now_ms: int) -> str:
        name = self._watch.damaged.found(error, work.sources, work.changes, now_ms)
        if name is not None:
            return f"part {name} is left out: {error}"
        for partition in work.partitions:
            with self._watch.lock:
                before = self._failures.get(partition)
                self._failures[partition] = failed_again(before, error, now_ms=now_ms, about=partition)
            action = f"{self._kind.value.lower()}_failed"
            _log.warning(action, table=self._watch.name, partition=partition, reason=error)
        return ""

    def keep(self, is_kept: Callable[[str, Failure], bool]) -> None:
        """Forget all others: there is nothing left to do that could fail."""
        with self._watch.lock:
            self._failures = {name: failure for name, failure in self._failures.items() if is_kept(name, failure)}

    def all(self) -> dict[str, Failure]:
        """Failures by partition."""
        with self._watch.lock:
            return dict(self._failures)

    def waiting(self, now_ms: int) -> dict[str, Failure]:
        """Return the failures whose next try is not due yet."""
        return {name: each for name, each in self.all().items() if each.at_ms <= now_ms < each.until_ms}

    def newest(self) -> Failure | None:
        """The one that happened last."""
        return newest(self.all().values())
