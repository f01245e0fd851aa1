"""One piece of work: begin, let a worker write the files, commit; and what follows from each outcome.

Covers: commits that are repeated, changes that came to the sources meanwhile, failed and cancelled tasks, for
every kind of work that writes parts. Does not cover: what the work is (procedure.py), which work is done
(part_work.py), what an outcome leaves behind (catalog/commit/txn_handle.py), where changes are rebased (rebases.py).
Always holds: bytes first, truth second; all that one piece of work wrote becomes true at once; while an outcome is
unknown nothing is deleted, and the same commit is repeated until it is known.

Rows of the sources may change while the files are written. The catalog refuses the commit then; what is new is
*rebased*: written once more as changes of the rows of the new part, and committed with it. That takes milliseconds
and happens on the run's own thread, or, where the changes are large, in a task that the run waits for; each round is
about what came during the one before.

Failpoints, behind the procedure's verb: `.before_files`, `.after_files`, `.before_commit`, `.after_commit`; for all
verbs `rebase.before_files` and `rebase.before_commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic

import msgspec

from tilth.base import tracing
from tilth.base.cancel import reaching
from tilth.base.errors import TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.full import full_error
from tilth.base.logs import Log
from tilth.catalog import AddDelta, PartsChangedError, TxnHandle, Update, rebase
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.procedure import FactsT, Job, Procedure, WorkT
from tilth.maintenance.work.rebases import LOST, REBASES_MAX, Arrived, Rebases, Run, numbers_of
from tilth.maintenance.work.task_spark import RebaseTask
from tilth.model.task import TaskKind, TaskSpec
from tilth.storage import remove_row_map
from tilth.warehouse import Handle, TaskCancelledError, TaskResult, table_warehouses

#: Errors of tasks that may still be writing.
_MAY_WRITE_ON = (TaskCancelledError, *LOST)

_log = Log("maintenance")


@dataclass(slots=True, kw_only=True)
class _Written(Generic[WorkT, FactsT]):
    """Work whose files are written. Of one thread at a time."""

    #: Work as it was chosen, and its transaction.
    work: WorkT
    txn: TxnHandle
    facts: FactsT
    duration_ms: int
    rebases: Rebases


@dataclass(slots=True, eq=False)
class _Live(Generic[WorkT]):
    """Work under way. Hold the lock."""

    work: WorkT
    handle: Handle | None = None
    is_cancelled: bool = False


class Attempts(Generic[WorkT, FactsT]):
    """The work of one kind that is under way for one table."""

    def __init__(self, context: TableContext, procedure: Procedure[WorkT, FactsT]) -> None:
        server = context.server
        self._clock = server.clock
        self._catalog = server.catalog
        self._dispatcher = server.dispatcher
        self._root = server.root
        self._context = context
        self._procedure = procedure
        self._watch = context.watch
        self._counters = server.counters
        self._new_rebaser = server.new_rebaser
        self._lock = threading.Lock()
        self._live: set[_Live[WorkT]] = set()
        #: Commits of which nobody knows; their parts stay reserved.
        self._unknown: list[_Written[WorkT, FactsT]] = []

    @property
    def has_unknown(self) -> bool:
        return bool(self._unknown)

    def cancel(self, is_meant: Callable[[WorkT], bool]) -> int:
        """Cancel the tasks of such work; return how many. One that commits already is not stopped."""
        with self._lock:
            meant = [live for live in self._live if not live.is_cancelled and is_meant(live.work)]
            for live in meant:
                live.is_cancelled = True
            handles = [live.handle for live in meant if live.handle is not None]
        for handle in handles:
            handle.cancel()
        return len(meant)

    def resolve(self) -> list[tuple[WorkT, TilthError | None]]:
        """Repeat the commits whose outcome is unknown: the same commit gives the same answer.

        Returns the work whose outcome is known now, with the error of what did not land.
        """
        with self._lock:
            unknown, self._unknown = self._unknown, []
        known: list[tuple[WorkT, TilthError | None]] = []
        for written in unknown:
            try:
                with written.txn:
                    # The caller's thread has other tables to see to.
                    report = self._commit(written, None)
            except UnknownOutcomeError:
                # It is in the list again.
                continue
            except TilthError as error:
                known.append((written.work, error))
            else:
                action = f"{self._procedure.noun}_outcome_known"
                _log.info(action, cause_id=str(written.txn.id), table=self._watch.name, done=report)
                known.append((written.work, None))
        return known

    def perform(self, work: WorkT) -> str:
        """Work from the files to the commit; return what was done, raise why it was not."""
        live = _Live(work)
        with self._lock:
            live.is_cancelled = self._watch.is_cancelled.is_set()
            self._live.add(live)
        try:
            with tracing.span(self._procedure.verb, tilth__table=self._watch.name):
                return self._perform(live)
        finally:
            with self._lock:
                self._live.discard(live)

    def _perform(self, live: _Live[WorkT]) -> str:
        verb = self._procedure.verb
        job = self._procedure.job(live.work)
        started = self._clock.monotonic()
        hit(f"{verb}.before_files")
        numbers = numbers_of(job)
        with self._context.begin(verb, tasks=numbers.all) as txn:
            txn.narrow(numbers.work)
            facts = self._write(live, txn, job)
            hit(f"{verb}.after_files")
            duration_ms = int((self._clock.monotonic() - started) * 1000)
            hit(f"{verb}.before_commit")
            arrived = [
                Arrived(input=job.inputs[made.task], output=made) for made in self._procedure.outputs(live.work, facts)
            ]
            written = _Written(
                work=live.work,
                txn=txn,
                facts=facts,
                duration_ms=duration_ms,
                rebases=Rebases(txn, numbers, arrived, self._new_rebaser),
            )
            report = self._commit(written, partial(self._run_rebase, live))
        hit(f"{verb}.after_commit")
        return report

    def _write(self, live: _Live[WorkT], txn: TxnHandle, job: Job) -> FactsT:
        task_kind = self._procedure.kind.traits.task
        assert task_kind is not None
        try:
            result = self._run_task(
                live,
                self._dispatcher.new_spec(
                    task_kind,
                    warehouse=table_warehouses(self._watch.definition.settings).maintenance,
                    table=self._watch.name,
                    payload=msgspec.msgpack.encode(msgspec.structs.replace(job.task, txn=txn.id)),
                    txn=txn.id,
                    input_bytes=job.input_bytes,
                    rows=job.rows,
                ),
            )
            txn.tasks_ended(may_have_retried=result.may_have_retried)
            return msgspec.msgpack.decode(result.payload, type=self._procedure.facts_type)
        except TilthError as error:
            # A task that was killed or lost may still be writing, and so may other Spark tasks of a job that failed.
            if job.tasks == 1 and not isinstance(error, _MAY_WRITE_ON):
                txn.tasks_ended()
            raise

    def _run_rebase(self, live: _Live[WorkT], task: RebaseTask, size: int) -> TaskResult:
        spec = self._dispatcher.new_spec(
            TaskKind.REBASE,
            warehouse=table_warehouses(self._watch.definition.settings).maintenance,
            table=self._watch.name,
            payload=msgspec.msgpack.encode(task),
            txn=task.txn,
            input_bytes=size,
        )
        return self._run_task(live, spec)

    def _run_task(self, live: _Live[WorkT], spec: TaskSpec) -> TaskResult:
        """Submit a task and wait; whoever cancels the work reaches it."""
        try:
            handle = self._dispatcher.submit(spec)
            with self._lock:
                live.handle = handle
                is_cancelled = live.is_cancelled
            if is_cancelled:
                handle.cancel()
            with reaching(handle):
                return handle.wait()
        finally:
            with self._lock:
                live.handle = None

    def _commit(self, written: _Written[WorkT, FactsT], run: Run | None) -> str:
        """Commit, in as many rounds as it takes. `run`: sends rebases as tasks; None: nobody may wait for one."""
        txn, table = written.txn, self._watch.name
        busy = PartsChangedError("its rows are changed faster than that is brought over", table=table)
        tries = 1 + REBASES_MAX - written.rebases.rounds
        try:
            rebase(txn.id, partial(self._attempt, written, run), tries=tries, busy=busy, moved=(PartsChangedError,))
        except UnknownOutcomeError as error:
            _log.warning(f"{self._procedure.noun}_outcome_unknown", cause_id=str(txn.id), table=table, reason=error)
            txn.keep()
            with self._lock:
                self._unknown.append(written)
            raise
        except OSError as error:
            failed = full_error(error, folder=str(self._root))
            raise failed or UnavailableError("changes could not be brought over", table=table, reason=error) from error
        self._remove_row_maps(written)
        return self._report(written)

    def _attempt(self, written: _Written[WorkT, FactsT], run: Run | None, number: int) -> None:
        """Commit; on every try but the first one, rebase what has changed before it."""
        if number:
            self._catch_up(written, run)
        written.txn.commit(self._updates(written))

    def _updates(self, written: _Written[WorkT, FactsT]) -> list[Update]:
        seen = tuple(sorted(written.rebases.seen.items()))
        updates = self._procedure.updates(written.work, written.facts, written.duration_ms, seen)
        # Deltas come after the parts that they change.
        return [*updates, *(AddDelta(table=self._watch.uuid, written=delta) for delta in written.rebases.deltas)]

    def _report(self, written: _Written[WorkT, FactsT]) -> str:
        report = self._procedure.report(written.work, written.facts, written.duration_ms)
        rebases = written.rebases
        if not rebases.rounds:
            return report
        rows = sum(target.deleted + target.updated for delta in rebases.deltas for target in delta.targets)
        with self._counters.adding() as numbers:
            numbers.rebased_rows += rows
            numbers.rebase_tasks += rebases.sends
        how = f", by {rebases.sends} tasks" if rebases.sends else ""
        return f"{report}; {rows} rows had changed meanwhile, brought over in {rebases.rounds} rounds{how}"

    # --- what changed meanwhile ---

    def _catch_up(self, written: _Written[WorkT, FactsT], run: Run | None) -> None:
        """Rebase what is newer than what was seen."""
        rebases, cause_id = written.rebases, str(written.txn.id)
        rebases.rounds += 1
        written.txn.begin_try(rebases.rounds, [self._watch.uuid])
        hit("rebase.before_files")
        deltas = [
            delta
            for partition in rebases.partitions
            for delta in self._catalog.parts.deltas(self._watch.uuid, partition)
        ]
        rebases.catch_up(deltas, run)
        _log.info("changes_rebased", cause_id=cause_id, table=self._watch.name, round=rebases.rounds)
        hit("rebase.before_commit")

    def _remove_row_maps(self, written: _Written[WorkT, FactsT]) -> None:
        """Remove the maps, which are for rebases alone."""
        try:
            for made_of, made in written.rebases.outputs:
                remove_row_map(made_of.layout.folder, made.file.name)
        except (OSError, TilthError) as error:
            # All that is lost is space: they go with their parts.
            _log.warning("row_maps_left", cause_id=str(written.txn.id), table=self._watch.name, reason=error)
