"""Records that the catalog alone writes. Nouns that other rooms make are in `tilth.model`."""

from __future__ import annotations

import msgspec

from tilth.model.part import Bound, Part
from tilth.model.table import Relation
from tilth.model.txn import Txn


class DatabaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_ms: int


class DroppedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that UNDROP can bring back until it is forgotten."""

    relation: Relation
    dropped_ms: int
    #: True once its keys are being removed: it cannot come back any more.
    is_going: bool = False


class FormerKafkaTable(msgspec.Struct, frozen=True, kw_only=True):
    """A Kafka table that is gone for good, and whose ledger is kept: rows that it brought are still there."""

    database: str
    name: str
    #: Uuids of the tables that hold them.
    targets: tuple[str, ...]


class TableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Version of a table (or of a Kafka table's offsets); each commit raises it."""

    #: Number of its commits; equal counters mean equal content.
    counter: int = 0
    #: The newest commit's timestamp; the next one's is greater.
    last_commit_ts: int = 0
    #: Total rows of all inserts.
    inserted_rows: int = 0
    #: Total rows deleted, hidden by drops, or left out by merges and rewrites, without what UNDROP brought back.
    removed_rows: int = 0
    #: Total parts made, by inserts, merges and rewrites.
    parts_added: int = 0
    #: Visible parts of all partitions, without segments.
    parts: int = 0
    #: Number of these parts that are the second or a later key range of a merge that was cut: with its first one they
    #: count as one part where parts are limited.
    more_ranges: int = 0
    #: Visible segments of all partitions.
    segments: int = 0
    #: Commit time of the newest TRUNCATE; 0: none, or an UNDROP may have brought back rows from before it.
    emptied_ts: int = 0
    #: Times of the newest undone drops and of their UNDROPs: between the two the table showed less than a read as of
    #: that time finds now.
    undone: tuple[tuple[int, int], ...] = ()

    @property
    def counted_parts(self) -> int:
        """Number of parts where parts are limited."""
        return self.parts - self.more_ranges


class VersionCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that made a version of a table."""

    #: Hybrid time of the commit.
    ts: int
    #: The transaction.
    txn: int
    #: The actor in the transaction's record.
    actor: str


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a partition exists, so that nobody has to scan the parts for it."""

    partition: str
    #: One for each element of PARTITION BY.
    values: tuple[Bound, ...]
    created_ts: int
    #: Visible parts, without segments.
    parts: int = 0
    #: Number of further key ranges among these parts; see TableVersion.
    more_ranges: int = 0
    #: Visible segments.
    segments: int = 0

    @property
    def counted_parts(self) -> int:
        """Number of parts where parts are limited."""
        return self.parts - self.more_ranges


class LabelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record that the insert with a label is committed."""

    txn: int
    commit_ts: int
    #: Rows of the insert.
    rows: int


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last batch of a stream that is committed in a table; it stays as long as the table."""

    #: Name of the stream; without one, the id of its query.
    stream: str
    #: Id of the query that sent the batch, which its checkpoint has.
    query: str
    batch: int
    txn: int
    commit_ts: int
    #: Rows of the batch.
    rows: int


class FinishedTxn(msgspec.Struct, frozen=True, kw_only=True):
    """A committed transaction and the answer that its commit got, to be given again."""

    txn: Txn
    #: Table and part, for each part that it made.
    parts: tuple[tuple[str, Part], ...]


class CommitLockRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that commits to a table alone for a while (commit/commit_locks.py)."""

    txn: int
    #: The id of its server's process.
    server: str
    #: Expiry by that server's clock.
    until_ms: int
