"""Merges around damaged parts, what EXPLAIN MERGE says while merges are held back, expired rows of a lone part."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import CorruptError
from tilth.base.ids import random_id
from tilth.catalog import Catalog, HidePartition, InsertPart, MemoryKV
from tilth.maintenance.damage.book import DamageBook
from tilth.maintenance.damage.task_spark import CheckedFile, FileFinding
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.part import ColumnRange, DataFile, Part, WrittenPart
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.storage import Folder, PartFileCorruptError, data_folder, local_root
from tilth.testing.clock import ManualClock


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def damage(world: MaintenanceWorld, *parts: Part) -> None:
    """Merges of these parts meet a damaged file, as a worker reports it."""
    files = {part.file.name for part in parts}

    def fail(task: MergeTask) -> None:
        met = [source.file.name for source in task.sources if source.file.name in files]
        world.worker.errors = [PartFileCorruptError(file=f"/data/t/{met[0]}")] if met else []

    world.worker.on_merge = fail


def test_a_damaged_part_is_left_out_and_everything_else_of_its_partition_is_merged(world: MaintenanceWorld) -> None:
    parts = [world.insert("a")[0] for _ in range(9)]
    damage(world, parts[4])
    for _ in range(5):
        world.work(1.5)
    damaged = str(parts[4].name)
    assert parts[4].name in world.names()
    # The parts on both sides of it, too few for a merge in the background, are merged by a command.
    world.manager.optimize(world.t)
    assert world.visible_count() == 3
    for _ in range(10):
        world.insert("a")
    world.work(1.5)
    assert world.visible_count() <= 5
    service = world.service(ServiceKind.MERGE)
    assert damaged in service.last_exception
    assert "damaged" in service.last_exception
    [row] = [row for row in world.manager.explain_merge(world.t) if row.state == "damaged"]
    assert (row.first_part, row.last_part, row.parts) == (damaged, damaged, 1)
    assert row.next_attempt_ms > world.clock.now_ms()
    assert row.reason.startswith(f"part {damaged} is left out")
    refused = [choice.reason for choice in world.manager.choices() if choice.rule == "refused"]
    assert any(f"part {damaged} is left out" in reason for reason in refused)


def test_services_that_fail_are_listed_as_among_all(world: MaintenanceWorld) -> None:
    def failing() -> list[tuple[str, str]]:
        found = world.manager.failing()
        assert found == [each for each in world.manager.stats() if each.state == "failed"]
        return [(each.table, each.service.value) for each in found]

    other = world.table("other")
    for _ in range(9):
        world.insert("a")
        world.insert("a", table=other)
    assert failing() == []
    world.worker.errors = [PartFileCorruptError(file="/data/t/another.parquet")]
    world.work(1.5)
    [(_, service)] = failing()
    assert service == "merge"
    for _ in range(3):
        world.work(100)
    assert failing() == []
    world.worker.on_mutate = _raise
    world.update("a + 1", "true", table=other)
    world.work(1.5)
    assert failing() == [("other", "mutate")]


def _raise(_: object) -> None:
    raise CorruptError("no such price")


def test_a_part_that_was_repaired_or_dropped_is_not_left_out_any_more(world: MaintenanceWorld) -> None:
    parts = [world.insert("a")[0] for _ in range(9)]
    damage(world, parts[4])
    world.work(1.5)
    assert world.service(ServiceKind.MERGE).failures == 1
    world.worker.on_merge = lambda _: None
    for _ in range(3):
        world.work(100)
    assert world.visible_count() == 1
    assert world.service(ServiceKind.MERGE).failures == 0
    parts = [world.insert("b")[0] for _ in range(9)]
    damage(world, parts[0])
    world.work(1.5)
    assert world.service(ServiceKind.MERGE).failures == 1
    world.commit(HidePartition(table=world.t, partition="b"))
    world.manager.wake(world.t)
    for _ in range(3):
        world.work(100)
    assert world.service(ServiceKind.MERGE).failures == 0


def test_an_error_that_names_no_part_of_the_merge_lets_the_partition_wait(world: MaintenanceWorld) -> None:
    world.worker.errors = [PartFileCorruptError(file="/data/t/another.parquet")]
    for _ in range(9):
        world.insert("a")
    world.work(30)
    assert world.visible_count() == 9
    assert [row.state for row in world.manager.explain_merge(world.t)] == ["failed"]


@pytest.mark.parametrize("until", [0, 600], ids=["stopped", "paused"])
def test_explain_merge_considers_what_holds_merges_back(world: MaintenanceWorld, until: int) -> None:
    for _ in range(9):
        world.insert("a")
    end_ms = world.clock.now_ms() + until * 1000 if until else 0
    switch = Switch(
        table=world.t, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=0, until_ms=end_ms, because="why"
    )
    world.catalog.services.set(switch)
    world.manager.wake(world.t)
    world.work()
    [row] = world.manager.explain_merge(world.t)
    assert (row.state, row.next_attempt_ms, row.is_allowed) == ("stopped", end_ms, True)
    assert row.reason.startswith("merges are stopped by the user (why); 9 parts")


def test_explain_merge_considers_a_table_without_compaction(world: MaintenanceWorld) -> None:
    world.catalog.tables.modify_settings(world.t, {"disable_compaction": "true"}, ())
    for _ in range(9):
        world.insert("a")
    world.work()
    [row] = world.manager.explain_merge(world.t)
    assert (row.state, row.next_attempt_ms) == ("stopped", 0)
    assert row.reason.startswith("disable_compaction is on; 9 parts")


@pytest.mark.parametrize(("days", "merges"), [(-3, 1), (0, 0)], ids=["expired", "young"])
def test_optimize_final_leaves_expired_rows_out_of_a_part_that_is_alone(
    world: MaintenanceWorld, days: int, merges: int
) -> None:
    """A part says by its range whether rows of it have expired; it is written anew once, however the clock goes on."""
    aged = world.aging_table()
    today = world.clock.now_ms() // 86_400_000
    ranges = {"d": ColumnRange(today + days, today, 0)}
    world.commit(InsertPart(table=aged, written=msgspec.structs.replace(world.written("a"), ranges=ranges)))
    tasks: list[MergeTask] = []
    world.worker.on_merge = tasks.append
    world.manager.optimize(aged)
    assert tasks == []
    world.manager.optimize(aged, final=True)
    assert [len(task.sources) for task in tasks] == [1] * merges


def test_a_damaged_segment_is_left_out_and_all_others_of_its_partition_are_flushed(world: MaintenanceWorld) -> None:
    segments = [world.insert_segment("a")[0] for _ in range(5)]
    damage(world, segments[2])
    for _ in range(4):
        world.work(130)
    left = [part for part in world.catalog.parts.visible(world.t, "a") if part.is_segment]
    assert [part.name for part in left] == [segments[2].name]
    service = world.service(ServiceKind.FLUSH)
    assert str(segments[2].name) in service.last_exception
    row = next(op for op in world.manager.ops() if op.kind is OpKind.FLUSH)
    assert str(segments[2].name) in row.damaged
    assert "backup" in row.damaged
    # Commands flush what can be flushed too, and then name what cannot.
    world.insert_segment("a")
    with pytest.raises(CorruptError, match=str(segments[2].name)):
        world.manager.flush_now(world.t)
    assert [part.name for part in world.catalog.parts.visible(world.t, "a") if part.is_segment] == [segments[2].name]
    world.insert_segment("a")
    report = world.manager.optimize(world.t)
    assert str(segments[2].name) in report.note
    assert report.parts_after == 2 + 1
    world.worker.on_merge = lambda _: None
    for _ in range(4):
        world.work(300)
    assert not [part for part in world.catalog.parts.visible(world.t, "a") if part.is_segment]
    assert world.service(ServiceKind.FLUSH).state == "idle"


class Files:
    """A table with real files of ten bytes, and the book over them."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.kv = MemoryKV()
        self.root = local_root(folder)
        self.catalog = Catalog(self.kv, self.clock, "s1", random_id)
        schema = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))
        definition = TableDef(uuid="", database="default", name="t", schema=schema)
        self.table = self.catalog.tables.create(definition).uuid
        self.folder = Path(data_folder(self.root, self.table))
        self.folder.mkdir(parents=True)
        self.book = DamageBook(self.clock, self.catalog, self.root)

    def insert(self, name: str) -> Part:
        data = name.encode().ljust(10)
        (self.folder / name).write_bytes(data)
        file = DataFile(name=name, size=10, checksum=zlib.crc32(data))
        written = WrittenPart(partition="a", values=("a",), rows=5, file=file, ranges={})
        txn = self.catalog.transactions.open("insert")
        update = InsertPart(table=self.table, written=written)
        [(_, part)] = txn.commit([update]).parts
        return part

    def report(self, part: Part) -> bool:
        error = PartFileCorruptError(file=str(self.folder / part.file.name))
        return self.book.report(self.table, error, [part], []) is not None


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_damaged_file_is_known_after_a_restart_until_its_bytes_are_right_again(files: Files) -> None:
    part, whole = files.insert("a"), files.insert("b")
    (files.folder / "a").write_bytes(b"x" * 10)
    assert files.report(part)
    # A file that is as it was written is not damaged, whoever reports it.
    assert not files.report(whole)
    again = DamageBook(files.clock, Catalog(files.kv, files.clock, "s1", random_id), files.root)
    assert list(again.parts_of(files.table)) == [str(part.name)]
    assert "checksum" in again.parts_of(files.table)[str(part.name)].reason
    (files.folder / "a").unlink()
    again.recheck_now()
    assert "missing" in again.parts_of(files.table)[str(part.name)].reason
    (files.folder / "a").write_bytes(b"a".ljust(10))
    again.recheck_now()
    assert again.of(files.table) == {}
    once_more = DamageBook(files.clock, Catalog(files.kv, files.clock, "s1", random_id), files.root)
    assert once_more.of(files.table) == {}


def test_servers_write_into_one_book_and_none_over_what_another_has_found(files: Files) -> None:
    part, theirs = files.insert("a"), files.insert("b")
    other = DamageBook(files.clock, Catalog(files.kv, files.clock, "s2", random_id), files.root)
    for each in (part, theirs):
        (files.folder / each.file.name).write_bytes(b"x" * 10)
    error = PartFileCorruptError(file=str(files.folder / theirs.file.name))
    assert other.report(files.table, error, [theirs], []) is not None
    assert files.report(part)
    third = DamageBook(files.clock, Catalog(files.kv, files.clock, "s3", random_id), files.root)
    assert sorted(third.of(files.table)) == ["a", "b"]
    (files.folder / "a").write_bytes(b"a".ljust(10))
    files.book.recheck_now()
    fourth = DamageBook(files.clock, Catalog(files.kv, files.clock, "s4", random_id), files.root)
    assert sorted(fourth.of(files.table)) == ["b"]


class NobodyReads:
    """Checks whose tasks find no worker."""

    def states(self, table: str, folder: Folder, files: Sequence[CheckedFile]) -> list[FileFinding]:
        return [FileFinding(unknown="the warehouse has no workers") for _ in files]


def test_a_check_that_nobody_could_make_changes_nothing(files: Files) -> None:
    part, other = files.insert("a"), files.insert("b")
    (files.folder / "a").write_bytes(b"x" * 10)
    assert files.report(part)
    files.book = DamageBook(files.clock, files.catalog, files.root, NobodyReads())
    # The first file is restored and the second one is damaged; no check has read them.
    (files.folder / "a").write_bytes(b"a".ljust(10))
    (files.folder / "b").write_bytes(b"x" * 10)
    files.book.recheck_now()
    assert not files.report(other)
    assert list(files.book.of(files.table)) == ["a"]


def test_files_of_parts_and_tables_that_are_gone_leave_the_book(files: Files) -> None:
    part, other = files.insert("a"), files.insert("b")
    for each in (part, other):
        (files.folder / each.file.name).unlink()
        assert files.report(each)
    txn = files.catalog.transactions.open("drop")
    txn.commit([HidePartition(table=files.table, partition="a")])
    files.book.recheck_now()
    assert files.book.of(files.table) == {}


def test_a_store_that_is_away_is_no_damage_and_ends_none(files: Files) -> None:
    part = files.insert("a")
    files.folder.rename(f"{files.folder}.away")
    assert not files.report(part)
    Path(f"{files.folder}.away").rename(files.folder)
    (files.folder / "a").unlink()
    assert files.report(part)
    files.folder.rename(f"{files.folder}.away")
    files.book.recheck_now()
    assert list(files.book.of(files.table)) == ["a"]
