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
    AdvanceOffsets,
    DropPartition,
    InsertPart,
    KeyValue,
    MemoryKV,
    OffsetsMovedError,
    PartsGoneError,
    ReplaceParts,
    RocksKV,
    visibility,
)
from tilth.catalog.invariants import check_entries
from tilth.model.offset import OffsetRange, TopicPartition

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


def test_inserts_merges_drops_and_collection(world: World) -> None:
    parts, transactions = world.catalog.parts, world.catalog.transactions
    lost = threading.Lock()
    gone = [0]

    def work(_: int, rng: Rng) -> None:
        for _ in range(STEPS):
            draw = rng.random()
            partition = "ab"[int(rng.random() * 2)]
            if draw < 0.6:
                world.insert(partition, rows=1 + int(rng.random() * 9))
            elif draw < 0.85:
                shown = parts.visible(world.t, partition)[:3]
                if len(shown) < 2:
                    continue
                names = tuple(part.name for part in shown)
                written = world.written(partition, rows=sum(part.rows for part in shown))
                txn = transactions.begin("merge")
                try:
                    update = ReplaceParts(table=world.t, sources=names, written=written)
                    transactions.commit_or_raise(txn.id, [update])
                except PartsGoneError:
                    transactions.abort(txn.id, "parts gone")
                    transactions.forget(txn.id)
                    with lost:
                        gone[0] += 1
            elif draw < 0.9:
                world.commit(DropPartition(table=world.t, partition=partition))
            else:
                ended = visibility.end_times(parts.entries(world.t, partition))
                parts.move_to_trash(world.t, ended, now_ms=1)

    in_threads(work)
    version = parts.version(world.t)
    check_entries(world.t, list(parts.all_entries(world.t)))
    assert parts.snapshot(world.t).rows == version.inserted_rows - version.removed_rows
    assert transactions.unfinished() == []
    files = [part.file.name for part in parts.snapshot(world.t).parts]
    trashed = [each.item.part.file.name for each in world.catalog.trash.items(limit=10_000)[0]]
    assert not set(files) & set(trashed)
    assert len(set(files)) == len(files)


def test_rounds_of_rival_consumers_are_exactly_once(world: World) -> None:
    """All threads consume the same topic partition and take the lease from each other; offsets and rows agree."""
    kafka = world.kafka()
    position = TopicPartition("x", 0)

    def work(number: int, rng: Rng) -> None:
        lease = world.catalog.leases.take("consumer/k/0", f"thread {number}", 10_000)
        for _ in range(STEPS):
            if rng.random() < 0.2:
                lease = world.catalog.leases.take("consumer/k/0", f"thread {number}", 10_000)
            start = world.catalog.offsets.of(kafka).get(position, 0)
            rows = 1 + int(rng.random() * 5)
            moved = OffsetRange(topic="x", partition=0, start=start, end=start + rows)
            try:
                txn = world.catalog.transactions.begin("consume", fences=[lease.fence])
                world.catalog.transactions.commit_or_raise(
                    txn.id,
                    [
                        InsertPart(table=world.t, written=world.written(rows=rows)),
                        AdvanceOffsets(kafka_table=kafka, ranges=(moved,)),
                    ],
                )
            except (FencedError, OffsetsMovedError):
                lease = world.catalog.leases.take("consumer/k/0", f"thread {number}", 10_000)

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
