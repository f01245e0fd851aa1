"""One merge: begin, let a worker write the file, commit; and what follows from each outcome.

Covers: the three outcomes of the commit, failed and cancelled tasks. Does not cover: what is merged (merge.py).
Always holds: bytes first, truth second; while an outcome is unknown nothing is deleted, and the same commit is
asked for again until it is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import FencedError, TilthError, UnknownOutcomeError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.catalog import Catalog, Committed, Conflicted, ReplaceParts, SchemaChangedError, Unknown
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy import MergeSpec
from tilth.maintenance.policy.expiry import TableTtl
from tilth.maintenance.spark import MergeFacts, MergeTask, decode_facts, encode_task
from tilth.maintenance.watch import TableWatch
from tilth.model.part import Part, WrittenPart
from tilth.model.table import Schema, TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import Expiry, clean_transaction, file_name, layout_of
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
    written: WrittenPart | None
    duration_ms: int
    #: Rows that were left out because their time had passed.
    rows_expired: int = 0


@dataclass(slots=True, eq=False)
class _Live:
    """A merge under way. Hold the lock."""

    merge: Merge
    handle: Handle | None = None
    is_cancelled: bool = False


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
        ttl: Callable[[], TableTtl | None],
    ) -> None:
        """`ttl`: the table's at the moment."""
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._root = root
        self._watch = watch
        self._owner = owner
        self._cleaner = cleaner
        self._ttl = ttl
        self._lock = threading.Lock()
        self._live: set[_Live] = set()
        #: Commits of which nobody knows; their parts stay taken.
        self._unknown: list[Attempt] = []
        self._is_cancelled = False

    @property
    def unknown_txns(self) -> set[int]:
        """Transactions whose outcome is still to be found out."""
        with self._lock:
            return {attempt.txn.id for attempt in self._unknown}

    def cancel_all(self) -> None:
        """Running tasks are asked to end, later ones too."""
        with self._lock:
            self._is_cancelled = True
        self.cancel(None)

    def cancel(self, partition: str | None) -> int:
        """Asks the merges of the partition, or of all, to end; how many are asked. One that commits is not stopped."""
        with self._lock:
            meant = [
                live
                for live in self._live
                if not live.is_cancelled and (partition is None or live.merge.spec.partition == partition)
            ]
            for live in meant:
                live.is_cancelled = True
            handles = [live.handle for live in meant if live.handle is not None]
        for handle in handles:
            handle.cancel()
        return len(meant)

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
        live = _Live(merge)
        with self._lock:
            live.is_cancelled = self._is_cancelled
            self._live.add(live)
        try:
            return self._perform(live)
        finally:
            with self._lock:
                self._live.discard(live)

    def _perform(self, live: _Live) -> str:
        merge = live.merge
        definition = self._watch.definition
        task = self._task(merge, definition, _schema_of(definition, merge))
        started = self._clock.monotonic()
        hit("merge.before_files")
        txn = self._begin()
        facts = self._write(live, txn, msgspec.structs.replace(task, txn=txn.id))
        hit("merge.after_files")
        attempt = Attempt(
            merge=merge,
            txn=txn,
            written=facts.written,
            duration_ms=int((self._clock.monotonic() - started) * 1000),
            rows_expired=facts.rows_expired,
        )
        hit("merge.before_commit")
        told = self._commit(attempt)
        hit("merge.after_commit")
        return told

    def _begin(self) -> Txn:
        try:
            return self._catalog.transactions.begin(
                f"merge {self._watch.name}",
                outputs=(TxnOutput(table=self._watch.uuid, tasks=1),),
                fences=(self._owner.fence(self._watch.uuid),),
            )
        except FencedError:
            self._owner.lose(self._watch.uuid)
            raise

    def _task(self, merge: Merge, definition: TableDef, schema: Schema) -> MergeTask:
        """What is to be done, for a transaction to come; the result has the columns of its sources."""
        ttl = self._ttl()
        expired: Expiry | None = None
        if ttl is not None and any(column.id == ttl.column.id for column in schema.columns):
            expired = Expiry(column=ttl.column.name, below=ttl.below(self._clock.now_ms()))
        return MergeTask(
            layout=layout_of(definition, self._root, schema),
            files=tuple(part.file for part in merge.sources),
            partition=merge.spec.partition,
            values=merge.sources[0].values,
            txn=0,
            expired=expired,
        )

    def _write(self, live: _Live, txn: Txn, task: MergeTask) -> MergeFacts:
        spec = live.merge.spec
        try:
            handle = self._dispatcher.submit(
                self._dispatcher.new_spec(
                    TaskKind.MERGE,
                    warehouse=WRITE_WAREHOUSE,
                    table=self._watch.name,
                    payload=encode_task(task),
                    txn=txn.id,
                    input_bytes=spec.size,
                    rows=spec.rows,
                )
            )
            with self._lock:
                live.handle = handle
                is_cancelled = live.is_cancelled
            if is_cancelled:
                handle.cancel()
            return decode_facts(handle.wait().payload)
        except TilthError as error:
            # A task that was killed or lost may still be writing.
            is_settled = not isinstance(error, TaskCancelledError | TaskLostError)
            self._give_up(txn, error, is_settled=is_settled)
            raise
        finally:
            with self._lock:
                live.handle = None

    def _commit(self, attempt: Attempt) -> str:
        merge, txn = attempt.merge, attempt.txn
        update = ReplaceParts(
            table=self._watch.uuid,
            sources=tuple(part.name for part in merge.sources),
            written=attempt.written,
            duration_ms=attempt.duration_ms,
            reason=merge.spec.reason,
        )
        try:
            outcome = self._catalog.transactions.commit(txn.id, [update])
        except TilthError as refused:
            # Refused in a way that applied nothing.
            self._give_up(txn, refused, is_settled=True)
            raise
        match outcome:
            case Committed():
                self._sweep(attempt)
                expired = f", {attempt.rows_expired} expired rows left out" if attempt.rows_expired else ""
                told = f"{len(merge.sources)} parts of {merge.spec.partition} in {attempt.duration_ms} ms"
                return f"{told}{expired}"
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


def _schema_of(definition: TableDef, merge: Merge) -> Schema:
    version = merge.sources[0].schema_version
    schema = definition.schema_of(version)
    if schema is None:
        raise SchemaChangedError(
            "the columns that the parts were written with are not known yet",
            table=full_name(definition),
            schema_version=version,
            hint="it is tried again when the table's definition has been read anew",
        )
    return schema
