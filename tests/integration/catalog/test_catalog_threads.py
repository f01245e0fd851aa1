"""Threads that insert, merge, drop and collect in one table at once, with consumers that are fenced:
all promises hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.catalog_world import World
from tilth.base.clock import SystemClock
from tilth.base.errors import FencedError
from tilth.base.rand import Rng, new_rng
from tilth.catalog import (
    AcceptMutation,
    AdvanceOffsets,
    BadMergeError,
    HidePartition,
    InsertPart,
    KeyValue,
    MemoryKV,
    MutationEndedError,
    NothingToUndropError,
    OffsetsMovedError,
    PartsGoneError,
    ReplaceParts,
    RestorePartition,
    RocksKV,
    SetOffsets,
    Update,
    visibility,
)
from tilth.catalog.rules.invariants import check_entries
from tilth.model.mutation import first_needed
from tilth.model.offset import OffsetRange, StoredOffset, TopicPartition

pytestmark = pytest.mark.integration

THREADS = 4
STEPS = 40


@pytest.fixture(params=["memory", "rocksdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    kv: KeyValue = MemoryKV() if request.param == "memory" else RocksKV(str(tmp_path / "kv"))
    return World(kv, clock=SystemClock())


def in_threads(work: Callable[[int, Rng], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, number, new_rng(number)) for number in range(THREADS)]:
            done.result()


class Crowd:
    """What each of the threads does to one table, and which files were removed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.table = world.t
        self.parts = world.catalog.parts
        self.removed: set[str] = set()
        self._lock = threading.Lock()

    def work(self, _: int, rng: Rng) -> None:
        for _ in range(STEPS):
            draw = rng.random()
            partition = "ab"[int(rng.random() * 2)]
            if draw < 0.45:
                self.world.insert(partition, rows=1 + int(rng.random() * 9))
            elif draw < 0.65:
                self.merge(partition)
            elif draw < 0.75:
                self.mutate(partition, rng)
            elif draw < 0.8:
                self.world.commit(HidePartition(table=self.table, partition=partition))
            elif draw < 0.85:
                self.attempt(RestorePartition(table=self.table, partition=partition))
            elif draw < 0.95:
                ended = visibility.end_times(self.parts.entries(self.table, partition))
                self.parts.move_to_trash(self.table, ended, now_ms=1)
            else:
                self.remove()

    def attempt(self, *updates: Update) -> None:
        """Somebody else may have been faster."""
        transactions = self.world.catalog.transactions
        txn = transactions.open("test")
        try:
            txn.commit(updates)
        except (PartsGoneError, BadMergeError, MutationEndedError, NothingToUndropError) as error:
            transactions.abort(txn.id, error.code)
            transactions.forget(txn.id)

    def merge(self, partition: str) -> None:
        shown = self.parts.visible(self.table, partition)[:3]
        if len(shown) > 1:
            names = tuple(part.name for part in shown)
            written = self.world.written(partition, rows=sum(part.rows for part in shown))
            self.attempt(ReplaceParts(table=self.table, sources=names, written=written))

    def mutate(self, partition: str, rng: Rng) -> None:
        mutations = self.world.catalog.mutations
        pending = mutations.pending(self.table)
        if not pending:
            self.world.alter()
            return
        oldest = pending[0]
        shown = self.parts.visible(self.table, partition)
        for part in [each for each in shown if first_needed(each, pending) == oldest][:2]:
            if rng.random() < 0.7:
                self.attempt(self.world.rewriting(oldest, part))
            else:
                self.attempt(AcceptMutation(table=self.table, parts=(part.name,), mutation=oldest.id))
        if rng.random() < 0.2:
            mutations.kill(self.table, oldest.id, "no")
        mutations.finish(self.table, oldest.id)

    def remove(self) -> None:
        trash = self.world.catalog.trash
        marked = trash.mark_for_removal(self.table, trash.items(self.table, limit=5)[0])
        with self._lock:
            self.removed.update(each.item.part.file.name for each in marked)
        trash.remove(self.table, marked)


def test_inserts_merges_drops_and_collection(world: World) -> None:
    """And mutations, UNDROPs and the removal of files, all at once: no row is lost or doubled, no file missed."""
    crowd = Crowd(world)
    in_threads(crowd.work)
    parts = world.catalog.parts
    version = parts.version(world.t)
    check_entries(world.t, list(parts.all_entries(world.t)))
    shown = parts.snapshot(world.t).parts
    assert sum(part.rows for part in shown) == version.inserted_rows - version.removed_rows
    assert parts.counts(world.t) == {
        partition: sum(part.name.partition == partition for part in shown) for partition in parts.partitions(world.t)
    }
    assert version.parts == len(shown)
    assert world.catalog.transactions.unfinished() == []
    files = [part.file.name for part in shown]
    trashed = [each.item.part.file.name for each in world.catalog.trash.items(limit=10_000)[0]]
    assert not set(files) & set(trashed)
    assert not set(files) & crowd.removed
    assert len(set(files)) == len(files)


def test_rounds_of_rival_consumers_are_exactly_once(world: World) -> None:
    """All threads consume the same topic partition and take the lease from each other; offsets and rows agree."""
    kafka = world.kafka()
    position = TopicPartition("x", 0)
    world.commit(SetOffsets(kafka_table=kafka, offsets={position: StoredOffset(0, "")}, before={}))

    def work(number: int, rng: Rng) -> None:
        lease = world.catalog.leases.acquire("consumer/k/0", f"thread {number}")
        for _ in range(STEPS):
            if rng.random() < 0.2:
                lease = world.catalog.leases.acquire("consumer/k/0", f"thread {number}")
            start = world.catalog.offsets.of(kafka)[position]
            rows = 1 + int(rng.random() * 5)
            moved = OffsetRange(topic="x", partition=0, start=start, end=start + rows)
            try:
                txn = world.catalog.transactions.open("consume", fences=[lease.fence])
                txn.commit(
                    [
                        InsertPart(table=world.t, written=world.written(rows=rows)),
                        AdvanceOffsets(kafka_table=kafka, ranges=(moved,)),
                    ],
                )
            except (FencedError, OffsetsMovedError):
                lease = world.catalog.leases.acquire("consumer/k/0", f"thread {number}")

    in_threads(work)
    rows = world.catalog.parts.snapshot(world.t).rows
    assert rows > 0
    assert world.catalog.offsets.of(kafka) == {position: rows}


def test_tables_are_created_once(world: World) -> None:
    def work(_: int, rng: Rng) -> None:
        for number in range(STEPS):
            world.catalog.tables.create_database(f"db{number}", if_not_exists=True)
            world.table("t", f"db{number}")

    in_threads(work)
    made = world.catalog.tables.list()
    assert len({relation.uuid for relation in made}) == len(made) == STEPS + 1
