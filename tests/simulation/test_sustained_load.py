"""An hour of full ingestion in simulated time: no partition piles up parts, however slow merges are.

Covers: the real manager, its policies and the throttle of rounds, over a catalog in memory. Two cores are shared by the
round that writes and by the merges that run; a merge takes as long as its rows at a given speed. No Spark, no files.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import count

import msgspec
import pytest

from tests.long import cases
from tests.maintenance_world import MaintenanceWorld
from tilth.catalog import Catalog, InsertPart
from tilth.maintenance.copies import task_spark as copies
from tilth.maintenance.one_part.task_spark import MergeFacts, MergeTask
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import TableDef
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.storage import file_name
from tilth.warehouse import Dispatcher, TaskResult

pytestmark = pytest.mark.simulation

STEP = 0.1
CORES = 2.0
#: Core seconds of a row of a round; without merges two cores take 400,000 rows a second.
ROUND_ROW_SECONDS = 5e-6
ROUND_ROWS_MAX = 600_000
ROWS_PER_SECOND = 300_000
#: Seconds of a round and of a merge beside their time on a core.
LATENCY = 0.2
#: Core seconds of a byte that a scrub compares with its checksum.
CHECK_BYTE_SECONDS = 1e-9
PARTITION_ROWS = 5_000_000
ROW_BYTES = 25
SETTINGS = {"old_parts_lifetime": "30", "tablet_history_max_age_sec": "30", "ttl_for_trash_items": "30"}
PARTS_MAX = 20


@dataclass(slots=True)
class Work:
    """A round or a merge under way."""

    rows: int
    core_seconds: float
    cores: float
    latency: float = LATENCY

    @property
    def wanted(self) -> float:
        return 0.0 if self.latency > 0 else self.cores

    @property
    def is_done(self) -> bool:
        return self.latency <= 0 and self.core_seconds <= 0

    def advance(self, share: float) -> None:
        if self.latency > 0:
            self.latency -= STEP
        else:
            self.core_seconds -= self.cores * share * STEP


@dataclass(slots=True)
class Load:
    """One run."""

    merge_row_seconds: float
    world: MaintenanceWorld = field(default_factory=lambda: MaintenanceWorld(threads=4))
    now: float = 0.0
    stored: int = 0
    slowed: set[str] = field(default_factory=set)
    merged: int = 0
    scrubbed: int = 0
    _table: str = ""
    _files: count[int] = field(default_factory=count)
    _round: Work | None = None
    _round_began: float = -1.0
    _next_round: float = 0.0
    _merges: dict[str, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = self.world
        # Invariants are checked by other tests, and take most of the time here.
        world.catalog = Catalog(world.kv, world.clock, "s1", world.new_id)
        world.dispatcher = Dispatcher(world.clock, world.new_id, {"write": [world.worker]}, slots={"write": 4})
        world.manager = world.new_manager()
        world.worker.is_holding = True
        base = world.definition(world.t)
        table = TableDef(
            uuid=world.new_id(),
            database="default",
            name="events",
            schema=base.schema,
            next_column_id=2,
            settings=SETTINGS,
        )
        self._table = world.catalog.tables.create(table).uuid

    def minute(self) -> int:
        """Most parts that a partition had at any time of the next minute."""
        most = 0
        for step in range(round(60 / STEP)):
            self._advance()
            if step % 3 == 0:
                self._maintain()
            most = max([most, *self.world.catalog.parts.counts(self._table).values()])
        return most

    def _advance(self) -> None:
        self._begin_round()
        for task_id, spec in self.world.worker.held.items():
            if task_id not in self._merges:
                self._merges[task_id] = self._work_of(spec)
        works = [*self._merges.values(), *([self._round] if self._round else [])]
        share = min(1.0, CORES / max(CORES, sum(work.wanted for work in works)))
        for work in works:
            work.advance(share)
        if self._round is not None and self._round.is_done:
            self._end_round(self._round)
        ended = [task_id for task_id, work in self._merges.items() if work.is_done]
        for task_id in ended:
            del self._merges[task_id]
            spec = self.world.worker.held.pop(task_id)
            self._end_scrub(spec) if spec.kind is TaskKind.COPY else self._end_merge(spec)
        if ended:
            self._settle()
            self._maintain()
        self.world.clock.advance(STEP)
        self.now += STEP

    def _work_of(self, spec: TaskSpec) -> Work:
        if spec.kind is TaskKind.COPY:
            size = sum(item.file.size for item in msgspec.msgpack.decode(spec.payload, type=copies.CopyTask).items)
            return Work(0, size * CHECK_BYTE_SECONDS, 1.0)
        rows = sum(source.rows for source in msgspec.msgpack.decode(spec.payload, type=MergeTask).sources)
        return Work(rows, rows * self.merge_row_seconds, 1.0)

    def _begin_round(self) -> None:
        if self._round is None and self.now >= self._next_round:
            took = 1.0 if self._round_began < 0 else self.now - self._round_began
            rows = min(ROUND_ROWS_MAX, int(ROWS_PER_SECOND * took))
            self._round, self._round_began = Work(rows, rows * ROUND_ROW_SECONDS, 2.0), self.now

    def _end_round(self, work: Work) -> None:
        """Two tasks write a part each, or two where a partition is full; the next round waits as the throttle says."""
        self._round = None
        updates, partitions = [], set()
        for _ in range(2):
            left = work.rows // 2
            while left:
                partition = str(self.stored // PARTITION_ROWS)
                rows = min(left, PARTITION_ROWS - self.stored % PARTITION_ROWS)
                file = DataFile(name=f"i{next(self._files)}.parquet", size=rows * ROW_BYTES, checksum=1)
                written = WrittenPart(partition=partition, values=(partition,), rows=rows, file=file, ranges={})
                updates.append(InsertPart(table=self._table, written=written))
                partitions.add(partition)
                self.stored += rows
                left -= rows
        self.world.commit(*updates)
        delay = self.world.catalog.throttle.round_delay(self.world.definition(self._table), partitions)
        if delay is not None:
            self.slowed.add(delay.noun)
        self._next_round = self.now + (0.0 if delay is None else delay.milliseconds / 1000)

    def _end_scrub(self, spec: TaskSpec) -> None:
        facts = tuple(copies.CopyFact() for _ in msgspec.msgpack.decode(spec.payload, type=copies.CopyTask).items)
        self._report(spec, msgspec.msgpack.encode(facts))
        self.scrubbed += len(facts)

    def _end_merge(self, spec: TaskSpec) -> None:
        task = msgspec.msgpack.decode(spec.payload, type=MergeTask)
        rows, size = (sum(getattr(source, name) for source in task.sources) for name in ("rows", "bytes"))
        file = DataFile(name=file_name(txn=task.txn, task=0, attempt=0, n=0), size=size, checksum=1)
        written = WrittenPart(partition=task.partition, values=task.values, rows=rows, file=file, ranges={})
        self._report(spec, msgspec.msgpack.encode(MergeFacts(written=(written,), rows_in=rows, bytes_in=size)))
        self.merged += 1

    def _report(self, spec: TaskSpec, payload: bytes) -> None:
        assert self.world.worker.reports is not None
        self.world.worker.reports.finished(spec.id, TaskResult(payload=payload, actual=Cost(seconds=1.0)))

    def _maintain(self) -> None:
        for _ in range(10):
            if self.world.manager.step().op_name is None:
                return
            self._settle()

    def _settle(self) -> None:
        """Until all that runs waits for a task that is held."""
        for _ in range(50_000):
            if self.world.running() <= sum(not task.ended_ms for task in self.world.dispatcher.tasks()):
                return
            threading.Event().wait(0.0002)
        raise AssertionError("a run does not end")

    def stop(self) -> None:
        self.world.manager.stop()


@pytest.mark.parametrize("minutes", cases([20, 60]))
def test_full_ingestion_stays_flat(minutes: int) -> None:
    """Once a table has more partitions than a round of selection takes, the one that is written to is still merged."""
    load = Load(merge_row_seconds=2e-6)
    most = [load.minute() for _ in range(minutes)]
    load.stop()
    assert max(most) <= PARTS_MAX, most
    assert max(most[-minutes // 4 :]) <= max(most[: minutes // 4]) + 3, most
    assert load.stored > minutes * 12_000_000
    assert load.merged > minutes * 5
    assert load.scrubbed > minutes * 100 // 60


def test_rounds_wait_where_merges_cannot_keep_up() -> None:
    """Merges that take as long as four rounds: rounds become fewer and larger, and say why."""
    load = Load(merge_row_seconds=8e-6)
    most = [load.minute() for _ in range(10)]
    load.stop()
    assert max(most) <= PARTS_MAX, most
    assert load.slowed == {"parts that wait for a merge"}
    assert load.stored > 10 * 5_000_000
