"""EXPLAIN GC and `system.trash`: what waits, what keeps it, and until when."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld
from tilth.base.errors import TilthError
from tilth.catalog import HidePartition
from tilth.maintenance import GcRow
from tilth.model.table import TableDef


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    world = SqlWorld(tmp_path)
    world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree PARTITION BY a ORDER BY a")
    return world


def uuid(world: SqlWorld) -> str:
    relation = world.catalog.tables.get("default", "t")
    assert isinstance(relation, TableDef)
    return relation.uuid


def row(**of: object) -> GcRow:
    given = {"partition": "1", "entry": "1_5_5_0_9", "kind": "part", "state": "hidden", "held_by": "reader r"}
    return GcRow(**(given | {"until_ms": 1_000, "bytes": 7, "reason": "held back"} | of))  # type: ignore[arg-type]


def test_one_row_for_each_entry(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {uuid(world): [row(), row(state="removable", held_by="", until_ms=0)]}
    monkeypatch.setattr(world.maintenance, "explain_gc", rows.__getitem__)
    table = world.run("EXPLAIN GC t").table
    assert table.column_names == ["partition", "entry", "kind", "state", "held_by", "until", "bytes", "reason"]
    first, second = table.to_pylist()
    assert (first["held_by"], first["until"]) == (
        "reader r",
        datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
    )
    assert (second["state"], second["held_by"], second["until"]) == ("removable", None, None)


def test_dropped_tables_of_the_name_are_told_until_they_are_gone(world: SqlWorld) -> None:
    dropped = uuid(world)
    world.run("DROP TABLE t")
    [told] = world.run("EXPLAIN GC t").table.to_pylist()
    assert (told["kind"], told["entry"], told["state"]) == ("dropped table", dropped, "in trash")
    assert told["held_by"] == "dropped_table_keep_seconds"
    assert told["until"].timestamp() == world.clock.now_ms() / 1000 + 259_200
    world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    world.clock.advance(259_200)
    [told] = world.run("EXPLAIN GC t").table.to_pylist()
    assert (told["state"], told["held_by"], told["until"]) == ("removable", None, None)
    with pytest.raises(TilthError, match="u"):
        world.run("EXPLAIN GC u")


def test_the_trash_tells_what_can_come_back_and_when_files_go(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY SETTING ttl_for_trash_items = 100")
    world.run("INSERT INTO t (a) VALUES (1)")
    [part] = world.catalog.parts.snapshot(uuid(world)).parts
    txn = world.catalog.transactions.open("test")
    update = HidePartition(table=uuid(world), partition=part.name.partition)
    end_ts = txn.commit([update]).commit_ts
    world.catalog.parts.move_to_trash(uuid(world), [(part, end_ts)], now_ms=world.clock.now_ms())
    [told] = world.run("SELECT * FROM system.trash").table.to_pylist()
    assert told["is_dropped"] is True
    assert told["removable_at"] - told["ended"] == datetime.timedelta(seconds=100)
    assert "UNDROP PARTITION" in told["reason"]
    items, _ = world.catalog.trash.items(limit=1)
    world.catalog.trash.mark_for_removal(uuid(world), items)
    [told] = world.run("SELECT * FROM system.trash").table.to_pylist()
    assert (told["is_dropped"], told["reason"]) == (False, "its file is being removed")
