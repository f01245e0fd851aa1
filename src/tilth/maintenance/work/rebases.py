"""Changes that came to the sources of work while its files were written: small ones are rebased by the server, large
ones by a task of the table's warehouse.

Rule: docs/design/0004-deltas-and-rebase.md#rebase.

Covers: outputs with what has arrived for them, the choice, the numbers of the tasks' files, tasks that are lost. Does
not cover: the commit and its rounds (attempt.py), what runs in Spark (task_spark.py), the bytes (tilth.storage).
Always holds: changes of one part are all from here or all from tasks, and the names of their files are in the order of
the rounds, because changes of one commit apply in that order; no two tasks write a file of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from tilth.base.errors import UnavailableError
from tilth.base.logs import Log
from tilth.base.units import MIB
from tilth.catalog import TxnHandle
from tilth.maintenance.table.sources import newer
from tilth.maintenance.work.procedure import Input, Job, NewRebaser, Output, Rebaser
from tilth.maintenance.work.task_spark import RebaseFacts, RebaseOrder, RebaseTask
from tilth.model.delta import Delta, PartSource, WrittenDelta, seen_of
from tilth.model.part import WrittenPart
from tilth.model.table import Schema
from tilth.storage import MAP_ROW_BYTES
from tilth.warehouse import SparkRestartingError, TaskLostError, TaskResult, TaskStalledError

#: Bytes of row map and changes up to which a server rebases the changes of one part itself: a Spark job is slower
#: then.
HERE_BYTES_MAX = 64 * MIB
#: A job whose input and row map are at most these bytes divided by this number has all of its rebases in the server.
SMALL_SHARE = 8
#: Maximum rounds of one commit. One digit names the changes of a round, so that they apply in the order of rounds.
REBASES_MAX = 10
#: Maximum Spark tasks of one rebase.
TASKS_MAX = 4
#: Maximum rebases of one transaction that are sent again because their task was lost.
LOST_MAX = 2
_SENDS_MAX = REBASES_MAX + LOST_MAX

#: Errors of tasks that may still be writing, and whose work may be sent again.
LOST = (TaskLostError, TaskStalledError, SparkRestartingError)

_log = Log("maintenance")

#: Function that sends a task for these bytes and waits for it.
Run = Callable[[RebaseTask, int], TaskResult]


@dataclass(slots=True, kw_only=True)
class Arrived:
    """Changes that have come to one output meanwhile; more in each round."""

    input: Input
    output: Output
    #: The server's rebaser of this output; None until the server rebases changes of it.
    rebaser: Rebaser | None = None
    #: `True` once the changes were too large for the server.
    is_in_tasks: bool = False
    deltas: list[WrittenDelta] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """Numbers of tasks in the names of the files of one transaction."""

    #: Number above those of the work itself.
    work: int
    #: First number of the first rebase.
    first: int
    #: Numbers for each rebase that is sent; 0: no rebase is a task.
    each: int

    @property
    def all(self) -> int:
        """Number above all others."""
        return self.below(_SENDS_MAX)

    def below(self, sends: int) -> int:
        """Return the number below which all are after so many rebases were sent."""
        return self.first + sends * self.each if sends else self.work


def numbers_of(job: Job) -> TaskNumbers:
    """Return the numbers of a job. Those of its rebases have equally many digits, so that their names are in order.

    A small job has none for rebases: its changes cannot be many, and a removal by name tries all numbers.
    """
    each = min(TASKS_MAX, len(job.inputs))
    if not each or job.input_bytes + MAP_ROW_BYTES * job.rows <= HERE_BYTES_MAX // SMALL_SHARE:
        return TaskNumbers(job.tasks, job.tasks, 0)
    digits = len(str(job.tasks))
    is_long = len(str(job.tasks + _SENDS_MAX * each - 1)) > digits
    return TaskNumbers(job.tasks, 10**digits if is_long else job.tasks, each)


class Rebases:
    """Rebases of one piece of work, whose files are written. Of one thread at a time."""

    def __init__(
        self, txn: TxnHandle, numbers: TaskNumbers, arrived: Sequence[Arrived], new_rebaser: NewRebaser
    ) -> None:
        self._txn = txn
        self._numbers = numbers
        self._arrived = arrived
        self._new_rebaser = new_rebaser
        #: Newest change that is in the files, or was rebased, by the name of the source's file.
        self.seen = dict(seen_of(source for each in arrived for source in each.input.sources))
        self.rounds = 0
        #: Number of tasks that were sent, and of those that were lost.
        self.sends = self._lost = 0

    @property
    def deltas(self) -> list[WrittenDelta]:
        return [delta for each in self._arrived for delta in each.deltas]

    @property
    def partitions(self) -> list[str]:
        return sorted({each.input.partition for each in self._arrived})

    @property
    def outputs(self) -> list[tuple[Input, WrittenPart]]:
        """The parts that were made."""
        return [(each.input, each.output.written) for each in self._arrived if each.output.written is not None]

    def catch_up(self, deltas: Sequence[Delta], run: Run | None) -> None:
        """Rebase those of the partitions' deltas that are newer than what was seen. `run`: sends a task; None: nobody
        may wait for one here, which raises UnavailableError where one is needed.
        """
        # Several outputs may have rows of one source: what is new is new for all of them.
        new = [(each, newer(each.input.sources, self.seen, deltas)) for each in self._arrived]
        orders: list[tuple[Arrived, RebaseOrder]] = []
        for each, sources in new:
            made = each.output.written
            if made is None or not any(source.deltas for source in sources):
                continue
            order = _order(each, made, sources)
            if self._numbers.each and not each.is_in_tasks and order.size > HERE_BYTES_MAX:
                # Changes that were written here would apply behind those that tasks write.
                each.is_in_tasks, each.deltas = True, []
                order = _order(each, made, newer(each.input.sources, dict(seen_of(each.input.sources)), deltas))
            if each.is_in_tasks:
                orders.append((each, order))
            else:
                self._rebase_here(each, made, sources)
        if orders:
            self._rebase_in_tasks(orders, run)
        for _, sources in new:
            self.seen.update((source.file.name, source.change_ts) for source in sources if source.deltas)

    def _rebase_here(self, arrived: Arrived, made: WrittenPart, sources: Sequence[PartSource]) -> None:
        arrived.rebaser = arrived.rebaser or self._new_rebaser(arrived.input, made)
        task, n = arrived.output.task, len(arrived.deltas)
        delta = arrived.rebaser.rebase(sources, txn=self._txn.id, task=task, n=n)
        if delta is not None:
            arrived.deltas.append(delta)

    def _rebase_in_tasks(self, orders: Sequence[tuple[Arrived, RebaseOrder]], run: Run | None) -> None:
        if run is None:
            raise UnavailableError("what has changed meanwhile is too much for a commit that is repeated")
        task = RebaseTask(
            orders=tuple(order for _, order in orders), txn=self._txn.id, first_task=0, tasks=self._numbers.each
        )
        facts = msgspec.msgpack.decode(self._sent(task, run).payload, type=RebaseFacts)
        for (arrived, _), delta in zip(orders, facts.written, strict=True):
            if delta is not None:
                arrived.deltas.append(delta)

    def _sent(self, task: RebaseTask, run: Run) -> TaskResult:
        """Send the task, and again under other numbers where it is lost: the lost one may still be writing."""
        size = sum(order.size for order in task.orders)
        while True:
            first = self._numbers.first + self.sends * self._numbers.each
            self.sends += 1
            self._txn.narrow(self._numbers.below(self.sends))
            self._txn.tasks_began()
            try:
                result = run(msgspec.structs.replace(task, first_task=first), size)
            except LOST as error:
                self._lost += 1
                if self._lost > LOST_MAX:
                    raise
                _log.warning("rebase_lost", cause_id=str(self._txn.id), tries=self._lost, reason=error)
                continue
            if not self._lost:
                self._txn.tasks_ended(may_have_retried=result.may_have_retried)
            return result


def _order(arrived: Arrived, made: WrittenPart, sources: Sequence[PartSource]) -> RebaseOrder:
    return RebaseOrder(
        layout=arrived.input.layout,
        partition=arrived.input.partition,
        file=made.file,
        rows=made.rows,
        changed=tuple((number, _narrowed(source)) for number, source in enumerate(sources) if source.deltas),
        before=tuple(arrived.deltas),
    )


def _narrowed(source: PartSource) -> PartSource:
    """Return the source with only those columns that its deltas have values of: each key range of a merge names each
    source, and wide tables have many columns.
    """
    changed = {column for delta in source.deltas for column in delta.columns}
    columns = tuple(column for column in source.schema.columns if column.id in changed)
    return msgspec.structs.replace(source, schema=Schema(columns=columns))
