"""Observation of a node for its alarms: each room is read once, when the first alarm needs it.

Covers: reads that alarms share. Does not cover: what is wrong (streams.py, tables.py, stores.py, servers.py).
Always holds: the number of reads of the catalog does not depend on the number of tables, only on how much is wrong and
on how many tables have so many parts that a partition may have too many (`TABLES_JUDGED_MAX`); a catalog that does not
answer is read once; what several servers see is reported by one of them, the host.

Tests: tests/unit/introspection/alarms/test_alarms.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar

from tilth.base.errors import UnavailableError
from tilth.base.hybrid import milliseconds
from tilth.catalog import Catalog, InsertPressure, TableVersion
from tilth.control.context.services import Services
from tilth.control.pipe_stats import PipeState
from tilth.ingest import StreamState
from tilth.maintenance import DamagedFile, MutationProgress
from tilth.model.lease import ReaderLease
from tilth.model.offset import IngestGap
from tilth.model.server import COORDINATOR, ServerRecord
from tilth.model.service import ALL_TABLES, ServiceKind, ServiceStats, Switch, SwitchState, switches_in_force
from tilth.model.table import Relation, TableDef
from tilth.model.task import TaskInfo
from tilth.model.txn import LostTxn
from tilth.warehouse import WarehouseInfo, WorkerInfo

T = TypeVar("T")

#: Tables whose parts are counted by partition, those with the most parts first: a read for each.
TABLES_JUDGED_MAX = 1_000


class Observation:
    """State of one node at one time."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.now_ms = services.clock.now_ms()
        self._catalog_error: UnavailableError | None = None

    # --- the catalog: a read each -------------------------------------------------------------------------------------

    @cached_property
    def relations(self) -> Mapping[str, Relation]:
        """Tables, Kafka tables and views, by uuid."""
        return {each.uuid: each for each in self.read(lambda catalog: catalog.tables.all())}

    @cached_property
    def versions(self) -> Mapping[str, TableVersion]:
        """Versions of tables, by uuid."""
        return self.read(lambda catalog: catalog.parts.versions())

    @cached_property
    def open_gaps(self) -> list[IngestGap]:
        return [each for each in self.read(lambda catalog: catalog.offsets.gaps()) if not each.resolution]

    @cached_property
    def readers(self) -> list[ReaderLease]:
        """Leases of readers that have not expired."""
        return [each for each in self.read(lambda catalog: catalog.readers.list()) if each.expires_ms > self.now_ms]

    def unread_since_ms(self, lease: ReaderLease) -> int | None:
        """Return when the first version came that a reader of changes has not read; None: it has read all."""

        def after(catalog: Catalog) -> int | None:
            version = catalog.history.version_at(lease.table, lease.snapshot_ts) or 0
            return catalog.history.time_of(lease.table, version + 1)

        ts = self.read(after)
        return None if ts is None else milliseconds(ts)

    @cached_property
    def pressed(self) -> list[tuple[TableDef, dict[str, InsertPressure]]]:
        """Tables in which INSERTs wait or are refused, with their partitions: a read more for each."""

        return self.read(
            lambda catalog: list(catalog.throttle.crowded(self.tables, self.versions, limit=TABLES_JUDGED_MAX))
        )

    @cached_property
    def lost(self) -> list[LostTxn]:
        return self.read(lambda catalog: catalog.transactions.lost.all())

    @cached_property
    def ended_servers(self) -> list[ServerRecord]:
        """Servers that do not live any more and were not forgotten yet."""
        return [each for each in self.read(lambda catalog: catalog.servers.all()) if not each.lives]

    @cached_property
    def _switches(self) -> Mapping[str, list[Switch]]:
        """Switches by table; ALL_TABLES for those of all."""
        found: dict[str, list[Switch]] = {}
        for switch in self.read(lambda catalog: catalog.services.all()):
            found.setdefault(switch.table, []).append(switch)
        return found

    def read(self, read: Callable[[Catalog], T]) -> T:
        """Return what a read of the catalog returns. Raises UnavailableError, at once if it did not answer before."""
        if self._catalog_error is not None:
            raise self._catalog_error
        try:
            return read(self.services.catalog)
        except UnavailableError as error:
            self._catalog_error = error
            raise

    # --- rooms of this server: from their memory ----------------------------------------------------------------------

    @cached_property
    def streams(self) -> list[StreamState]:
        """Kafka tables that this server hosts."""
        return self.services.consume.streams()

    @cached_property
    def pipes(self) -> list[PipeState]:
        """Pipes of the tables that this server hosts."""
        return self.services.pipes.states()

    @cached_property
    def failing(self) -> list[ServiceStats]:
        """Services of maintenance that fail."""
        return self.services.maintenance.failing()

    @cached_property
    def mutations(self) -> list[MutationProgress]:
        return self.services.maintenance.mutations()

    @cached_property
    def damaged(self) -> list[DamagedFile]:
        """Damaged files of the tables that this server hosts."""
        return [
            each for each in self.services.damage.all() if each.table in self.relations and self.is_mine(each.table)
        ]

    @cached_property
    def workers(self) -> list[WorkerInfo]:
        return self.services.dispatcher.workers()

    @cached_property
    def warehouses(self) -> list[WarehouseInfo]:
        return self.services.dispatcher.warehouses()

    @cached_property
    def tasks(self) -> list[TaskInfo]:
        return self.services.dispatcher.tasks()

    @cached_property
    def servers(self) -> tuple[ServerRecord, ...]:
        """Servers that live; empty where this one is alone and keeps no record."""
        return self.services.peers.servers()

    # --- questions that alarms share ----------------------------------------------------------------------------------

    @cached_property
    def tables(self) -> list[TableDef]:
        """Tables that store rows."""
        return [each for each in self.relations.values() if isinstance(each, TableDef)]

    def is_mine(self, hosted: str = COORDINATOR) -> bool:
        """Return whether this server reports about a table, by its uuid, or about what concerns all: it hosts them.
        While nobody hosts them, the first of the servers reports.
        """
        names = [each.name for each in self.servers]
        host = self.services.peers.hosts(hosted) or min(names, default=self.services.server)
        return len(names) <= 1 or host == self.services.server

    def is_stopped(self, table: str, service: ServiceKind) -> bool:
        """Return whether somebody has stopped the service of the table on purpose."""
        switches = (*self._switches.get(ALL_TABLES, ()), *self._switches.get(table, ()))
        switch = switches_in_force(switches, now_ms=self.now_ms).get(service)
        return switch is not None and switch.state is not SwitchState.RUNNING
