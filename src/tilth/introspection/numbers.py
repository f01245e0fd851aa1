"""Numbers of tables and disks for metrics, by table where there are few.

Covers: what the catalog and the maintenance manager know of each table that this server hosts; disks that it and its
workers write to. Does not cover: consumers and services, whose rooms count (server/metrics.py).
Always holds: with more tables than the bound no table has numbers, and their count is one; a table is counted by its
host alone; two reads of the catalog, however many tables there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilth.base.hybrid import milliseconds
from tilth.base.metrics import counter, gauge
from tilth.catalog import TableVersion
from tilth.control.context.services import Services
from tilth.introspection.alarms.observation import Observation
from tilth.introspection.alarms.stores import Disk, disks
from tilth.model.table import TableDef

_TABLE = ("database", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNumbers:
    """Numbers of one table. A frozen snapshot."""

    database: str
    table: str
    parts: int = gauge("tilth_table_parts", "Visible parts.", labels=_TABLE)
    segments: int = gauge(
        "tilth_table_segments", "Visible row segments: rows that are not sorted into parts yet.", labels=_TABLE
    )
    inserted: int = counter("tilth_table_inserted_rows_total", "Total rows of all inserts and rounds.", labels=_TABLE)
    removed: int = counter(
        "tilth_table_removed_rows_total",
        "Total rows deleted, dropped, or left out by merges and rewrites.",
        labels=_TABLE,
    )
    last_commit: float = gauge(
        "tilth_table_last_commit_timestamp_seconds",
        "When the last commit was made, in seconds since 1970, also that of a merge; 0: there was none.",
        labels=_TABLE,
    )
    waiting: int = gauge(
        "tilth_table_waiting_ops", "Kinds of maintenance that the table has work for, running or not.", labels=_TABLE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNumbers:
    """Numbers of one server. A frozen snapshot."""

    hosted: int = gauge("tilth_tables_hosted", "Tables with rows that this server hosts.")
    left_out: int = gauge(
        "tilth_metrics_tables_left_out",
        "Hosted tables without series of their own (tilth_table_*), because they are more than "
        "server.metrics-tables-max; 0: none.",
    )
    tables: tuple[TableNumbers, ...] = ()
    disks: tuple[Disk, ...] = ()


def server_numbers(services: Services, tables_max: int) -> ServerNumbers:
    """Return the numbers; raises UnavailableError while the catalog is away."""
    seen = Observation(services)
    hosted = [table for table in seen.tables if seen.is_mine(table.uuid)]
    is_few = len(hosted) <= tables_max
    return ServerNumbers(
        hosted=len(hosted),
        left_out=0 if is_few else len(hosted),
        tables=tuple(_numbers_of_tables(seen, hosted)) if is_few and hosted else (),
        disks=tuple(disks(seen)),
    )


def _numbers_of_tables(seen: Observation, hosted: Sequence[TableDef]) -> Iterator[TableNumbers]:
    waiting = Counter(op.uuid for op in seen.services.maintenance.ops(runnable_only=True))
    for table in hosted:
        # A table without a commit has no version.
        version = seen.versions.get(table.uuid, TableVersion())
        yield TableNumbers(
            database=table.database,
            table=table.name,
            parts=version.parts,
            segments=version.segments,
            inserted=version.inserted_rows,
            removed=version.removed_rows,
            last_commit=milliseconds(version.last_commit_ts) / 1000,
            waiting=waiting[table.uuid],
        )
