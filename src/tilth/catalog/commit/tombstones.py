"""Tombstones: records of transactions that have ended while their tasks may still write.

Covers: the records, and which files of a transaction may be removed. Does not cover: when files are removed
(tilth.maintenance).
Always holds: a tombstone is of a transaction that can never commit any more, or names the files of its commit. No file
of a transaction that runs, or is committed without a note, may be removed, and none of a lost transaction (lost.py)
that its commit named.

Tests: tests/unit/maintenance/cleaner/test_ended.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, read_all
from tilth.model.txn import LeftoverNote, LostTxn, Tombstone, Txn, TxnState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TxnTrace:
    """All records that the catalog has of one transaction."""

    #: Record of a running transaction, or of an aborted one that is not swept yet.
    open: Txn | None
    #: Record of a committed transaction; it is trimmed after a day.
    finished: Txn | None
    #: Note of the files that its commit names while failed attempts of its tasks may have left others; None: there are
    #: no such attempts, or their files are removed.
    note: LeftoverNote | Tombstone | None
    #: Record of a committed transaction that a failover of the database has lost.
    lost: LostTxn | None = None

    @property
    def is_running(self) -> bool:
        return self.open is not None and self.open.state is TxnState.RUNNING

    @property
    def is_committed(self) -> bool:
        if isinstance(self.note, LeftoverNote) or self.finished is not None:
            return True
        return self.note is not None and bool(self.note.keep)


class Tombstones:
    """`catalog.transactions.tombstones`. For any thread."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def all(self) -> list[Tombstone]:
        """Return all, oldest transaction first."""
        return list(read_all(self._kv, codec.TOMBSTONES, Space.TOMBSTONE))

    def get(self, txn_id: int) -> Tombstone | None:
        with self._kv.view() as view:
            return read(view, pack(Space.TOMBSTONE, txn_id), codec.TOMBSTONES)

    def put(self, tombstones: Iterable[Tombstone], *, over: Collection[int] = ()) -> None:
        """Write `tombstones`, and remove those of the transactions in `over`."""
        puts = {pack(Space.TOMBSTONE, each.txn.id): codec.TOMBSTONES.encode(each) for each in tombstones}
        for batch in _batches(puts.items()):
            self._write(Plan(result=None, puts=dict(batch)))
        for gone in _batches(pack(Space.TOMBSTONE, txn_id) for txn_id in over):
            self._write(Plan(result=None, deletes=gone))

    def trace(self, txn_id: int) -> TxnTrace:
        """Return all records of a transaction, read from one snapshot."""
        spaces = (Space.OPEN_TXN, Space.FINISHED_TXN, Space.LEFTOVER_NOTE, Space.TOMBSTONE, Space.LOST_TXN)
        running, finished, leftovers, tombstone, lost = (pack(space, txn_id) for space in spaces)
        with self._kv.view([running, finished, leftovers, tombstone, lost]) as view:
            committed = read(view, finished, codec.FINISHED_TXNS)
            return TxnTrace(
                read(view, running, codec.OPEN_TXNS),
                None if committed is None else committed.txn,
                read(view, leftovers, codec.LEFTOVER_NOTES) or read(view, tombstone, codec.TOMBSTONES),
                read(view, lost, codec.LOST_TXNS),
            )

    def protected_files(self, txn_id: int, keep: Collection[str]) -> frozenset[str] | None:
        """Return the names of the transaction's files that must not be removed, `keep` among them; None: none of its
        files may be removed, because it runs, or is committed and has no note of the files that its commit names.
        """
        trace = self.trace(txn_id)
        if trace.is_running or (trace.finished is not None and trace.note is None):
            return None
        noted = () if trace.note is None else trace.note.keep
        lost = () if trace.lost is None else trace.lost.files
        return frozenset(keep).union(noted, lost)

    def _write(self, planned: Plan[None]) -> None:
        def plan(_: ReadView) -> Plan[None]:
            return planned

        change(self._kv, self._clock, plan)


def _batches(items: Iterable[T]) -> Iterable[list[T]]:
    left = iter(items)
    while batch := list(islice(left, REMOVE_BATCH)):
        yield batch
