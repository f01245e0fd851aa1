"""One piece of work: begin, let a worker write the files, commit; and what follows from each outcome.

Covers: the three outcomes of the commit, changes that came to the sources meanwhile, failed and cancelled tasks, for
every kind of work that writes parts. Does not cover: what the work is (recipe.py), which work is done (op.py), bringing
changes over (tilth.storage).
Always holds: bytes first, truth second; all that one piece of work wrote becomes true at once; while an outcome is
unknown nothing is deleted, and the same commit is asked for again until it is known.

Rows of the sources may change while the files are written. The catalog refuses the commit then; what is new is
*rebased*: written once more as changes of the rows of the new part, and committed with it. That takes milliseconds
and happens on the run's own thread, so that it is over before much more can change; each round is about what came
during the one before.

Failpoints, behind the recipe's verb: `.before_files`, `.after_files`, `.before_commit`, `.after_commit`; for all verbs
`translate.before_files` and `translate.before_commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, assert_never

from tilth.base.cancel import reaching
from tilth.base.errors import FencedError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.full import full_error
from tilth.base.logs import Log
from tilth.catalog import (
    AddDelta,
    CommitOutcome,
    Committed,
    Conflicted,
    PartsChangedError,
    ReplaceDeltas,
    ReplaceParts,
    RewritePart,
    Unknown,
    Update,
)
from tilth.maintenance.work.context import TableContext
from tilth.maintenance.work.recipe import FactsT, Input, Job, Output, Rebaser, Recipe, WorkT
from tilth.maintenance.work.sources import newer
from tilth.model.delta import PartSource, WrittenDelta, seen_of
from tilth.model.part import WrittenPart
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import clean_transaction, remove_row_map
from tilth.warehouse import (
    WRITE_WAREHOUSE,
    Handle,
    SparkRestartingError,
    TaskCancelledError,
    TaskLostError,
    TaskStalledError,
)

#: Errors of tasks that may go on writing for a moment.
_MAY_WRITE_ON = (TaskCancelledError, TaskLostError, TaskStalledError, SparkRestartingError)

_log = Log("maintenance")

#: Of one commit. Changes of one round are named so that they apply in the order of the rounds: by one digit.
REBASES_MAX = 10
#: Rounds while others commit.
REBASES_BESIDE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrived:
    """Changes that have come to one output meanwhile; replaced in each round."""

    input: Input
    output: Output
    #: None until something comes, or where there is nothing to bring it onto.
    rebaser: Rebaser | None = None
    deltas: tuple[WrittenDelta, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Written(Generic[WorkT, FactsT]):
    """Work whose files are written. Of one thread at a time."""

    work: WorkT
    txn: Txn
    facts: FactsT
    duration_ms: int
    #: By the names of the sources' files the newest change that is in the files, or was brought over.
    seen: dict[str, int]
    arrived: list[_Arrived]
    rounds: int = 0

    @property
    def deltas(self) -> list[WrittenDelta]:
        return [delta for each in self.arrived for delta in each.deltas]

    @property
    def parts(self) -> list[tuple[Input, WrittenPart]]:
        """Return the parts that were written, and of what."""
        return [(each.input, each.output.written) for each in self.arrived if each.output.written is not None]


@dataclass(slots=True, eq=False)
class _Live(Generic[WorkT]):
    """Work under way. Hold the lock."""

    work: WorkT
    txn: int = 0
    handle: Handle | None = None
    is_cancelled: bool = False


class Attempts(Generic[WorkT, FactsT]):
    """The work of one kind that is under way for one table."""

    def __init__(self, context: TableContext, recipe: Recipe[WorkT, FactsT]) -> None:
        server = context.server
        self._clock = server.clock
        self._catalog = server.catalog
        self._dispatcher = server.dispatcher
        self._root = server.root
        self._recipe = recipe
        self._watch = context.watch
        self._table_leases = server.table_leases
        self._cleaner = server.cleaner
        self._new_rebaser = server.new_rebaser
        self._lock = threading.Lock()
        self._live: set[_Live[WorkT]] = set()
        #: Commits of which nobody knows; their parts stay reserved.
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
        """Ask the tasks of such work to end; return how many are asked. One that commits already is not stopped."""
        with self._lock:
            meant = [live for live in self._live if not live.is_cancelled and is_meant(live.work)]
            for live in meant:
                live.is_cancelled = True
            handles = [live.handle for live in meant if live.handle is not None]
        for handle in handles:
            handle.cancel()
        return len(meant)

    def resolve(self) -> list[tuple[WorkT, TilthError | None]]:
        """Ask again for the commits whose outcome is unknown: the same commit gives the same answer.

        Returns the work whose outcome is known now, with the error of what did not land.
        """
        with self._lock:
            unknown, self._unknown = self._unknown, []
        known: list[tuple[WorkT, TilthError | None]] = []
        for written in unknown:
            try:
                report = self._commit(written)
            except UnknownOutcomeError:
                # It is in the list again.
                continue
            except TilthError as error:
                known.append((written.work, error))
            except OSError as error:
                # What was left behind could not be removed; it is asked for once more.
                _log.warning("outcome_not_concluded", cause_id=str(written.txn.id), reason=error)
                with self._lock:
                    self._unknown.append(written)
            else:
                action = f"{self._recipe.noun}_outcome_known"
                _log.info(action, cause_id=str(written.txn.id), table=self._watch.name, done=report)
                known.append((written.work, None))
        return known

    def perform(self, work: WorkT) -> str:
        """Work from the files to the commit; return what was done, raise why it was not."""
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
        arrived = [
            _Arrived(input=job.inputs[made.task], output=made) for made in self._recipe.outputs(live.work, facts)
        ]
        written = _Written(
            work=live.work,
            txn=txn,
            facts=facts,
            duration_ms=duration_ms,
            seen=dict(seen_of(source for each in arrived for source in each.input.sources)),
            arrived=arrived,
        )
        report = self._commit(written)
        hit(f"{verb}.after_commit")
        return report

    def _begin(self, job: Job) -> Txn:
        try:
            return self._catalog.transactions.begin(
                f"{self._recipe.verb} {self._watch.name}",
                outputs=(TxnOutput(table=self._watch.uuid, tasks=job.tasks),),
                fences=(self._table_leases.fence(self._watch.uuid),),
            )
        except FencedError:
            self._table_leases.lose(self._watch.uuid)
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
            with reaching(handle):
                return self._recipe.facts(handle.wait().payload)
        except TilthError as error:
            # A task that was killed or lost may still be writing, and so may other Spark tasks of a job that failed.
            is_settled = job.tasks == 1 and not isinstance(error, _MAY_WRITE_ON)
            self._give_up(txn, error, is_settled=is_settled)
            raise
        finally:
            with self._lock:
                live.handle = None

    def _commit(self, written: _Written[WorkT, FactsT]) -> str:
        transactions = self._catalog.transactions
        try:
            outcome = transactions.commit(written.txn.id, self._updates(written))
            while self._is_behind(outcome) and written.rounds < REBASES_MAX:
                # Nothing was applied, and the transaction still runs. Once a few rounds were lost nobody else commits
                # to the table during one: it is short, and the next commit lands.
                is_alone = written.rounds >= REBASES_BESIDE
                with transactions.turn(self._watch.uuid) if is_alone else nullcontext():
                    self._catch_up(written)
                    outcome = transactions.commit(written.txn.id, self._updates(written))
        except TilthError as refused:
            # In a way that applied nothing.
            self._give_up(written.txn, refused, is_settled=True)
            raise
        except OSError as error:
            failed = full_error(error, folder=self._root) or UnavailableError(
                "changes could not be brought over", table=self._watch.name, reason=error
            )
            self._give_up(written.txn, failed, is_settled=True)
            raise failed from error
        return self._concluded(written, outcome)

    def _concluded(self, written: _Written[WorkT, FactsT], outcome: CommitOutcome) -> str:
        txn = written.txn
        match outcome:
            case Committed():
                self._sweep(written)
                return self._report(written)
            case Conflicted(error=error):
                self._give_up(txn, error, is_settled=True)
                if isinstance(error, FencedError):
                    self._table_leases.lose(self._watch.uuid)
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

    def _updates(self, written: _Written[WorkT, FactsT]) -> list[Update]:
        seen = tuple(sorted(written.seen.items()))
        updates = self._recipe.updates(written.work, written.facts, written.duration_ms, seen)
        # Behind the parts that they change.
        return [*updates, *(AddDelta(table=self._watch.uuid, written=delta) for delta in written.deltas)]

    def _report(self, written: _Written[WorkT, FactsT]) -> str:
        report = self._recipe.report(written.work, written.facts, written.duration_ms)
        if not written.rounds:
            return report
        rows = sum(target.deleted + target.updated for delta in written.deltas for target in delta.targets)
        return f"{report}; {rows} rows had changed meanwhile, brought over in {written.rounds} rounds"

    # --- what changed meanwhile ---

    def _is_behind(self, outcome: CommitOutcome) -> bool:
        return isinstance(outcome, Conflicted) and isinstance(outcome.error, PartsChangedError)

    def _catch_up(self, written: _Written[WorkT, FactsT]) -> None:
        """Rebase what is newer than what was seen."""
        written.rounds += 1
        hit("translate.before_files")
        partitions = {each.input.partition for each in written.arrived}
        deltas = [
            delta
            for partition in sorted(partitions)
            for delta in self._catalog.parts.deltas(self._watch.uuid, partition)
        ]
        for place, arrived in enumerate(written.arrived):
            sources = newer(arrived.input.sources, written.seen, deltas)
            written.arrived[place] = self._brought_over(written.txn, arrived, sources)
            written.seen.update((source.file.name, source.change_ts) for source in sources if source.deltas)
        _log.info("changes_rebased", cause_id=str(written.txn.id), table=self._watch.name, round=written.rounds)
        hit("translate.before_commit")

    def _brought_over(self, txn: Txn, arrived: _Arrived, sources: Sequence[PartSource]) -> _Arrived:
        output = arrived.output
        if output.written is None or not any(source.deltas for source in sources):
            return arrived
        rebaser = arrived.rebaser or self._new_rebaser(arrived.input, output.written)
        delta = rebaser.translate(sources, txn=txn.id, task=output.task, n=len(arrived.deltas))
        deltas = arrived.deltas if delta is None else (*arrived.deltas, delta)
        return _Arrived(input=arrived.input, output=output, rebaser=rebaser, deltas=deltas)

    # --- what is left behind ---

    def _give_up(self, txn: Txn, error: TilthError, *, is_settled: bool) -> None:
        try:
            self._cleaner.give_up(txn, str(error), is_settled=is_settled)
        except (TilthError, OSError) as refused:
            # The cleaner finds the transaction again, and aborts it when nobody has worked on it for long.
            _log.warning("abort_failed", cause_id=str(txn.id), table=self._watch.name, reason=refused)

    def _sweep(self, written: _Written[WorkT, FactsT]) -> None:
        """Rid the table of row maps, and of what failed attempts of the tasks left."""
        for made_of, part in written.parts:
            remove_row_map(made_of.layout.folder, part.file.name)
        files = set(_files(self._updates(written)))
        # Where a first attempt wrote them there was no other.
        if not all(_attempt_of(file) == 0 for file in files):
            clean_transaction(self._root, written.txn, keep=files)


def _files(updates: Iterable[Update]) -> Iterator[str]:
    """Names of the files that these updates make true."""
    for update in updates:
        match update:
            case ReplaceParts(written=WrittenPart() as written) | RewritePart(written=WrittenPart() as written):
                yield written.file.name
            case AddDelta(written=written):
                yield written.file.name
            case ReplaceDeltas(written=compacted):
                yield from (delta.file.name for delta in compacted)
            case _:
                pass


def _attempt_of(file: str) -> int:
    """`{txn}-{task}.{attempt}-{n}.{extension}`"""
    return int(file.split(".")[1].partition("-")[0])
