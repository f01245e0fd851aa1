"""The one commit of a transaction: load, check, fold, write; with three outcomes and never two.

Covers: the optimistic loop. Does not cover: what updates mean (rules/fold.py), beginning and aborting
(transactions.py).
Always holds: the transaction's own record changes from running to finished in the same batch as all it did. So a commit
whose answer was lost is recognised by reading that record, and one that is still on its way can never land a second
time.

Tests: tests/unit/catalog/commit/test_transactions.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import assert_never

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.logs import Log
from tilth.catalog.commit.clock_check import ClockCheck
from tilth.catalog.commit.commit_locks import LOCK_POLL_SECONDS, CommitLockedError, CommitLocks, SharedCommitLocks
from tilth.catalog.commit.load import Batch, keys_of, load_state, pin_fences
from tilth.catalog.commit.part_log import put_events
from tilth.catalog.commit.pinned_storages import PinnedStorages, put_missing
from tilth.catalog.commit.visible_parts import VisiblePartsCache
from tilth.catalog.errors import StorageChangedError, TooManyConflictsError, TxnNotFoundError
from tilth.catalog.kv import Conflict, KeyValue, Landed, ReadView, Unknown, ViewMovedError
from tilth.catalog.records import codec
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space, delta_key, entry_key, loaded_file_key, pack
from tilth.catalog.records.living import life_key, pin_life
from tilth.catalog.records.nouns import FinishedTxn, VersionCommit
from tilth.catalog.records.small_commit import UNKNOWNS_MAX, read, unchanged, wait_before_retry
from tilth.catalog.rules import state
from tilth.catalog.rules.changes import Changes, CommitState, CommitTimes, TableChange, TableState
from tilth.catalog.rules.fold import fold
from tilth.catalog.rules.invariants import check_commit
from tilth.catalog.rules.requirements import (
    NoRowsSince,
    PartsBelow,
    Requirement,
    SchemaIs,
    check_no_rows_since,
    check_parts,
    check_schema,
)
from tilth.catalog.rules.updates import (
    InsertPart,
    LoadFile,
    Update,
    blocks_of,
    kafka_tables_of,
    tables_of,
)
from tilth.catalog.rules.visibility import visible
from tilth.catalog.stats import Counters
from tilth.model.part import Part
from tilth.model.txn import LeftoverNote, Txn

#: Locks that serialize commits to the same table in this process, so that they do not fold in vain.
_STRIPES = 256

_log = Log("catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The transaction is durable and visible."""

    commit_ts: int
    #: Table and part, for each part that it made, in the order of the updates.
    parts: tuple[tuple[str, Part], ...]


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Nothing was applied; the error is the reason."""

    error: TilthError


CommitOutcome = Committed | Conflicted | Unknown


@dataclass(frozen=True, slots=True)
class _Ready:
    """A folded commit, and what it answers when the batch lands."""

    batch: Batch
    before: CommitState
    changes: Changes
    committed: Committed


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChecks:
    """Bounds and checks of commits."""

    attempts_max: int
    clock: ClockCheck
    #: `True` if the invariants of each commit are checked.
    is_checking: bool = False


class Committer:
    """Commits transactions. Threads that touch different tables only meet at the store's own lock."""

    def __init__(
        self,
        clock: Clock,
        hybrid: HybridClock,
        kv: KeyValue,
        counters: Counters,
        shown: VisiblePartsCache,
        *,
        checks: CommitChecks,
        server: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._hybrid = hybrid
        self._kv = kv
        self._counters = counters
        self._shown = shown
        self._attempts_max = checks.attempts_max
        self._is_checking = checks.is_checking
        self._clock_check = checks.clock
        self._server = server
        #: Error of every commit that is new (a repeated one that has committed is answered); None: only the clock check
        #: may refuse.
        self.lasting_refusal: TilthError | None = None
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]
        self._storages = PinnedStorages()
        #: Called when files were written by an outdated definition of their storage.
        self.when_storage_changed: Callable[[], None] = lambda: None
        self.locks = CommitLocks(clock)
        self.shared_locks = SharedCommitLocks(clock, kv, server=server)

    def commit(
        self,
        txn: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement],
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        """Return the same outcome for the same transaction, however often it is called. `leftovers`: its note."""
        tables = tables_of(updates)
        self.locks.await_others(sorted(tables), txn)
        started = self._clock.monotonic()
        with self._following(tables | kafka_tables_of(updates)):
            outcome = self._commit(txn, updates, requirements, leftovers)
        self._counters.count_time(self._clock.monotonic() - started)
        match outcome:
            case Committed():
                self._counters.count_landed(files=sum(isinstance(each, LoadFile) for each in updates))
            case Conflicted(error=error):
                self._counters.count_refused(error)
                if isinstance(error, StorageChangedError):
                    self._report_change()
                _log.info("commit_refused", cause_id=str(txn), code=error.code, error=error)
            case Unknown(reason=reason):
                self._counters.count_unknown()
                _log.warning("commit_unknown", cause_id=str(txn), reason=reason)
            case _:
                assert_never(outcome)
        return outcome

    def _commit(
        self, txn: int, updates: Sequence[Update], requirements: Sequence[Requirement], leftovers: LeftoverNote | None
    ) -> CommitOutcome:
        # Until the record has been read in this call, an earlier call may have landed; after a lost answer, this one.
        in_doubt: str | None = "the transaction's record could not be read"
        is_lost = False
        failures = attempts = 0
        keys = [pack(Space.OPEN_TXN, txn), life_key(self._server()), *keys_of(updates), *self._storages.keys(updates)]
        while attempts < self._attempts_max:
            attempts += 1
            try:
                with self._kv.view(keys) as view:
                    ready = self._prepare(view, txn, updates, requirements)
                if not isinstance(ready, _Ready):
                    # An earlier try whose answer was lost has committed it.
                    self._kv.confirm()
                    return ready
                if leftovers is not None:
                    ready.batch.puts[pack(Space.LEFTOVER_NOTE, txn)] = codec.LEFTOVER_NOTES.encode(leftovers)
                in_doubt = in_doubt if is_lost else None
                if refusal := self.refusal:
                    return Conflicted(refusal) if in_doubt is None else Unknown(f"{in_doubt}: {refusal}")
                outcome = self._kv.commit(ready.batch.preconditions, ready.batch.puts, ready.batch.deletes)
            except UnavailableError as error:
                failures += 1
                if failures >= UNKNOWNS_MAX:
                    return Conflicted(error) if in_doubt is None else Unknown(f"{in_doubt}: {error}")
                wait_before_retry(self._clock, failures)
                continue
            except CommitLockedError:
                attempts -= 1
                self._clock.sleep(LOCK_POLL_SECONDS)
                continue
            except ViewMovedError:
                self._counters.count_conflict()
                continue
            except TilthError as error:
                # Folding found a reason that the batch of an earlier, unknown try must meet too.
                return Conflicted(error)
            match outcome:
                case Landed(version=version):
                    for table, change in ready.changes.tables.items():
                        before = ready.before.tables[table].stored
                        self._shown.apply(table, change, before=before, after=version)
                    return ready.committed
                case Conflict():
                    self._counters.count_conflict()
                case Unknown(reason=reason):
                    in_doubt, is_lost = reason, True
                    failures += 1
                    if failures >= UNKNOWNS_MAX:
                        return outcome
                    wait_before_retry(self._clock, failures)
                case _:
                    assert_never(outcome)
        return Conflicted(TooManyConflictsError(txn=txn, attempts=self._attempts_max, hint="try again"))

    def _prepare(
        self, view: ReadView, txn_id: int, updates: Sequence[Update], requirements: Sequence[Requirement]
    ) -> _Ready | Committed:
        key = pack(Space.OPEN_TXN, txn_id)
        found = view.get(key)
        if found is None:
            return committed_before(view, txn_id)
        txn = codec.OPEN_TXNS.decode(key, found.value)
        state.check_running(txn)
        self.shared_locks.check(view, tables_of(updates), txn_id)
        batch = Batch(preconditions=[unchanged(key, found), *pin_life(view, txn.server)], deletes=[key])
        pin_fences(view, batch, txn)
        before = load_state(view, batch, updates, requirements, self._shown, is_checking=self._is_checking)
        _check_requirements(before, requirements)
        checked = self._storages.check(view, batch, before, updates)
        updates = checked.updates
        versions = [each.version for each in before.tables.values()] + [each.version for each in before.kafka.values()]
        last = max((version.last_commit_ts for version in versions), default=0)
        blocks = blocks_of(updates)
        first = self._hybrid.reserve(blocks + 1, after=max(last, txn_id))
        commit_ts = first + blocks
        batch.preconditions += self._clock_check.preconditions(commit_ts)
        times = CommitTimes(txn=txn_id, first_block=first, commit_ts=commit_ts, now_ms=self._clock.now_ms())
        changes = fold(before, updates, times)
        _check_pressure(before, changes, updates, requirements)
        if self._is_checking:
            check_commit(before, changes)
        finished = FinishedTxn(txn=state.finish(txn, commit_ts=commit_ts), parts=tuple(changes.parts))
        batch.puts[pack(Space.FINISHED_TXN, txn_id)] = codec.FINISHED_TXNS.encode(finished)
        _write(batch, before, changes, finished.txn)
        put_missing(batch, checked.missing, commit_ts=commit_ts, now_ms=times.now_ms)
        return _Ready(batch, before, changes, Committed(commit_ts=commit_ts, parts=finished.parts))

    @property
    def refusal(self) -> TilthError | None:
        """Error of every new commit; None: commits are allowed."""
        return self.lasting_refusal or self._clock_check.error()

    def _report_change(self) -> None:
        try:
            self.when_storage_changed()
        except TilthError as error:
            # The next refused commit calls it again.
            _log.warning("storages_not_read", reason=error)

    def drain(self, table: str) -> None:
        """Wait until the commits to the table that are under way are over."""
        with self._following((table,)):
            pass

    @contextmanager
    def _following(self, tables: Iterable[str]) -> Iterator[None]:
        """Serialize commits to a table. This only avoids folding in vain: the preconditions keep the data right."""
        with ExitStack() as stack:
            for stripe in sorted({hash(table) % _STRIPES for table in tables}):
                stack.enter_context(self._stripes[stripe])
            yield


def committed_before(view: ReadView, txn_id: int) -> Committed:
    finished = read(view, pack(Space.FINISHED_TXN, txn_id), codec.FINISHED_TXNS)
    if finished is None:
        raise TxnNotFoundError(txn=txn_id, hint="it was never begun, or was aborted and cleaned up")
    return Committed(commit_ts=finished.txn.commit_ts, parts=finished.parts)


def _check_requirements(before: CommitState, requirements: Iterable[Requirement]) -> None:
    for requirement in requirements:
        match requirement:
            case SchemaIs(table=table):
                check_schema(before.tables[table].definition, requirement)
            case NoRowsSince(table=table, partitions=partitions):
                parts = _shown(before.tables[table], partitions)
                undone_ts = max((undone for _, undone in before.tables[table].version.undone), default=0)
                check_no_rows_since(before.tables[table].definition, parts, requirement, undone_ts=undone_ts)
            case PartsBelow():
                # Checked when it is known what the commit makes of it.
                pass
            case _:
                assert_never(requirement)


def _shown(table: TableState, partitions: Iterable[str] | None = None) -> list[Part]:
    """Return the parts that were visible before, in these partitions; None: in all that were read."""
    found: list[Part] = []
    for partition in {*table.entries, *table.shown} if partitions is None else partitions:
        known = table.shown.get(partition)
        found += visible(table.entries.get(partition, ())) if known is None else known
    return found


def _check_pressure(
    before: CommitState, changes: Changes, updates: Sequence[Update], requirements: Iterable[Requirement]
) -> None:
    for requirement in requirements:
        if isinstance(requirement, PartsBelow):
            table = requirement.table
            inserted = {
                each.written.partition for each in updates if isinstance(each, InsertPart) and each.table == table
            }
            check_parts(before.tables[table].definition, changes.tables[table], inserted, requirement)


def _write(batch: Batch, before: CommitState, changes: Changes, txn: Txn) -> None:
    puts = batch.puts
    for table, change in changes.tables.items():
        if not change.is_empty:
            _write_table(batch, table, change, txn)
    for table, kafka in changes.kafka.items():
        puts[pack(Space.VERSION, table)] = codec.VERSIONS.encode(kafka.version)
        stored = before.kafka[table].offsets
        for position, offset in kafka.offsets.items():
            if stored.get(position) != offset:
                key = pack(Space.OFFSET, table, position.topic, position.partition)
                puts[key] = codec.OFFSETS.encode(offset)
        for position in stored.keys() - kafka.offsets.keys():
            batch.deletes.append(pack(Space.OFFSET, table, position.topic, position.partition))
        for line in kafka.ledger:
            puts[pack(Space.LEDGER, table, line.txn)] = codec.LEDGER.encode(line)
        for gap in kafka.gaps:
            puts[pack(Space.GAP, table, gap.topic, gap.partition, gap.start)] = codec.GAPS.encode(gap)
    for fields, subscription in changes.subscriptions.items():
        if subscription is None:
            batch.deletes.append(pack(Space.SUBSCRIPTION, *fields))
        else:
            puts[pack(Space.SUBSCRIPTION, *fields)] = codec.SUBSCRIPTIONS.encode(subscription)
    puts.update(put_events(changes.events, txn.id))


def _write_table(batch: Batch, table: str, change: TableChange, txn: Txn) -> None:
    puts = batch.puts
    puts[pack(Space.VERSION, table)] = codec.VERSIONS.encode(change.version)
    if change.definition is not None:
        puts[pack(Space.RELATION, table)] = codec.RELATIONS.encode(change.definition)
    for partition in change.partitions.values():
        puts[pack(Space.PARTITION, table, partition.partition)] = codec.PARTITIONS.encode(partition)
    for mutation in change.mutations.values():
        puts[pack(Space.MUTATION, table, mutation.id)] = codec.MUTATIONS.encode(mutation)
    # In this order: what was accepted may have been added or restored by the same commit.
    for entry in (*change.added, *change.restored, *change.accepted.values()):
        puts[entry_key(table, entry.name)] = codec.ENTRIES.encode(entry)
    for delta in (*change.deltas_added, *change.deltas_ended):
        puts[delta_key(table, delta)] = codec.DELTAS.encode(delta)
    for label, record in change.labels.items():
        puts[pack(Space.LABEL, table, label)] = codec.LABELS.encode(record)
    for file, loaded in change.loaded.items():
        puts[loaded_file_key(table, file)] = codec.LOADED_FILES.encode(loaded)
    for batch_of in change.streams.values():
        puts[pack(Space.STREAM, table, batch_of.stream)] = codec.STREAMS.encode(batch_of)
    made = VersionCommit(ts=change.version.last_commit_ts, txn=txn.id, actor=txn.actor)
    puts[pack(Space.VERSION_COMMIT, table, change.version.counter)] = codec.VERSION_COMMITS.encode(made)
    batch.deletes.extend(delta_key(table, msgspec.structs.replace(each, end_ts=0)) for each in change.deltas_ended)
    batch.deletes.extend(entry_key(table, part.name, space=Space.TRASH) for part in change.restored)
    batch.deletes.extend(entry_key(table, entry.name) for entry in change.removed)
