"""Damaged files under queries on a real Spark: what fails names the part, and what skips it says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark_world import SparkWorld
from tilth.maintenance import DamageBook
from tilth.maintenance.damage import checks
from tilth.model.part import DataFile, Part
from tilth.model.task import TaskKind, TaskState
from tilth.storage import data_folder

pytestmark = pytest.mark.integration

ROWS = 300_000
SKIP = "SETTINGS skip_damaged_parts = 1"


def parts_of(world: SparkWorld, name: str) -> list[Part]:
    return list(world.catalog.parts.snapshot(world.table(name).uuid).parts)


def path_of(world: SparkWorld, name: str, file: DataFile) -> Path:
    return Path(data_folder(world.engine._services.root, world.table(name).uuid), file.name)


def three_parts(world: SparkWorld, name: str, settings: str = "") -> list[Part]:
    world.run(f"CREATE TABLE {name} (k Int64, s String) ENGINE = MergeTree ORDER BY k {settings}")
    for first in (0, 10, 20):
        world.run(f"INSERT INTO {name} VALUES " + ", ".join(f"({k}, 's{k}')" for k in range(first, first + 10)))
    return parts_of(world, name)


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def spoil_footer(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40:-8] = b"\xff" * 32
    path.write_bytes(bytes(data))


def spoil_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [remove, cut, spoil_footer, spoil_page])
def test_a_damaged_part_is_named_and_left_out_where_the_user_says_so(
    world: SparkWorld, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    name = f"t_{damage.__name__}"
    parts = three_parts(world, name)
    path = path_of(world, name, parts[1].file)
    shutil.copy2(path, tmp_path / "backup")
    damage(path)
    refused = world.refused(f"SELECT sum(k), count(s) FROM {name}")
    for word in (str(parts[1].name), path.name, f"shop.{name}", "skip_damaged_parts = 1", "backup"):
        assert word in str(refused)
    assert refused.kind == "corrupt"
    answer = world.run(f"SELECT k, s FROM {name} ORDER BY k {SKIP}")
    assert answer.table.column(0).to_pylist() == [*range(10), *range(20, 30)]
    [notice] = answer.notices
    assert notice.startswith("1 damaged part left out, 10 rows are missing")
    assert f"shop.{name} {parts[1].name}, 10 rows" in notice
    # A query that does not need the part has all of its rows, and says nothing.
    answer = world.run(f"SELECT k FROM {name} WHERE k < 10 {SKIP}")
    assert (answer.table.num_rows, answer.notices) == (10, ())
    plan = world.rows(f"EXPLAIN SELECT * FROM {name}")
    assert str(parts[1].name) in str(plan[-1])
    assert "skip_damaged_parts = 1" in str(plan[-1])
    shown = world.rows(f"SELECT name FROM system.parts WHERE table = '{name}' AND damaged IS NOT NULL")
    assert shown == [(str(parts[1].name),)]
    # Restored from a backup, it is read again by whichever query comes first.
    shutil.copy2(tmp_path / "backup", path)
    answer = world.run(f"SELECT count(k) FROM {name} {SKIP}")
    assert (answer.table.column(0).to_pylist(), answer.notices) == ([30], ())
    assert world.rows(f"SELECT name FROM system.parts WHERE table = '{name}' AND damaged IS NOT NULL") == []
    assert len(world.rows(f"EXPLAIN SELECT * FROM {name}")) == 1


def test_a_page_in_the_middle_shows_during_the_scan_only(world: SparkWorld) -> None:
    """Rows before it were read already; of a large file Spark does not say which one it was."""
    world.run("CREATE TABLE m (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    for first in (0, ROWS):
        select = f"SELECT id, concat(sha2(CAST(id AS STRING), 512), 'x') FROM range({first}, {first + ROWS})"
        world.run(f"INSERT INTO m {select}", max_insert_tasks="1")
    parts = parts_of(world, "m")
    bad = parts[0]
    path = path_of(world, "m", bad.file)
    data = bytearray(path.read_bytes())
    for at in range(len(data) * 6 // 10, len(data) * 7 // 10, 1000):
        data[at : at + 500] = b"\xfe" * 500
    path.write_bytes(bytes(data))
    refused = world.refused("SELECT count(k), max(s) FROM m")
    assert str(bad.name) in str(refused)
    answer = world.run(f"SELECT count(k), count(s), max(length(s)) FROM m {SKIP}")
    left = sum(part.rows for part in parts if part.name != bad.name)
    assert [column[0].as_py() for column in answer.table.columns] == [left, left, 129]
    assert f"{bad.rows} rows are missing" in answer.notices[0]


def test_many_bytes_are_checked_in_tasks(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks find what the server finds; about a second."""
    parts = three_parts(world, "tasks", "SETTINGS cnch_vw_write = 'default'")
    world.run("DELETE FROM tasks WHERE k = 25")
    snapshot = world.catalog.parts.snapshot(world.table("tasks").uuid)
    [delta] = snapshot.deltas
    spoil_page(path_of(world, "tasks", parts[1].file))
    cut(path_of(world, "tasks", delta.file))
    found = {}
    for bytes_max in (1 << 20, -1):
        monkeypatch.setattr(checks, "HERE_BYTES_MAX", bytes_max)
        book = DamageBook(world.engine._services.clock, world.catalog, world.engine._services.root, world.checks())
        book.check_all(snapshot)
        found[bytes_max] = {name: (each.reason, each.parts) for name, each in book.of(snapshot.table.uuid).items()}
        world.catalog.state.put("damaged_files", b"")
    assert found[-1] == found[1 << 20]
    assert found[-1].keys() == {parts[1].file.name, delta.file.name}
    # The file that was cut is found by its size, and read before the others.
    tasks = [task for task in world.dispatcher.tasks() if task.kind is TaskKind.CHECK]
    assert [(task.state, task.table) for task in tasks] == [(TaskState.DONE, "shop.tasks")] * 2


def test_a_damaged_delta_and_a_segment_that_is_gone_leave_out_what_they_change(world: SparkWorld) -> None:
    parts = three_parts(world, "d")
    world.run("DELETE FROM d WHERE k = 12 OR k = 13")
    [delta] = world.catalog.parts.snapshot(world.table("d").uuid).deltas
    path_of(world, "d", delta.file).unlink()
    refused = world.refused("SELECT k FROM d")
    assert str(parts[1].name) in str(refused)
    answer = world.run(f"SELECT k FROM d ORDER BY k {SKIP}")
    # No deleted row comes back.
    assert answer.table.column(0).to_pylist() == [*range(10), *range(20, 30)]
    assert "8 rows are missing" in answer.notices[0]
    segments = three_parts(world, "g", "SETTINGS memory_buffer = 1")
    assert all(part.is_segment for part in segments)
    path_of(world, "g", segments[2].file).unlink()
    assert str(segments[2].name) in str(world.refused("SELECT k FROM g"))
    assert world.run(f"SELECT k FROM g {SKIP}").table.num_rows == 20
    shown = world.rows("SELECT name FROM system.segments WHERE table = 'g' AND damaged IS NOT NULL")
    assert shown == [(str(segments[2].name),)]


def test_what_changes_or_copies_rows_never_leaves_any_out(world: SparkWorld) -> None:
    parts = three_parts(world, "w")
    three_parts(world, "copy")
    path_of(world, "w", parts[1].file).unlink()
    for statement in (
        f"INSERT INTO copy SELECT * FROM w {SKIP}",
        f"DELETE FROM w WHERE length(s) = 3 {SKIP}",
        f"UPDATE w SET s = 'x' WHERE length(s) = 3 {SKIP}",
    ):
        assert world.refused(statement.replace(SKIP, ""), skip_damaged_parts="1").code == "DAMAGED_PARTS_NOT_SKIPPED"
        refused = world.refused(statement.replace(SKIP, ""))
        assert str(parts[1].name) in str(refused)
        assert "backup" in str(refused)
    assert world.refused("OPTIMIZE TABLE w", skip_damaged_parts="1").code == "DAMAGED_PARTS_NOT_SKIPPED"
    assert world.rows("SELECT count(*) FROM copy") == [(30,)]
    # A session that skips goes on inserting by value.
    world.run("INSERT INTO w VALUES (99, 'new')", skip_damaged_parts="1")
    assert world.rows("SELECT count(k) FROM w", skip_damaged_parts="1") == [(21,)]


def test_a_store_that_is_away_is_no_damage(world: SparkWorld) -> None:
    three_parts(world, "away")
    folder = data_folder(world.engine._services.root, world.table("away").uuid)
    os.rename(folder, f"{folder}.away")
    assert world.refused(f"SELECT k FROM away {SKIP}").code == "STORE_AWAY"
    os.rename(f"{folder}.away", folder)
    answer = world.run(f"SELECT k FROM away {SKIP}")
    assert (answer.table.num_rows, answer.notices) == (30, ())
