"""Random lives of a table with segments, parts and deltas: whatever is compacted and collected, every read that is
promised finds its rows and its files. docs/policies/history.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.delta_world import DeltaWorld
from tilth.base.hybrid import pack
from tilth.base.rand import Rng, new_rng
from tilth.catalog import HidePartition, NothingToUndropError, RestorePartition
from tilth.maintenance.gc import history_gc
from tilth.maintenance.gc import trash as gc_trash
from tilth.model.history import ancient_mark
from tilth.model.lease import ReaderLease
from tilth.model.part import DataFile, Part
from tilth.model.service import ServiceKind
from tilth.model.snapshot import Snapshot
from tilth.storage import StoreRoot

SEEDS = 12
STEPS = 40
PARTITIONS = ("a", "b")
HISTORY_SECONDS = 3600.0
T = TypeVar("T")


class Life:
    """One table, what its readers saw when, and the files that are gone."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng: Rng = new_rng(seed)
        self.world = DeltaWorld(flush_threshold_secs="60", tablet_delta_store_major_compact_min_ratio="0.04")
        # The steps make the changes of merges and flushes, so that these come at any time.
        self.world.stop(ServiceKind.FLUSH)
        self.gone: set[str] = set()
        for module in (gc_trash, history_gc):
            monkeypatch.setattr(module, "remove_data", self._remove)
        #: Hybrid times with the rows that a reader of then saw.
        self.seen: list[tuple[int, int]] = []
        self.leases: list[tuple[ReaderLease, Snapshot]] = []

    def _remove(self, root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        self.gone.update(each.name for each in files)
        return {}

    def one(self, items: Sequence[T]) -> T:
        return items[int(self.rng.random() * len(items))]

    def parts(self) -> list[Part]:
        return list(self.world.catalog.parts.snapshot(self.world.t).parts)

    def step(self) -> str:
        world = self.world
        what = self.one(
            ["insert", "segment", "change", "change", "change", "merge", "drop", "undrop", "read", "close", "wait"]
            + ["work"] * 4
        )
        parts = self.parts()
        match what:
            case "insert":
                world.insert(self.one(PARTITIONS))
            case "segment":
                world.row_segment(self.one(PARTITIONS))
            case "change" if parts:
                self._change(parts)
            case "merge" if parts:
                self._merge(parts)
            case "drop" if self.rng.random() < 0.3:
                world.commit(HidePartition(table=world.t, partition=self.one(PARTITIONS)))
            case "undrop":
                self._undrop()
            case "read":
                snapshot = world.catalog.parts.snapshot(world.t)
                lease = world.catalog.readers.open(world.t, snapshot.ts, "q", 99_000_000)
                self.leases.append((lease, snapshot))
            case "close" if self.leases:
                world.catalog.readers.close(self.leases.pop(0)[0])
            case "wait":
                world.work(self.one([10, 600, 4000]))
            case _:
                world.work(self.one([1, 61, 200]))
        return what

    def _change(self, parts: Sequence[Part]) -> None:
        """Rows of some parts of one partition, no more than they have."""
        partition = self.one(parts).name.partition
        world, targets = self.world, []
        changes = world.catalog.parts.deltas(world.t)
        for part in parts:
            if part.name.partition != partition or self.rng.random() < 0.4:
                continue
            deleted = sum(t.deleted for delta in changes for t in delta.targets if t.file == part.file.name)
            targets.append((part, self.one([0, min(1, part.rows - deleted), part.rows - deleted])))
        columns = (1,) if self.rng.random() < 0.5 else ()
        targets = [(part, rows) for part, rows in targets if rows or columns]
        if targets:
            world.change(*targets, columns=columns)

    def _merge(self, parts: Sequence[Part]) -> None:
        chosen = self.one(parts)
        alike = [
            part
            for part in parts
            if part.name.partition == chosen.name.partition and part.is_segment == chosen.is_segment
        ]
        names = self.world.manager._registry.get(self.world.t).watch.reserved.now()
        if not any(str(part.name) in names for part in alike):
            self.world.merged(*alike)

    def _undrop(self) -> None:
        try:
            self.world.commit(RestorePartition(table=self.world.t, partition=self.one(PARTITIONS)))
        except NothingToUndropError:
            return
        # It takes the drop away, so the times between the two read as if there had been none.
        self.seen.clear()
        self.let_go()

    def let_go(self) -> None:
        """All readers end."""
        for lease, _ in self.leases:
            self.world.catalog.readers.close(lease)
        self.leases.clear()

    def check(self) -> None:
        """Every promised read, and every one that somebody holds."""
        world = self.world
        now = world.catalog.parts.snapshot(world.t)
        self.seen.append((now.ts, now.rows))
        mark = ancient_mark(pack(world.clock.now_ms()), HISTORY_SECONDS)
        assert mark is not None
        # Among several commits in one millisecond, readers saw the rows of the last one.
        rows_at = dict(self.seen)
        promised = {ts: rows for ts, rows in rows_at.items() if ts >= mark or ts == now.ts}
        # A reader with a lease has the records already, and needs the files.
        read = [snapshot for _, snapshot in self.leases]
        for ts, rows in promised.items():
            snapshot = world.catalog.parts.snapshot(world.t, at=ts)
            assert snapshot.rows == rows, ts
            read.append(snapshot)
        for snapshot in read:
            needed = {part.file.name for part in snapshot.parts} | {delta.file.name for delta in snapshot.deltas}
            assert not needed & self.gone, snapshot.ts


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promised_read_finds_its_rows_and_its_files(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(seed, monkeypatch)
    story = []
    try:
        for _ in range(STEPS):
            story.append(life.step())
            life.check()
    except BaseException:
        print("seed", seed, "steps", " ".join(story))
        raise
    life.let_go()
    # Left alone, it comes to rest with what is read, and nothing besides.
    for _ in range(14):
        life.world.work(4000)
    life.check()
    now = life.world.catalog.parts.snapshot(life.world.t)
    assert life.world.all_deltas() == list(now.deltas)
    left = [entry for entry in life.world.catalog.parts.all_entries(life.world.t) if isinstance(entry, Part)]
    assert {part.file.name for part in left} == {part.file.name for part in now.parts}
