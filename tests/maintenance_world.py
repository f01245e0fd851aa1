"""A catalog, a real dispatcher and a worker that keeps the rows of files in its memory, for tests of maintenance
without files. A row is a number; what deltas delete, and where a row of a new part came from, are in its memory too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from tests.catalog_world import World
from tests.removals import watch_removals
from tilth.base.errors import TilthError
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.catalog import AddDelta, InsertPart, KeyValue, StartMutation
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.maintenance.copies.task_spark import CopyFact, CopyTask
from tilth.maintenance.manager.manager import CLEAN_PERIOD_MS, StandIns
from tilth.maintenance.mutate.task_spark import (
    MutateFacts,
    MutateResult,
    MutateSource,
    MutateTask,
)
from tilth.maintenance.one_part.task_spark import MergeFacts, MergeTask
from tilth.maintenance.work.procedure import Input, Rebaser
from tilth.maintenance.work.task_spark import RebaseFacts, RebaseOrder, RebaseTask
from tilth.model.delta import Delta, DeltaKind, PartSource, Target, WrittenDelta, by_file
from tilth.model.mutation import Mutation, MutationKind
from tilth.model.part import DataFile, Part, WrittenPart
from tilth.model.service import ServiceKind, ServiceStats
from tilth.model.table import Column, Schema, TableDef
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.model.txn import TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import file_name, local_root
from tilth.warehouse import Dispatcher, TaskCancelledError, TaskResult, WorkerReports
from tilth.warehouse.stats import WorkerLoad

#: No such folder: removing files finds them gone.
ROOT = local_root("/nonexistent/tables")
#: World.written makes files of so many bytes a row.
ROW_BYTES = 100
_TURNS_MAX = 500
#: The predicates and expressions that the worker understands.
PREDICATES: Mapping[str, Callable[[int], bool]] = {
    "a is odd": lambda a: a % 2 == 1,
    "a is a multiple of 3": lambda a: a % 3 == 0,
    "true": lambda _: True,
    "false": lambda _: False,
}
EXPRESSIONS: Mapping[str, Callable[[int], int]] = {"a + 1": lambda a: a + 1, "a * 2": lambda a: a * 2}


class MergeWorker:
    """Merges and rewrites at once, unless it is told to fail or to hold the tasks."""

    def __init__(self) -> None:
        self.name = "w"
        self.memory_bytes = 1 << 30
        self.load = WorkerLoad()
        self.reports: WorkerReports | None = None
        #: Errors of the next tasks, in order.
        self.errors: list[TilthError] = []
        self.is_holding = False
        self.held: dict[str, TaskSpec] = {}
        #: Called with each merge before it is done.
        self.on_merge: Callable[[MergeTask], None] = lambda _: None
        self.merges = 0
        #: Key ranges that a merge gets at most.
        self.ranges_max = 64
        #: Called with each rewrite before it is done; may raise what the task fails with.
        self.on_mutate: Callable[[MutateTask], None] = lambda _: None
        self.rewrites = 0
        #: The rows of files that somebody cares for; others have as many as their size tells, 0, 1, 2 and so on.
        self.contents: dict[str, tuple[int, ...]] = {}
        #: Positions of the rows that a delta deletes, by the delta's file, then by the part's.
        self.deletes: dict[str, dict[str, frozenset[int]]] = {}
        #: Sources of files that were made of others: the file and the position of each row.
        self.origins: dict[str, tuple[tuple[str, int], ...]] = {}
        #: Called with each rebase before it is done.
        self.on_rebase: Callable[[Input], None] = lambda _: None
        self.rebases = 0
        #: Function that gets each rebase that is a task before it is done; may raise what the task fails with.
        self.on_rebase_task: Callable[[RebaseTask], None] = lambda _: None
        #: Rebases that were tasks, as they were sent.
        self.rebase_tasks: list[RebaseTask] = []

    def attach(self, reports: WorkerReports) -> None:
        self.reports = reports

    def assign(self, spec: TaskSpec) -> None:
        if self.is_holding:
            self.held[spec.id] = spec
        else:
            self._perform(spec)

    def trouble(self) -> str:
        return ""

    def touch(self, task_ids: Collection[str]) -> set[str]:
        return set(self.held)

    def cancel(self, task_id: str) -> None:
        assert self.reports is not None
        if self.held.pop(task_id, None) is not None:
            self.reports.failed(task_id, TaskCancelledError(task=task_id))

    def retire(self, task_id: str) -> None:
        """Nothing here stays."""

    def let_go(self) -> None:
        self.is_holding = False
        for task_id in list(self.held):
            self._perform(self.held.pop(task_id))

    def rows_of(self, file: DataFile) -> tuple[int, ...]:
        """In the file, deleted ones among them."""
        return self.contents.get(file.name, tuple(range(file.size // ROW_BYTES)))

    def present(self, file: DataFile, deltas: Iterable[Delta]) -> list[tuple[int, int]]:
        """The place and the row of each that none of these deltas deletes."""
        gone = {place for delta in deltas for place in self.deletes.get(delta.file.name, {}).get(file.name, ())}
        return [(place, row) for place, row in enumerate(self.rows_of(file)) if place not in gone]

    def new_rebaser(self, made_of: Input, written: WrittenPart) -> Rebaser:
        """As tilth.storage does it with files."""
        return _FakeRebaser(self, made_of, written)

    def _perform(self, spec: TaskSpec) -> None:
        match spec.kind:
            case TaskKind.MUTATE:
                self._mutate(spec)
            case TaskKind.REBASE:
                self._rebase(spec)
            case TaskKind.COPY:
                # Files that are there in name only are what was written.
                copies = msgspec.msgpack.decode(spec.payload, type=CopyTask).items
                facts = msgspec.msgpack.encode([CopyFact() for _ in copies])
                assert self.reports is not None
                self.reports.finished(spec.id, TaskResult(payload=facts, actual=Cost(seconds=1.0)))
            case _:
                self._merge(spec)

    def _rebase(self, spec: TaskSpec) -> None:
        """One Spark task for all."""
        assert self.reports is not None
        task = msgspec.msgpack.decode(spec.payload, type=RebaseTask)
        self.rebase_tasks.append(task)
        try:
            self.on_rebase_task(task)
        except TilthError as error:
            self.reports.failed(spec.id, error)
            return
        written: list[WrittenDelta | None] = []
        for order in task.orders:
            gone = {row for each in order.before for row in self.deletes[each.file.name][order.file.name]}
            n = sum(each is not None for each in written)
            sources = [source for _, source in order.changed]
            written.append(self.rebased(order, sources, gone, txn=task.txn, task=task.first_task, n=n))
        facts = msgspec.msgpack.encode(RebaseFacts(written=tuple(written)))
        self.reports.finished(spec.id, TaskResult(payload=facts, actual=Cost(seconds=1.0)))

    def rebased(
        self, order: RebaseOrder, sources: Sequence[PartSource], gone: set[int], *, txn: int, task: int, n: int
    ) -> WrittenDelta | None:
        """Return these changes as changes of the part, without its rows in `gone`; the deleted rows are added to it."""
        file = order.file.name
        row_of = {origin: row for row, origin in enumerate(self.origins.get(file, ()))}
        found = {
            row_of[source.file.name, row]
            for source in sources
            for delta in source.deltas
            for row in self.deletes.get(delta.file.name, {}).get(source.file.name, ())
            if (source.file.name, row) in row_of
        }
        fresh = found - gone
        gone |= fresh
        if not fresh:
            return None
        name = file_name(txn=txn, task=task, attempt=0, n=n, extension="arrow")
        self.deletes[name] = {file: frozenset(fresh)}
        return WrittenDelta(
            kind=DeltaKind.CHANGES,
            partition=order.partition,
            file=DataFile(name=name, size=50, checksum=1),
            targets=(Target(file=file, deleted=len(fresh)),),
        )

    def _mutate(self, spec: TaskSpec) -> None:
        assert self.reports is not None
        task = msgspec.msgpack.decode(spec.payload, type=MutateTask)
        try:
            self.on_mutate(task)
            if self.errors:
                raise self.errors.pop(0)
        except TilthError as error:
            self.reports.failed(spec.id, error)
            return
        self.rewrites += 1
        results = tuple(self._rewritten(task, n, source) for n, source in enumerate(task.sources))
        payload = msgspec.msgpack.encode(MutateFacts(results=results))
        self.reports.finished(spec.id, TaskResult(payload=payload, actual=Cost(seconds=1.0)))

    def _rewritten(self, task: MutateTask, n: int, source: MutateSource) -> MutateResult:
        present = self.present(source.file, source.source.deltas)
        rows = tuple(row for _, row in present)
        if task.kind is MutationKind.COLUMNS:
            after, is_untouched = rows, False
        else:
            is_meant = PREDICATES[task.predicate]
            is_untouched = not any(map(is_meant, rows))
            after = mutated(rows, task.kind, predicate=task.predicate, assignments=task.assignments)
        written = None
        if after and not is_untouched:
            file = DataFile(
                name=file_name(txn=task.txn, task=n, attempt=0, n=0), size=len(after) * ROW_BYTES, checksum=1
            )
            self.contents[file.name] = after
            is_gone = PREDICATES[task.predicate] if task.kind is MutationKind.DELETE else PREDICATES["false"]
            self.origins[file.name] = tuple((source.file.name, place) for place, row in present if not is_gone(row))
            partition = source.source.name.partition
            written = WrittenPart(partition=partition, values=source.values, rows=len(after), file=file, ranges={})
        return MutateResult(
            name=source.name,
            written=written,
            is_untouched=is_untouched,
            rows_in=len(rows),
            rows_out=len(rows) if is_untouched else len(after),
        )

    def _merge(self, spec: TaskSpec) -> None:
        assert self.reports is not None
        task = msgspec.msgpack.decode(spec.payload, type=MergeTask)
        self.on_merge(task)
        if self.errors:
            self.reports.failed(spec.id, self.errors.pop(0))
            return
        self.merges += 1
        rows = [
            ((source.file.name, place), row)
            for source in task.sources
            for place, row in self.present(source.file, source.deltas)
        ]
        rows_in = sum(len(self.rows_of(source.file)) for source in task.sources)
        # Ranges of as many rows each.
        ranges = min(task.ranges, self.ranges_max)
        bounds = [len(rows) * number // ranges for number in range(ranges + 1)]
        facts = MergeFacts(
            written=tuple(
                self._range(task, number, rows[start:end]) for number, (start, end) in enumerate(pairwise(bounds))
            ),
            rows_in=rows_in,
            bytes_in=sum(source.bytes for source in task.sources),
            rows_deleted=rows_in - len(rows),
            why_fewer="a test" if ranges < task.ranges else "",
        )
        self.reports.finished(spec.id, TaskResult(payload=msgspec.msgpack.encode(facts), actual=Cost(seconds=1.0)))

    def _range(self, task: MergeTask, number: int, rows: Sequence[tuple[tuple[str, int], int]]) -> WrittenPart | None:
        if not rows:
            return None
        name = file_name(txn=task.txn, task=number, attempt=0, n=0)
        file = DataFile(name=name, size=len(rows) * ROW_BYTES, checksum=1)
        self.contents[name] = tuple(row for _, row in rows)
        self.origins[name] = tuple(origin for origin, _ in rows)
        return WrittenPart(partition=task.partition, values=task.values, rows=len(rows), file=file, ranges={})


class _FakeRebaser:
    def __init__(self, worker: MergeWorker, made_of: Input, written: WrittenPart) -> None:
        self._worker = worker
        self._made_of = made_of
        self._written = written
        self._gone: set[int] = set()

    def rebase(self, sources: Sequence[PartSource], *, txn: int, task: int, n: int) -> WrittenDelta | None:
        made, written = self._made_of, self._written
        self._worker.on_rebase(made)
        self._worker.rebases += 1
        order = RebaseOrder(
            layout=made.layout, partition=made.partition, file=written.file, rows=written.rows, changed=()
        )
        return self._worker.rebased(order, sources, self._gone, txn=txn, task=task, n=n)


def aborted(world: MaintenanceWorld) -> list[str]:
    """Actors of the transactions that did not land; after the grace they are cleaned up."""
    left = world.catalog.transactions.unfinished()
    assert {txn.state for txn in left} <= {TxnState.ABORTED}
    assert world.catalog.transactions.live() == set()
    world.work(CLEAN_PERIOD_MS / 1000)
    world.work(GRACE_MS / 1000)
    assert world.catalog.transactions.unfinished() == []
    return [txn.actor for txn in left]


def mutated(
    rows: tuple[int, ...], kind: MutationKind, *, predicate: str, assignments: tuple[tuple[str, str], ...] = ()
) -> tuple[int, ...]:
    """What an UPDATE or a DELETE makes of rows."""
    is_meant = PREDICATES[predicate]
    if kind is MutationKind.DELETE:
        return tuple(row for row in rows if not is_meant(row))
    [(_, expression)] = assignments
    return tuple(EXPRESSIONS[expression](row) if is_meant(row) else row for row in rows)


class MaintenanceWorld(World):
    """Turns of the manager are made by the test; what runs on threads is waited for."""

    def __init__(self, kv: KeyValue | None = None, *, threads: int = 2) -> None:
        super().__init__(kv)
        watch_removals(ROOT.uri, lambda: self.kv)
        self.threads = threads
        self.worker = MergeWorker()
        self.dispatcher = Dispatcher(self.clock, self.new_id, {"write": [self.worker]}, slots={"write": 8})
        self.manager = self.new_manager()

    def new_manager(self, *, settings: ManagerSettings | None = None) -> MaintenanceManager:
        settings = replace(settings or read_settings(ManagerSettings, {}), workers=self.threads)
        return MaintenanceManager(
            self.clock,
            self.catalog,
            self.dispatcher,
            ROOT,
            settings,
            stand_ins=StandIns(rng=new_rng(7), new_rebaser=self.worker.new_rebaser),
        )

    def aging_table(self) -> str:
        """Create a table whose rows expire a day after the date in their column `d`."""
        columns = (Column(id=1, name="a", type=Simple(Kind.INT64)), Column(id=2, name="d", type=Simple(Kind.DATE)))
        definition = TableDef(
            uuid=self.new_id(),
            database="default",
            name="aged",
            schema=Schema(columns=columns),
            next_column_id=3,
            ttl="d + INTERVAL 1 DAY",
        )
        return self.catalog.tables.create(definition).uuid

    def turn(self) -> bool:
        """One turn and the end of what it started; True if it started something."""
        choice = self.manager.step()
        if not self.worker.is_holding:
            self.settle()
        return choice.op_name is not None

    def settle(self) -> None:
        """Waits until nothing runs."""
        for _ in range(20_000):
            if not self.running():
                return
            threading.Event().wait(0.001)
        raise AssertionError("a run does not end")

    def running(self) -> int:
        return sum(run.ended_ms == 0 for run in self.manager.runs())

    def work(self, seconds: float = 0.0) -> int:
        """Moves the clock and lets the manager work until nothing is left to do; returns how many runs that took."""
        self.clock.advance(seconds)
        for runs in range(_TURNS_MAX):
            if not self.turn():
                return runs
        raise AssertionError("the work does not end")

    def service(self, kind: ServiceKind, table: str | None = None) -> ServiceStats:
        uuid = table or self.t
        return next(row for row in self.manager.stats() if row.uuid == uuid and row.service is kind)

    def alter_delete(self, predicate: str, *, table: str | None = None) -> int:
        """ALTER .. DELETE; returns the mutation's id."""
        return self.mutate(MutationKind.DELETE, predicate=predicate, table=table)

    def update(self, expression: str, predicate: str, *, table: str | None = None) -> int:
        return self.mutate(MutationKind.UPDATE, predicate=predicate, assignments=(("a", expression),), table=table)

    def mutate(
        self,
        kind: MutationKind,
        *,
        predicate: str = "",
        assignments: tuple[tuple[str, str], ...] = (),
        schema: Schema | None = None,
        table: str | None = None,
    ) -> int:
        definition = self.catalog.tables.by_id(table or self.t)
        assert isinstance(definition, TableDef)
        columns = definition.schema if schema is None else schema
        start = StartMutation(
            table=definition.uuid,
            from_version=definition.schema_version,
            kind=kind,
            command=kind.value,
            assignments=assignments,
            predicate=predicate,
            schema=schema,
            next_column_id=1 + max(column.id for column in columns.columns) if schema is not None else 0,
        )
        txn = self.catalog.transactions.open("alter")
        txn.commit([start])
        self.manager.wake(definition.uuid)
        return txn.id

    def mutation(self, entry: int, table: str | None = None) -> Mutation:
        return self.catalog.mutations.get(table or self.t, entry)

    def rows(self, table: str | None = None) -> list[int]:
        """What a reader finds, sorted."""
        snapshot = self.catalog.parts.snapshot(table or self.t)
        changes = by_file(snapshot.deltas)
        found = [
            row for part in snapshot.parts for _, row in self.worker.present(part.file, changes.get(part.file.name, ()))
        ]
        assert len(found) == snapshot.rows
        return sorted(found)

    def erase(self, *positions: tuple[Part, int], table: str | None = None) -> None:
        """Deletes rows of parts of one partition by their positions in the files, knowing all earlier deletes."""
        uuid, partition = table or self.t, positions[0][0].name.partition
        gone: dict[str, set[int]] = {}
        for part, position in positions:
            gone.setdefault(part.file.name, set()).add(position)
        known = by_file(self.catalog.parts.deltas(uuid, partition))
        name = f"erased{len(self.worker.deletes)}.arrow"
        self.worker.deletes[name] = {file: frozenset(rows) for file, rows in gone.items()}
        written = WrittenDelta(
            kind=DeltaKind.CHANGES,
            partition=partition,
            file=DataFile(name=name, size=50, checksum=1),
            targets=tuple(Target(file=file, deleted=len(rows)) for file, rows in gone.items()),
        )
        seen = tuple((file, known[file][-1].change_ts) for file in gone if file in known)
        self.commit(AddDelta(table=uuid, written=written, seen=seen))

    def insert_segment(self, *partitions: str, table: str | None = None, rows: int = 10) -> list[Part]:
        """One segment for each partition, in one commit."""
        return self.commit(
            *(InsertPart(table=table or self.t, written=self.segment(each, rows=rows)) for each in partitions)
        )

    def visible_count(self, table: str | None = None) -> int:
        return len(self.names(table=table))
