"""OPTIMIZE: the flush and the merges of a table at a user's word, waited for.

Tests: tests/unit/maintenance/flush/test_op.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tilth.base.cancel import carry
from tilth.base.errors import NotFoundError
from tilth.catalog import Catalog
from tilth.maintenance.flush.commands import DamagedSegmentsError
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.merge.policy.candidates import Effort
from tilth.maintenance.work.context import ServerContext

#: Partitions at once; the warehouse's slots bound it further.
OPTIMIZE_THREADS = 4
OPTIMIZE_WAIT_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """Report of OPTIMIZE."""

    partitions: int
    merges: int
    parts_before: int
    parts_after: int
    rows_merged: int
    bytes_read: int
    seconds: float
    #: Reason why more than one part is left, if a mutation is the cause; empty otherwise.
    note: str = ""


def optimize_table(server: ServerContext, table: TableOps, partition: str | None, *, is_final: bool) -> OptimizeReport:
    """Make parts of the segments of the partition, or of all, and merge the parts within the limits.

    Raises NotFoundError for a partition without parts, and what a flush or a merge failed with.
    """
    clock, catalog, watch, command = server.clock, server.catalog, table.watch, table.command()
    started = clock.monotonic()
    known = catalog.parts.partitions(watch.uuid)
    if partition is not None and partition not in known:
        raise NotFoundError("no such partition", table=watch.name, partition=partition)
    partitions = known if partition is None else [partition]
    effort = Effort.FINAL if is_final else Effort.AGGRESSIVE
    deadline_ms = clock.now_ms() + OPTIMIZE_WAIT_MS
    before = _count_parts(catalog, watch.uuid, partitions)
    merges: list[tuple[int, int, int]] = []
    notes: list[str] = []
    try:
        command.flushes.flush_now(partition)
    except DamagedSegmentsError as error:
        # All others are flushed, and merges go around damaged parts anyway.
        notes.append(str(error))

    def merged(name: str) -> list[tuple[int, int, int]]:
        return command.merges.optimize(name, effort, deadline_ms=deadline_ms)

    if partitions:
        with ThreadPoolExecutor(min(OPTIMIZE_THREADS, len(partitions)), thread_name_prefix="tilth-optimize") as pool:
            for done in pool.map(carry(merged), partitions):
                merges += done
    return OptimizeReport(
        partitions=len(partitions),
        merges=len(merges),
        parts_before=before,
        parts_after=_count_parts(catalog, watch.uuid, partitions),
        rows_merged=sum(rows for _, rows, _ in merges),
        bytes_read=sum(size for _, _, size in merges),
        seconds=clock.monotonic() - started,
        note="; ".join(filter(None, [*notes, command.merges.separated(partitions)])),
    )


def _count_parts(catalog: Catalog, uuid: str, partitions: list[str]) -> int:
    """Count visible parts and segments, the key ranges of a merge as one."""
    shown = (part for partition in partitions for part in catalog.parts.visible(uuid, partition))
    return len({(part.name.partition, part.cut) if part.cut else part.name for part in shown})
