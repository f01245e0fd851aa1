"""Copies of files in replicas: made, compared, forgotten; over a real catalog and folders of the local disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from tests.catalog_world import SCHEMA, World
from tilth.base.clock import SystemClock
from tilth.base.errors import UnavailableError
from tilth.catalog import InsertPart
from tilth.maintenance import ManagerSettings
from tilth.maintenance.copies import replicate
from tilth.maintenance.copies.op import CopyCommands
from tilth.maintenance.copies.replicate import KNOWN_MS, REFRESH_MS, ReplicateRoutine
from tilth.maintenance.copies.scrub import ScrubRoutine
from tilth.maintenance.copies.table_copies import TableCopies, batches
from tilth.maintenance.copies.task_spark import CopyTask, work_on_copies
from tilth.maintenance.counters import MaintenanceCounters
from tilth.maintenance.damage.book import DamageBook
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.noted_copies import NotedCopies
from tilth.model.copy_note import CopyNote
from tilth.model.part import DataFile, FileCopies, Part, WrittenPart
from tilth.model.storage import Storage
from tilth.model.table import TableDef
from tilth.model.txn import TxnOutput
from tilth.storage import (
    Replica,
    begin_table,
    defined_root,
    layout_of,
    local_root,
    replicas_of,
    replicated_root,
    reserve_location,
    write_parts,
)


class CopiesWorld(World):
    """A table in three folders."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folders = [folder / name for name in ("one", "two", "three")]
        locations = [local_root(each) for each in self.folders]
        for location in locations:
            reserve_location(location)
        storage = Storage(name="r", root=replicated_root("r", locations, 2).text, replica_ids=("i", "ii", "iii"))
        assert self.catalog.storages.create(storage)
        self.root = defined_root(storage)
        self.t = self.table("replicated", settings={"storage_policy": "r"})
        begin_table(self.root, self.t)
        self.tasks = 0
        relation = self.catalog.tables.by_id(self.t)
        assert isinstance(relation, TableDef)
        self.relation = relation
        watch = TableWatch(relation)
        self.book = DamageBook(self.clock, self.catalog, self.root)
        watch.damaged.follow(self.book, self.t)
        server = SimpleNamespace(
            clock=self.clock,
            catalog=self.catalog,
            root=self.root,
            settings=ManagerSettings(),
            counters=MaintenanceCounters(self.clock),
            noted_copies=NotedCopies(self.clock, self.catalog),
            dispatcher=SimpleNamespace(new_spec=lambda kind, **spec: spec, submit=self._run),
        )
        # Any: what the routines use of a context.
        self.context = cast(Any, SimpleNamespace(server=server, watch=watch, switched_off_by=lambda kind: ""))
        self.copies = TableCopies(self.context.server, self.context.watch)
        self.replicate, self.scrub = ReplicateRoutine(self.copies), ScrubRoutine(self.copies)

    def add(self, *rows: int) -> WrittenPart:
        """Insert rows as one part."""
        table = pa.table({SCHEMA.columns[0].name: pa.array(rows, pa.int64())})
        with self.catalog.transactions.open("insert", outputs=[TxnOutput(table=self.t, tasks=1)]) as work:
            [part] = write_parts(layout_of(self.relation, self.root), table, txn=work.id, task=0, attempt=0)
            work.commit([InsertPart(table=self.t, written=part)])
        return part

    def copy_of(self, file: DataFile, replica: int) -> Path:
        return self.folders[replica] / self.t / "data" / file.name

    def where(self, file: DataFile) -> list[bool]:
        return [self.copy_of(file, replica).exists() for replica in range(3)]

    def notes(self) -> list[tuple[int, str]]:
        notes = self.catalog.copies.of(self.t)
        return [(note.replica, "" if note.file is None else note.file.name) for note in notes]

    def _run(self, spec: dict[str, Any]) -> object:
        self.tasks += 1
        facts = msgspec.msgpack.encode(
            work_on_copies(msgspec.msgpack.decode(spec["payload"], type=CopyTask), task=0, attempt=0)
        )
        return SimpleNamespace(wait=lambda: SimpleNamespace(payload=facts), cancel=lambda: None)


@pytest.fixture
def world(tmp_path: Path) -> CopiesWorld:
    return CopiesWorld(tmp_path)


def test_what_a_replica_lacks_is_in_the_commit_and_is_made(world: CopiesWorld) -> None:
    (world.folders[1] / world.t / ".tilth").unlink()
    part = world.add(1, 2)
    assert part.file.copies == FileCopies(replicas=("i", "iii"), quorum=2)
    assert world.notes() == [(1, part.file.name)]
    assert world.catalog.copies.incomplete(world.t) == (1,)
    (world.folders[1] / world.t / ".tilth").touch()
    assert world.replicate.run().startswith("1 copies made")
    assert world.where(part.file) == [True, True, True]
    assert (world.notes(), world.catalog.copies.incomplete(world.t)) == ([], ())
    assert world.copy_of(part.file, 1).read_bytes() == world.copy_of(part.file, 0).read_bytes()


def test_a_replica_without_the_sign_is_filled_with_all_that_it_lacks(world: CopiesWorld) -> None:
    parts = [world.add(number) for number in range(3)]
    world.replicate.run()
    for part in parts[:2]:
        world.copy_of(part.file, 2).unlink()
    (world.folders[2] / world.t / ".tilth").unlink()
    fresh = ReplicateRoutine(world.copies)
    fresh.poll(world.clock.now_ms())
    assert fresh.due_ms() <= world.clock.now_ms()
    # One that began before may name files that it has not written there, and knows nothing of the note.
    older = world.catalog.transactions.begin("insert")
    world.clock.advance(0.001)
    fresh.run()
    world.clock.advance(KNOWN_MS / 1000)
    fresh.run()
    assert world.notes() == [(2, "")]
    world.catalog.transactions.abort(older.id, "")
    fresh.run()
    fresh.run()
    assert all(all(world.where(part.file)) for part in parts)
    assert world.notes() == []
    fresh.poll(world.clock.now_ms())
    assert fresh.due_ms() == world.clock.now_ms() + REFRESH_MS


def test_a_replica_that_takes_no_sign_is_tried_again_more_and_more_seldom(
    world: CopiesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk that was mounted read-only after an error: it answers, and takes nothing."""
    (world.folders[2] / world.t / ".tilth").unlink()
    tries = []

    def refused(replica: Replica, table: str) -> None:
        tries.append(world.clock.now_ms())
        raise OSError("read-only file system")

    monkeypatch.setattr(Replica, "write_marker", refused)
    routine = ReplicateRoutine(world.copies)
    for _ in range(1200):
        now_ms = world.clock.now_ms()
        routine.poll(now_ms)
        if routine.due_ms() <= now_ms:
            routine.run()
        world.clock.advance(0.05)
    assert 4 <= len(tries) <= 8
    assert "replica 2: read-only file system" in routine.waits()


def test_a_replica_that_is_away_for_long_starves_no_other(world: CopiesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicate, "COUNT_MAX", 3)
    part = world.add(1)
    world.copy_of(part.file, 2).unlink()
    lacking = [DataFile(name=f"{n}-0.0-0.parquet", size=1, checksum=1) for n in range(9)]
    world.catalog.copies.note(world.copies.note(file, 0, "it was away") for file in lacking)
    world.catalog.copies.note([world.copies.note(part.file, 2, "it was away")])
    (world.folders[0] / ".tilth").rename(world.folders[0] / "elsewhere")
    replicas_of(world.root)[0].health.note("away")
    routine = ReplicateRoutine(world.copies)
    routine.poll(world.clock.now_ms())
    assert routine.run().startswith("1 copies made")
    assert world.where(part.file)[2]


def test_a_part_that_is_brought_back_while_files_are_listed_is_not_gone(
    world: CopiesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = world.add(1)
    [entry] = world.catalog.parts.all_entries(world.t)
    steps = []
    scan = world.kv.scan

    def other_view(*given: Any, **named: Any) -> Any:
        steps.append(given)
        return scan(*given, **named)

    # One view for both: nothing is read beside it but the deltas.
    monkeypatch.setattr(world.kv, "scan", other_view)
    files = world.catalog.files_of(world.t)
    assert (list(files.live), steps) == ([part.file.name], [])
    assert isinstance(entry, Part)


def test_nothing_is_written_to_a_replica_whose_location_is_empty(world: CopiesWorld) -> None:
    """It was emptied a moment ago, and nobody has noticed yet: it may be a disk that is not mounted."""
    world.add(1)
    shutil.rmtree(world.folders[2])
    world.folders[2].mkdir()
    ReplicateRoutine(world.copies).run()
    begin_table(world.root, "another")
    assert list(world.folders[2].iterdir()) == []
    reserve_location(world.root.replicas[2])
    clock = SystemClock()
    over = clock.monotonic() + 30
    while replicas_of(world.root)[2].trouble:
        assert clock.monotonic() < over
        clock.sleep(0.05)
    part = world.add(2)
    assert part.file.copies == FileCopies(replicas=("i", "ii"), quorum=2)
    for _ in range(2):
        ReplicateRoutine(world.copies).run()
        # The second note is a millisecond newer.
        world.clock.advance((KNOWN_MS + 1) / 1000)
    ReplicateRoutine(world.copies).run()
    assert all(world.where(part.file))
    assert world.notes() == []


def test_a_replica_that_was_away_for_a_moment_is_asked_again_what_it_has(world: CopiesWorld) -> None:
    """Another disk may be mounted there meanwhile."""
    part = world.add(1)
    routine = ReplicateRoutine(world.copies)
    routine.poll(world.clock.now_ms())
    routine.run()
    world.copy_of(part.file, 2).unlink()
    (world.folders[2] / world.t / ".tilth").unlink()
    replicas_of(world.root)[2].health.note("no answer")
    clock = SystemClock()
    over = clock.monotonic() + 30
    while replicas_of(world.root)[2].trouble:
        assert clock.monotonic() < over
        clock.sleep(0.01)
    routine.poll(world.clock.now_ms())
    assert routine.due_ms() <= world.clock.now_ms()
    for _ in range(2):
        routine.run()
        world.clock.advance(KNOWN_MS / 1000)
    routine.run()
    assert world.where(part.file) == [True, True, True]


def test_a_note_of_a_file_that_is_gone_takes_its_copy_with_it(world: CopiesWorld) -> None:
    world.add(1)
    gone = DataFile(name="77-0.0-0.parquet", size=3, checksum=1)
    world.catalog.copies.note([world.copies.note(gone, 1, "it was away")])
    # A kill between the copy and the end of its note leaves this file.
    world.copy_of(gone, 1).write_bytes(b"abc")
    world.replicate.run()
    assert (world.where(gone), world.notes(), world.tasks) == ([False] * 3, [], 0)


def test_a_file_without_a_right_copy_is_damaged_and_its_copies_wait(world: CopiesWorld) -> None:
    part = world.add(1, 2, 3)
    for replica in range(3):
        world.copy_of(part.file, replica).write_bytes(b"nothing like it")
    rows = CopyCommands(world.context).scrub_now()
    assert [(row.wrong, row.left, row.is_ok) for row in rows] == [(1, 1, False)] * 3
    assert list(world.book.of(world.t)) == [part.file.name]
    assert len(world.notes()) == 3
    world.clock.advance(2)
    with pytest.raises(UnavailableError, match="copies could not be made"):
        ReplicateRoutine(world.copies).run()
    # Wrong bytes stay: nobody knows of better ones.
    assert world.copy_of(part.file, 0).read_bytes() == b"nothing like it"


def test_a_scrub_finds_one_wrong_copy_and_it_is_made_anew(world: CopiesWorld) -> None:
    part, other = world.add(1, 2, 3), world.add(4)
    right = world.copy_of(part.file, 0).read_bytes()
    world.copy_of(part.file, 1).write_bytes(right[:-1] + b"?")
    world.copy_of(other.file, 2).unlink()
    rows = CopyCommands(world.context).scrub_now()
    assert [(row.files, row.wrong, row.left, row.is_ok) for row in rows] == [
        (2, 0, 0, True),
        (2, 1, 0, True),
        (2, 1, 0, True),
    ]
    assert world.copy_of(part.file, 1).read_bytes() == right
    assert (world.notes(), world.book.of(world.t)) == ([], {})


def test_a_scrub_goes_on_where_it_ended(world: CopiesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(world.add(number).file.name for number in range(3))
    monkeypatch.setattr("tilth.maintenance.copies.scrub.FILES_MAX", 1)
    world.clock.advance(8 * 86_400)
    read: list[str] = []
    for _ in range(3):
        # A restart begins with a new one.
        routine = ScrubRoutine(world.copies)
        read.append(routine.about())
        routine.run()
    assert read == ["all files", f"the files behind {files[0]}", f"the files behind {files[1]}"]
    assert ScrubRoutine(world.copies).about() == "all files"


def test_files_are_read_in_runs_of_bounded_size() -> None:
    files = [DataFile(name=str(size), size=size, checksum=0) for size in (5, 5, 1, 20, 1, 1)]
    runs = batches(files, bytes_max=10, files_max=2)
    assert [[file.size for file in run] for run in runs] == [[5, 5], [1, 20], [1, 1]]


def test_tables_without_notes_share_one_reading_and_a_note_is_found_within_the_interval(
    world: CopiesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = world.add(1)
    routines = [ReplicateRoutine(world.copies) for _ in range(5)]

    def poll() -> list[bool]:
        now_ms = world.clock.now_ms()
        for each in routines:
            each.poll(now_ms)
        return [each.due_ms() <= now_ms for each in routines]

    poll()
    for each in routines:
        each.run()
    poll()
    read: list[str] = []
    lacking, notes = world.catalog.copies.lacking, world.catalog.copies.of

    def counted_lacking(limit: int) -> list[tuple[str, int]]:
        read.append("all")
        return lacking(limit)

    def counted_notes(table: str, *, replica: int | None = None, limit: int | None = None) -> list[CopyNote]:
        read.append("one")
        return notes(table, replica=replica, limit=limit)

    monkeypatch.setattr(world.catalog.copies, "lacking", counted_lacking)
    monkeypatch.setattr(world.catalog.copies, "of", counted_notes)
    world.clock.advance(REFRESH_MS / 1000)
    assert poll() == [False] * 5
    assert read == ["all"]
    world.catalog.copies.note([world.copies.note(part.file, 1, "somebody found it missing")])
    world.clock.advance(REFRESH_MS / 1000)
    assert poll() == [True] * 5
    # Now each reads the notes of its replicas.
    assert read == ["all"] * 2 + ["one"] * 15
