"""Damaged parts of one table: merges, flushes and compactions of deltas go around them, so that one bad file stops no
others.

Covers: which part an error is about, how long it is left out. Does not cover: what is known of damaged files beyond
this run of the server (book.py), rewrites of mutations, which remember failures by part anyway (mutate/failures.py).
Always holds: a part is left out while its file stands in the book of damaged files, or for a wait that grows after
work on it met a file that the error names; it is forgotten when work on it succeeds or when the part is gone.

Tests: tests/unit/maintenance/damage/test_book.py.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from tilth.base.errors import CorruptError
from tilth.base.logs import Log
from tilth.maintenance.damage.book import CURE, DamageBook, file_names
from tilth.maintenance.state import Failure, failed_again, newest
from tilth.model.delta import Delta
from tilth.model.part import Part, parse_part_name

#: Parts that are remembered; more than these are a lost disk, and their partitions wait as a whole.
DAMAGED_MAX = 1_000
#: Parts that a line about an operation names.
NAMED_MAX = 3

_log = Log("maintenance")


class DamagedParts:
    """Damaged parts of one table, by name. For any thread."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._failures: dict[str, Failure] = {}
        #: Parts among these whose files were in the book; they need not wait once the book has them no more.
        self._confirmed: set[str] = set()
        self._book: DamageBook | None = None
        self._table = ""

    def follow(self, book: DamageBook, table: str) -> None:
        """Count what the book says of the table too, from now on."""
        self._book, self._table = book, table

    def report(self, error: Exception, parts: Iterable[Part], deltas: Iterable[Delta]) -> None:
        """Let the book check the file that the error names."""
        if self._book is not None:
            self._book.report(self._table, error, parts, deltas)

    def found(
        self, error: Exception, sources: Iterable[Part], changes: Mapping[str, Iterable[Delta]], now_ms: int
    ) -> str | None:
        """The part that the error is about, left out from now on; None where it names none of these."""
        if not isinstance(error, CorruptError):
            return None
        parts = list(sources)
        file = error.facts.get("file", "").rpartition("/")[2]
        part = next((each for each in parts if file and file in file_names(each, changes)), None)
        if part is None:
            return None
        name, is_confirmed = str(part.name), False
        if self._book is not None:
            deltas = {delta.file.name: delta for each in parts for delta in changes.get(each.file.name, ())}
            is_confirmed = self._book.report(self._table, error, parts, deltas.values()) is not None
        with self._lock:
            if name not in self._failures and len(self._failures) >= DAMAGED_MAX:
                return None
            if is_confirmed:
                self._confirmed.add(name)
            about = f"part {name} is left out"
            self._failures[name] = failed_again(self._failures.get(name), error, now_ms=now_ms, about=about)
        _log.warning("part_left_out", part=name, reason=error)
        return name

    def left_out(self, now_ms: int) -> frozenset[str]:
        """Return the parts that the book has, and those whose next try is not due yet."""
        known = self.all()
        in_book = self._in_book().keys()
        return frozenset(name for name, failure in known.items() if name in in_book or failure.until_ms > now_ms)

    def all(self) -> dict[str, Failure]:
        """Failures by part."""
        in_book = self._in_book()
        with self._lock:
            for name in self._confirmed - in_book.keys():
                self._confirmed.discard(name)
                self._failures.pop(name, None)
            return {**self._failures, **in_book}

    def has_any(self) -> bool:
        """Return whether parts are left out. Without a lock where no file is damaged."""
        return bool(self._failures) or (self._book is not None and bool(self._book.of(self._table)))

    def newest(self) -> Failure | None:
        """The one that happened last."""
        return newest(self.all().values())

    def next_try_ms(self, now_ms: int) -> list[int]:
        """Return when those that are left out are tried again."""
        return [failure.until_ms for failure in self.all().values() if failure.until_ms > now_ms]

    def about(self) -> str:
        """Say which parts are left out, why, and what to do; empty: none."""
        failures = self.all()
        if not failures:
            return ""
        named = [failures[name].reason for name in sorted(failures)[:NAMED_MAX]]
        more = [f"{len(failures) - NAMED_MAX} more parts are left out"] if len(failures) > NAMED_MAX else []
        return "; ".join([*named, *more, CURE])

    def read(self, names: Iterable[object]) -> None:
        """These parts were read well, or are gone."""
        with self._lock:
            for name in names:
                self._failures.pop(str(name), None)

    def keep(self, partition: str, there: Collection[str]) -> None:
        """Forget the parts of the partition that are not there any more."""
        if not self._failures:
            return
        with self._lock:
            gone = [name for name in self._failures if parse_part_name(name).partition == partition]
            self.read(name for name in gone if name not in there)

    def _in_book(self) -> dict[str, Failure]:
        if self._book is None:
            return {}
        until_ms = self._book.next_recheck_ms
        return {
            name: Failure(
                count=1, reason=f"part {name} is left out: {file.reason}", at_ms=file.since_ms, until_ms=until_ms
            )
            for name, file in self._book.parts_of(self._table).items()
        }
