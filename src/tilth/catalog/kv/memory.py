"""A key-value store in memory, for tests and trials. Nothing survives the process."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tilth.catalog.errors import ClockSkewError
from tilth.catalog.kv.incarnation import ONLY
from tilth.catalog.kv.protocol import (
    FIRST_KEY,
    Absent,
    AtVersion,
    Conflict,
    KVOutcome,
    Landed,
    Pinned,
    Precondition,
    ReadView,
    TimeReached,
    Versioned,
    ViewUse,
)

#: Keys that a scan reads under the lock at a time.
_SCAN_BATCH = 256


class MemoryKV:
    """Each key has its history, back to the oldest open view."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        """`now_ms` is the store's own clock, as a database has one."""
        self.incarnation = ONLY
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._sequence = 0
        #: Oldest first; None: deleted.
        self._history: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self._keys: list[bytes] = []
        #: Sequence numbers of the living views.
        self._views: Counter[int] = Counter()
        #: Keys whose history is longer than one value, or that are deleted.
        self._stale: set[bytes] = set()

    def get(self, key: bytes) -> Versioned | None:
        with self._lock:
            return self._at(key, self._sequence)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        with self.view() as view:
            yield from view.scan(start, end, limit=limit, reverse=reverse)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        with self._lock:
            sequence = self._sequence
            self._views[sequence] += 1
        try:
            yield _View(self, sequence)
        finally:
            with self._lock:
                self._views[sequence] -= 1
                if not self._views[sequence]:
                    del self._views[sequence]

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        assert all(key >= FIRST_KEY for key in (*puts, *deletes))
        with self._lock:
            for precondition in preconditions:
                if isinstance(precondition, TimeReached):
                    self._check_time(precondition)
                elif not _holds(precondition, self._at(precondition.key, self._sequence)):
                    return Conflict(precondition.key)
            self._sequence += 1
            for key in deletes:
                if key in self._history:
                    self._write(key, None)
            for key, value in puts.items():
                self._write(key, value)
            self._forget_the_past()
            return Landed(self._sequence)

    def restore(self, pairs: Iterable[tuple[bytes, Versioned]], *, sequence: int) -> None:
        """Fill an empty store with these keys and their versions; later commits have versions above `sequence`."""
        with self._lock:
            assert not self._keys
            for key, found in pairs:
                self._history[key] = [(found.version, found.value)]
                self._keys.append(key)
                sequence = max(sequence, found.version)
            self._sequence = sequence

    def confirm(self) -> None:
        """Do nothing: every commit that a view shows is final."""

    def close(self) -> None:
        """Do nothing: the memory goes with the object."""

    def _check_time(self, precondition: TimeReached) -> None:
        if self._now_ms is not None and (now_ms := self._now_ms()) < precondition.time_ms:
            raise ClockSkewError(ahead_ms=precondition.time_ms - now_ms)

    def _write(self, key: bytes, value: bytes | None) -> None:
        history = self._history.get(key)
        if history is None:
            insort(self._keys, key)
            self._history[key] = [(self._sequence, value)]
            return
        if history[-1][0] == self._sequence:
            history.pop()
        history.append((self._sequence, value))
        self._stale.add(key)

    def _forget_the_past(self) -> None:
        oldest = min(self._views, default=self._sequence)
        if not self._stale or (self._views and len(self._stale) < _SCAN_BATCH):
            return
        for key in tuple(self._stale):
            history = self._history[key]
            while len(history) > 1 and history[1][0] <= oldest:
                history.pop(0)
            if len(history) > 1:
                continue
            sequence, value = history[0]
            if value is not None:
                self._stale.discard(key)
            elif sequence <= oldest:
                self._stale.discard(key)
                del self._history[key]
                self._keys.pop(bisect_left(self._keys, key))

    def _at(self, key: bytes, sequence: int) -> Versioned | None:
        for version, value in reversed(self._history.get(key, ())):
            if version <= sequence:
                return None if value is None else Versioned(value, version)
        return None

    def _batch(
        self, start: bytes, end: bytes | None, sequence: int, *, reverse: bool
    ) -> tuple[list[bytes], list[Versioned | None]]:
        """Return up to `_SCAN_BATCH` keys, dead ones among them, and their values at a sequence number."""
        with self._lock:
            first = bisect_left(self._keys, start)
            last = len(self._keys) if end is None else bisect_left(self._keys, end)
            if reverse:
                keys = self._keys[max(first, last - _SCAN_BATCH) : last][::-1]
            else:
                keys = self._keys[first : min(last, first + _SCAN_BATCH)]
            return keys, [self._at(key, sequence) for key in keys]


class _View:
    """The store as of one commit."""

    def __init__(self, store: MemoryKV, sequence: int) -> None:
        self._store = store
        self._sequence = sequence

    def get(self, key: bytes) -> Versioned | None:
        with self._store._lock:
            return self._store._at(key, self._sequence)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        left = limit
        while left is None or left > 0:
            keys, values = self._store._batch(start, end, self._sequence, reverse=reverse)
            for key, value in zip(keys, values, strict=True):
                if value is not None and (left is None or left > 0):
                    left = None if left is None else left - 1
                    yield key, value
            if len(keys) < _SCAN_BATCH:
                return
            if reverse:
                end = keys[-1]
            else:
                start = keys[-1] + b"\x00"


def _holds(precondition: Absent | AtVersion | Pinned, found: Versioned | None) -> bool:
    match precondition:
        case Absent():
            return found is None
        case AtVersion(version=version) | Pinned(version=version):
            return found is not None and found.version == version
