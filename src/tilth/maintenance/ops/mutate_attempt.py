"""One task of a mutation: begin, let a worker rewrite the files, commit; and what follows from each outcome.

Covers: the three outcomes of the commit, failed and cancelled tasks. Does not cover: which parts are rewritten
(mutate.py), how (spark.py).
Always holds: bytes first, truth second; all parts of a task become true at once; while an outcome is unknown nothing is
deleted, and the same commit is asked for again until it is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog import (
    AcceptMutation,
    Catalog,
    Committed,
    Conflicted,
    RewritePart,
    SchemaChangedError,
    Unknown,
    Update,
)
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy.mutate import MutateSpec
from tilth.maintenance.spark import MutateResult, MutateSource, MutateTask, decode_mutate_facts, encode_mutate_task
from tilth.maintenance.watch import TableWatch
from tilth.model.part import Part
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import clean_transaction, file_name, layout_of
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher, Handle, TaskCancelledError, TaskLostError

_log = Log("maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A spec whose parts are taken."""

    spec: MutateSpec
    #: Those of the spec's parts that are still there and still need it.
    sources: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteAttempt:
    """A rewrite whose files are written."""

    rewrite: Rewrite
    txn: Txn
    results: tuple[MutateResult, ...]
    duration_ms: int


@dataclass(slots=True, eq=False)
class _Live:
    """A rewrite under way. Hold the lock."""

    rewrite: Rewrite
    txn: int = 0
    handle: Handle | None = None
    is_cancelled: bool = False


class RewriteAttempts:
    """The rewrites of one table that are under way."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        *,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._root = root
        self._watch = watch
        self._owner = owner
        self._cleaner = cleaner
        self._lock = threading.Lock()
        self._live: set[_Live] = set()
        #: Commits of which nobody knows; their parts stay taken.
        self._unknown: list[RewriteAttempt] = []
        self._is_cancelled = False

    @property
    def txns(self) -> set[int]:
        """Transactions under way, and those whose outcome is still to be found out."""
        with self._lock:
            return {live.txn for live in self._live if live.txn} | {attempt.txn.id for attempt in self._unknown}

    @property
    def has_unknown(self) -> bool:
        return bool(self._unknown)

    def cancel_all(self) -> None:
        """Running tasks are asked to end, later ones too."""
        with self._lock:
            self._is_cancelled = True
        self.cancel(lambda _: True)

    def cancel(self, is_meant: Callable[[Rewrite], bool]) -> int:
        """Asks the tasks of these rewrites to end; how many are asked. One that commits already is not stopped."""
        with self._lock:
            meant = [live for live in self._live if not live.is_cancelled and is_meant(live.rewrite)]
            for live in meant:
                live.is_cancelled = True
            handles = [live.handle for live in meant if live.handle is not None]
        for handle in handles:
            handle.cancel()
        return len(meant)

    def resolve(self) -> list[tuple[Rewrite, TilthError | None]]:
        """Asks again for the commits of which nobody knows: the same commit gives the same answer.

        Returns the rewrites whose outcome is known now, with the error of those that did not land.
        """
        with self._lock:
            attempts, self._unknown = self._unknown, []
        known: list[tuple[Rewrite, TilthError | None]] = []
        for attempt in attempts:
            try:
                told = self._commit(attempt)
            except UnknownOutcomeError:
                # It is in the list again.
                continue
            except TilthError as error:
                known.append((attempt.rewrite, error))
            else:
                _log.info("mutation_outcome_known", cause_id=str(attempt.txn.id), table=self._watch.name, done=told)
                known.append((attempt.rewrite, None))
        return known

    def perform(self, rewrite: Rewrite) -> str:
        """One task from its files to its commit; returns what was done, raises why it was not."""
        live = _Live(rewrite)
        with self._lock:
            live.is_cancelled = self._is_cancelled
            self._live.add(live)
        try:
            return self._perform(live)
        finally:
            with self._lock:
                self._live.discard(live)

    def _perform(self, live: _Live) -> str:
        rewrite = live.rewrite
        definition = self._watch.definition
        sources = tuple(_source(definition, part) for part in rewrite.sources)
        started = self._clock.monotonic()
        hit("mutate.before_files")
        txn = self._begin(len(sources))
        with self._lock:
            live.txn = txn.id
        results = self._write(live, txn, definition, sources)
        hit("mutate.after_files")
        duration_ms = int((self._clock.monotonic() - started) * 1000)
        attempt = RewriteAttempt(rewrite=rewrite, txn=txn, results=results, duration_ms=duration_ms)
        hit("mutate.before_commit")
        told = self._commit(attempt)
        hit("mutate.after_commit")
        return told

    def _begin(self, files: int) -> Txn:
        try:
            return self._catalog.transactions.begin(
                f"mutate {self._watch.name}",
                outputs=(TxnOutput(table=self._watch.uuid, tasks=files),),
                fences=(self._owner.fence(self._watch.uuid),),
            )
        except FencedError:
            self._owner.lose(self._watch.uuid)
            raise

    def _write(
        self, live: _Live, txn: Txn, definition: TableDef, sources: tuple[MutateSource, ...]
    ) -> tuple[MutateResult, ...]:
        spec = live.rewrite.spec
        try:
            payload = encode_mutate_task(
                MutateTask(
                    layout=layout_of(definition, self._root, spec.mutation.schema.schema),
                    sources=sources,
                    txn=txn.id,
                    kind=spec.mutation.kind,
                    assignments=spec.mutation.assignments,
                    predicate=spec.mutation.predicate,
                )
            )
            handle = self._dispatcher.submit(
                self._dispatcher.new_spec(
                    TaskKind.MUTATE,
                    warehouse=WRITE_WAREHOUSE,
                    table=self._watch.name,
                    payload=payload,
                    txn=txn.id,
                    input_bytes=sum(part.bytes for part in live.rewrite.sources),
                    rows=sum(part.rows for part in live.rewrite.sources),
                )
            )
            with self._lock:
                live.handle = handle
                is_cancelled = live.is_cancelled
            if is_cancelled:
                handle.cancel()
            return decode_mutate_facts(handle.wait().payload).results
        except TilthError as error:
            # A task that was killed or lost may still be writing.
            is_settled = not isinstance(error, TaskCancelledError | TaskLostError)
            self._give_up(txn, error, is_settled=is_settled)
            raise
        finally:
            with self._lock:
                live.handle = None

    def _commit(self, attempt: RewriteAttempt) -> str:
        txn = attempt.txn
        try:
            outcome = self._catalog.transactions.commit(txn.id, self._updates(attempt))
        except TilthError as refused:
            # Refused in a way that applied nothing.
            self._give_up(txn, refused, is_settled=True)
            raise
        match outcome:
            case Committed():
                self._sweep(attempt)
                return _told(attempt)
            case Conflicted(error=error):
                self._give_up(txn, error, is_settled=True)
                if isinstance(error, FencedError):
                    self._owner.lose(self._watch.uuid)
                raise error
            case Unknown(reason=reason):
                _log.warning("mutation_outcome_unknown", cause_id=str(txn.id), table=self._watch.name, reason=reason)
                with self._lock:
                    self._unknown.append(attempt)
                raise UnknownOutcomeError(
                    txn=txn.id, table=self._watch.name, reason=reason, hint="the commit is asked for again by itself"
                )
            case _:
                assert_never(outcome)

    def _updates(self, attempt: RewriteAttempt) -> list[Update]:
        mutation = attempt.rewrite.spec.mutation.id
        names = {str(part.name): part.name for part in attempt.rewrite.sources}
        assert names.keys() == {result.name for result in attempt.results}
        updates: list[Update] = [
            RewritePart(
                table=self._watch.uuid,
                source=names[result.name],
                written=result.written,
                mutation=mutation,
                duration_ms=attempt.duration_ms,
                reason=attempt.rewrite.spec.reason,
            )
            for result in attempt.results
            if not result.is_untouched
        ]
        untouched = tuple(names[result.name] for result in attempt.results if result.is_untouched)
        if untouched:
            updates.append(AcceptMutation(table=self._watch.uuid, parts=untouched, mutation=mutation))
        return updates

    def _give_up(self, txn: Txn, error: TilthError, *, is_settled: bool) -> None:
        try:
            self._cleaner.give_up(txn, str(error), is_settled=is_settled)
        except (TilthError, OSError) as refused:
            # The cleaner finds the transaction again, and aborts it when nobody has worked on it for long.
            _log.warning("abort_failed", cause_id=str(txn.id), table=self._watch.name, reason=refused)

    def _sweep(self, attempt: RewriteAttempt) -> None:
        """Rids the table of what failed attempts of the task left."""
        written = {result.written.file.name for result in attempt.results if result.written is not None}
        firsts = {file_name(txn=attempt.txn.id, task=n, attempt=0, n=0) for n in range(len(attempt.results))}
        if not written <= firsts:
            clean_transaction(self._root, attempt.txn, keep=written)


def _source(definition: TableDef, part: Part) -> MutateSource:
    schema = definition.schema_of(part.schema_version)
    if schema is None:
        raise SchemaChangedError(
            "the columns that the part was written with are not known yet",
            table=full_name(definition),
            part=part.name,
            schema_version=part.schema_version,
            hint="it is tried again when the table's definition has been read anew",
        )
    return MutateSource(
        name=str(part.name), file=part.file, schema=schema, partition=part.name.partition, values=part.values
    )


def _told(attempt: RewriteAttempt) -> str:
    untouched = sum(result.is_untouched for result in attempt.results)
    rewritten = len(attempt.results) - untouched
    return f"{rewritten} parts rewritten, {untouched} without a match, in {attempt.duration_ms} ms"
