"""Transactions that a store has lost with the end of its log, found by the process that began them.

Covers: the transactions that this process has begun and committed lately, those that a later incarnation of the
store lacks, and their records. Does not cover: when the incarnation changes (tilth.membership), small commits that are
no transactions.
Always holds: the files of a committed transaction that was lost stay, and its record names them; a running transaction
whose record was lost gets a record again, aborted, so that its files are removed by name. The memory is bounded and
ends with the process.

Tests: tests/unit/membership/test_lost_histories.py.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from tilth.base.clock import Clock
from tilth.base.hybrid import milliseconds
from tilth.base.logs import Log
from tilth.catalog.kv import Incarnation, KeyValue, Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, read_all, unchanged
from tilth.catalog.rules import state
from tilth.model.txn import LostTxn, Txn

#: Key of the greatest id of a finished transaction whose record was trimmed; absent records up to it are not lost.
TRIMMED = pack(Space.TRIMMED_TXN)
#: Number of transactions in memory; with more, the oldest are forgotten.
RECENT_MAX = 10_000
#: Number of lost transactions that one commit records.
_BATCH = 100
_REASON = "its record was lost with the end of the database's log"

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTxn:
    """A transaction that this process has begun."""

    txn: Txn
    #: Commit timestamp; 0: this process has received no answer that it is committed.
    commit_ts: int = 0
    tables: tuple[str, ...] = ()
    #: Names of the files that its commit added to the catalog.
    files: tuple[str, ...] = ()


class RecentTxns:
    """The transactions that this process has begun lately. For any thread."""

    def __init__(self, *, count_max: int = RECENT_MAX) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._known: OrderedDict[int, RecentTxn] = OrderedDict()

    def record_begin(self, txn: Txn) -> None:
        with self._lock:
            self._known[txn.id] = RecentTxn(txn=txn)
            while len(self._known) > self._count_max:
                self._known.popitem(last=False)

    def record_commit(self, txn_id: int, commit_ts: int, tables: Iterable[str], files: Iterable[str]) -> None:
        with self._lock:
            known = self._known.get(txn_id)
            if known is not None and not known.commit_ts:
                self._known[txn_id] = RecentTxn(
                    txn=known.txn, commit_ts=commit_ts, tables=tuple(sorted(tables)), files=tuple(files)
                )

    def forget(self, txn_ids: Iterable[int]) -> None:
        """Forget transactions whose files are removed or whose loss is recorded."""
        with self._lock:
            for each in txn_ids:
                self._known.pop(each, None)

    def all(self) -> list[RecentTxn]:
        with self._lock:
            return list(self._known.values())


class LostTxns:
    """`catalog.transactions.lost`. For any thread."""

    def __init__(self, clock: Clock, kv: KeyValue, recent: RecentTxns) -> None:
        self._clock = clock
        self._kv = kv
        self._recent = recent
        #: Number of transactions that this process has answered as committed and that are lost.
        self.count = 0

    def all(self) -> list[LostTxn]:
        return list(read_all(self._kv, codec.LOST_TXNS, Space.LOST_TXN))

    def trim(self, before_ms: int) -> int:
        """Remove the records of those that were both found and committed before `before_ms`; return how many. Their
        files are orphans from then on.
        """
        # The later of the two times counts: the finder's clock may have been slow.
        over = [
            pack(Space.LOST_TXN, each.txn.id)
            for each in self.all()
            if max(each.found_ms, milliseconds(each.commit_ts)) < before_ms
        ]
        for start in range(0, len(over), REMOVE_BATCH):
            change(self._kv, self._clock, partial(_removal, over[start : start + REMOVE_BATCH]))
        return len(over)

    def find(self, before: Incarnation, server: str) -> None:
        """Record the transactions of this process that the current incarnation lacks; `before` is the former one."""
        committed, running = list[RecentTxn](), list[RecentTxn]()
        known = self._recent.all()
        for start in range(0, len(known), _BATCH):
            for each in self._record(known[start : start + _BATCH], before, server):
                (committed if each.commit_ts else running).append(each)
        if running:
            _log.warning("transactions_aborted", count=len(running), reason=_REASON)
        if committed:
            self.count += len(committed)
            tables = Counter(table for each in committed for table in each.tables)
            now = self._kv.incarnation
            _log.error("transactions_lost", count=len(committed), tables=dict(tables), before=before, now=now)

    def _record(self, batch: list[RecentTxn], before: Incarnation, server: str) -> list[RecentTxn]:
        now, found_ms = self._kv.incarnation, self._clock.now_ms()

        def plan(view: ReadView) -> Plan[list[RecentTxn]]:
            lost = []
            preconditions: list[Precondition] = []
            puts: dict[bytes, bytes] = {}
            deletes = []
            trimmed = read(view, TRIMMED, codec.INTEGERS) or 0
            for each in batch:
                if each.commit_ts and each.txn.id <= trimmed:
                    continue
                keys = [pack(space, each.txn.id) for space in (Space.FINISHED_TXN, Space.OPEN_TXN)]
                finished, opened = (view.get(key) for key in keys)
                if finished is not None or (opened is not None and not each.commit_ts):
                    continue
                lost.append(each)
                preconditions += [unchanged(key, found) for key, found in zip(keys, (finished, opened), strict=True)]
                if not each.commit_ts:
                    puts[keys[1]] = codec.OPEN_TXNS.encode(state.abort(each.txn, reason=_REASON))
                    continue
                if opened is not None:
                    # With a record of a running transaction, a sweep would remove its files.
                    deletes.append(keys[1])
                note = LostTxn(
                    txn=each.txn,
                    commit_ts=each.commit_ts,
                    tables=each.tables,
                    files=each.files,
                    server=server,
                    found_ms=found_ms,
                    before=str(before),
                    now=str(now),
                )
                puts[pack(Space.LOST_TXN, each.txn.id)] = codec.LOST_TXNS.encode(note)
            return Plan(result=lost, preconditions=preconditions, puts=puts, deletes=deletes)

        lost = change(self._kv, self._clock, plan)
        self._recent.forget(each.txn.id for each in lost if each.commit_ts)
        return lost


def _removal(keys: list[bytes], _: ReadView) -> Plan[None]:
    return Plan(result=None, deletes=keys)
