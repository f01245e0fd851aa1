"""Numbers by table while tables are few, their count when they are many, and each table by its host alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alarm_world import AlarmWorld, FakePeers
from tilth.introspection.numbers import server_numbers
from tilth.model.server import ServerRecord


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    made = AlarmWorld(tmp_path)
    for name in ("t", "u"):
        made.run(f"CREATE TABLE {name} (id BIGINT) ENGINE = MergeTree ORDER BY id")
    return made


def test_each_table_has_its_numbers(world: AlarmWorld) -> None:
    world.run("INSERT INTO t SETTINGS async_insert = 0 VALUES (1), (2), (3), (4), (5)")
    numbers = server_numbers(world.services, 2)
    assert (numbers.hosted, numbers.left_out) == (2, 0)
    t, u = sorted(numbers.tables, key=lambda each: each.table)
    assert (t.database, t.table, t.parts, t.segments, t.inserted, t.removed) == ("default", "t", 1, 0, 5, 0)
    assert t.last_commit == pytest.approx(world.clock.now_ms() / 1000, abs=60)
    assert (u.parts, u.inserted) == (0, 0)
    [disk] = numbers.disks
    assert 0 < disk.free < disk.size


def test_many_tables_are_counted_and_no_more(world: AlarmWorld) -> None:
    numbers = server_numbers(world.services, 1)
    assert (numbers.hosted, numbers.left_out, numbers.tables) == (2, 2, ())
    assert server_numbers(world.services, 0).left_out == 2


def test_a_table_is_counted_by_its_host(world: AlarmWorld) -> None:
    world.change(
        peers=FakePeers(
            ServerRecord(name="other", epoch=1, run="r"), ServerRecord(name=world.services.server, epoch=1, run="s")
        )
    )
    numbers = server_numbers(world.services, 200)
    assert (numbers.hosted, numbers.left_out, numbers.tables) == (0, 0, ())
