"""One piece of work: begin, let a worker write the files, commit; and what follows from each outcome.

Covers: the three outcomes of the commit, failed and cancelled tasks, for every kind of work that writes parts. Does not
cover: what the work is (merge_work.py, mutate_work.py), how a worker does it (spark.py).
Always holds: bytes first, truth second; all that one piece of work wrote becomes true at once; while an outcome is
unknown nothing is deleted, and the same commit is asked for again until it is known.

Failpoints, behind the recipe's verb: `.before_files`, `.after_files`, `.before_commit`, `.after_commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, assert_never

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog import Catalog, Committed, Conflicted, Unknown, Update
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.owner import Owner
from tilth.maintenance.watch import TableWatch
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import clean_transaction, file_name
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher, Handle, TaskCancelledError, TaskLostError

_log = Log("maintenance")

WorkT = TypeVar("WorkT")
WorkT_contra = TypeVar("WorkT_contra", contravariant=True)
FactsT = TypeVar("FactsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a worker is asked to do."""

    #: The payload of its task, for a transaction.
    payload: Callable[[int], bytes]
    #: Numbers of tasks in the names of the files that it may write.
    tasks: int
    #: What it reads.
    input_bytes: int
    rows: int


class Recipe(Protocol[WorkT_contra, FactsT]):
    """What is particular to one kind of work."""

    #: Of its transactions and failpoints: `merge`.
    verb: str
    #: Of its lines in the log: `merge`, `mutation`.
    noun: str
    task_kind: TaskKind

    def job(self, work: WorkT_contra) -> Job:
        """Raises TilthError where it cannot be done now; nothing has begun then."""

    def facts(self, payload: bytes) -> FactsT:
        """What the worker reports."""

    def updates(self, work: WorkT_contra, facts: FactsT, duration_ms: int) -> list[Update]:
        """What the commit makes true."""

    def files(self, facts: FactsT) -> Collection[str]:
        """Names of the files that were written."""

    def told(self, work: WorkT_contra, facts: FactsT, duration_ms: int) -> str:
        """What was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(Generic[WorkT, FactsT]):
    """Work whose files are written."""

    work: WorkT
    txn: Txn
    facts: FactsT
    duration_ms: int


@dataclass(slots=True, eq=False)
class _Live(Generic[WorkT]):
    """Work under way. Hold the lock."""

    work: WorkT
    txn: int = 0
    handle: Handle | None = None
    is_cancelled: bool = False


class Attempts(Generic[WorkT, FactsT]):
    """The work of one kind that is under way for one table."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        recipe: Recipe[WorkT, FactsT],
        *,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._root = root
        self._recipe = recipe
        self._watch = watch
        self._owner = owner
        self._cleaner = cleaner
        self._lock = threading.Lock()
        self._live: set[_Live[WorkT]] = set()
        #: Commits of which nobody knows; their parts stay taken.
        self._unknown: list[_Written[WorkT, FactsT]] = []
        self._is_cancelled = False

    @property
    def txns(self) -> set[int]:
        """Transactions under way, and those whose outcome is still to be found out."""
        with self._lock:
            return {live.txn for live in self._live if live.txn} | {written.txn.id for written in self._unknown}

    @property
    def has_unknown(self) -> bool:
        return bool(self._unknown)

    def cancel_all(self) -> None:
        """Running tasks are asked to end, later ones too."""
        with self._lock:
            self._is_cancelled = True
        self.cancel(lambda _: True)

    def cancel(self, is_meant: Callable[[WorkT], bool]) -> int:
        """Asks the tasks of such work to end; how many are asked. One that commits already is not stopped."""
        with self._lock:
            meant = [live for live in self._live if not live.is_cancelled and is_meant(live.work)]
            for live in meant:
                live.is_cancelled = True
            handles = [live.handle for live in meant if live.handle is not None]
        for handle in handles:
            handle.cancel()
        return len(meant)

    def resolve(self) -> list[tuple[WorkT, TilthError | None]]:
        """Asks again for the commits of which nobody knows: the same commit gives the same answer.

        Returns the work whose outcome is known now, with the error of what did not land.
        """
        with self._lock:
            unknown, self._unknown = self._unknown, []
        known: list[tuple[WorkT, TilthError | None]] = []
        for written in unknown:
            try:
                told = self._commit(written)
            except UnknownOutcomeError:
                # It is in the list again.
                continue
            except TilthError as error:
                known.append((written.work, error))
            else:
                action = f"{self._recipe.noun}_outcome_known"
                _log.info(action, cause_id=str(written.txn.id), table=self._watch.name, done=told)
                known.append((written.work, None))
        return known

    def perform(self, work: WorkT) -> str:
        """From the files to the commit; returns what was done, raises why it was not."""
        live = _Live(work)
        with self._lock:
            live.is_cancelled = self._is_cancelled
            self._live.add(live)
        try:
            return self._perform(live)
        finally:
            with self._lock:
                self._live.discard(live)

    def _perform(self, live: _Live[WorkT]) -> str:
        verb = self._recipe.verb
        job = self._recipe.job(live.work)
        started = self._clock.monotonic()
        hit(f"{verb}.before_files")
        txn = self._begin(job)
        with self._lock:
            live.txn = txn.id
        facts = self._write(live, txn, job)
        hit(f"{verb}.after_files")
        duration_ms = int((self._clock.monotonic() - started) * 1000)
        hit(f"{verb}.before_commit")
        told = self._commit(_Written(work=live.work, txn=txn, facts=facts, duration_ms=duration_ms))
        hit(f"{verb}.after_commit")
        return told

    def _begin(self, job: Job) -> Txn:
        try:
            return self._catalog.transactions.begin(
                f"{self._recipe.verb} {self._watch.name}",
                outputs=(TxnOutput(table=self._watch.uuid, tasks=job.tasks),),
                fences=(self._owner.fence(self._watch.uuid),),
            )
        except FencedError:
            self._owner.lose(self._watch.uuid)
            raise

    def _write(self, live: _Live[WorkT], txn: Txn, job: Job) -> FactsT:
        try:
            handle = self._dispatcher.submit(
                self._dispatcher.new_spec(
                    self._recipe.task_kind,
                    warehouse=WRITE_WAREHOUSE,
                    table=self._watch.name,
                    payload=job.payload(txn.id),
                    txn=txn.id,
                    input_bytes=job.input_bytes,
                    rows=job.rows,
                )
            )
            with self._lock:
                live.handle = handle
                is_cancelled = live.is_cancelled
            if is_cancelled:
                handle.cancel()
            return self._recipe.facts(handle.wait().payload)
        except TilthError as error:
            # A task that was killed or lost may still be writing.
            self._give_up(txn, error, is_settled=not isinstance(error, TaskCancelledError | TaskLostError))
            raise
        finally:
            with self._lock:
                live.handle = None

    def _commit(self, written: _Written[WorkT, FactsT]) -> str:
        txn = written.txn
        updates = self._recipe.updates(written.work, written.facts, written.duration_ms)
        try:
            outcome = self._catalog.transactions.commit(txn.id, updates)
        except TilthError as refused:
            # Refused in a way that applied nothing.
            self._give_up(txn, refused, is_settled=True)
            raise
        match outcome:
            case Committed():
                self._sweep(txn, self._recipe.files(written.facts))
                return self._recipe.told(written.work, written.facts, written.duration_ms)
            case Conflicted(error=error):
                self._give_up(txn, error, is_settled=True)
                if isinstance(error, FencedError):
                    self._owner.lose(self._watch.uuid)
                raise error
            case Unknown(reason=reason):
                action = f"{self._recipe.noun}_outcome_unknown"
                _log.warning(action, cause_id=str(txn.id), table=self._watch.name, reason=reason)
                with self._lock:
                    self._unknown.append(written)
                raise UnknownOutcomeError(
                    txn=txn.id, table=self._watch.name, reason=reason, hint="the commit is asked for again by itself"
                )
            case _:
                assert_never(outcome)

    def _give_up(self, txn: Txn, error: TilthError, *, is_settled: bool) -> None:
        try:
            self._cleaner.give_up(txn, str(error), is_settled=is_settled)
        except (TilthError, OSError) as refused:
            # The cleaner finds the transaction again, and aborts it when nobody has worked on it for long.
            _log.warning("abort_failed", cause_id=str(txn.id), table=self._watch.name, reason=refused)

    def _sweep(self, txn: Txn, written: Collection[str]) -> None:
        """Rids the table of what failed attempts of the tasks left."""
        tasks = sum(output.tasks for output in txn.outputs)
        firsts = {file_name(txn=txn.id, task=task, attempt=0, n=0) for task in range(tasks)}
        if not firsts.issuperset(written):
            clean_transaction(self._root, txn, keep=set(written))
