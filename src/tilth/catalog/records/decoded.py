"""All records of a key space, of which those that have not changed since the last call are the same objects.

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
    """Records of one key space. Costs next to nothing to read ten thousand of them again. For any thread."""

    def __init__(self, codec: Codec[T], space: Space) -> None:
        self._codec = codec
        self._span = span(space)
        #: Value and record as last read, by key.
        self._decoded: dict[bytes, tuple[bytes, T]] = {}

    def read(self, kv: KeyValue) -> list[T]:
        """Return all records, by key."""
        before, found = self._decoded, {}
        for key, each in kv.scan(*self._span):
            known = before.get(key)
            if known is None or known[0] != each.value:
                known = (each.value, self._codec.decode(key, each.value))
            found[key] = known
        self._decoded = found
        return [record for _, record in found.values()]
