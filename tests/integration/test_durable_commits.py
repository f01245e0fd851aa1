"""What must be on the disk before a commit names it: the file, then its name in the folder, then the commit's own log.

The real writers, the real ops and RocksDB, without Spark (tests/sequence_world.py); every request to wait for the disk
is written down in the order in which it comes. Whether disks keep what they promise is theirs to know.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.sequence_standins import spark_task
from tests.sequence_world import SequenceWorld
from tests.simulation.sequence_model import Fresh, Row, Shape
from tilth import begin
from tilth.catalog.kv import KVOutcome, Precondition
from tilth.maintenance.kinds import OpKind
from tilth.storage import local_folder
from tilth.storage.store.files.files import make_folder

pytestmark = pytest.mark.integration

#: Changes of rows, each flushed: enough for a minor compaction to have something to do.
CHANGES = 3


@dataclass
class Disk:
    """What was asked for, in order: a path with its size at that time, or the commit."""

    requests: list[tuple[str, int]] = field(default_factory=list)
    #: Files that a commit has named.
    named: set[str] = field(default_factory=set)

    def fsync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        self.requests.append((path, os.fstat(handle).st_size if os.path.isfile(path) else -1))

    def check(self, world: SequenceWorld, before: Sequence[tuple[str, int]]) -> int:
        """Each file that the newest commit names was asked for whole, then its folder, among the requests `before` it;
        returns how many there are. The first one of a table needs the folder's own name too, and that of the table's.
        """
        parts = world.catalog.parts
        files = [entry.file for entry in parts.all_entries(world.uuid) if hasattr(entry, "file")]
        files += [delta.file for delta in parts.deltas(world.uuid, is_all=True)]
        fresh = [file for file in files if file.name not in self.named]
        for file in fresh:
            path = os.path.join(world.folder, file.name)
            assert (path, file.size) in before, f"nobody waited for {file.name}"
            behind = before[before.index((path, file.size)) :]
            assert (str(world.folder), -1) in behind, f"nobody waited for the name of {file.name}"
        if fresh and not self.named:
            table = os.path.dirname(world.folder)
            assert {(table, -1), (os.path.dirname(table), -1)} <= set(before), "nobody waited for the folder"
        self.named.update(file.name for file in files)
        return len(fresh)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    with spark_task():
        monkeypatch.setattr(os, "fsync", disk.fsync)
        yield disk
        monkeypatch.undo()


class Watched:
    """A table each of whose commits is checked."""

    def __init__(self, disk: Disk, folder: Path, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = SequenceWorld(folder, shape)
        self.doing = ""
        #: Number of files that the commits of each kind named.
        self.named: Counter[str] = Counter()
        commit = self.world.kv.commit
        one_at_a_time = threading.Lock()

        def checked(
            preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
        ) -> KVOutcome:
            with one_at_a_time:
                # A request after the commit comes too late.
                before = list(disk.requests)
                outcome = commit(preconditions, puts, deletes)
                self.named[self.doing] += disk.check(self.world, before)
            return outcome

        monkeypatch.setattr(self.world.kv, "commit", checked)

    def insert(self, keys: Iterable[int], *, v: int) -> None:
        self.doing = "INSERT"
        self.world.insert([Fresh(Row(k, "ab"[k % 2], v=v)) for k in keys])

    def run(self, kind: OpKind) -> None:
        self.doing = kind.value
        for _ in range(10):
            self.world.step_time()
            if self.world.run(kind) is None:
                return

    def end(self, *kinds: str) -> None:
        """After a merge; each of these kinds of commits has named files."""
        self.doing = "MERGE"
        self.world.merge_all()
        self.world.check()
        self.world.close()
        assert {kind for kind in (*kinds, "MERGE") if not self.named[kind]} == set()


def test_each_commit_comes_after_its_files_and_their_names(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(disk, tmp_path, Shape(partitions=2), monkeypatch)
    watched.insert(range(10), v=1)
    for number in range(CHANGES):
        watched.insert(range(number, 2 + number), v=2)
        watched.run(OpKind.FLUSH)
        watched.doing = "UPDATE"
        watched.world.change(lambda _: False, lambda row: row.k >= 5, lambda row: row._replace(v=99), columns=("v",))
        watched.doing = "DELETE"
        watched.world.change(partial(is_of, number))
        watched.run(OpKind.FLUSH_DELTAS)
    watched.run(OpKind.MINOR_DELTA)
    watched.run(OpKind.MAJOR_DELTA)
    watched.end("INSERT", "FLUSH", "UPDATE", "DELETE", "FLUSH_DELTAS", "MINOR_DELTA", "MAJOR_DELTA")


def test_rows_that_are_sorted_at_once_come_after_their_files_too(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(disk, tmp_path, Shape(is_unique=False, is_buffered=False, partitions=2), monkeypatch)
    for number in range(2):
        watched.insert(range(10), v=number)
    watched.end("INSERT")


def test_a_folder_that_somebody_else_made_is_waited_for_once(disk: Disk, tmp_path: Path) -> None:
    """The other one may not have waited yet."""
    folder = tmp_path / "tables" / "uuid" / "data"
    folder.mkdir(parents=True)
    for _ in range(2):
        make_folder(local_folder(folder), fsync=True)
        assert [path for path, _ in disk.requests] == [str(tmp_path / "tables" / "uuid"), str(tmp_path / "tables")]
    folder.rmdir()
    make_folder(local_folder(folder), fsync=True)
    assert folder.is_dir()
    assert len(disk.requests) == 4


def test_a_node_waits_for_the_names_of_its_folders(disk: Disk, tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    begin.prepare_folder(data)
    assert {path for path, _ in disk.requests} == {str(data), str(tmp_path / "new"), str(tmp_path)}
    disk.requests.clear()
    begin.prepare_folder(data)
    assert [path for path, _ in disk.requests] == [str(data)]


def is_of(k: int, row: Row) -> bool:
    return row.k == k
