"""Streams that write into tables from outside: the last batch of each.

Always holds: a batch is recorded in the batch of its commit (InsertBatch), so either both are true or neither.

Tests: tests/unit/catalog/rules/test_fold_streams.py.
"""

from __future__ import annotations

from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span, unpack
from tilth.catalog.records.nouns import StreamRecord
from tilth.catalog.records.small_commit import read, read_all


class Streams:
    """`catalog.streams`."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv

    def find(self, table: str, stream: str) -> StreamRecord | None:
        """Return the last batch of the stream in the table; None: it has none."""
        return read(self._kv, pack(Space.STREAM, table, stream), codec.STREAMS)

    def of(self, table: str) -> list[StreamRecord]:
        """Return the last batch of each stream of the table, in the order of their names."""
        with self._kv.view() as view:
            return list(read_all(view, codec.STREAMS, Space.STREAM, table))

    def all(self) -> list[tuple[str, StreamRecord]]:
        """Return the last batches of all streams, each with the uuid of its table."""
        with self._kv.view() as view:
            return [
                (str(unpack(key, "ss")[0]), codec.STREAMS.decode(key, found.value))
                for key, found in view.scan(*span(Space.STREAM))
            ]
