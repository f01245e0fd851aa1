"""What the manager reads of a catalog with many tables: little by table, and nothing while nothing happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.counted_kv import CountedKV
from tests.maintenance_world import MaintenanceWorld, MergeWorker
from tilth.catalog import HidePartition, PartitionParts
from tilth.catalog.records.keys import Space, entry_key, span
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.manager.refreshes import REFRESH_MS
from tilth.maintenance.work import first_reads
from tilth.model.service import ServiceKind

#: Longer than any pause between two polls of a table that is not settled.
HOUR = 3600.0
#: Rows of a part that no merge takes.
LARGE = 10**9


class CountedWorld(MaintenanceWorld):
    """Counts what is read of its catalog."""

    def __init__(self) -> None:
        self.counted = CountedKV()
        super().__init__(self.counted)

    def pass_time(self, seconds: float, *, step: float = 30.0) -> None:
        """Let the manager work while time goes on."""
        for _ in range(round(seconds / step)):
            self.work(step)

    def readings(self, after: Callable[[], None] = lambda: None) -> list[Sequence[str]]:
        """Return a list that gets the tables of each reading of several; `after` is called after the first one."""
        found: list[Sequence[str]] = []
        read = self.catalog.parts.visible_of

        def counted(tables: Sequence[str]) -> dict[str, dict[str, PartitionParts]]:
            there = read(tables)
            found.append(tables)
            if len(found) == 1:
                after()
            return there

        self.catalog.parts.visible_of = counted  # type: ignore[method-assign]  # it counts
        return found

    def read_in(self, seconds: float, *, step: float = 30.0) -> Counter[str]:
        """Return what is read in that time."""
        self.counted.taken()
        self.pass_time(seconds, step=step)
        return self.counted.taken()


def filled(tables: int, *, parts: int = 2) -> CountedWorld:
    """A world with so many tables, each with parts that are too large to be merged."""
    world = CountedWorld()
    for number in range(tables):
        table = world.table(f"t{number}")
        for _ in range(parts):
            world.insert("all", table=table, rows=LARGE)
    return world


def test_what_is_read_while_nothing_happens_does_not_depend_on_the_number_of_tables() -> None:
    reads = []
    for tables in (3, 30):
        world = filled(tables)
        world.pass_time(2 * HOUR, step=300)
        reads.append(world.read_in(HOUR))
    assert reads[0] == reads[1]
    # The part log at each turn, the lists of all tables and their versions every half a minute.
    assert reads[0]["part_log"] == HOUR / 30
    assert reads[0]["entry"] == reads[0]["partition"] == 0


def test_a_start_reads_of_each_table_what_may_be_merged_and_of_what_may_be_collected_nothing() -> None:
    reads = []
    for tables in (3, 33):
        world = filled(tables)
        world.clock.advance(60)
        world.manager = world.new_manager()
        reads.append(world.read_in(600))
    # The parts of all tables are one view.
    assert reads[0] == reads[1]


def test_tables_are_read_in_several_readings_where_they_have_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_reads, "PARTS_MAX", 5)
    world = filled(9)
    crowded = world.table("t4")
    for _ in range(10):
        world.insert("all", table=crowded)
    world.manager = world.new_manager()
    readings = world.readings()
    world.work()
    # Two tables each; the one with more parts than a reading has is left to itself, and merged.
    assert [len(each) for each in readings] == [2, 2, 2, 2]
    assert world.visible_count(crowded) == 3
    assert world.manager.numbers().ops[OpKind.MERGE].ended == 1


def test_a_damaged_table_keeps_no_other_from_being_read() -> None:
    world = filled(3)
    small = world.table("t2")
    for _ in range(10):
        world.insert("all", table=small)
    [part, *_] = world.catalog.parts.snapshot(world.table("t0")).parts
    world.kv.commit([], {entry_key(world.table("t0"), part.name): b"damaged"}, [])
    world.manager = world.new_manager()
    world.work()
    assert world.visible_count(small) == 3


def test_parts_that_come_after_the_reading_of_all_tables_are_found() -> None:
    world = filled(4)
    world.manager = world.new_manager()
    late = world.table("t3")

    def insert() -> None:
        for _ in range(10):
            world.insert("all", table=late)

    world.readings(after=insert)
    world.work()
    world.work(2)
    assert world.visible_count(late) == 3


def test_tables_with_garbage_are_read_once_after_a_start_and_again_when_it_may_go() -> None:
    world = filled(20)
    for number in range(20):
        world.commit(HidePartition(table=world.table(f"t{number}"), partition="all"))
    world.manager = world.new_manager()
    first = world.read_in(600)
    assert first["entry"] == 20
    # Leases of readers are read once for all tables of a second.
    assert first["reader"] < 20
    assert world.read_in(600)["entry"] == 0
    world.pass_time(2 * HOUR, step=300)
    for number in range(20):
        table = world.table(f"t{number}")
        assert [item.item.part for item in world.catalog.trash.items(table, limit=9)[0]]


def test_all_partitions_of_a_round_are_one_read() -> None:
    world = CountedWorld()
    names = [f"p{number}" for number in range(8)]
    world.insert(*names)
    world.work()
    for name in names:
        world.commit(HidePartition(table=world.t, partition=name))
    world.work()
    world.counted.taken()
    # The parts go in the first round, the ranges over them in the second.
    for _ in range(2):
        world.work(HOUR + 1)
    assert world.counted.taken()["entry"] == 2
    assert all(not world.catalog.parts.entries(world.t, name) for name in names)


def test_a_commit_of_which_the_part_log_says_nothing_is_found_by_its_version() -> None:
    """An event that lands later than any read of it is never reported."""
    world = CountedWorld()
    world.insert("all", rows=LARGE)
    world.pass_time(HOUR, step=300)
    world.insert_segment("all")
    start, end = span(Space.PART_LOG)
    world.kv.commit([], {}, [key for key, _ in world.kv.scan(start, end)])
    assert "no segments" in world.service(ServiceKind.FLUSH).reason
    world.pass_time(2 * REFRESH_MS / 1000)
    assert "1 segments" in world.service(ServiceKind.FLUSH).reason
    # It is explained now: nothing is read again and again.
    assert world.read_in(2 * REFRESH_MS / 1000)["partition"] == 0


def test_parts_that_are_few_for_all_workers_are_read_again_when_some_have_gone() -> None:
    world = CountedWorld()
    others = [MergeWorker() for _ in range(2)]
    for number, worker in enumerate(others):
        worker.name = f"other{number}"
        world.dispatcher.join(worker, warehouse="write", slots=1)
    world.insert("all")
    world.insert("all")
    world.pass_time(HOUR, step=300)
    assert "2 parts, 3 are expected" in world.service(ServiceKind.MERGE).reason
    assert world.read_in(HOUR)["partition"] == 0
    for worker in others:
        world.dispatcher.leave(worker.name, "it was stopped")
    world.pass_time(REFRESH_MS / 1000)
    assert world.visible_count() == 1


def test_a_change_that_the_part_log_reports_leads_to_no_second_reading() -> None:
    world = CountedWorld()
    world.insert("all", rows=LARGE)
    world.pass_time(HOUR, step=300)
    world.insert("all", rows=LARGE)
    read = world.read_in(300)
    # The counts of its partitions, for merges.
    assert read["partition"] == 1
