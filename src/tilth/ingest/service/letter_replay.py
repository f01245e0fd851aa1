"""SYSTEM REPLAY DEAD LETTERS: letters go through their views again, in one transaction for each batch of them.

    count the letters by view; then for each view, and at last for those that are for all views, batch by batch:
      begin -> worker: letters -> views -> files -> commit {parts, letters deleted, letters again, ledger}

Covers: which letters come when, these transactions, their ledger entries, counts. Does not cover: what the worker does
(replay/spark.py), the statement (tilth.statements).
Always holds: the rows of a letter and its end become true in one commit, which is refused where the letter was changed,
deleted or moved since it was read; a letter that fails again is a new row with the new reason, and no statement replays
it twice. See also: docs/policies/consumers.md#replays.

Tests: tests/integration/ingest/test_replayed_letters.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from tilth.base.errors import ConflictError
from tilth.base.failpoints import hit
from tilth.base.logs import Log
from tilth.base.metrics import counter
from tilth.catalog import (
    AddDelta,
    AddLedger,
    Catalog,
    InsertPart,
    NoRowsSince,
    PartsChangedError,
    PartsGoneError,
    Requirement,
    SchemaChangedError,
    SchemaIs,
    StorageChangedError,
    TooManyConflictsError,
    TxnHandle,
    Update,
    rebase,
)
from tilth.ingest.consumer.calls import ViewOrder
from tilth.ingest.errors import NoDeadLettersError, ViewError
from tilth.ingest.messages.dead import accepts_dead_letters
from tilth.ingest.policy.evaluation import FailingViews
from tilth.ingest.replay.orders import (
    LETTERS_MAX,
    CountLetters,
    LetterPosition,
    LetterSource,
    Replayed,
    ReplayLetters,
    ReplayOrder,
    ResolveKeys,
    tasks_reserved,
)
from tilth.ingest.rounds.round import TableChanges
from tilth.ingest.rounds.upserts import Lookups, changes_of, lookups_of, resolve, scopes_of
from tilth.ingest.service.context import ConsumeContext
from tilth.ingest.service.definitions import Definitions, read_definitions
from tilth.ingest.settings import ErrorMode, read_config
from tilth.model.delta import WrittenDelta, seen_of
from tilth.model.offset import REPLAYED, LedgerEntry
from tilth.model.service import ServiceKind, SwitchState, effective_switch
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.storage import UPSERT_HERE_BYTES_MAX, UPSERT_TRIES_MAX, TableRoots, output_of, sources_of
from tilth.warehouse import TaskResult

#: Maximum number of attempts at a batch, while others change the letters or the tables.
TRIES_MAX = 10
_RETRIED = (PartsChangedError, PartsGoneError, SchemaChangedError, StorageChangedError)

#: Runs an order of `ReplayOrder` on a worker, given the transaction's id and the bytes that are read.
RunReplay = Callable[[bytes, int, int], TaskResult]

_log = Log("ingest")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Report of SYSTEM REPLAY DEAD LETTERS."""

    #: Letters that went through their views.
    letters: int = 0
    #: Rows of the views' targets.
    rows: int = 0
    #: Dead letters that came of them.
    again: int = 0
    transactions: int = 0
    #: Letters that were left out, by the reason.
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStats:
    """Replays of one Kafka table on this server."""

    database: str
    table: str
    letters: int = counter(
        "tilth_ingest_replayed_total", "Dead letters that went through their views again.", labels=("database", "table")
    )


class ReplayCounts:
    """Counts letters by Kafka table. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: dict[tuple[str, str], int] = {}

    def add(self, kafka: KafkaDef, letters: int) -> None:
        with self._lock:
            name = kafka.database, kafka.name
            self._letters[name] = self._letters.get(name, 0) + letters

    def stats(self) -> list[ReplayStats]:
        with self._lock:
            found = dict(self._letters)
        return [ReplayStats(database=d, table=t, letters=letters) for (d, t), letters in found.items()]


def dead_letters_of(catalog: Catalog, kafka: KafkaDef, *, now_ms: int) -> TableDef:
    """Return the table whose letters can be replayed now.

    Raises NoDeadLettersError, ConflictError (CONSUME_STOPPED).
    """
    config, name = read_config(kafka), full_name(kafka)
    if config.error_mode is ErrorMode.THROW:
        hint = "ALTER TABLE .. MODIFY SETTING kafka_handle_error_mode = 'dead_letter': what fails again must be stored"
        raise NoDeadLettersError("the Kafka table keeps no dead letters", table=name, hint=hint)
    table = catalog.tables.find(kafka.database, config.dead_letter_table)
    if not isinstance(table, TableDef) or not accepts_dead_letters(table):
        hint = "it is made when the first message is read; the setting kafka_dead_letter_table names it"
        missing = f"{kafka.database}.{config.dead_letter_table}"
        raise NoDeadLettersError("its dead-letter table is not there", table=name, missing=missing, hint=hint)
    if table.unique_key:
        hint = "INSERT the letters into a table without one, and name it by kafka_dead_letter_table"
        raise NoDeadLettersError("dead letters with a unique key are not replayed", table=full_name(table), hint=hint)
    switches = catalog.services.of_table(kafka.uuid, ServiceKind.CONSUME)
    switch = effective_switch(switches, ServiceKind.CONSUME, now_ms=now_ms)
    if switch.state is not SwitchState.RUNNING:
        hint = f"SYSTEM START CONSUME {name}, and replay then"
        raise ConflictError.coded(
            "CONSUME_STOPPED",
            "nothing goes through the views of a Kafka table while its consumption is stopped",
            table=name,
            because=switch.because or "-",
            hint=hint,
        )
    return table


class LetterReplay:
    """One statement under way."""

    def __init__(
        self, context: ConsumeContext, kafka: KafkaDef, counts: ReplayCounts, *, predicate: str, run: RunReplay
    ) -> None:
        """`predicate`: Spark SQL over the dead-letter table, as checked; empty: all letters."""
        self._context = context
        self._catalog = context.catalog
        self._kafka = kafka
        self._name = full_name(kafka)
        self._counts = counts
        self._predicate = predicate
        self._run_order = run
        self._left: dict[str, int] = {}
        self._report = ReplayReport()

    def run(self) -> ReplayReport:
        """Replay all letters that are there now; what was committed stays if it raises."""
        counted = self._retry(lambda number: self._count())
        views = {full_name(each.view) for each in self._definitions().views}
        for view in sorted(counted.keys() - views - {""}):
            self._leave(f"no view {view} reads the Kafka table", counted[view])
        # Letters for all views come last: new letters for one view that their replay writes are not replayed here.
        for addressee in (*sorted(counted.keys() & views), *([""] if "" in counted else [])):
            self._replay_all(addressee)
        return replace(self._report, left=self._left)

    def _count(self) -> dict[str, int]:
        dead = dead_letters_of(self._catalog, self._kafka, now_ms=self._context.clock.now_ms())
        # A transaction that runs has seen the files, so they stay until they were read.
        with self._catalog.transactions.open(f"replay {self._name}") as txn:
            source = self.source(self._catalog.parts.snapshot(dead.uuid), [dead])
            if not source.snapshot.parts:
                return {}
            answer = self.send_order(CountLetters(source=source), txn, source.snapshot.bytes)
        return msgspec.msgpack.decode(answer, type=dict[str, int])

    def _replay_all(self, addressee: str) -> None:
        """Batch by batch, until no letter of the addressee is left behind the last one."""
        after: LetterPosition | None = None
        failing = FailingViews()
        while True:
            done = self._retry(_Batch(self, addressee, after, failing).run)
            if done is None:
                return
            if done.failures:
                self._note_failed(failing, done)
                continue
            after = done.last
            if done.is_end:
                return

    def _note_failed(self, failing: FailingViews, done: Replayed) -> None:
        """Raises ViewError where there is no other way to do the batch."""
        for view, why in done.failures.items():
            _log.info("view_failed", table=self._name, view=view, messages=done.letters, reason=why)
            if not failing.record_failure(view, messages=done.letters):
                hint = "mend the view, and replay the letters again; those that are left are where they were"
                raise ViewError("the view fails, and no message is to blame", view=view, why=why, hint=hint)

    def _retry(self, attempt: Callable[[int], T]) -> T:
        """Return the attempt's answer; repeat it while other writers change the tables."""
        hint = "others change the dead-letter table or the targets all the time: replay again"
        busy = TooManyConflictsError(table=self._name, tries=TRIES_MAX, hint=hint)
        return rebase(0, attempt, tries=TRIES_MAX, busy=busy, moved=_RETRIED)

    # --- for the batches ---------------------------------------------------------------------------------------------

    @property
    def context(self) -> ConsumeContext:
        return self._context

    @property
    def kafka(self) -> KafkaDef:
        return self._kafka

    @property
    def name(self) -> str:
        return self._name

    def _definitions(self) -> Definitions:
        context = self._context
        folder = context.settings.certificates_folder
        uuid = self._kafka.uuid
        return read_definitions(context.clock, context.catalog, context.ids, uuid, certificates_folder=folder)

    def now(self) -> tuple[Definitions, TableDef]:
        """Return the definitions and the dead-letter table. Raises as `dead_letters_of` and `read_definitions` do."""
        seen = self._definitions()
        return seen, dead_letters_of(self._catalog, seen.kafka, now_ms=self._context.clock.now_ms())

    def source(self, snapshot: Snapshot, tables: Iterable[TableDef]) -> LetterSource:
        root = self._context.root
        return LetterSource(
            snapshot=snapshot,
            root=TableRoots({table.uuid: root.of(table.uuid) for table in tables}),
            predicate=self._predicate,
            topics=self._topics(snapshot.table),
        )

    def _topics(self, dead: TableDef) -> tuple[str, ...] | None:
        """Return the topics whose letters are this Kafka table's; None: there are no others in the table.

        Raises NoDeadLettersError where another Kafka table has letters of the same topic there.
        """
        mine = read_config(self._kafka).topics
        others = [
            each
            for each in self._catalog.tables.list()
            if isinstance(each, KafkaDef) and each.uuid != self._kafka.uuid and each.database == dead.database
        ]
        sharing = [each for each in others if read_config(each).dead_letter_table == dead.name]
        for each in sharing:
            if set(mine) & set(read_config(each).topics):
                hint = "give each Kafka table its own by kafka_dead_letter_table"
                message = "another Kafka table has dead letters of the same topic in the same table"
                raise NoDeadLettersError(message, table=full_name(dead), other=full_name(each), hint=hint)
        return mine if sharing else None

    def send_order(self, order: ReplayOrder, txn: TxnHandle, size: int) -> bytes:
        """Run the order on a worker, within the transaction; return its answer."""
        txn.tasks_began()
        result = self._run_order(msgspec.msgpack.encode(order), txn.id, size)
        txn.tasks_ended(may_have_retried=result.may_have_retried)
        return result.payload

    def _leave(self, reason: str, letters: int) -> None:
        self._left[reason] = self._left.get(reason, 0) + letters

    def record_commit(self, done: Replayed, *, rows: int) -> None:
        self._counts.add(self._kafka, done.letters)
        report = self._report
        self._report = replace(
            report,
            letters=report.letters + done.letters,
            rows=report.rows + rows,
            again=report.again + done.facts.dead + done.facts.refused,
            transactions=report.transactions + 1,
        )
        if done.left:
            self._leave("there are more of the same message: replay again", done.left)


class _Batch:
    """Some letters of one addressee, in one transaction."""

    def __init__(
        self, replay: LetterReplay, addressee: str, after: LetterPosition | None, failing: FailingViews
    ) -> None:
        self._replay = replay
        self._catalog = replay.context.catalog
        self._addressee = addressee
        self._after = after
        self._failing = failing
        self._tables: dict[str, TableDef] = {}
        self._root = TableRoots({})

    def run(self, number: int) -> Replayed | None:
        """Return what was committed, or why the batch must be done in another way; None: the view is gone.

        Raises errors of _AGAIN where others changed the tables meanwhile: nothing is true then. `number`: of the try.
        """
        replay = self._replay
        seen, dead = replay.now()
        views = tuple(each for each in seen.views if self._addressee in ("", full_name(each.view)))
        if not views:
            return None
        self._tables = {each.target.uuid: each.target for each in views} | {dead.uuid: dead}
        tasks = tasks_reserved(len(views))
        root = replay.context.root
        outputs = [output_of(table, root, tasks=tasks + UPSERT_TRIES_MAX) for table in self._tables.values()]
        with self._catalog.transactions.open(f"replay {replay.name}", outputs=outputs) as txn:
            txn.begin_try(number, [dead.uuid])
            source = replay.source(self._catalog.parts.snapshot(dead.uuid), self._tables.values())
            self._root = source.root
            done = self._replay_letters(txn, source, seen, views)
            if done.failures or not done.letters:
                return done
            self._commit(txn, source.snapshot, done, first_task=tasks)
        return done

    def _replay_letters(
        self, txn: TxnHandle, source: LetterSource, seen: Definitions, views: tuple[ViewOrder, ...]
    ) -> Replayed:
        if not source.snapshot.parts:
            return Replayed()
        order = ReplayLetters(
            source=source,
            kafka=seen.kafka,
            views=views,
            addressee=self._addressee,
            after=self._after,
            letters_max=self._failing.bounded(min(LETTERS_MAX, seen.config.block_rows)),
            bytes_max=seen.config.block_bytes,
            failing=self._failing.evaluations,
            txn=txn.id,
        )
        return msgspec.msgpack.decode(self._replay.send_order(order, txn, source.snapshot.bytes), type=Replayed)

    def _commit(self, txn: TxnHandle, snapshot: Snapshot, done: Replayed, *, first_task: int) -> None:
        """Commit the batch. In targets with unique keys, its rows replace older ones, which are looked up again as
        often as other writers change the targets meanwhile.
        """
        parts = done.facts.parts
        scopes = scopes_of(self._tables.values(), parts)
        updates, requirements = self._updates(txn, snapshot, done), self._requirements(done)
        for number in range(UPSERT_TRIES_MAX):
            snapshots = [
                (each, self._catalog.parts.snapshot(each.table, partitions=each.partitions)) for each in scopes
            ]
            task = first_task + number
            lookups = lookups_of(self._tables, parts, snapshots, root=self._root, txn=txn.id, task=task)
            changes = self._resolve(txn, lookups)
            hit("replay.before_commit")
            try:
                txn.commit([*updates, *_delta_updates(changes)], [*requirements, *_no_rows_since(changes)])
                break
            except (PartsChangedError, PartsGoneError):
                # Only where the letters are as they were read it is the targets that have changed.
                if number + 1 == UPSERT_TRIES_MAX or not self._is_unchanged(snapshot, done.deletions):
                    raise
        hit("replay.after_commit")
        rows = sum(each.part.rows for each in parts if each.table != snapshot.table.uuid)
        self._failing.record_commit(refusing=done.facts.refusing)
        self._replay.record_commit(done, rows=rows)

    def _resolve(self, txn: TxnHandle, lookups: Lookups) -> tuple[TableChanges, ...]:
        """Find the rows to replace: on this thread if there is little to read, else on a worker."""
        size = sum(each.bytes for each in lookups.values())
        if size <= UPSERT_HERE_BYTES_MAX:
            return resolve(lookups, attempt=0)
        order = ResolveKeys(requests=tuple(tuple(each.requests) for each in lookups.values()))
        answer = self._replay.send_order(order, txn, size)
        found = msgspec.msgpack.decode(answer, type=tuple[tuple[WrittenDelta, ...], ...])
        return changes_of(lookups, found)

    def _is_unchanged(self, snapshot: Snapshot, deletions: Iterable[WrittenDelta]) -> bool:
        now, before = _seen(self._catalog.parts.snapshot(snapshot.table.uuid)), _seen(snapshot)
        files = (target.file for each in deletions for target in each.targets)
        return all(now.get(file) == before[file] for file in files)

    def _updates(self, txn: TxnHandle, snapshot: Snapshot, done: Replayed) -> list[Update]:
        stored: dict[str, int] = {}
        for written in done.facts.parts:
            stored[written.table] = stored.get(written.table, 0) + written.part.rows
        seen = _seen(snapshot)
        entry = LedgerEntry(
            txn=txn.id,
            kafka_table=self._replay.kafka.uuid,
            consumer=REPLAYED,
            ranges=done.facts.ranges,
            stored=stored,
            targets=tuple(self._tables),
        )
        return [
            *(InsertPart(table=written.table, written=written.part) for written in done.facts.parts),
            *(
                AddDelta(
                    table=snapshot.table.uuid,
                    written=each,
                    seen=tuple((target.file, seen[target.file]) for target in each.targets),
                )
                for each in done.deletions
            ),
            AddLedger(entry=entry),
        ]

    def _requirements(self, done: Replayed) -> list[Requirement]:
        """Require that the columns are those that were written, and that the partitions may have another part."""
        written = {each.table for each in done.facts.parts}
        throttle = self._catalog.throttle
        return [
            *(SchemaIs(table=uuid, schema_version=table.schema_version) for uuid, table in self._tables.items()),
            *(throttle.requirement(table) for uuid, table in self._tables.items() if uuid in written),
        ]


def _seen(snapshot: Snapshot) -> dict[str, int]:
    """Return the time of the newest change by data file."""
    return dict(seen_of(sources_of(snapshot.table, snapshot.parts, snapshot.deltas)))


def _delta_updates(changes: Iterable[TableChanges]) -> list[Update]:
    return [
        AddDelta(table=each.scope.table, written=delta, seen=each.seen) for each in changes for delta in each.deltas
    ]


def _no_rows_since(changes: Iterable[TableChanges]) -> list[Requirement]:
    return [NoRowsSince(table=each.scope.table, ts=each.ts, partitions=each.scope.partitions) for each in changes]
