"""A store that loses the end of its history, as a database that fails over to a standby that lags."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from tilth.base.errors import UnavailableError
from tilth.catalog import MemoryKV
from tilth.catalog.kv import Incarnation, KVOutcome, Precondition, ReadView, Versioned, ViewUse


class LaggingStandbyKV:
    """A store in memory with a standby, whose state is the one of the last `replicate`."""

    def __init__(self) -> None:
        self._inner = MemoryKV()
        self._standby: list[tuple[bytes, Versioned]] = []
        #: How often `confirm` was called, and whether it fails.
        self.confirmed = 0
        self.is_unconfirmed = False

    @property
    def incarnation(self) -> Incarnation:
        return self._inner.incarnation

    def replicate(self) -> None:
        """Let the standby have all that is there now."""
        self._standby = list(self._inner.scan(b"", None))

    def fail_over(self, *, opened_ms: int = 0) -> None:
        """Go on with the state of the standby, in the next history."""
        now = self._inner.incarnation
        self._inner = MemoryKV()
        self._inner.incarnation = replace(now, number=now.number + 1, token=str(now.number), opened_ms=opened_ms)
        self._inner.restore(self._standby, sequence=self._inner.incarnation.version_floor)

    def get(self, key: bytes) -> Versioned | None:
        return self._inner.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return self._inner.scan(start, end, limit=limit, reverse=reverse)

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:
        return self._inner.view(keys, use)

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        return self._inner.commit(preconditions, puts, deletes)

    def confirm(self) -> None:
        self.confirmed += 1
        if self.is_unconfirmed:
            raise UnavailableError("no standby has it yet")

    def close(self) -> None:
        self._inner.close()
