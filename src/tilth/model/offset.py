"""Kafka positions: which offsets went into which transaction.

Covers: ranges, the ledger, gaps, subscriptions. Does not cover: talking to a broker (ingest/kafka/broker.py).
Always holds: `start` is included, `end` is not; a stored offset is the next one to read. An offset means something only
within one topic, and a topic that is deleted and made again has another topic id.

Tests: tests/unit/catalog/test_catalog_subscriptions.py.
"""

from __future__ import annotations

import msgspec

#: The consumer of a ledger entry that stands for many old rounds: its ranges, messages, rows and stored are their sums.
FOLDED = -2
#: The consumer of a ledger entry about dead letters that went through their views again. Its ranges reach from the
#: first to the last letter of each topic partition; their messages are the letters, which left the dead-letter table.
REPLAYED = -3


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    topic: str
    partition: int


class StoredOffset(msgspec.Struct, frozen=True):
    """The next offset to read of a topic partition, and how it is known later whether the log still is the same."""

    offset: int
    #: Id of the topic that it belongs to.
    topic_id: str
    #: A leader epoch in which the log reached this offset; -1: not known. Where a later leader reports that this epoch
    #: ended before the offset, the log was truncated.
    epoch: int = -1


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one topic partition that one round reads."""

    topic: str
    partition: int
    start: int
    end: int
    #: Id of the topic that `start` is an offset of; empty: not known, as of dead letters.
    topic_id: str = ""
    #: Leader epochs of the log at `start` and at `end`; -1: not known.
    epoch: int = -1
    end_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def stored(self) -> StoredOffset:
        """The stored offset that the round starts from."""
        return StoredOffset(self.start, self.topic_id, self.epoch)


class LedgerRange(msgspec.Struct, frozen=True, kw_only=True):
    """Messages and rows of one range in one round."""

    topic: str
    partition: int
    start: int
    end: int
    #: Messages that were there; fewer than `end - start` on compacted topics and behind transaction markers.
    messages: int
    #: Rows of the Kafka table decoded from them; one message may hold several rows or none.
    rows: int
    #: Messages that could not be decoded.
    dead: int
    #: Id of the topic; empty: not known, as of dead letters and of a topic partition that is gone.
    topic_id: str = ""
    #: Messages that could be decoded and were refused by a view, once for each such view.
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
    #: Its index; negative for what no consumer did: -1, offsets were moved; FOLDED; REPLAYED.
    consumer: int
    ranges: tuple[LedgerRange, ...]
    #: Rows written, by target table's uuid.
    stored: dict[str, int]
    commit_ts: int = 0
    #: Uuids of the tables that the round wrote to, rows or none; empty: offsets were moved.
    targets: tuple[str, ...] = ()

    @property
    def tables(self) -> set[str]:
        """Uuids of the tables that the round wrote to."""
        return {*self.targets, *self.stored}


class IngestGap(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that could not be read; a line of `system.ingest_gaps`."""

    kafka_table: str
    topic: str
    partition: int
    #: The first missing offset, and the first available one after it (-1: not known).
    start: int
    end: int
    reason: str
    at_ms: int
    #: Decision of a user, or the reason why it was closed; empty while open.
    resolution: str = ""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Subscription of a Kafka table to a topic for a consumer group; key: (cluster, topic id, group).

    The group's offsets are those of the Kafka table, until it is dropped or changes to another group or topic: then
    they are kept here, for the next one that subscribes.
    """

    cluster: str
    topic_id: str
    group: str
    #: The topic's name.
    topic: str
    #: The uuid of the Kafka table that reads it, or did last.
    kafka_table: str
    #: Its `database.table` when it subscribed, and the brokers through which it read.
    name: str
    brokers: str
    since_ms: int
    #: Offsets by partition; None: the Kafka table has them.
    released: tuple[tuple[int, StoredOffset], ...] | None = None
    #: Uuids of the tables that the group's messages went to before: as long as one exists, this is kept.
    targets: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.cluster, self.topic_id, self.group
