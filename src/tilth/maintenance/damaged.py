"""Damaged parts of one table: merges and compactions of deltas go around them, so that one bad file stops no others.

Covers: which part an error is about, how long it is left out. Does not cover: rewrites of mutations, which remember
failures by part anyway (ops/mutate.py), segments.
Always holds: a part is left out only after work on it met a damaged or missing file that the error names; it is tried
again after a wait that grows, and is forgotten when that succeeds or when the part is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from tilth.base.errors import CorruptError
from tilth.base.logs import Log
from tilth.maintenance.state import Failure, failed_again, newest
from tilth.model.delta import Delta
from tilth.model.part import Part, parse_part_name

#: Parts that are remembered; more than these are a lost disk, and their partitions wait as a whole.
DAMAGED_MAX = 1_000

_log = Log("maintenance")


class DamagedParts:
    """Of one table, by the names of the parts. For any thread."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._failures: dict[str, Failure] = {}

    def found(
        self, error: Exception, sources: Iterable[Part], changes: Mapping[str, Iterable[Delta]], now_ms: int
    ) -> str | None:
        """The part that the error is about, left out from now on; None where it names none of these."""
        if not isinstance(error, CorruptError):
            return None
        file = error.facts.get("file", "").rpartition("/")[2]
        part = next((each for each in sources if file and file in _files(each, changes)), None)
        if part is None:
            return None
        name = str(part.name)
        with self._lock:
            if name not in self._failures and len(self._failures) >= DAMAGED_MAX:
                return None
            about = f"part {name} is left out"
            self._failures[name] = failed_again(self._failures.get(name), error, now_ms=now_ms, about=about)
        _log.warning("part_left_out", part=name, reason=error)
        return name

    def left_out(self, now_ms: int) -> frozenset[str]:
        """Those whose next try is not due yet."""
        with self._lock:
            return frozenset(name for name, failure in self._failures.items() if failure.until_ms > now_ms)

    def all(self) -> dict[str, Failure]:
        """By part."""
        with self._lock:
            return dict(self._failures)

    def newest(self) -> Failure | None:
        """The one that happened last."""
        return newest(self.all().values())

    def next_try_ms(self, now_ms: int) -> list[int]:
        """When those that are left out are tried again."""
        return [failure.until_ms for failure in self.all().values() if failure.until_ms > now_ms]

    def read(self, names: Iterable[object]) -> None:
        """These parts were read well, or are gone."""
        with self._lock:
            for name in names:
                self._failures.pop(str(name), None)

    def keep(self, partition: str, there: Collection[str]) -> None:
        """Forgets the parts of the partition that are not there any more."""
        if not self._failures:
            return
        with self._lock:
            gone = [name for name in self._failures if parse_part_name(name).partition == partition]
            self.read(name for name in gone if name not in there)


def _files(part: Part, changes: Mapping[str, Iterable[Delta]]) -> set[str]:
    """The names of the part's file and of those that change its rows."""
    return {part.file.name, *(delta.file.name for delta in changes.get(part.file.name, ()))}
