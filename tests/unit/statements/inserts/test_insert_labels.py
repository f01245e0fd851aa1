"""Labels of inserts: sent twice, stored once."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import InsertResult
from tilth.storage import layout_of, local_root, write_parts


@pytest.fixture(params=["", " SETTINGS memory_buffer = 1"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run(f"CREATE TABLE t (a Int32 NOT NULL) ENGINE = MergeTree ORDER BY a{request.param}")
    return made


def count(world: SqlWorld) -> int:
    return world.catalog.parts.snapshot(table_of(world).uuid).rows


def test_a_label_is_stored_once(world: SqlWorld) -> None:
    first = world.run("INSERT INTO t SETTINGS insertion_label = 'x' VALUES (1), (2)")
    assert (first.rows_written, first.message) == (2, "inserted into default.t: 2 rows")
    second = world.run("INSERT INTO t VALUES (3)", settings={"insert_deduplication_token": "x"})
    assert second.rows_written == 0
    assert second.message == "already inserted into default.t: 2 rows, label x; nothing was written"
    third = world.engine.insert_text(
        "default", "t", input_format="JSONEachRow", data=b'{"a": 4}', settings={"insertion_label": "x"}
    )
    assert third is not None
    assert third.message.startswith("already inserted")
    assert count(world) == 2
    world.run("INSERT INTO t SETTINGS insertion_label = 'y' VALUES (3)")
    world.run("INSERT INTO t VALUES (3)")
    assert count(world) == 4


def test_a_label_belongs_to_its_table(world: SqlWorld) -> None:
    world.run("CREATE TABLE u (a Int32) ENGINE = MergeTree ORDER BY a")
    world.run("INSERT INTO u VALUES (1)", settings={"insertion_label": "x"})
    assert world.run("INSERT INTO t VALUES (1)", settings={"insertion_label": "x"}).rows_written == 1


def test_an_insert_that_failed_leaves_its_label_free(world: SqlWorld) -> None:
    labelled = {"insertion_label": "x"}
    assert refused(world, "INSERT INTO t VALUES ('one')", labelled).code == "BAD_VALUE"
    assert world.run("INSERT INTO t VALUES (1)", settings=labelled).rows_written == 1


def test_a_query_has_a_label_too(world: SqlWorld, tmp_path: Path) -> None:
    def answer(spec: TaskSpec) -> bytes:
        rows = pa.table({"a": pa.array([1, 2, 3], pa.int32())})
        parts = write_parts(layout_of(table_of(world), local_root(tmp_path)), rows, txn=spec.txn, task=0, attempt=0)
        return msgspec.msgpack.encode(InsertResult(parts=tuple(parts)))

    world.dispatch.answer = answer
    text = "INSERT INTO t SETTINGS insertion_label = 'q' SELECT 1"
    assert world.run(text).rows_written == 3
    assert "3 rows, label q" in world.run(text).message
    assert (count(world), len(world.dispatch.specs)) == (3, 1)


def test_two_at_once_are_one(world: SqlWorld) -> None:
    messages: list[str] = []

    def insert() -> None:
        messages.append(world.run("INSERT INTO t VALUES (1)", settings={"insertion_label": "x"}).message)

    threads = [threading.Thread(target=insert) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert count(world) == 1
    assert sorted(message.split(" ")[0] for message in messages) == ["already"] * 7 + ["inserted"]


def test_a_label_is_no_novel(world: SqlWorld) -> None:
    error = refused(world, "INSERT INTO t VALUES (1)", {"insertion_label": "x" * 300})
    assert (error.code, "256 characters" in str(error)) == ("BAD_SETTING", True)
