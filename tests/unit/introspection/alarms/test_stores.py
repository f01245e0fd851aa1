"""Alarms of disks, storages and replicas: found from their thresholds on, and gone when the thing is right again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.alarm_world import AlarmWorld
from tests.sql_world import table_of
from tilth.base.full import DiskSpace
from tilth.base.units import GIB
from tilth.introspection.alarms import stores
from tilth.introspection.alarms.stores import BEHIND_SECONDS_MAX
from tilth.model.copy_note import CopyNote
from tilth.model.part import DataFile
from tilth.model.service import ServiceKind
from tilth.storage import NamedRoots, local_root, replicated_root
from tilth.warehouse.stats import WorkerLoad, WorkerProcess


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    return AlarmWorld(tmp_path / "tables")


def test_disks_that_are_full_or_nearly_full(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = DiskSpace(device=1, size=500 * GIB, free=50 * GIB)
    monkeypatch.setattr(stores, "disk_space", lambda folder: disk)
    assert world.found("disk_low") == world.found("disk_full") == []
    disk = replace(disk, free=50 * GIB - 1)
    [finding] = world.found("disk_low")
    assert finding.subject == world.services.root.default.uri
    assert finding.sentence == f"the disk with {finding.subject} has 50.0 GiB free, 10 % of 500.0 GiB"
    assert world.found("disk_full") == []
    disk = replace(disk, free=GIB - 1)
    [finding] = world.found("disk_full")
    assert finding.sentence.endswith(": writes fail soon, or fail already")
    assert world.found("disk_low") == [], "one alarm for one cause"


def test_a_small_disk_is_full_when_a_tenth_is_left_and_a_large_one_is_not_low(
    world: AlarmWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskSpace(device=1, size=5 * GIB, free=GIB)
    monkeypatch.setattr(stores, "disk_space", lambda folder: disk)
    assert world.found("disk_full") == []
    disk = DiskSpace(device=1, size=5_000 * GIB, free=100 * GIB)
    assert world.found("disk_low") == []


def test_the_disk_of_a_worker(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    [own] = world.dispatch.workers()
    load = WorkerLoad(disk_bytes=100 * GIB, free_disk_bytes=GIB // 2)
    remote = replace(own, name="far", load=load, process=WorkerProcess(host="h", pid=1, version="1"))
    monkeypatch.setattr(world.dispatch, "workers", lambda: [remote, replace(own, load=load)])
    monkeypatch.setattr(stores, "disk_space", lambda folder: None)
    assert [each.subject for each in world.found("disk_full")] == ["far"]


def test_a_storage_that_is_away_until_it_is_back(world: AlarmWorld, tmp_path: Path) -> None:
    root = world.services.root
    Path(root.default.uri).mkdir(parents=True, exist_ok=True)
    root.states()
    assert world.found("storage_away") == []
    shutil.rmtree(root.default.uri)
    until(lambda: bool(world.found("storage_away")), world)
    [finding] = world.found("storage_away")
    assert finding.subject == "default"
    assert finding.sentence == f"storage default at {root.default.uri} cannot be used: the folder cannot be written"
    Path(root.default.uri).mkdir()
    until(lambda: not world.found("storage_away"), world)


def until(is_so: Callable[[], bool], world: AlarmWorld) -> None:
    """Wait for a probe on another thread: each round makes the last state old."""
    for _ in range(1_000):
        if is_so():
            return
        world.clock.advance(2)
        world.services.root.states()
    raise AssertionError("it has not come true")


class ReplicatedWorld(AlarmWorld):
    """All tables lie in two replicas."""

    def __init__(self, folder: Path, troubles: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder / "tables")
        self.folders = [folder / name for name in ("one", "two")]
        root = replicated_root("default", [local_root(each) for each in self.folders], 1)
        self.change(root=NamedRoots(self.clock, root, self.catalog.storage_of))
        monkeypatch.setattr(stores, "health_of", lambda replica: SimpleNamespace(trouble=troubles.get(replica.uri, "")))
        self.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")

    def lacks(self, *names: str) -> None:
        """The second replica lacks these files."""
        now_ms = self.clock.now_ms()
        self.catalog.copies.note(
            CopyNote(
                table=table_of(self).uuid,
                replica=1,
                file=DataFile(name=name, size=1, checksum=1),
                since_ms=now_ms,
                reason="it was away",
            )
            for name in names
        )


def test_a_replica_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles: dict[str, str] = {}
    world = ReplicatedWorld(tmp_path, troubles, monkeypatch)
    assert world.found("replica_away") == []
    uri = str(world.folders[1])
    troubles[uri] = "no answer in 3 seconds"
    [finding] = world.found("replica_away")
    assert finding.subject == "default/1"
    assert finding.sentence == f"replica 1 of storage default at {uri} cannot be used: no answer in 3 seconds"


def test_a_replica_that_lacks_files_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    troubles: dict[str, str] = {}
    world = ReplicatedWorld(tmp_path, troubles, monkeypatch)
    world.lacks("f1", "f2")
    world.clock.advance(BEHIND_SECONDS_MAX)
    assert world.found("replica_behind") == []
    world.clock.advance(1)
    [finding] = world.found("replica_behind")
    assert (finding.table, finding.subject) == ("t", "default/1")
    assert finding.sentence == (
        "replica 1 of storage default lacks 2 files of default.t, the oldest since 2026-01-01 00:00:00 UTC"
    )
    world.stop(ServiceKind.REPLICATE, table_of(world).uuid)
    assert world.found("replica_behind") == []
    world.catalog.services.set(
        msgspec.structs.replace(world.catalog.services.all()[0], until_ms=world.clock.now_ms() - 1)
    )
    assert len(world.found("replica_behind")) == 1
    troubles[str(world.folders[1])] = "it is away"
    assert world.found("replica_behind") == [], "one alarm for one cause"
