"""One merge: begin, let a worker write the file, commit; and what follows from each outcome.

Covers: the three outcomes of the commit, failed and cancelled tasks. Does not cover: what is merged (merge.py).
Always holds: bytes first, truth second; while an outcome is unknown nothing is deleted, and the same commit is
asked for again until it is known.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import assert_never

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog import Catalog, Committed, Conflicted, ReplaceParts, SchemaIs, Unknown
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy import MergeSpec
from tilth.maintenance.spark import MergeTask, decode_facts, encode_task
from tilth.maintenance.watch import TableWatch
from tilth.model.part import Part, WrittenPart
from tilth.model.table import TableDef
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import clean_transaction, file_name, layout_of
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher, Handle, TaskCancelledError, TaskLostError

_log = Log("maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A spec whose parts are taken."""

    spec: MergeSpec
    #: Filled in when it is prepared.
    sources: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A merge under way whose file is written."""

    merge: Merge
    txn: Txn
    definition: TableDef
    written: WrittenPart | None
    duration_ms: int


class MergeAttempts:
    """The merges of one table that are under way."""

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
        self._handles: set[Handle] = set()
        #: Commits of which nobody knows; their parts stay taken.
        self._unknown: list[Attempt] = []
        self._is_cancelled = False

    @property
    def unknown_txns(self) -> set[int]:
        """Transactions whose outcome is still to be found out."""
        with self._lock:
            return {attempt.txn.id for attempt in self._unknown}

    def cancel(self) -> None:
        """Running tasks are asked to end, later ones too."""
        with self._lock:
            self._is_cancelled = True
            handles = list(self._handles)
        for handle in handles:
            handle.cancel()

    def resolve(self) -> list[tuple[Merge, TilthError | None]]:
        """Asks again for the commits of which nobody knows: the same commit gives the same answer.

        Returns the merges whose outcome is known now, with the error of those that did not land.
        """
        with self._lock:
            attempts, self._unknown = self._unknown, []
        known: list[tuple[Merge, TilthError | None]] = []
        for attempt in attempts:
            try:
                told = self._commit(attempt)
            except UnknownOutcomeError:
                # It is in the list again.
                continue
            except TilthError as error:
                known.append((attempt.merge, error))
            else:
                _log.info("merge_outcome_known", cause_id=str(attempt.txn.id), table=self._watch.name, done=told)
                known.append((attempt.merge, None))
        return known

    def perform(self, merge: Merge) -> str:
        """One merge from its files to its commit; returns what was done, raises why it was not."""
        definition = self._watch.definition
        started = self._clock.monotonic()
        hit("merge.before_files")
        txn = self._catalog.transactions.begin(
            f"merge {self._watch.name}",
            outputs=(TxnOutput(table=self._watch.uuid, tasks=1),),
            fences=(self._owner.fence(self._watch.uuid),),
        )
        written = self._write(merge, txn, definition)
        hit("merge.after_files")
        duration_ms = int((self._clock.monotonic() - started) * 1000)
        attempt = Attempt(merge=merge, txn=txn, definition=definition, written=written, duration_ms=duration_ms)
        hit("merge.before_commit")
        told = self._commit(attempt)
        hit("merge.after_commit")
        return told

    def _write(self, merge: Merge, txn: Txn, definition: TableDef) -> WrittenPart | None:
        payload = encode_task(
            MergeTask(
                layout=layout_of(definition, self._root),
                files=tuple(part.file for part in merge.sources),
                partition=merge.spec.partition,
                values=merge.sources[0].values,
                txn=txn.id,
            )
        )
        handle: Handle | None = None
        try:
            handle = self._dispatcher.submit(
                self._dispatcher.new_spec(
                    TaskKind.MERGE,
                    warehouse=WRITE_WAREHOUSE,
                    table=self._watch.name,
                    payload=payload,
                    txn=txn.id,
                    input_bytes=merge.spec.size,
                    rows=merge.spec.rows,
                )
            )
            with self._lock:
                self._handles.add(handle)
                is_cancelled = self._is_cancelled
            if is_cancelled:
                handle.cancel()
            return decode_facts(handle.wait().payload).written
        except TilthError as error:
            # A task that was killed or lost may still be writing.
            is_settled = not isinstance(error, TaskCancelledError | TaskLostError)
            self._give_up(txn, error, is_settled=is_settled)
            raise
        finally:
            if handle is not None:
                with self._lock:
                    self._handles.discard(handle)

    def _commit(self, attempt: Attempt) -> str:
        merge, txn = attempt.merge, attempt.txn
        update = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in merge.sources),
            written=attempt.written,
            duration_ms=attempt.duration_ms,
            reason=merge.spec.reason,
        )
        schema = SchemaIs(table=self._watch.uuid, schema_version=attempt.definition.schema_version)
        try:
            outcome = self._catalog.transactions.commit(txn.id, [update], [schema])
        except TilthError as refused:
            # Refused in a way that applied nothing.
            self._give_up(txn, refused, is_settled=True)
            raise
        match outcome:
            case Committed():
                self._sweep(attempt)
                return f"{len(merge.sources)} parts of {merge.spec.partition} in {attempt.duration_ms} ms"
            case Conflicted(error=error):
                self._give_up(txn, error, is_settled=True)
                if isinstance(error, FencedError):
                    self._owner.lose(self._watch.uuid)
                raise error
            case Unknown(reason=reason):
                _log.warning("merge_outcome_unknown", cause_id=str(txn.id), table=self._watch.name, reason=reason)
                with self._lock:
                    self._unknown.append(attempt)
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

    def _sweep(self, attempt: Attempt) -> None:
        """Rids the table of what failed attempts of the task left."""
        first = file_name(txn=attempt.txn.id, task=0, attempt=0, n=0)
        if attempt.written is not None and attempt.written.file.name != first:
            clean_transaction(self._root, attempt.txn, keep={attempt.written.file.name})
