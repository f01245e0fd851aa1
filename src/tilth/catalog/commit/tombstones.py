"""Tombstones: transactions that have ended and whose tasks may still write, and which files of a transaction may go.

Covers: the records. Does not cover: when files are removed again (tilth.maintenance).
Always holds: a tombstone is of a transaction that can never commit any more, or names the files that its commit made
true; of a transaction that runs, or has landed without a note, no file may go, and of one that is recorded as lost
(lost.py) none that its commit named.
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
from tilth.model.txn import LostTxn, Tombstone, Txn, TxnState, UnsweptTxn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TxnTrace:
    """Everything that the catalog has of one transaction."""

    #: Running, or aborted a moment ago.
    open: Txn | None
    #: None: it has not landed, or did so more than a day ago.
    finished: Txn | None
    #: What its commit made true; None: no attempt of its tasks may have left files, or they are gone.
    note: UnsweptTxn | Tombstone | None
    #: It had landed, and the database has lost it.
    lost: LostTxn | None = None

    @property
    def is_running(self) -> bool:
        return self.open is not None and self.open.state is TxnState.RUNNING

    @property
    def has_landed(self) -> bool:
        if isinstance(self.note, UnsweptTxn) or self.finished is not None:
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
        """Write these, and remove those of the transactions in `over`."""
        puts = {pack(Space.TOMBSTONE, each.txn.id): codec.TOMBSTONES.encode(each) for each in tombstones}
        for batch in _batches(puts.items()):
            self._write(Plan(result=None, puts=dict(batch)))
        for gone in _batches(pack(Space.TOMBSTONE, txn_id) for txn_id in over):
            self._write(Plan(result=None, deletes=gone))

    def trace(self, txn_id: int) -> TxnTrace:
        """Return what is known of a transaction."""
        spaces = (Space.OPEN_TXN, Space.FINISHED_TXN, Space.UNSWEPT_TXN, Space.TOMBSTONE, Space.LOST_TXN)
        running, finished, unswept, tombstone, lost = (pack(space, txn_id) for space in spaces)
        with self._kv.view([running, finished, unswept, tombstone, lost]) as view:
            landed = read(view, finished, codec.FINISHED_TXNS)
            return TxnTrace(
                read(view, running, codec.OPEN_TXNS),
                None if landed is None else landed.txn,
                read(view, unswept, codec.UNSWEPT_TXNS) or read(view, tombstone, codec.TOMBSTONES),
                read(view, lost, codec.LOST_TXNS),
            )

    def kept(self, txn_id: int, keep: Collection[str]) -> frozenset[str] | None:
        """Return the names that must stay where files of the transaction are removed, `keep` among them; None: nothing
        of it may go, for it runs, or has landed and nobody has noted which of its files are needed.
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
