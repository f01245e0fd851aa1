"""Handle of a transaction under way: its outcomes and leftover files; and the loop that rebases concurrent changes.

Covers: what follows from each outcome, leftover files, trying again on what others have changed. Does not cover: the
commit (commit.py), the records (transactions.py), removing files (tilth.storage, passed to the catalog as `sweep`).
Always holds: files go only after the record says that the transaction landed without them or can never land; after an
unknown outcome nothing is aborted or swept, until the same commit is repeated or the transaction is settled; a
commit that may leave files writes a note of them, which stays until they are gone.

    running --commit landed---> landed: files that it did not name are swept, by the cleaner where that fails
     ^   |----commit unknown--> unknown: repeated by its owner, or left to the cleaner
     |   |----commit refused--.
     '---+----- rebase -------'
         '----left, settled---> aborted: files are swept now, or by the cleaner where a task may still write

Files that a task writes after the end are removed by the cleaner, which keeps a tombstone and sweeps repeatedly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar, assert_never
from weakref import WeakSet

from msgspec.structs import replace

from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog.commit.commit import CommitOutcome, Committed, Conflicted
from tilth.catalog.commit.commit_locks import TRIES_UNLOCKED
from tilth.catalog.errors import (
    PartsChangedError,
    PartsGoneError,
    TxnAbortedError,
    TxnFinishedError,
    TxnNotFoundError,
)
from tilth.catalog.kv import Unknown
from tilth.catalog.rules.requirements import Requirement
from tilth.catalog.rules.updates import Update, files_of
from tilth.model.txn import LeftoverNote, Txn, read_file_name

#: Characters of the reason that an aborted transaction's record keeps.
REASON_MAX = 1000
#: Transactions whose notes are removed together; the cleaner sweeps those above it once more.
SWEPT_MAX = 100_000

_log = Log("catalog")

T = TypeVar("T")


class Sweep(Protocol):
    """Removes the files of a transaction but for those to keep; raises OSError."""

    def __call__(self, txn: Txn, *, keep: Collection[str]) -> object: ...


def keep_files(txn: Txn, *, keep: Collection[str]) -> None:
    """Remove nothing."""


class Later(Protocol):
    """Runs a step soon, on another thread; returns False if nobody will run it."""

    def __call__(self, step: Callable[[], None], /) -> bool: ...


def at_once(step: Callable[[], None], /) -> bool:
    """Run the step before returning."""
    step()
    return True


class Committing(Protocol):
    """Methods of `Transactions` that a handle needs."""

    def commit(
        self,
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement],
        leftovers: LeftoverNote | None,
    ) -> CommitOutcome: ...

    def abort(self, txn_id: int, reason: str) -> None: ...

    def lock_commits(self, table: str, txn: int) -> None: ...

    def unlock_commits(self, txn: int) -> None: ...

    def add_tombstone(self, txn: Txn) -> None: ...


class LiveTxns:
    """Transactions under way in this process: the cleaner leaves them alone, however long they take.

    A transaction whose handle its owner has dropped is not live, nor one that failed and could not be aborted: that is
    unsettled, and the cleaner aborts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: WeakSet[TxnHandle] = WeakSet()
        self._unsettled: set[int] = set()
        self._swept: set[int] = set()
        self._cleaned: set[int] = set()

    def add(self, handle: TxnHandle) -> None:
        with self._lock:
            self._handles.add(handle)

    def discard(self, handle: TxnHandle) -> None:
        with self._lock:
            self._handles.discard(handle)

    def ids(self) -> set[int]:
        with self._lock:
            return {handle.id for handle in self._handles}

    def mark_unsettled(self, txn: int) -> None:
        """Record that the transaction still has to be aborted: an earlier attempt failed."""
        with self._lock:
            self._unsettled.add(txn)

    def mark_settled(self, txn: int) -> None:
        with self._lock:
            self._unsettled.discard(txn)

    def unsettled(self) -> set[int]:
        with self._lock:
            return set(self._unsettled)

    def mark_swept(self, txn: int) -> None:
        """Record that the transaction has no leftover files any more, and that its note may be removed."""
        with self._lock:
            if len(self._swept) < SWEPT_MAX:
                self._swept.add(txn)

    def mark_cleaned(self, txn: int) -> None:
        """Record that the transaction was aborted after all its tasks had ended, and that its files are removed."""
        with self._lock:
            if len(self._cleaned) < SWEPT_MAX:
                self._cleaned.add(txn)

    def is_cleaned(self, txn: int) -> bool:
        with self._lock:
            return txn in self._cleaned

    def mark_forgotten(self, txn: int) -> None:
        """Record that the catalog has no record of an aborted transaction any more."""
        with self._lock:
            self._cleaned.discard(txn)

    def swept(self) -> set[int]:
        with self._lock:
            return set(self._swept)

    def forget_swept(self, txns: Collection[int]) -> None:
        with self._lock:
            self._swept.difference_update(txns)


class TxnHandle:
    """One transaction under way; made by `transactions.open`. A context, which ends it; or its owner settles it."""

    def __init__(
        self,
        transactions: Committing,
        live: LiveTxns,
        sweep: Sweep,
        txn: Txn,
        *,
        later: Later = at_once,
        has_tasks: bool = False,
    ) -> None:
        """`later` runs the removal of files, which no answer waits for. `has_tasks`: tasks write files from the
        beginning, until `tasks_ended`."""
        self._transactions = transactions
        self._live = live
        self._sweep = sweep
        self._later = later
        self._may_write_on = has_tasks
        self.txn = self._begun = txn
        #: `True` when files may be there that the next commit does not name: of failed attempts of tasks, or of a try
        #: that was refused.
        self._may_leave_files = False
        self._has_written = True
        self._is_unknown = self._is_kept = self._is_over = False
        #: `True` after a commit was sent, until its outcome is known.
        self._may_have_landed = False
        live.add(self)

    @property
    def id(self) -> int:
        return self.txn.id

    def commit(self, updates: Sequence[Update], requirements: Sequence[Requirement] = ()) -> Committed:
        """Apply all updates at once; the files that they do not name are removed soon.

        Raises what refused it, after which it may be tried with other updates, or UnknownOutcomeError, after which the
        same commit may be repeated.
        """
        leftovers = self._leftover_note(updates)
        was_in_doubt, self._may_have_landed = self._may_have_landed, True
        outcome = self._transactions.commit(self.id, updates, requirements, leftovers)
        match outcome:
            case Committed():
                self._is_unknown = False
                self._end_committed(leftovers)
                return outcome
            case Conflicted(error=error):
                # A refusal settles an earlier commit whose answer was lost, too, unless the record is gone.
                self._may_have_landed = was_in_doubt and isinstance(error, TxnNotFoundError)
                self._is_unknown, self._may_leave_files = False, True
                if isinstance(error, TxnNotFoundError) and not self._may_have_landed:
                    # Others have aborted it and cleaned up, or a failover of the database has lost it.
                    hint = "send the statement again"
                    raise TxnAbortedError(txn=self.id, reason="its record is gone", hint=hint) from error
                raise error
            case Unknown(reason=reason):
                self._is_unknown = True
                hint = "call transactions.resolve before anything is deleted"
                raise UnknownOutcomeError(txn=self.id, reason=reason, hint=hint)
            case _:
                assert_never(outcome)

    def begin_try(self, number: int, tables: Iterable[str]) -> None:
        """Begin a try to commit to these tables; if others have been faster too often, lock the commits to them."""
        self._may_leave_files |= number > 0
        if number < TRIES_UNLOCKED:
            return
        for table in sorted(tables):
            _log.info("commits_locked", cause_id=str(self.id), table=table, tries=number)
            self._transactions.lock_commits(table, self.id)

    def tasks_began(self) -> None:
        """Record that tasks write, until `tasks_ended`: after an error some of them may go on writing."""
        self._may_write_on = True

    def tasks_ended(self, *, may_have_retried: bool = True) -> None:
        """Record that no task writes any more: if it is aborted its files go at once.

        `may_have_retried`: an attempt of a task may have failed and left files that its successor does not name.
        """
        self._may_write_on = False
        self._may_leave_files |= may_have_retried

    def narrow(self, tasks: int) -> None:
        """Record that the numbers of its tasks are below this one until the next call, so that no others are searched
        for files.
        """
        outputs = tuple(replace(each, tasks=min(each.tasks, tasks)) for each in self._begun.outputs)
        self.txn = replace(self.txn, outputs=outputs)

    def wrote_nothing(self) -> None:
        """Record that the tasks of its first try have ended without a file: where it is aborted nothing is removed."""
        self._has_written = self._may_leave_files

    def keep(self) -> None:
        """Keep it live when the context ends: after an unknown outcome its owner repeats the same commit."""
        self._is_kept = True

    def settle(self, reason: str) -> bool:
        """Make sure that it can never commit any more; False: it had landed, or was settled before.

        Raises UnavailableError when the catalog does not answer; a later call settles it then.
        """
        if self._is_over:
            return False
        try:
            self._transactions.abort(self.id, reason[:REASON_MAX])
        except TxnFinishedError as error:
            _log.debug("transaction_settled", cause_id=str(self.id), why=error)
            self._end()
            return False
        except TxnNotFoundError as error:
            # Others have aborted it and cleaned up. Or it is committed, by a commit whose outcome was never known, for
            # so long that its record was trimmed.
            _log.info("transaction_settled", cause_id=str(self.id), may_have_landed=self._may_have_landed, why=error)
            if not self._may_have_landed:
                self._add_tombstone()
            self._end()
            return not self._may_have_landed
        self._end()
        return True

    def give_up(self, reason: str, *, is_settled: bool) -> None:
        """Settle it; its files are removed soon if no task can write any more. What fails is left to the cleaner."""
        try:
            is_aborted = self.settle(reason)
        except TilthError as error:
            # The error of the caller says more. Until the cleaner has aborted it, it holds collection back.
            _log.warning("abort_left_to_cleaner", cause_id=str(self.id), reason=error)
            self._live.mark_unsettled(self.id)
            self._end()
            return
        if is_aborted and is_settled and not self._has_written:
            self._live.mark_cleaned(self.id)
        elif is_aborted and is_settled:
            self._sweep_soon(frozenset(), self._live.mark_cleaned)

    def _add_tombstone(self) -> None:
        """Let the cleaner remove its files, also those that are written later: there is no other record of them."""
        if self.txn.outputs:
            self._transactions.add_tombstone(self.txn)

    def __enter__(self) -> TxnHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_unknown:
            if not self._is_kept:
                self._end()
        elif not self._is_over:
            reason = "nothing was committed" if error is None else f"{type(error).__name__}: {error}"
            self.give_up(reason, is_settled=not self._may_write_on)

    def _leftover_note(self, updates: Sequence[Update]) -> LeftoverNote | None:
        """Return the note that its commit leaves; None: whatever it has written is in these updates."""
        if not self.txn.outputs:
            return None
        keep = tuple(sorted(set(files_of(updates))))
        # A later attempt replaces one that its job gave up, which may go on writing on a host that cannot be reached.
        is_retried = any(name is not None and name.attempt > 0 for name in map(read_file_name, keep))
        if not (self._may_write_on or self._may_leave_files or is_retried):
            return None
        return LeftoverNote(txn=self.txn, keep=keep, may_write_on=self._may_write_on or is_retried)

    def _end_committed(self, leftovers: LeftoverNote | None) -> None:
        self._is_over = True
        self._transactions.unlock_commits(self.id)
        # Where a task may go on writing, only the cleaner sweeps: it records the files that it finds, and later lists
        # the names behind them.
        if leftovers is not None and not leftovers.may_write_on:
            self._sweep_soon(frozenset(leftovers.keep), self._live.mark_swept)
        else:
            self._live.discard(self)

    def _sweep_soon(self, keep: Collection[str], done: Callable[[int], None]) -> None:
        # The transaction is live until then, so that the cleaner does not list the same files.
        self._live.add(self)

        def sweep() -> None:
            try:
                hit("work.before_sweep")
                if self._remove_files(keep=keep):
                    done(self.id)
            finally:
                self._live.discard(self)

        if not self._later(sweep):
            _log.info("sweep_left_to_cleaner", cause_id=str(self.id))
            self._live.discard(self)

    def _end(self) -> None:
        self._is_over = True
        self._transactions.unlock_commits(self.id)
        self._live.discard(self)

    def _remove_files(self, *, keep: Collection[str]) -> bool:
        try:
            self._sweep(self.txn, keep=keep)
        except (TilthError, OSError) as error:
            # The cleaner comes: the record of an aborted transaction and the note of one that landed stay until then.
            _log.warning("files_left", cause_id=str(self.id), reason=error)
            return False
        return True


def rebase(
    txn: int,
    attempt: Callable[[int], T],
    *,
    tries: int,
    busy: TilthError,
    moved: tuple[type[TilthError], ...] = (PartsChangedError, PartsGoneError),
) -> T:
    """Return the answer of the first attempt that commits.

    `attempt` gets its number, from 0; it reads the current state, rebases its changes onto it, and commits. It is
    called again while others change the same parts in between, which raises the errors `moved`. Raises `busy` after so
    many tries.
    """
    why: TilthError | None = None
    for number in range(tries):
        try:
            return attempt(number)
        except moved as error:
            _log.info("rebase", cause_id=str(txn), tries=number + 1, reason=error)
            why = error
    raise busy from why
