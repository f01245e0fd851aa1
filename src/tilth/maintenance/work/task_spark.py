"""Rebases as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages and their runner. Does not cover: which rebases are tasks, the numbers of their files (rebases.py),
the bytes (tilth.storage).
Always holds: a file is on the disk before its name is reported; each Spark task numbers its files from 0.

Tests: tests/unit/maintenance/work/test_rebases.py, tests/integration/maintenance/test_rebases_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from tilth.model.delta import PartSource, WrittenDelta
from tilth.model.part import DataFile
from tilth.model.task import Cost
from tilth.storage import MAP_ROW_BYTES, PartRebaser, TableLayout
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_tasks


class RebaseOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of sources that are to be written as changes of one part that was made of them."""

    #: Layout of the part.
    layout: TableLayout
    partition: str
    #: File of the part, and the number of its rows.
    file: DataFile
    rows: int
    #: Sources that have changed, with only their new deltas and the columns that these have values of, and the number
    #: of each in the part's row map.
    changed: tuple[tuple[int, PartSource], ...]
    #: Changes of the part that were written before, in the same transaction.
    before: tuple[WrittenDelta, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return MAP_ROW_BYTES * self.rows + sum(delta.bytes for _, source in self.changed for delta in source.deltas)


class RebaseTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to rebase changes of one table."""

    orders: tuple[RebaseOrder, ...]
    txn: int
    #: The first of the numbers that the Spark tasks give their files, and the number of these tasks, at most.
    first_task: int
    tasks: int


class RebaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of rebases: what was written for each order; None: nothing is left to change."""

    written: tuple[WrittenDelta | None, ...]


def rebase_runner() -> Runner:
    """The runner of TaskKind.REBASE: several Spark tasks, each for some of the parts."""
    return _rebase


def _rebase(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=RebaseTask)
    shares = shares_of([order.size for order in task.orders], task.tasks)
    write = partial(_write, task, shares)
    results = run_in_tasks(context.session, write, tuple[WrittenDelta | None, ...], tasks=len(shares))
    context.raise_if_cancelled()
    written: list[WrittenDelta | None] = [None] * len(task.orders)
    for share, found in zip(shares, results, strict=True):
        for index, delta in zip(share, found, strict=True):
            written[index] = delta
    cost = Cost(
        input_bytes=sum(order.size for order in task.orders),
        output_bytes=sum(delta.file.size for delta in written if delta is not None),
    )
    return TaskResult(payload=msgspec.msgpack.encode(RebaseFacts(written=tuple(written))), actual=cost)


def shares_of(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Return the indexes of these sizes in so many shares at most, none empty: the largest come first, each into the
    share that is the smallest by then.
    """
    shares: list[list[int]] = [[] for _ in range(min(tasks, len(sizes)))]
    sums = [0] * len(shares)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        least = min(range(len(shares)), key=lambda share: (bool(shares[share]), sums[share]))
        shares[least].append(index)
        sums[least] += sizes[index]
    return shares


def _write(
    work: RebaseTask, shares: Sequence[Sequence[int]], *, task: int, attempt: int
) -> tuple[WrittenDelta | None, ...]:
    written: list[WrittenDelta | None] = []
    for index in shares[task]:
        order = work.orders[index]
        rebaser = PartRebaser(order.layout, order.partition, order.file, before=order.before)
        n = sum(delta is not None for delta in written)
        number = work.first_task + task
        written.append(rebaser.rebase_some(dict(order.changed), txn=work.txn, task=number, n=n, attempt=attempt))
    return tuple(written)
