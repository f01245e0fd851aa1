"""Commit locks: a transaction that was refused too often, because others were faster, commits to a table alone.

Covers: who holds the commit lock of which table, and waiting for it, in this process and in other servers. Does not
cover: when a lock is acquired (the loop that retries the commit), what is committed. Always holds: a lock ends with its
transaction, or expires after `LOCK_SECONDS`, so that nobody waits for a holder that hangs; it only makes others wait:
the commit's preconditions keep the data right, with or without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tilth.base.clock import Clock
from tilth.base.errors import RetryError, TilthError
from tilth.base.logs import Log
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.living import live_server
from tilth.catalog.records.nouns import CommitLockRecord
from tilth.catalog.records.small_commit import Plan, change, read, unchanged

#: Number of refused tries after which a commit of rows acquires the commit locks of its tables.
TRIES_UNLOCKED = 5
#: A lock expires after this time without a commit of its holder.
LOCK_SECONDS = 30.0
#: Interval at which another server's lock is checked.
LOCK_POLL_SECONDS = 0.02

_log = Log("catalog")


@dataclass(slots=True)
class _Lock:
    txn: int
    until: float
    released: threading.Event = field(default_factory=threading.Event)


class CommitLockedError(RetryError):
    """a commit of another server holds the commit lock of the table"""

    code = "COMMIT_LOCKED"


class SharedCommitLocks:
    """Commit locks that all servers of the catalog see: a record for each, which the commits of others read."""

    def __init__(self, clock: Clock, kv: KeyValue, *, server: Callable[[], str]) -> None:
        self._clock = clock
        self._kv = kv
        self._server = server
        self._lock = threading.Lock()
        #: Tables that this process has locked or waits to lock, by transaction.
        self._tables: dict[int, set[str]] = {}

    def acquire(self, table: str, txn: int) -> None:
        """Wait until no other server holds the lock of the table, and acquire it."""
        with self._lock:
            self._tables.setdefault(txn, set()).add(table)
        key = pack(Space.COMMIT_LOCK, table)

        def plan(view: ReadView) -> Plan[None]:
            self.check(view, [table], txn)
            until_ms = self._clock.now_ms() + int(LOCK_SECONDS * 1000)
            lock = CommitLockRecord(txn=txn, server=self._server(), until_ms=until_ms)
            return Plan(
                result=None, preconditions=[unchanged(key, view.get(key))], puts={key: codec.COMMIT_LOCKS.encode(lock)}
            )

        while True:
            try:
                return change(self._kv, self._clock, plan)
            except CommitLockedError:
                self._clock.sleep(LOCK_POLL_SECONDS)

    def check(self, view: ReadView, tables: Iterable[str], txn: int) -> None:
        """Raise CommitLockedError if another server's transaction holds the lock of one of the tables."""
        for table in tables:
            lock = read(view, pack(Space.COMMIT_LOCK, table), codec.COMMIT_LOCKS)
            # Transactions of this process wait in `CommitLocks`.
            is_others = lock is not None and lock.txn != txn and lock.server != self._server()
            if lock is None or not is_others or live_server(view, lock.server) is None:
                continue
            if self._clock.now_ms() < lock.until_ms:
                raise CommitLockedError(table=table, txn=lock.txn, server=lock.server)

    def release(self, txn: int) -> None:
        """Release the locks of a transaction, if it has any; one that cannot be released expires."""
        with self._lock:
            tables = self._tables.pop(txn, set())
        for table in tables:
            key = pack(Space.COMMIT_LOCK, table)

            def plan(view: ReadView, key: bytes = key) -> Plan[None]:
                found = view.get(key)
                if found is None or codec.COMMIT_LOCKS.decode(key, found.value).txn != txn:
                    return Plan(result=None)
                return Plan(result=None, preconditions=[unchanged(key, found)], deletes=[key])

            try:
                change(self._kv, self._clock, plan)
            except TilthError as error:
                _log.warning("commit_lock_not_released", cause_id=str(txn), table=table, reason=error)


class CommitLocks:
    """Commit locks of the tables, within one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[str, _Lock] = {}

    def acquire(self, table: str, txn: int) -> None:
        """Wait until no other transaction holds the lock of the table, and acquire it; a holder extends it."""
        while (other := self._try_acquire(table, txn)) is not None:
            self._await(table, other)

    def await_others(self, tables: Iterable[str], txn: int) -> None:
        """Wait until no other transaction holds the lock of one of the tables."""
        for table in tables:
            while (lock := self._locks.get(table)) is not None and lock.txn != txn:
                self._await(table, lock)

    def release(self, txn: int) -> None:
        """Release the locks of a transaction, if it has any."""
        if not self._locks:
            return
        with self._lock:
            for table in [table for table, lock in self._locks.items() if lock.txn == txn]:
                self._locks.pop(table).released.set()

    def _try_acquire(self, table: str, txn: int) -> _Lock | None:
        """Return the lock that another transaction holds; None: it has been acquired."""
        with self._lock:
            lock = self._locks.get(table)
            if lock is not None and lock.txn != txn:
                return lock
            until = self._clock.monotonic() + LOCK_SECONDS
            if lock is None:
                self._locks[table] = _Lock(txn, until)
            else:
                lock.until = until
            return None

    def _await(self, table: str, lock: _Lock) -> None:
        """Wait until the lock is released; remove it once it has expired."""
        while not lock.released.is_set() and (left := lock.until - self._clock.monotonic()) > 0:
            self._clock.wait(lock.released, left)
        with self._lock:
            # Its holder may have extended it meanwhile.
            if self._locks.get(table) is lock and lock.until <= self._clock.monotonic():
                self._locks.pop(table).released.set()
