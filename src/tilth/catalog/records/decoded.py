"""Records of a key space, of which those that have not changed since they were last read are the same objects.

Covers: decoding each value once. Does not cover: other processes' caches. Always holds: a call returns what is stored
when it is made. See also: small_commit.py, whose `read_all` decodes all of them.

Tests: tests/unit/catalog/tables/test_tables.py.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tilth.catalog.kv import KeyValue
from tilth.catalog.records.codec import Codec
from tilth.catalog.records.keys import Space, span

T = TypeVar("T")


class DecodedRecords(Generic[T]):
    """Cache of the records of one key space: ten thousand of them are read again at next to no cost. For any thread."""

    def __init__(self, codec: Codec[T], space: Space) -> None:
        self._codec = codec
        self._span = span(space)
        #: Value and record as last read, by key.
        self._decoded: dict[bytes, tuple[bytes, T]] = {}

    def all(self, kv: KeyValue) -> list[tuple[bytes, T]]:
        """Return all records with their keys, in the order of these: one read."""
        found = self._read(kv, *self._span, limit=None)
        records = [(key, record) for key, (_, record) in found.items()]
        # Records that are gone leave the cache.
        self._decoded = found
        return records

    def among(self, kv: KeyValue, start: bytes, end: bytes, *, limit: int | None = None) -> list[tuple[bytes, T]]:
        """Return the first records of a range of the space, as `all`."""
        found = self._read(kv, start, end, limit=limit)
        self._decoded |= found
        return [(key, record) for key, (_, record) in found.items()]

    def _read(self, kv: KeyValue, start: bytes, end: bytes, *, limit: int | None) -> dict[bytes, tuple[bytes, T]]:
        before, found = self._decoded, dict[bytes, tuple[bytes, T]]()
        for key, each in kv.scan(start, end, limit=limit):
            known = before.get(key)
            if known is None or known[0] != each.value:
                known = (each.value, self._codec.decode(key, each.value))
            found[key] = known
        return found
