"""Kafka positions, the ledger and gaps, as they were committed. They change by transactions only (updates.py)."""

from __future__ import annotations

from collections.abc import Iterator

from tilth.catalog import codec
from tilth.catalog.change import read_all
from tilth.catalog.keys import Space
from tilth.catalog.kv import KeyValue
from tilth.catalog.load import load_offsets
from tilth.model.offset import IngestGap, LedgerEntry, TopicPartition


class Offsets:
    """`catalog.offsets`."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv

    def of(self, kafka_table: str) -> dict[TopicPartition, int]:
        """The next offset to read of each topic partition; none where nothing was committed."""
        return load_offsets(self._kv, kafka_table)

    def ledger(self, kafka_table: str) -> Iterator[LedgerEntry]:
        """All committed rounds, in the order of their transactions."""
        return read_all(self._kv, codec.LEDGER, Space.LEDGER, kafka_table)

    def gaps(self, kafka_table: str | None = None) -> list[IngestGap]:
        """Open and resolved ones, by table, topic, partition and offset."""
        fields = () if kafka_table is None else (kafka_table,)
        return list(read_all(self._kv, codec.GAPS, Space.GAP, *fields))
