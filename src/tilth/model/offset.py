"""Kafka positions: which offsets went into which transaction.

Covers: ranges, the ledger, gaps. Does not cover: talking to a broker (ingest/kafka.py).
Always holds: `start` is included, `end` is not; a stored offset is the next one to read.
"""

from __future__ import annotations

import msgspec

#: The consumer of a ledger entry that stands for many old rounds: its ranges, messages, rows and stored are their sums.
FOLDED = -2


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    topic: str
    partition: int


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one topic partition that one round reads."""

    topic: str
    partition: int
    start: int
    end: int


class LedgerRange(msgspec.Struct, frozen=True, kw_only=True):
    """What one round made of one range."""

    topic: str
    partition: int
    start: int
    end: int
    #: Messages that were there; fewer than `end - start` on compacted topics and behind transaction markers.
    messages: int
    #: Of them, decoded into rows of the Kafka table; one message may hold several rows or none.
    rows: int
    #: Of them, could not be decoded.
    dead: int
    #: Of them, could be decoded and were refused by a view, once for each such view.
    refused: int = 0

    def joined(self, later: LedgerRange) -> LedgerRange:
        """The range that this one and the one that follows it are together."""
        return msgspec.structs.replace(
            self,
            end=later.end,
            messages=self.messages + later.messages,
            rows=self.rows + later.rows,
            dead=self.dead + later.dead,
            refused=self.refused + later.refused,
        )


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One committed round of one Kafka table; key: (kafka table, txn)."""

    txn: int
    kafka_table: str
    #: Its index; negative for what no consumer did: -1, offsets were moved; FOLDED.
    consumer: int
    ranges: tuple[LedgerRange, ...]
    #: Rows written, by target table's uuid.
    stored: dict[str, int]
    commit_ts: int = 0


class IngestGap(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that could not be read; a line of `system.ingest_gaps`."""

    kafka_table: str
    topic: str
    partition: int
    #: The first offset that is missing, and the first that is there again (-1: not known).
    start: int
    end: int
    reason: str
    at_ms: int
    #: What a user decided: empty while open.
    resolution: str = ""
