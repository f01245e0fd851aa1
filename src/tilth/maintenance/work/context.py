"""The manager's dependencies for all ops of all tables, and those for the ops of one table.

Tests: tests/unit/maintenance/deltas/test_op.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.rand import Rng
from tilth.catalog import Catalog, TableLeases, TxnHandle
from tilth.maintenance.counters import MaintenanceCounters
from tilth.maintenance.settings import ManagerSettings
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.collection_holds import CollectionHolds
from tilth.maintenance.work.first_reads import FirstReads
from tilth.maintenance.work.noted_copies import NotedCopies
from tilth.maintenance.work.procedure import NewRebaser
from tilth.maintenance.work.slots import RewriteSlots
from tilth.storage import Roots, output_of
from tilth.warehouse import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """Dependencies of all ops of one server."""

    clock: Clock
    catalog: Catalog
    dispatcher: Dispatcher
    #: The folder below which the tables' folders are.
    root: Roots
    rng: Rng
    settings: ManagerSettings
    table_leases: TableLeases
    counters: MaintenanceCounters
    rewrite_slots: RewriteSlots
    holds: CollectionHolds
    noted_copies: NotedCopies
    first_reads: FirstReads
    #: Makes what rebases changes of parts that are made anew meanwhile.
    new_rebaser: NewRebaser
    #: Takes an op's name, its table and the reason why something is left alone.
    refused: Callable[[str, str, str], None]
    #: Number of tables, and number of workers that write.
    table_count: Callable[[], int]
    workers: Callable[[], int]
    #: Percent of the memory in use where that presses, else 0.
    used_percent: Callable[[], float]


@dataclass(frozen=True, slots=True)
class TableContext:
    """Dependencies of the ops of one table."""

    server: ServerContext
    watch: TableWatch

    @property
    def clock(self) -> Clock:
        return self.server.clock

    @property
    def catalog(self) -> Catalog:
        return self.server.catalog

    @property
    def uuid(self) -> str:
        return self.watch.uuid

    @property
    def merge_task_bytes(self) -> int:
        """Bytes for each task of a merge or a MAJOR_DELTA: the table's setting, or the server's."""
        return self.watch.settings.merge.task_bytes or self.server.settings.merge_task_bytes

    def begin(self, verb: str, *, tasks: int = 0) -> TxnHandle:
        """Begin a transaction that carries the table's fence; its tasks may write files of the table.

        Raises FencedError when another server has taken the table over.
        """
        self.watch.explain_change()
        return self.server.catalog.transactions.open(
            f"{verb} {self.watch.name}",
            outputs=(output_of(self.watch.definition, self.server.root, tasks=tasks),) if tasks else (),
            fences=(self.server.table_leases.fence(self.watch.uuid),),
            has_tasks=tasks > 0,
        )
