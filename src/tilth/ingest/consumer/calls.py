"""Calls between a consumer on a worker and the manager on the server.

Covers: the order a consumer gets, its calls and their answers. Does not cover: sending them (remote.py; in embedded
mode they are function calls). Always holds: every call carries the consumer's fence; an error with kind FENCED or
CONFLICT means, unless the call documents another meaning, that the consumer drops its state and ends.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tilth.ingest.kafka.metadata import ReportedEnd
from tilth.ingest.rounds.round import RoundFacts, Scope, TableChanges
from tilth.model.lease import Fence
from tilth.model.offset import OffsetRange, StoredOffset, TopicPartition
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, Secrets, TableDef, ViewDef
from tilth.storage import TableRoots


class Position(msgspec.Struct, frozen=True):
    topic_partition: TopicPartition
    #: The next offset to read.
    stored: StoredOffset


class ViewOrder(msgspec.Struct, frozen=True, kw_only=True):
    view: ViewDef
    target: TableDef


class ConsumeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All that a consumer needs; the payload of a CONSUME task."""

    kafka: KafkaDef
    views: tuple[ViewOrder, ...]
    #: None unless broken messages go to a table.
    dead_letters: TableDef | None
    #: Its number among the consumers of the Kafka table.
    consumer: int
    fence: Fence
    positions: tuple[Position, ...]
    #: Secrets of the Kafka table.
    secrets: Secrets = Secrets()


class BeginRound(msgspec.Struct, frozen=True, kw_only=True):
    kafka_table: str
    consumer: int
    fence: Fence
    #: Task numbers that the files' names may carry.
    tasks: int
    #: Tables that the round may write to.
    tables: tuple[str, ...]
    ranges: tuple[OffsetRange, ...]


class BeginGranted(msgspec.Struct, frozen=True, kw_only=True):
    txn: int
    #: Storage roots of the tables that the round may write to, read when it begins: replicas change and go away while
    #: a consumer lives.
    root: TableRoots
    #: Wait of the consumer before it reads, in milliseconds: its tables have many parts, or memory is short.
    wait_ms: float = 0.0


class WrittenSchema(msgspec.Struct, frozen=True, kw_only=True):
    """Columns with which files were written."""

    table: str
    version: int


class SnapshotTables(msgspec.Struct, frozen=True, kw_only=True):
    """Request for snapshots of tables with unique keys that a round has rows for."""

    kafka_table: str
    consumer: int
    fence: Fence
    #: The round's transaction: while it runs, no file is removed that is visible now.
    txn: int
    scopes: tuple[Scope, ...]
    #: Number of the try; the first is 0.
    number: int


class TableSnapshots(msgspec.Struct, frozen=True, kw_only=True):
    #: One for each scope.
    snapshots: tuple[Snapshot, ...]


class ViewReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of the slow view that a round is in, or of the end of that view."""

    kafka_table: str
    consumer: int
    fence: Fence
    #: Name of the view, as `database.view`; empty: the view that was reported has ended.
    view: str
    #: Time for which the view has run.
    seconds: float


class RoundDone(msgspec.Struct, frozen=True, kw_only=True):
    kafka_table: str
    consumer: int
    fence: Fence
    txn: int
    facts: RoundFacts
    schemas: tuple[WrittenSchema, ...]
    seconds: float
    #: Changes to the replaced rows, in tables with unique keys.
    changes: tuple[TableChanges, ...] = ()
    #: `True` if failed attempts of the round's tasks may have left files.
    may_have_retried: bool = False
    #: Kernels, or Spark and the reason, by the name of each view that computes.
    view_choices: dict[str, str] = {}


class RoundCommitted(msgspec.Struct, frozen=True, kw_only=True):
    commit_ts: int


class EndsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report of a consumer between two rounds: the ends of its topic partitions."""

    kafka_table: str
    consumer: int
    fence: Fence
    ends: tuple[ReportedEnd, ...]
    #: Messages of a round of the largest size, estimated from the average size of earlier messages.
    messages_max: int = 0
    #: Name of the setting that bounds it.
    bounded_by: str = ""


class ConsumerCalls(Protocol):
    """The server, as a consumer sees it."""

    def begin(self, call: BeginRound) -> BeginGranted:
        """Begin a transaction for a round. Raises FencedError when the consumer has been replaced."""

    def snapshot_tables(self, call: SnapshotTables) -> TableSnapshots:
        """Return snapshots of tables with unique keys as they are now."""

    def report_view(self, call: ViewReport) -> None:
        """Report a slow view while it runs, or the end of the view that was reported."""

    def commit(self, call: RoundDone) -> RoundCommitted:
        """Commit the round, all of it or nothing.

        Raises PartsChangedError and PartsGoneError if the tables have changed since their snapshots were taken: then
        nothing is committed, and the same transaction may commit again.
        """

    def report_ends(self, call: EndsReport) -> None:
        """Report the ends of the partitions."""


ORDER_DECODER = msgspec.msgpack.Decoder(ConsumeOrder)
ENCODER = msgspec.msgpack.Encoder()
