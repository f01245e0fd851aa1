"""CREATE, ALTER, DROP and SHOW WAREHOUSE, ALTER WORKER, and where statements and tables send their tasks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused
from tilth.model.task import TaskSpec
from tilth.query.results.spark import to_stream

_TABLE = "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a"


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path / "tables")


def _names(world: SqlWorld) -> list[object]:
    return [row[0] for row in world.rows("SHOW WAREHOUSES")]


def _warehouse_of(world: SqlWorld, text: str, **settings: str) -> str:
    """The warehouse that a query's task is sent to."""
    world.dispatch.answer = _one_row
    world.run(text, settings=settings)
    return world.dispatch.specs[-1].warehouse


def _one_row(spec: TaskSpec) -> bytes:
    return to_stream(pa.table({"a": [1]}))


def test_a_warehouse_is_made_changed_shown_and_dropped(world: SqlWorld) -> None:
    world.run("CREATE WAREHOUSE IF NOT EXISTS reports SETTINGS num_workers = 2, type = 'Read', memory = '4 GiB'")
    assert _names(world) == ["default", "write", "reports"]
    world.run("ALTER WAREHOUSE reports SETTINGS work = 'queries, imports'")
    world.run("ALTER WAREHOUSE reports RESET SETTING num_workers")
    assert world.rows("SHOW CREATE WAREHOUSE reports") == [
        ("CREATE WAREHOUSE reports SETTINGS work = 'queries, imports', memory = '4 GiB'",)
    ]
    assert [row[0] for row in world.rows("SHOW WAREHOUSE reports")] == ["reports"]
    assert [row[0] for row in world.rows("SHOW WAREHOUSES LIKE 'rep%'")] == ["reports"]
    world.run("ALTER WAREHOUSE write SETTINGS num_workers = 3")
    [(text,)] = world.rows("SHOW CREATE WAREHOUSE write")
    assert text == "CREATE WAREHOUSE IF NOT EXISTS write SETTINGS num_workers = 3"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("CREATE WAREHOUSE write", "WAREHOUSE_EXISTS"),
        ("CREATE WAREHOUSE w SETTINGS num_workers = -1", "BAD_SETTING"),
        ("CREATE WAREHOUSE w SETTINGS work = 'queries, dreams'", "BAD_SETTING"),
        ("CREATE WAREHOUSE w SETTINGS nonsense = 1", "UNKNOWN_SETTING"),
        ("CREATE WAREHOUSE 'a,b'", "INVALID_INPUT"),
        ("ALTER WAREHOUSE nowhere SETTINGS num_workers = 1", "WAREHOUSE_NOT_FOUND"),
        ("DROP WAREHOUSE nowhere", "WAREHOUSE_NOT_FOUND"),
        ("DROP WAREHOUSE default", "WAREHOUSE_IN_USE"),
        ("SHOW CREATE WAREHOUSE nowhere", "WAREHOUSE_NOT_FOUND"),
        ("SET warehouse = 'nowhere'", "WAREHOUSE_NOT_FOUND"),
        ("ALTER WORKER nobody DRAIN", "WORKER_NOT_FOUND"),
        (f"{_TABLE} SETTINGS cnch_vw_write = 'nowhere'", "WAREHOUSE_NOT_FOUND"),
        ("ALTER TABLE t MODIFY SETTING cnch_vw_default = 'nowhere'", "WAREHOUSE_NOT_FOUND"),
    ],
)
def test_what_is_wrong_leaves_everything_as_it_was(world: SqlWorld, text: str, code: str) -> None:
    if text.startswith("ALTER TABLE"):
        world.run(_TABLE)
    before = (world.rows("SHOW WAREHOUSES"), world.catalog.warehouses.all(), world.rows("SHOW TABLES"))
    assert refused(world, text).code == code
    assert (world.rows("SHOW WAREHOUSES"), world.catalog.warehouses.all(), world.rows("SHOW TABLES")) == before


def test_a_warehouse_that_somebody_uses_is_not_dropped(world: SqlWorld) -> None:
    world.run("CREATE WAREHOUSE w")
    world.run(f"{_TABLE} SETTINGS cnch_vw_task = 'w'")
    assert "default.t" in str(refused(world, "DROP WAREHOUSE w"))
    world.run("ALTER TABLE t RESET SETTING cnch_vw_task")
    world.run("DROP WAREHOUSE w")
    world.run("DROP WAREHOUSE IF EXISTS w")
    assert (_names(world), world.catalog.warehouses.all()) == (["default", "write"], [])


def test_a_query_goes_where_its_statement_or_its_table_says(world: SqlWorld) -> None:
    world.run("CREATE WAREHOUSE a")
    world.run("CREATE WAREHOUSE b")
    world.run(f"{_TABLE} SETTINGS cnch_vw_default = 'a'")
    world.run("CREATE TABLE plain (a Int64) ENGINE = MergeTree ORDER BY a")
    assert _warehouse_of(world, "SELECT * FROM plain") == "default"
    assert _warehouse_of(world, "SELECT * FROM plain JOIN default.t USING (a)") == "a"
    assert _warehouse_of(world, "SELECT * FROM t SETTINGS virtual_warehouse = 'b'") == "b"
    assert _warehouse_of(world, "SELECT * FROM t", warehouse="b") == "b"


def test_a_drained_worker_stays_drained_until_it_is_resumed(world: SqlWorld) -> None:
    world.run("ALTER WORKER w1 DRAIN BECAUSE 'its disk is replaced'")
    [(name, why)] = world.dispatch.drained.items()
    assert (name, "its disk is replaced" in why, "RESUME" in why) == ("w1", True, True)
    assert [each.worker for each in world.catalog.warehouses.drains()] == ["w1"]
    world.run("ALTER WORKER 'w1' RESUME")
    assert (world.dispatch.drained, world.catalog.warehouses.drains()) == ({}, [])
    verbs = [row[0] for row in world.rows("SELECT verb FROM system.audit_log")]
    assert "ALTER WORKER .. DRAIN" in verbs
