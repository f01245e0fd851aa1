"""A store that passes every call on to another one: the base of stores that change some of the calls.

Tests: tests/unit/catalog/kv/test_memory.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from tilth.catalog.kv.incarnation import Incarnation
from tilth.catalog.kv.protocol import KeyValue, KVOutcome, Precondition, ReadView, Versioned, ViewUse


class DelegatingKV:
    """The calls of `inner`, unchanged."""

    def __init__(self, inner: KeyValue) -> None:
        self._inner = inner

    @property
    def incarnation(self) -> Incarnation:
        return self._inner.incarnation

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
        self._inner.confirm()

    def close(self) -> None:
        self._inner.close()
