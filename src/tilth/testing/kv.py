"""A key-value store that fails as networks and disks do, and one that makes it look sound again.

Covers: FaultyKV, RetryingKV. Does not cover: the suite that both pass (check_kv.py), the catalog above the store.

Tests: tests/unit/catalog/kv/test_memory.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import TypeVar

from tilth.base.errors import UnavailableError
from tilth.base.rand import Rng
from tilth.catalog import DelegatingKV
from tilth.catalog.kv import (
    Absent,
    Conflict,
    KeyValue,
    KVOutcome,
    Landed,
    Precondition,
    ReadView,
    Unknown,
    Versioned,
    ViewUse,
)

T = TypeVar("T")


class Fault(StrEnum):
    """Kind of failure."""

    #: Clearly refused: nothing was applied, nothing was read.
    REFUSED = "refused"
    #: A commit that was never performed, and nobody knows. A read is refused.
    REQUEST_LOST = "request_lost"
    #: A commit that was performed, and nobody knows. A read is refused.
    ANSWER_LOST = "answer_lost"


class FaultyKV(DelegatingKV):
    """A store whose operations fail by chance, or by a plan.

    Each operation (get, scan, view, commit) first takes a fault from the plan, or else draws one.
    """

    def __init__(self, kv: KeyValue, rng: Rng, *, commit_rate: float = 0.0, read_rate: float = 0.0) -> None:
        super().__init__(kv)
        self._rng = rng
        self._lock = threading.Lock()
        self._commit_plan: list[Fault | None] = []
        self._read_plan: list[Fault | None] = []
        self.commit_rate = commit_rate
        self.read_rate = read_rate
        #: Number of failed operations.
        self.faults = 0

    def plan_commits(self, *faults: Fault | None) -> None:
        """Faults of the next commits; None: no fault."""
        with self._lock:
            self._commit_plan.extend(faults)

    def plan_reads(self, *faults: Fault | None) -> None:
        """Faults of the next reads; None: no fault."""
        with self._lock:
            self._read_plan.extend(faults)

    def get(self, key: bytes) -> Versioned | None:
        self._meet_read("get")
        return self._inner.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self._meet_read("scan")
        return self._inner.scan(start, end, limit=limit, reverse=reverse)

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        self._meet_read("view")
        with self._inner.view(keys, use) as view:
            yield _FaultyView(self, view)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        match self._draw(self._commit_plan, self.commit_rate):
            case None:
                return self._inner.commit(preconditions, puts, deletes)
            case Fault.REFUSED:
                raise UnavailableError("planned fault", operation="commit")
            case Fault.REQUEST_LOST:
                return Unknown("planned fault: the request was lost")
            case Fault.ANSWER_LOST:
                self._inner.commit(preconditions, puts, deletes)
                return Unknown("planned fault: the answer was lost")

    def confirm(self) -> None:
        self._meet_read("confirm")
        self._inner.confirm()

    def _meet_read(self, operation: str) -> None:
        if self._draw(self._read_plan, self.read_rate) is not None:
            raise UnavailableError("planned fault", operation=operation)

    def _draw(self, plan: list[Fault | None], rate: float) -> Fault | None:
        with self._lock:
            fault: Fault | None = None
            if plan:
                fault = plan.pop(0)
            elif rate and self._rng.random() < rate:
                fault = tuple(Fault)[int(self._rng.random() * len(Fault))]
            self.faults += fault is not None
            return fault


class _FaultyView:
    """A view of a faulty store: its reads fail like the store's."""

    def __init__(self, store: FaultyKV, view: ReadView) -> None:
        self._store = store
        self._view = view

    def get(self, key: bytes) -> Versioned | None:
        self._store._meet_read("get")
        return self._view.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self._store._meet_read("scan")
        return self._view.scan(start, end, limit=limit, reverse=reverse)


#: Prefix of the keys of RetryingKV: behind all keys of the suite.
_MARKS = b"\xf0mark"
_TRIES_MAX = 100


class RetryingKV(DelegatingKV):
    """Makes a faulty store look like a sound one, in the way that the protocol prescribes.

    Each batch carries a key of its own; after an unknown outcome that key shows it.
    """

    def __init__(self, kv: KeyValue) -> None:
        super().__init__(kv)
        self._lock = threading.Lock()
        self._batches = 0

    def get(self, key: bytes) -> Versioned | None:
        return _retried(lambda: self._inner.get(key))

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return _retried(lambda: self._inner.scan(start, end, limit=limit, reverse=reverse))

    @contextmanager
    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
        with ExitStack() as stack:
            yield _RetryingView(_retried(lambda: stack.enter_context(self._inner.view(keys, use))))

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        with self._lock:
            self._batches += 1
            mark = _MARKS + self._batches.to_bytes(8, "big")
        for _ in range(_TRIES_MAX):
            outcome = _retried(lambda: self._inner.commit([*preconditions, Absent(mark)], {**puts, mark: b""}, deletes))
            if isinstance(outcome, Landed):
                return outcome
            landed = self.get(mark)
            if landed is not None:
                return Landed(landed.version)
            if isinstance(outcome, Conflict):
                return outcome
        raise UnavailableError("still unknown", tries=_TRIES_MAX)

    def confirm(self) -> None:
        _retried(self._inner.confirm)


class _RetryingView:
    def __init__(self, view: ReadView) -> None:
        self._view = view

    def get(self, key: bytes) -> Versioned | None:
        return _retried(lambda: self._view.get(key))

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return _retried(lambda: self._view.scan(start, end, limit=limit, reverse=reverse))


def _retried(call: Callable[[], T]) -> T:
    for _ in range(_TRIES_MAX):
        try:
            return call()
        except UnavailableError as error:
            refused = error
    raise refused
