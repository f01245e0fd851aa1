"""The rooms below, each with the methods that statements call, and all of them together.

Covers: protocols, which the rooms' own classes satisfy and tests fake. Does not cover: who makes them (node.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tilth.base.clock import Clock
from tilth.base.ids import IdSource
from tilth.base.pressure import MemoryGate
from tilth.catalog import Catalog
from tilth.control.pipe_stats import PipeState, PipeStats
from tilth.ingest import ConsumeEvent, ConsumerStats, OffsetReset, ReplayReport, RunReplay, StreamState
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
from tilth.membership.peers import NoPeers, Peers
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceStats
from tilth.model.table import TableDef
from tilth.model.task import TaskInfo, TaskKind, TaskSpec
from tilth.model.warehouse import Warehouse
from tilth.storage import NamedRoots, StoreRoot
from tilth.warehouse import Handle, TaskProgress, TaskResult, WarehouseInfo, WarehouseStats, WorkerInfo


class Dispatch(Protocol):
    """The dispatcher of the warehouse room."""

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
    ) -> TaskSpec: ...

    def run(self, spec: TaskSpec) -> TaskResult: ...

    def run_until(
        self, spec: TaskSpec, is_enough: Callable[[], bool], *, poll_seconds: float
    ) -> TaskResult | Handle: ...

    def tasks(self) -> list[TaskInfo]: ...

    def workers(self) -> list[WorkerInfo]: ...

    def warehouses(self) -> list[WarehouseInfo]: ...

    def tasks_at_once(self, warehouse: str) -> int: ...

    def warehouse_named(self, name: str) -> str: ...

    def declare(self, warehouses: Iterable[Warehouse]) -> None: ...

    def keep_drained(self, drained: Mapping[str, str]) -> None: ...

    def stats(self) -> WarehouseStats: ...


class Consume(Protocol):
    """The consume manager of the ingest room."""

    def wake(self, kafka_uuid: str | None = None) -> None: ...

    def start_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None: ...

    def stop_table(
        self, kafka_uuid: str, *, because: str = "", until_ms: int = 0, query_id: str = "", client: str = ""
    ) -> None: ...

    def wait_stopped(self, kafka_uuid: str) -> None: ...

    def restart(self, kafka_uuid: str) -> None: ...

    def adopt_settings(self, kafka_uuid: str) -> None: ...

    def reset_offsets(self, kafka_uuid: str, reset: OffsetReset) -> dict[TopicPartition, int]: ...

    def dead_letters(self, kafka_uuid: str) -> TableDef: ...

    def replay(self, kafka_uuid: str, *, predicate: str, run: RunReplay) -> ReplayReport: ...

    def stats(self) -> list[ServiceStats]: ...

    def streams(self) -> list[StreamState]: ...

    def kafka_tables(self) -> list[ConsumerStats]: ...

    def log(self) -> list[ConsumeEvent]: ...


class Maintenance(Protocol):
    """The maintenance manager."""

    def wake(self, table_uuid: str | None = None) -> None: ...

    def wait_refreshed(self) -> None: ...

    def scanned(self, table_uuids: Iterable[str]) -> None: ...

    def optimize(self, table_uuid: str, partition: str | None = None, final: bool = False) -> OptimizeReport: ...

    def flush_now(self, table_uuid: str, partition: str | None = None) -> FlushReport: ...

    def gc_now(self, table_uuid: str, partition: str | None = None, *, is_forced: bool = False) -> GcReport: ...

    def scrub_now(self, table_uuid: str) -> list[ScrubRow]: ...

    def explain_gc(self, table_uuid: str) -> list[GcRow]: ...

    def cancel_partition(self, table_uuid: str, partition: str | None) -> int: ...

    def mutations(self, table_uuid: str | None = None) -> list[MutationProgress]: ...

    def explain_merge(self, table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]: ...

    def stats(self, *, table: str | None = None) -> list[ServiceStats]: ...

    def failing(self) -> list[ServiceStats]: ...

    def switched(self) -> list[ServiceStats]: ...

    def numbers(self) -> MaintenanceNumbers: ...

    def ops(self, *, table: str | None = None, runnable_only: bool = False) -> list[OpRow]: ...

    def choices(self) -> list[ChoiceRow]: ...


class PipesRoom(Protocol):
    """The pipes of the tables that this server hosts."""

    def wake(self, table_uuid: str | None = None) -> None: ...

    def wait_stopped(self, table_uuid: str) -> None: ...

    def stats(self) -> list[ServiceStats]: ...

    def states(self) -> list[PipeState]: ...

    def numbers(self) -> PipeStats: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """One node's rooms and folders, as its engine gets them."""

    clock: Clock
    ids: IdSource
    catalog: Catalog
    dispatcher: Dispatch
    consume: Consume
    maintenance: Maintenance
    #: The storages, and which table lies in which.
    root: NamedRoots
    #: Root of the backup files.
    backups: StoreRoot
    #: This server's name.
    server: str
    #: The folder, which is there, for large results on their way to clients; empty: they are collected in memory.
    results: str = ""
    #: Refuses writes when there is little memory left.
    memory: MemoryGate
    #: Files of tables that cannot be read.
    damage: DamageBook
    #: The other servers of the catalog.
    peers: Peers = field(default_factory=NoPeers)
    #: `True` for a table, by its uuid, whose background services are this server's.
    hosts: Callable[[str], bool] = lambda uuid: True
    #: Progress of a task in Spark, by its id.
    progress: Callable[[str], TaskProgress] = lambda task_id: TaskProgress()
