"""A SQL engine over a catalog in memory, with managers and workers that only write down what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType

import msgspec
import pyarrow as pa
import pytest

from tests.consumer_rows import NEW_CONSUMER
from tilth.base.clock import Clock
from tilth.base.errors import NotFoundError, TilthError, UnavailableError
from tilth.base.ids import IdSource
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryGate
from tilth.base.rand import new_rng
from tilth.base.sources import GivenSettings
from tilth.catalog import Catalog, KeyValue, MemoryKV
from tilth.control.context.rooms import Rooms
from tilth.ingest import (
    ConsumeEvent,
    ConsumeEventKind,
    ConsumerStats,
    NoDeadLettersError,
    Offset,
    OffsetReset,
    PartitionEnd,
    ReplayReport,
    RunReplay,
    StreamState,
    TopicPartitionStats,
)
from tilth.maintenance import (
    ChoiceRow,
    DamageBook,
    FlushReport,
    GcReport,
    GcRow,
    MaintenanceNumbers,
    MergeCandidateRow,
    MutationProgress,
    OpRow,
    OptimizeReport,
    ScrubRow,
)
from tilth.maintenance.kinds import OpKind, OpStats
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceKind, ServiceState, ServiceStats, SwitchState
from tilth.model.table import Expression, TableDef
from tilth.model.task import Cost, TaskInfo, TaskKind, TaskSpec, TaskState
from tilth.model.warehouse import Warehouse
from tilth.query.results.answer import Answer
from tilth.query.results.spark import to_stream
from tilth.query.snapshots.protocol import (
    CheckedDefault,
    CheckedExpressions,
    CheckTask,
    ExpressionsTask,
    NamesTask,
    WorkerTask,
)
from tilth.statements.engine import SqlEngine
from tilth.storage import NamedRoots, StoreRoot, arrow_type, clean_transaction, local_root
from tilth.testing import ManualClock
from tilth.warehouse import (
    Handle,
    TaskResult,
    WarehouseInfo,
    WarehouseStats,
    WorkerInfo,
    known_name,
    warehouse_configs,
)
from tilth.warehouse.stats import WorkerLoad


class FakeDispatch:
    """Answers tasks by a function of the test's; without one there is no worker."""

    def __init__(self) -> None:
        self.specs: list[TaskSpec] = []
        self.answer: Callable[[TaskSpec], bytes] | None = None
        self.configs = warehouse_configs([])
        self.drained: dict[str, str] = {}

    def tasks_at_once(self, warehouse: str) -> int:
        return 1

    def new_spec(
        self,
        kind: TaskKind,
        *,
        warehouse: str,
        table: str,
        payload: bytes,
        txn: int = 0,
        input_bytes: int = 0,
        rows: int = 0,
    ) -> TaskSpec:
        return TaskSpec(id="t1", kind=kind, warehouse=warehouse, table=table, txn=txn, estimate=Cost(), payload=payload)

    def run(self, spec: TaskSpec) -> TaskResult:
        self.specs.append(spec)
        if self.answer is None:
            raise UnavailableError("no worker is alive")
        return TaskResult(payload=self.answer(spec))

    def run_until(self, spec: TaskSpec, is_enough: Callable[[], bool], *, poll_seconds: float) -> TaskResult | Handle:
        return self.run(spec)

    def tasks(self) -> list[TaskInfo]:
        return [
            TaskInfo(
                id="t1",
                kind=TaskKind.MERGE,
                warehouse="write",
                worker="w1",
                table="default.t",
                txn=7,
                state=TaskState.DONE,
                reason="the only one",
                created_ms=1_000,
                started_ms=2_000,
                ended_ms=0,
                estimate=Cost(seconds=1.5),
                actual=Cost(input_bytes=10),
            )
        ]

    def workers(self) -> list[WorkerInfo]:
        return [
            WorkerInfo(
                name="w1",
                warehouses=("default", "write"),
                state="alive",
                reason="",
                last_answer_ms=1_000,
                running=1,
                resident=0,
                memory_bytes=1 << 30,
                load=WorkerLoad(),
            )
        ]

    def warehouses(self) -> list[WarehouseInfo]:
        return [WarehouseInfo(name=name, workers=1, slots=4, running=1, waiting=0, resident=0) for name in self.configs]

    def warehouse_named(self, name: str) -> str:
        named = known_name(name, self.configs)
        if named not in self.configs:
            raise NotFoundError.coded("WAREHOUSE_NOT_FOUND", "no such warehouse", warehouse=name)
        return named

    def declare(self, warehouses: Iterable[Warehouse]) -> None:
        self.configs = warehouse_configs(warehouses)

    def keep_drained(self, drained: Mapping[str, str]) -> None:
        self.drained = dict(drained)

    def stats(self) -> WarehouseStats:
        return WarehouseStats(done=3, failed=0, cancelled=0, lost=0, workers=(), warehouses=())


class FakeConsume:
    """Writes down the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        #: None: as where the Kafka table has never read a message.
        self.dead: TableDef | None = None
        self.adopting_fails: TilthError | None = None
        self.states = [
            StreamState(
                database="default",
                table="k",
                uuid="u1",
                lifecycle=ServiceState.FAILED,
                reason="the broker does not answer",
                failures=3,
            )
        ]

    def wake(self, kafka_uuid: str | None = None) -> None:
        self.calls.append(("wake", kafka_uuid))

    def start_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None:
        self.calls.append(("start", kafka_uuid))

    def stop_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None:
        self.calls.append(("stop", kafka_uuid, because, until_ms))

    def wait_stopped(self, kafka_uuid: str) -> None:
        self.calls.append(("wait stopped", kafka_uuid))

    def restart(self, kafka_uuid: str) -> None:
        self.calls.append(("restart", kafka_uuid))

    def adopt_settings(self, kafka_uuid: str) -> None:
        self.calls.append(("adopt", kafka_uuid))
        if self.adopting_fails is not None:
            raise self.adopting_fails

    def reset_offsets(self, kafka_uuid: str, reset: OffsetReset) -> dict[TopicPartition, int]:
        self.calls.append(("reset", kafka_uuid, reset))
        return {TopicPartition("topic", 0): 42}

    def dead_letters(self, kafka_uuid: str) -> TableDef:
        if self.dead is None:
            raise NoDeadLettersError(table=kafka_uuid)
        return self.dead

    def replay(self, kafka_uuid: str, *, predicate: str, run: RunReplay) -> ReplayReport:
        self.calls.append(("replay", kafka_uuid, predicate))
        return ReplayReport(letters=3, rows=4, again=1, transactions=1, left={"no view": 2})

    def stats(self) -> list[ServiceStats]:
        return [
            ServiceStats(
                database="default",
                table="k",
                uuid="u1",
                service=ServiceKind.CONSUME,
                switch=SwitchState.RUNNING,
                because="",
                state="failed",
                reason="the broker does not answer",
                wakeups=3,
                last_wakeup_ms=1_000,
                running_tasks=0,
                failures=2,
                last_exception="no broker",
                last_exception_ms=900,
                server="s1",
            )
        ]

    def streams(self) -> list[StreamState]:
        return self.states

    def kafka_tables(self) -> list[ConsumerStats]:
        return [
            replace(
                NEW_CONSUMER,
                partitions=(
                    TopicPartitionStats(
                        topic_partition=TopicPartition("topic", 0),
                        offset=5,
                        end=PartitionEnd(stable=Offset(7), high=Offset(9)),
                    ),
                ),
                rounds=1,
                messages=5,
                rows=5,
                bytes=100,
                last_commit_ms=1_000,
            )
        ]

    def log(self) -> list[ConsumeEvent]:
        return [
            ConsumeEvent(
                kind=ConsumeEventKind.COMMIT, at_ms=1_000, database="default", table="k", uuid="u1", consumer=0, txn=7
            )
        ]


class FakeMaintenance:
    """Writes down the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.progress: list[MutationProgress] = []
        self.failed: list[ServiceStats] = []

    def wake(self, table_uuid: str | None = None) -> None:
        self.calls.append(("wake", table_uuid))

    def wait_refreshed(self) -> None:
        self.calls.append(("wait refreshed",))

    def scanned(self, table_uuids: Iterable[str]) -> None:
        self.calls.append(("scanned", *table_uuids))

    def optimize(self, table_uuid: str, partition: str | None = None, final: bool = False) -> OptimizeReport:
        self.calls.append(("optimize", table_uuid, partition, final))
        return OptimizeReport(
            partitions=1, merges=1, parts_before=3, parts_after=1, rows_merged=9, bytes_read=100, seconds=0.5
        )

    def flush_now(self, table_uuid: str, partition: str | None = None) -> FlushReport:
        is_first = ("flush_now", table_uuid, partition) not in self.calls
        self.calls.append(("flush_now", table_uuid, partition))
        return FlushReport(
            segments=2 * is_first, parts=int(is_first), rows=3 * is_first, bytes=1024 * is_first, seconds=0.1
        )

    def scrub_now(self, table_uuid: str) -> list[ScrubRow]:
        self.calls.append(("scrub_now", table_uuid))
        return [ScrubRow(replica=0, root="/r", files=2, bytes=9, wrong=1, left=0, is_ok=True, detail="a checksum")]

    def gc_now(self, table_uuid: str, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        self.calls.append(("gc", table_uuid, partition, is_forced))
        return GcReport(moved=2, removed=1, removed_bytes=2048)

    def stats(self, *, table: str | None = None) -> list[ServiceStats]:
        return []

    def failing(self) -> list[ServiceStats]:
        return self.failed

    def switched(self) -> list[ServiceStats]:
        return []

    def cancel_partition(self, table_uuid: str, partition: str | None) -> int:
        self.calls.append(("cancel", table_uuid, partition))
        return 0

    def mutations(self, table_uuid: str | None = None) -> list[MutationProgress]:
        return [each for each in self.progress if table_uuid in (None, each.uuid)]

    def explain_merge(self, table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]:
        self.calls.append(("explain", table_uuid, policy))
        return [
            MergeCandidateRow(
                partition="all",
                parts=3,
                rows=9,
                bytes=100,
                score=0.5,
                state="waiting",
                reason="too few parts",
                next_attempt_ms=1_000,
            )
        ]

    def explain_gc(self, table_uuid: str) -> list[GcRow]:
        return []

    def numbers(self) -> MaintenanceNumbers:
        numbers = MaintenanceNumbers()
        numbers.ops[OpKind.MERGE].ended = 3
        return numbers

    def ops(self, *, table: str | None = None, runnable_only: bool = False) -> list[OpRow]:
        return [
            OpRow(
                name="MERGE(default.t)",
                kind=OpKind.MERGE,
                database="default",
                table="t",
                uuid="u2",
                running=0,
                stats=OpStats(is_runnable=True, perf_improvement=0.5, about="3 parts"),
            )
        ]

    def choices(self) -> list[ChoiceRow]:
        return [ChoiceRow(at_ms=1_000, op="MERGE(default.t)", table="default.t", rule="read_gain", reason="3 parts")]


def answer_view_tasks(kafka_name: tuple[str, ...]) -> Callable[[TaskSpec], bytes]:
    """A worker for CREATE MATERIALIZED VIEW: the SELECT reads that Kafka table, and fits."""

    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        if isinstance(task, NamesTask):
            return msgspec.msgpack.encode([kafka_name])
        assert isinstance(task, CheckTask)
        return msgspec.msgpack.encode([(column.name, column.id) for column in task.target.schema.columns])

    return answer


def answer_defaults(
    values: Mapping[str, object], *, computed: Iterable[str] = (), over: Mapping[str, Expression] = MappingProxyType({})
) -> Callable[[TaskSpec], bytes]:
    """A worker for defaults that are no literals: their values by the text of the expression. `over`: by their text
    those over other columns.
    """

    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        assert isinstance(task, ExpressionsTask)
        found = []
        for name in task.defaults:
            column = task.schema.find_any(name)
            assert column is not None
            assert column.default is not None
            if column.default in over:
                found.append(CheckedDefault(column=name, expression=over[column.default], may_be_null=True))
                continue
            value = pa.table({"v": pa.array([values[column.default]], arrow_type(column.type))})
            is_computed = column.default in computed
            found.append(CheckedDefault(column=name, value=to_stream(value), is_computed=is_computed))
        return msgspec.msgpack.encode(
            CheckedExpressions(assignments=task.assignments, predicate=task.predicate, defaults=tuple(found))
        )

    return answer


def fake_rooms(clock: Clock, ids: IdSource, catalog: Catalog, *, root: StoreRoot) -> Rooms:
    """Rooms around a real catalog; what else runs in a node is faked."""
    roots = NamedRoots(clock, root, catalog.storage_of)
    return Rooms(
        clock=clock,
        ids=ids,
        catalog=catalog,
        dispatcher=FakeDispatch(),
        consume=FakeConsume(),
        maintenance=FakeMaintenance(),
        root=roots,
        backups=local_root(Path(root.uri).parent / "backups"),
        server="s1",
        memory=MemoryGate(MemoryReading, new_rng()),
        damage=DamageBook(clock, catalog, roots),
    )


class SqlWorld:
    """The engine and everything around it."""

    def __init__(
        self,
        root: Path,
        *,
        backups: StoreRoot | None = None,
        kv: KeyValue | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = ManualClock()
        self._ids = count(1)
        self.catalog = Catalog(
            kv or MemoryKV(),
            self.clock,
            "s1",
            self.new_id,
            is_checking=True,
            sweep=partial(clean_transaction, local_root(root)),
        )
        self.dispatch = FakeDispatch()
        self.consume = FakeConsume()
        self.maintenance = FakeMaintenance()
        rooms = fake_rooms(self.clock, self.new_id, self.catalog, root=local_root(root))
        self.engine = SqlEngine(
            replace(
                rooms,
                dispatcher=self.dispatch,
                consume=self.consume,
                maintenance=self.maintenance,
                backups=backups or rooms.backups,
            ),
            settings=GivenSettings({"warehouse.query-slots": "3", **(settings or {})}),
        )

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def run(self, text: str, *, database: str = "default", settings: Mapping[str, str] | None = None) -> Answer:
        return self.engine.run(text, database=database, settings=settings)

    def rows(self, text: str, *, database: str = "default") -> list[tuple[object, ...]]:
        """The answer's rows as tuples."""
        table = self.run(text, database=database).table
        return [tuple(column[row].as_py() for column in table.columns) for row in range(table.num_rows)]


def table_of(world: SqlWorld, name: str = "t") -> TableDef:
    """The table of that name in `default`."""
    found = world.catalog.tables.get("default", name)
    assert isinstance(found, TableDef)
    return found


def refused(world: SqlWorld, text: str, settings: Mapping[str, str] | None = None) -> TilthError:
    """The error that the statement ends with."""
    with pytest.raises(TilthError) as caught:
        world.run(text, settings=settings)
    return caught.value
