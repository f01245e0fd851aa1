"""Transactions: begin, commit, abort, and their outcomes.

Covers: the records and their repository. Does not cover: the commit itself (commit.py), what a writer does after each
outcome (txn_handle.py), removing files (storage).
Always holds: a transaction that is not finished has a record until its files are gone, and one that landed has a note
until files that it may have left are gone, so nothing is ever found by listing. No id is given twice; a server that
others have ended begins nothing and commits nothing of what it had begun.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import RetryError, TilthError, UnavailableError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog.commit.clock_check import ClockCheck
from tilth.catalog.commit.commit import CommitOutcome, Committed, Committer, committed_before
from tilth.catalog.commit.lost import TRIMMED, LostTxns, RecentTxns
from tilth.catalog.commit.tombstones import Tombstones
from tilth.catalog.commit.txn_handle import Later, LiveTxns, Sweep, TxnHandle, at_once
from tilth.catalog.errors import TxnFinishedError, TxnNotFoundError
from tilth.catalog.kv import Absent, Incarnation, KeyValue, Landed, Pinned, Precondition, ReadView, Unknown
from tilth.catalog.records import codec
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.living import life_key, pin_life
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, read_all, unchanged
from tilth.catalog.rules import state
from tilth.catalog.rules.requirements import Requirement
from tilth.catalog.rules.updates import Update, files_of, kafka_tables_of, tables_of
from tilth.model.lease import Fence
from tilth.model.server import server_of
from tilth.model.txn import LeftoverNote, Tombstone, Txn, TxnOutput, TxnState

#: The newest transaction that was ever cleaned up: ids are never used again, even when the machine's clock goes back.
CLOCK_FLOOR = pack(Space.CLOCK)

#: Number of ids that are drawn for one transaction; a used one comes from a wrong clock.
DRAWS_MAX = 8

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCommitted:
    """Ids of transactions that are not committed, in order."""

    #: Lower ids may be missing in the lists.
    first: int
    #: The newest transaction that has a record.
    newest: int
    running: tuple[int, ...]
    aborted: tuple[int, ...]


class TxnIdUsedError(RetryError):
    """an id that was drawn for a transaction is another one's"""

    code = "TXN_ID_USED"


class Transactions:
    """`catalog.transactions`."""

    def __init__(
        self,
        clock: Clock,
        hybrid: HybridClock,
        kv: KeyValue,
        committer: Committer,
        clock_check: ClockCheck,
        *,
        server: Callable[[], str],
        sweep: Sweep,
    ) -> None:
        self._clock = clock
        self._hybrid = hybrid
        self._kv = kv
        self._committer = committer
        self._clock_check = clock_check
        self._server = server
        #: Precondition that this server's life has not ended; None: this is no server, or the key has to be read.
        self._life: Pinned | None = None
        #: Removes files of transactions that did not commit.
        self.sweep = sweep
        #: Runs the removal of files that ended transactions leave.
        self.later: Later = at_once
        self._live = LiveTxns()
        self.tombstones = Tombstones(clock, kv)
        self._recent = RecentTxns()
        self.lost = LostTxns(clock, kv, self._recent)
        #: Hybrid time after all that were drawn for commits that the store may have lost.
        self._time_floor = 0
        self._hybrid.observe(self.newest_time())

    def open(
        self,
        actor: str,
        *,
        outputs: Sequence[TxnOutput] = (),
        fences: Sequence[Fence] = (),
        has_tasks: bool = False,
    ) -> TxnHandle:
        """Begin a transaction that ends by itself, whatever happens; see TxnHandle. Raises FencedError."""
        txn = self.begin(actor, outputs=outputs, fences=fences)
        self._recent.record_begin(txn)
        return TxnHandle(self, self._live, self.sweep, txn, later=self.later, has_tasks=has_tasks)

    def apply(self, actor: str, updates: Sequence[Update]) -> int:
        """Commit updates that need no files, in a transaction of its own; returns its id. Raises what refused them."""
        with self.open(actor) as handle:
            handle.commit(updates)
        return handle.id

    @property
    def refusal(self) -> TilthError | None:
        """Error of every begin and every new commit on this server; None: they are allowed."""
        return self._committer.refusal

    def refuse(self, error: TilthError | None) -> None:
        """Refuse to begin and to commit with this error from now on; None: allow it again."""
        self._committer.lasting_refusal = error

    def serve_as(self, server: str) -> None:
        """Begin transactions as the server with this id from now on, with times that follow those in the catalog: the
        clock of this machine may have been wrong before.
        """
        key = life_key(server)
        found = self._kv.get(key)
        # Without the key the life has ended already: the next begin raises RetryError (SERVER_ENDED).
        self._life = None if found is None else Pinned(key, found.version)
        self.follow_clock()

    def follow_clock(self) -> None:
        """Draw times that follow those in the catalog; later times that were drawn before were refused."""
        self._hybrid.restart(after=max(self.newest_time(), self._time_floor))

    def live(self) -> set[int]:
        return self._live.ids()

    def unsettled(self) -> set[int]:
        """Return the failed transactions that could not be aborted yet."""
        return self._live.unsettled()

    def begin(self, actor: str, *, outputs: Sequence[TxnOutput] = (), fences: Sequence[Fence] = ()) -> Txn:
        """Begin a transaction, recorded before its first file is written. Raises FencedError, and what refuses all of
        this server.
        """
        for _ in range(DRAWS_MAX):
            refusal = self.refusal
            if refusal is not None:
                raise refusal
            try:
                return self._begin(actor, outputs, fences)
            except TxnIdUsedError as error:
                _log.warning("transaction_id_used", reason=error)
                used = error
        raise used

    def _begin(self, actor: str, outputs: Sequence[TxnOutput], fences: Sequence[Fence]) -> Txn:
        """Begin a transaction under a new id. Raises TxnIdUsedError where the drawn id is not new."""
        txn = Txn(
            id=self._hybrid.new_id(),
            actor=actor,
            state=TxnState.RUNNING,
            fences=tuple(fences),
            outputs=tuple(outputs),
            server=self._server(),
        )
        key, value = pack(Space.OPEN_TXN, txn.id), codec.OPEN_TXNS.encode(txn)
        time = self._clock_check.preconditions(txn.id)
        life, finished = self._known_life(txn.server), pack(Space.FINISHED_TXN, txn.id)
        # No read is needed: Absent proves that the id is new, and the pin that this server's life has not ended.
        if not fences and life is not None:
            outcome = self._kv.commit([Absent(key), *life, *time], {key: value}, [])
            if isinstance(outcome, Landed):
                return txn

        def plan(view: ReadView) -> Plan[Txn]:
            preconditions: list[Precondition] = [*pin_life(view, txn.server), *time]
            for fence in fences:
                lease_key = pack(Space.LEASE, fence.name)
                preconditions.append(unchanged(lease_key, view.get(lease_key)))
                state.check_fence(read(view, lease_key, codec.LEASES), fence)
            found = view.get(key)
            if found is not None and found.value == value:
                # An earlier try of this very call whose answer was lost.
                self._kv.confirm()
                return Plan(result=txn)
            if found is not None or view.get(finished) is not None:
                raise TxnIdUsedError(txn=txn.id)
            return Plan(result=txn, preconditions=[Absent(key), *preconditions], puts={key: value})

        return change(self._kv, self._clock, plan)

    def _known_life(self, server: str) -> list[Pinned] | None:
        """Return the precondition that the server's life has not ended; None: its key has to be read first."""
        life = self._life
        if life is not None and life.key == life_key(server):
            return [life]
        return None if server_of(server) is not None else []

    def commit(
        self,
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        """Apply all updates at once, or nothing. Repeated, it returns the same outcome.

        After `Unknown` keep the files and repeat the call (or `resolve`): it may have landed. `leftovers`: the note to
        be written with it, where it may leave files.
        """
        hit("catalog.before_commit")
        with tracing.part("commit", tilth__txn=txn_id, tilth__updates=len(updates)):
            outcome = self._committer.commit(txn_id, tuple(updates), tuple(requirements), leftovers)
        hit("catalog.after_commit")
        if isinstance(outcome, Unknown):
            outcome = self._find_outcome(txn_id) or outcome
        if isinstance(outcome, Committed):
            tables = tables_of(updates) | kafka_tables_of(updates)
            self._recent.record_commit(txn_id, outcome.commit_ts, tables, files_of(updates))
        return outcome

    def find_lost(self, before: Incarnation) -> None:
        """Record the transactions of this process that are missing since the incarnation `before`. Raises
        UnavailableError, after which it is called again.
        """
        # No time that was drawn in the former incarnation is drawn again.
        self._time_floor = self._hybrid.now()
        self.lost.find(before, self._server())

    def drain(self, table: str) -> None:
        """Wait until the commits of this process to the table that are under way are over."""
        self._committer.drain(table)

    def lock_commits(self, table: str, txn: int) -> None:
        """Acquire the commit lock of the table (commit_locks.py): nobody else commits to it until it is released, and
        no commit of this process is under way on return.
        """
        self._committer.locks.acquire(table, txn)
        self._committer.shared_locks.acquire(table, txn)
        self._committer.drain(table)

    def unlock_commits(self, txn: int) -> None:
        """Let others commit again."""
        self._committer.shared_locks.release(txn)
        self._committer.locks.release(txn)

    def resolve(self, txn_id: int) -> TxnState | None:
        """Return the state in the transaction's own record; None: never begun, or aborted and cleaned up. A commit that
        it answers is durable.
        """
        with self._kv.view() as view:
            txn = _find(view, txn_id)
        if txn is not None and txn.state is TxnState.FINISHED:
            self._kv.confirm()
        return None if txn is None else txn.state

    def abort(self, txn_id: int, reason: str) -> None:
        """End the transaction so that it can never commit. Raises TxnFinishedError when it has: then its files are in
        use.
        """

        def plan(view: ReadView) -> Plan[None]:
            txn = _find(view, txn_id)
            if txn is None:
                raise TxnNotFoundError(txn=txn_id, hint="it was never begun, or was aborted and cleaned up")
            aborted = state.abort(txn, reason=reason)
            if aborted == txn:
                return Plan(result=None)
            key = pack(Space.OPEN_TXN, txn_id)
            found = view.get(key)
            return Plan(result=None, preconditions=[unchanged(key, found)], puts={key: codec.OPEN_TXNS.encode(aborted)})

        try:
            change(self._kv, self._clock, plan)
        except (TxnFinishedError, TxnNotFoundError):
            self._live.mark_settled(txn_id)
            raise
        self._live.mark_settled(txn_id)
        _log.info("transaction_aborted", cause_id=str(txn_id), reason=reason)

    def unfinished(self) -> list[Txn]:
        """Return the transactions that run, and those aborted whose files may still be there; oldest first."""
        return list(read_all(self._kv, codec.OPEN_TXNS, Space.OPEN_TXN))

    def forget(self, txn_id: int) -> None:
        """Remove the record of an aborted transaction whose files are gone. Raises ConflictError (TXN_RUNNING)."""
        key = pack(Space.OPEN_TXN, txn_id)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            if found is None:
                return Plan(result=None)
            state.check_forgettable(codec.OPEN_TXNS.decode(key, found.value))
            return Plan(
                result=None,
                preconditions=[unchanged(key, found)],
                puts=_floor(view, txn_id),
                deletes=[key],
            )

        change(self._kv, self._clock, plan)
        self._live.mark_forgotten(txn_id)
        self._recent.forget([txn_id])

    def is_cleaned(self, txn_id: int) -> bool:
        """Return whether this process has aborted the transaction after its tasks had ended, and removed its files."""
        return self._live.is_cleaned(txn_id)

    def add_tombstone(self, txn: Txn) -> None:
        """Write a tombstone of a transaction that can never commit and has no other record."""
        now_ms = self._clock.now_ms()
        if self.tombstones.get(txn.id) is None:
            self.tombstones.put([Tombstone(txn=txn, since_ms=now_ms, due_ms=now_ms)])

    def leftover_notes(self) -> list[LeftoverNote]:
        """Return the notes of committed transactions whose failed tries may have left files; oldest first."""
        return list(read_all(self._kv, codec.LEFTOVER_NOTES, Space.LEFTOVER_NOTE))

    def swept(self) -> set[int]:
        """Return the transactions without leftover files whose notes may still be stored."""
        return self._live.swept()

    def mark_swept(self, txn_id: int) -> None:
        """Record that the transaction has no leftover files any more; `forget_swept` removes its note."""
        self._live.mark_swept(txn_id)

    def forget_swept(self, txns: Collection[int]) -> None:
        """Remove the notes of transactions without leftover files: together, as one commit each would cost more."""
        done = sorted(txns)
        for start in range(0, len(done), REMOVE_BATCH):
            batch = done[start : start + REMOVE_BATCH]
            gone = Plan(result=None, deletes=[pack(Space.LEFTOVER_NOTE, txn_id) for txn_id in batch])

            def plan(_: ReadView, gone: Plan[None] = gone) -> Plan[None]:
                return gone

            change(self._kv, self._clock, plan)
            self._live.forget_swept(batch)

    def recent(self, limit: int) -> list[Txn]:
        with self._kv.view() as view:
            running = read_all(view, codec.OPEN_TXNS, Space.OPEN_TXN, limit=limit, reverse=True)
            finished = read_all(view, codec.FINISHED_TXNS, Space.FINISHED_TXN, limit=limit, reverse=True)
            merged = heapq.merge(running, (each.txn for each in finished), key=lambda txn: txn.id, reverse=True)
            return list(islice(merged, limit))

    def not_committed(self, limit: int) -> NotCommitted:
        """Return those that run, and those aborted ones of which files may be there, from the newest `limit` records of
        each kind. Those that a failover of the database has lost are not among them: they were acknowledged.
        """
        with self._kv.view() as view:
            opened = list(read_all(view, codec.OPEN_TXNS, Space.OPEN_TXN, limit=limit, reverse=True))
            tombstones = list(read_all(view, codec.TOMBSTONES, Space.TOMBSTONE, limit=limit, reverse=True))
            finished = next(read_all(view, codec.FINISHED_TXNS, Space.FINISHED_TXN, limit=1, reverse=True), None)
            lost = {each.txn.id for each in read_all(view, codec.LOST_TXNS, Space.LOST_TXN)}
        full = [
            each[-1]
            for each in ([txn.id for txn in opened], [tombstone.txn.id for tombstone in tombstones])
            if len(each) == limit
        ]
        running = [txn.id for txn in opened if txn.state is TxnState.RUNNING]
        aborted = {txn.id for txn in opened if txn.state is not TxnState.RUNNING}
        aborted.update(tombstone.txn.id for tombstone in tombstones if not tombstone.keep)
        newest = 0 if finished is None else finished.txn.id
        return NotCommitted(
            first=max(full, default=0),
            newest=max([newest, *running, *aborted]),
            running=tuple(sorted(running)),
            aborted=tuple(sorted(aborted - lost)),
        )

    def oldest_running(self) -> int | None:
        """Id of the oldest transaction that may still commit: GC keeps what it may have read."""
        records = read_all(self._kv, codec.OPEN_TXNS, Space.OPEN_TXN)
        return next((txn.id for txn in records if txn.state is TxnState.RUNNING), None)

    def trim_finished(self, before_ts: int) -> int:
        """Forget finished transactions that began before a hybrid time; return how many. A late question about one of
        them is answered as if it had never been."""
        start = span(Space.FINISHED_TXN)[0]
        end = pack(Space.FINISHED_TXN, before_ts)

        def plan(view: ReadView) -> Plan[int]:
            keys = [key for key, _ in view.scan(start, end, limit=REMOVE_BATCH)]
            if not keys:
                return Plan(result=0)
            newest = codec.FINISHED_TXNS.decode(keys[-1], _value(view, keys[-1]))
            puts = {**_floor(view, newest.txn.commit_ts), TRIMMED: codec.INTEGERS.encode(newest.txn.id)}
            return Plan(result=len(keys), puts=puts, deletes=keys)

        removed = 0
        while batch := change(self._kv, self._clock, plan):
            removed += batch
        return removed

    def _find_outcome(self, txn_id: int) -> Committed | None:
        """Return the commit whose answer was lost, if its record can be read."""
        try:
            with self._kv.view() as view:
                committed = committed_before(view, txn_id)
            self._kv.confirm()
            return committed
        except (UnavailableError, TxnNotFoundError):
            return None

    def pass_over(self, txn_id: int) -> None:
        """Never give this id or an earlier one: files may have names with it of which nothing else is known."""

        def plan(view: ReadView) -> Plan[None]:
            return Plan(result=None, puts=_floor(view, txn_id))

        change(self._kv, self._clock, plan)
        self._hybrid.observe(txn_id)

    def newest_time(self) -> int:
        """Return the greatest hybrid time of all transactions in the catalog; 0: there was none."""
        with self._kv.view() as view:
            newest = [read(view, CLOCK_FLOOR, codec.INTEGERS) or 0]
            newest.extend(txn.id for txn in read_all(view, codec.OPEN_TXNS, Space.OPEN_TXN, limit=1, reverse=True))
            finished = read_all(view, codec.FINISHED_TXNS, Space.FINISHED_TXN, limit=1, reverse=True)
            newest.extend(each.txn.commit_ts for each in finished)
            return max(newest)


def _find(view: ReadView, txn_id: int) -> Txn | None:
    txn = read(view, pack(Space.OPEN_TXN, txn_id), codec.OPEN_TXNS)
    if txn is not None:
        return txn
    finished = read(view, pack(Space.FINISHED_TXN, txn_id), codec.FINISHED_TXNS)
    return None if finished is None else finished.txn


def _floor(view: ReadView, ts: int) -> dict[bytes, bytes]:
    if ts <= (read(view, CLOCK_FLOOR, codec.INTEGERS) or 0):
        return {}
    return {CLOCK_FLOOR: codec.INTEGERS.encode(ts)}


def _value(view: ReadView, key: bytes) -> bytes:
    found = view.get(key)
    assert found is not None
    return found.value
