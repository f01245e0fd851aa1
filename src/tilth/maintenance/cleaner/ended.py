"""Aborts of transactions that nobody works on, and removal of the files of ended ones, also when a task writes late.

Covers: aborting lost transactions, removing files of aborted transactions and of failed attempts, tombstones. Does not
cover: how files are found (storage/store/files/removal.py), tables and old records (cleaner.py).
Always holds: a transaction's files are removed only after its record says that it can never commit, or that it has
committed without them, as its note says (`transactions.leftover_notes`). A server does not touch the transactions
of another live server; one of them, the coordinator, cleans up after servers that are gone.

A task may outlive its transaction: on a worker that was suspended or cut off, on an executor of an unreachable cluster.
The names of the files that it writes then follow from the transaction, so they are removed again, at growing intervals,
for a day; for that time a *tombstone* is kept. There is none if all tasks have reported their end.

    aborted -----grace----.                        .--gap--.
                          +--> files removed, tombstone    |--all gaps--> tombstone removed
    committed, noted -----'                        '-------'
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.hybrid import milliseconds
from tilth.base.logs import Log
from tilth.catalog import Catalog, TxnFinishedError, TxnNotFoundError
from tilth.maintenance.cleaner.left_files import sweep_again
from tilth.model.server import COORDINATOR, server_of
from tilth.model.txn import FileRun, LeftoverNote, Tombstone, Txn, TxnState
from tilth.storage import Roots, away_reason, may_list_late

#: Time after which a running transaction that nobody works on is aborted.
LOST_AFTER_MS = 600_000
#: Time between an abort and the first removal: a task that is being killed may still write.
GRACE_MS = 15_000
#: Intervals between the following removals; they add up to a day.
GAPS_MS = (60_000, 240_000, 900_000, 2_700_000, 7_200_000, 21_600_000, 54_000_000)
#: Interval between two reads of the tombstones.
TOMBSTONES_PERIOD_MS = 60_000
#: Removals of one round; the next round makes the others.
LATE_SWEEPS_MAX = 200
#: Time for the removals of one round, and of the start, in seconds: the manager starts no work meanwhile, and a store
#: may be slow. The next rounds make the other removals.
ROUND_SECONDS_MAX = 2.0
START_SECONDS_MAX = 10.0
#: Number of tombstones beyond which the oldest are removed.
TOMBSTONES_MAX = 20_000

_log = Log("maintenance")

T = TypeVar("T")


class EndedTxns:
    """Cleanup of ended transactions by one server; `start` once, then `tick` periodically, from one thread."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        root: Roots,
        *,
        grace_ms: int,
        failover_grace_ms: int,
        hosts: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._root = root
        self._hosts = hosts
        #: Transactions begun before this belong to an earlier process or to another live server.
        self._began = catalog.clock.now()
        self._grace_ms = grace_ms
        #: Time between a failover that may have lost commits and the first removal of files of transactions that other
        #: processes had begun before it.
        self._failover_grace_ms = failover_grace_ms
        #: Monotonic time at which the current round ends.
        self._deadline = 0.0
        #: Id of the transaction whose files were removed last, of the aborted and of the committed ones.
        self._removed_last = {TxnState.ABORTED: 0, TxnState.FINISHED: 0}
        #: Monotonic times at which aborted transactions were first seen.
        self._aborted_seconds: dict[int, float] = {}
        #: Ids of aborted transactions whose wait after a failover is logged.
        self._logged_waits: set[int] = set()
        #: Monotonic times at which committed transactions with files that nobody removes were first seen.
        self._leftover_seconds: dict[int, float] = {}
        #: Monotonic time at which the tombstones were last read; None: never.
        self._swept_seconds: float | None = None
        #: Id of the last tombstone that the current round over them has reached; 0: the next tick begins a round.
        self._swept_up_to = 0
        self._lock = threading.Lock()

    def start(self) -> int:
        """Abort the transactions that an earlier process left; return how many."""
        # Read before the live servers: a transaction that begins meanwhile belongs to a live one.
        unfinished = self._catalog.transactions.unfinished()
        notes = self._catalog.transactions.leftover_notes()
        living = self._others()
        left = [txn for txn in unfinished if txn.id < self._began and txn.server not in living]
        for txn in left:
            self._abort(txn.id, "the server ended before it committed")
        self._deadline = self._clock.monotonic() + START_SECONDS_MAX
        for txn in left:
            if self._is_over():
                break
            # If its storage is away, `tick` removes the files later. `_remove` keeps a tombstone, because a worker may
            # not know yet that the server has ended.
            self._guarded("clean_transaction", txn.id, partial(self._remove, txn))
        for each in notes:
            is_former = each.txn.id < self._began and each.txn.server not in living
            if is_former and not each.may_write_on and not self._is_over():
                self._guarded("sweep_transaction", each.txn.id, partial(self._sweep, each))
        return len(left)

    def tick(self, now_ms: int) -> None:
        """Run one round; a step that fails does not stop the others, and one that is slow holds them up for a while."""
        self._deadline = self._clock.monotonic() + ROUND_SECONDS_MAX
        self._clean_transactions(self._catalog.transactions.unfinished(), now_ms)
        self._guarded("sweep_transactions", 0, self._sweep_transactions)
        is_due = self._hosts(COORDINATOR) and self._have_passed(self._swept_seconds, TOMBSTONES_PERIOD_MS)
        # With a clock that is wrongly ahead, all tombstones would expire at once.
        if is_due and self._catalog.clock_check.removal_error() is None:
            self._guarded("sweep_late_files", 0, partial(self._check_tombstones, now_ms))

    # --- aborted ---

    def _clean_transactions(self, unfinished: Sequence[Txn], now_ms: int) -> None:
        live, unsettled = self._catalog.transactions.live(), self._catalog.transactions.unsettled()
        waiting: dict[str, str] = {}
        others = self._others() if unfinished else set()
        ids = {txn.id for txn in unfinished}
        self._aborted_seconds = {txn: seen for txn, seen in self._aborted_seconds.items() if txn in ids}
        self._logged_waits &= ids
        over: dict[int, Txn] = {}
        for txn in unfinished:
            if txn.server in others:
                continue
            is_own = self._catalog.is_own(txn.server) or txn.id in live
            if not is_own and not self._hosts(COORDINATOR):
                continue
            if txn.state is TxnState.RUNNING:
                has_ended = txn.server != self._catalog.server and server_of(txn.server) is not None
                if has_ended and txn.id not in live:
                    work = partial(self._abort, txn.id, f"its server {txn.server} is gone")
                else:
                    work = partial(self._check, txn, now_ms, live=live, unsettled=unsettled)
                self._guarded("clean_transaction", txn.id, work)
            # The files of a live one are being removed.
            elif txn.id not in live and not self._away(txn, waiting):
                since = self._aborted_seconds.setdefault(txn.id, self._clock.monotonic())
                if self._have_passed(since, self._grace_ms):
                    over[txn.id] = txn
        for txn in self._rotated(TxnState.ABORTED, over):
            self._guarded("clean_transaction", txn.id, partial(self._remove, txn))

    def _check(self, txn: Txn, now_ms: int, *, live: set[int], unsettled: set[int]) -> None:
        if txn.id in unsettled:
            self._abort(txn.id, "its work has failed, and the catalog did not answer then")
        elif txn.id not in live and now_ms - milliseconds(txn.id) > LOST_AFTER_MS:
            self._abort(txn.id, f"nobody has worked on it for {LOST_AFTER_MS // 1000} s")

    def _abort(self, txn_id: int, reason: str) -> None:
        try:
            self._catalog.transactions.abort(txn_id, reason)
        except (TxnFinishedError, TxnNotFoundError) as error:
            # Its actor has ended it meanwhile.
            _log.info("abort_not_needed", cause_id=str(txn_id), reason=error)

    def _may_have_committed(self, txn: Txn) -> bool:
        """Return whether another process that began it may know of a commit that the catalog's database has lost. This
        process has recorded such commits before it joined anew.
        """
        history = self._catalog.incarnation
        is_before = history.number > 1 and milliseconds(txn.id) < history.opened_ms + GRACE_MS
        is_fresh = self._clock.now_ms() < history.opened_ms + self._failover_grace_ms
        return is_before and is_fresh and not self._catalog.is_own(txn.server)

    def _remove(self, txn: Txn) -> None:
        if self._may_have_committed(txn):
            if txn.id not in self._logged_waits:
                self._logged_waits.add(txn.id)
                reason = f"{txn.server} may know of a commit that a failover of the database has lost"
                seconds = self._failover_grace_ms // 1000
                _log.info("files_stay", cause_id=str(txn.id), actor=txn.actor, reason=reason, seconds_max=seconds)
            return
        transactions = self._catalog.transactions
        with self._lock:
            if transactions.resolve(txn.id) is not TxnState.ABORTED:
                return
            files = 0
            if not transactions.is_cleaned(txn.id):
                files = self._sweep_with_tombstone(txn, ())
            elif self._may_list_late(txn):
                files = sweep_again(self._catalog, self._root, txn)
            transactions.forget(txn.id)
        _log.info("transaction_cleaned", cause_id=str(txn.id), actor=txn.actor, files=files)

    # --- committed ---

    def _sweep_transactions(self) -> None:
        """Remove files of failed attempts of committed transactions, unless somebody else does."""
        transactions = self._catalog.transactions
        # Read in this order: a committed transaction has its note before it is swept, and is live until then.
        swept_once = transactions.swept()
        notes, live, swept = transactions.leftover_notes(), transactions.live(), transactions.swept()
        for each in notes:
            if each.txn.id in swept_once and self._may_list_late(each.txn):
                self._guarded("sweep_transaction", each.txn.id, partial(self._sweep, each))
        transactions.forget_swept(swept_once)
        ids = {each.txn.id for each in notes}
        self._leftover_seconds = {txn: seen for txn, seen in self._leftover_seconds.items() if txn in ids}
        left = [each for each in notes if each.txn.id not in live | swept]
        others = self._others() if left else set()
        waiting: dict[str, str] = {}
        over: dict[int, LeftoverNote] = {}
        for each in left:
            is_own = self._catalog.is_own(each.txn.server)
            if self._away(each.txn, waiting):
                continue
            if each.txn.server in others or not (is_own or self._hosts(COORDINATOR)):
                continue
            since = self._leftover_seconds.setdefault(each.txn.id, self._clock.monotonic())
            if not each.may_write_on or self._have_passed(since, self._grace_ms):
                over[each.txn.id] = each
        for each in self._rotated(TxnState.FINISHED, over):
            self._guarded("sweep_transaction", each.txn.id, partial(self._sweep, each))

    def _sweep(self, note: LeftoverNote) -> None:
        txn = note.txn
        with self._lock:
            if note.may_write_on:
                files = self._sweep_with_tombstone(txn, note.keep)
            else:
                files = sweep_again(self._catalog, self._root, txn, keep=note.keep)
            self._catalog.transactions.mark_swept(txn.id)
        _log.info("transaction_swept", cause_id=str(txn.id), actor=txn.actor, files=files)

    # --- files that tasks write late ---

    def _sweep_with_tombstone(self, txn: Txn, keep: tuple[str, ...]) -> int:
        """Write a tombstone of a transaction whose tasks may still write, and remove its files."""
        tombstones = self._catalog.transactions.tombstones
        found = tombstones.get(txn.id)
        now_ms = self._clock.now_ms()
        tombstone = found or Tombstone(txn=txn, keep=keep, since_ms=now_ms, due_ms=now_ms + GAPS_MS[0])

        def counted(runs: tuple[FileRun, ...]) -> None:
            if txn.outputs and (found is None or runs != found.runs):
                tombstones.put([replace(tombstone, runs=runs)])

        return sweep_again(self._catalog, self._root, txn, keep=keep, runs=tombstone.runs, counted=counted)

    def _check_tombstones(self, now_ms: int) -> None:
        tombstones = self._catalog.transactions.tombstones
        known = tombstones.all()
        over = [each.txn.id for each in known[: max(0, len(known) - TOMBSTONES_MAX)]]
        if over:
            hint = "SYSTEM CHECK FILES finds what their tasks may still write"
            _log.warning("tombstones_forgotten", count=len(over), count_max=TOMBSTONES_MAX, hint=hint)
        due = [each for each in known[len(over) :] if _is_due(each, now_ms) and each.txn.id > self._swept_up_to]
        waiting: dict[str, str] = {}
        swept: list[Tombstone] = []
        ready = (each for each in due if not self._away(each.txn, waiting))
        # A round goes through the ids in order, so that sweeps that fail cannot starve the others.
        last = 0
        for count, each in enumerate(ready):
            if count == LATE_SWEEPS_MAX or (count and self._is_over()):
                break
            last = each.txn.id
            self._guarded("sweep_late_files", last, partial(self._sweep_late, each, now_ms, swept))
        else:
            last = 0
        over += [each.txn.id for each in swept if each.sweeps == len(GAPS_MS)]
        tombstones.put([each for each in swept if each.sweeps < len(GAPS_MS)], over=over)
        self._swept_up_to = last
        if not last:
            self._swept_seconds = self._clock.monotonic()

    def _sweep_late(self, tombstone: Tombstone, now_ms: int, swept: list[Tombstone]) -> None:
        """Remove the files written since the last removal; append the updated tombstone to `swept`."""
        tombstones, txn = self._catalog.transactions.tombstones, tombstone.txn
        now = tombstone

        def counted(runs: tuple[FileRun, ...]) -> None:
            nonlocal now
            if runs != tombstone.runs:
                # Kept before the removal: the removed names lead to the files after them.
                now = replace(tombstone, runs=runs)
                tombstones.put([now])

        with self._lock:
            files = sweep_again(
                self._catalog, self._root, txn, keep=tombstone.keep, runs=tombstone.runs, counted=counted
            )
        sweeps = tombstone.sweeps + 1
        due_ms = now_ms + (GAPS_MS[sweeps] if sweeps < len(GAPS_MS) else 0)
        swept.append(replace(now, sweeps=sweeps, due_ms=due_ms))
        if files:
            seconds = (now_ms - tombstone.since_ms) // 1000
            _log.warning("late_files_removed", cause_id=str(txn.id), actor=txn.actor, files=files, seconds=seconds)

    # --- shared ---

    def _rotated(self, state: TxnState, over: Mapping[int, T]) -> Iterator[T]:
        """Yield values by their ids, from behind the last one of the round before, until the round is over; at least
        one, so that a slow store holds up no transaction for good.
        """
        last = self._removed_last[state]
        for count, txn_id in enumerate(sorted(over, key=lambda each: (each <= last, each))):
            if count and self._is_over():
                return
            self._removed_last[state] = txn_id
            yield over[txn_id]

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._deadline

    def _away(self, txn: Txn, known: dict[str, str]) -> bool:
        """Return whether a replica of its tables is away, so that no removal would be complete; log each table once."""
        for output in txn.outputs:
            if output.table not in known:
                storage = self._catalog.storage_of(output.table)
                reason = known[output.table] = "" if storage is None else away_reason(self._root.of(output.table))
                if reason:
                    _log.info("removals_wait", table=output.table, reason=reason)
        return any(known[output.table] for output in txn.outputs)

    def _may_list_late(self, txn: Txn) -> bool:
        """Return whether a second sweep may find files that the first one has missed, although all tasks had ended."""
        stored = (each.table for each in txn.outputs if self._catalog.storage_of(each.table) is not None)
        return any(may_list_late(self._root.of(table)) for table in stored)

    def _have_passed(self, since: float | None, ms: int) -> bool:
        return since is None or self._clock.monotonic() - since >= ms / 1000

    def _others(self) -> set[str]:
        """Return the ids of the other live servers."""
        return {each.id for each in self._catalog.servers.live()} - {self._catalog.server}

    def _guarded(self, action: str, txn_id: int, work: Callable[[], None]) -> None:
        try:
            work()
        except (TilthError, OSError) as error:
            _log.warning(f"{action}_failed", cause_id=str(txn_id or "-"), reason=error)


def _is_due(tombstone: Tombstone, now_ms: int) -> bool:
    """Return whether the next removal is due; a time farther in the future than any gap comes from a wrong clock."""
    return not 0 < tombstone.due_ms - now_ms <= GAPS_MS[-1]
