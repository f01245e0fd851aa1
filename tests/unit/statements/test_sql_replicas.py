"""Statements that write during ALTER STORAGE, also if another server alters it and this one has no news of that.

Modules: statements/inserts/commit.py, catalog/commit/pinned_storages.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.sql_world import SqlWorld, table_of
from tests.unit.statements.rows.test_delete_update import Worker, rows_now
from tilth.base.errors import TilthError
from tilth.model.storage import Storage
from tilth.model.task import TaskSpec
from tilth.query.snapshots.protocol import InsertResult, InsertTask
from tilth.statements.inserts import commit as inserts_commit
from tilth.storage import (
    conform,
    layout_of,
    local_root,
    replicas_of,
    replicated_root,
    reserve_location,
    write_parts,
    write_rows,
)


class Meanwhile:
    """Alters the storage once, after files were written: on this server, or on another one without news of it."""

    def __init__(self, world: SqlWorld, folder: Path, *, is_heard: bool) -> None:
        self.world = world
        self.folder = folder
        self.is_heard = is_heard
        self.changes = 1
        root = world.engine._services.root
        world.catalog.follow_storages(lambda: root.follow(world.catalog.storages.all))

    def __call__(self, *_: object) -> None:
        if not self.changes:
            return
        self.changes -= 1
        two, new = self.folder / "two", self.folder / f"new{self.changes}"
        if self.is_heard:
            self.world.run(f"ALTER STORAGE r REPLACE REPLICA '{two}' WITH '{new}'")
        else:
            reserve_location(local_root(new))
            [before] = self.world.catalog.storages.all()
            places = [local_root(self.folder / "one"), local_root(new)]
            text = replicated_root("r", places, 2).text
            after = Storage(name="r", root=text, replica_ids=(before.replica_ids[0], "n"))
            assert self.world.catalog.storages.replace(after, before, [], {table_of(self.world).uuid: (0,)})
        # REPLICATE makes these folders soon after.
        for table in self.world.catalog.tables.all():
            (new / table.uuid / "data").mkdir(parents=True)
            (new / table.uuid / ".tilth").touch()

    def files(self, name: str) -> set[str]:
        return {path.name for path in (self.folder / name / table_of(self.world).uuid / "data").iterdir()}

    def check(self) -> None:
        """Check that the files of the statement are in both present replicas."""
        names = {each.file.name for each in self.world.catalog.parts.snapshot(table_of(self.world).uuid).parts}
        assert names <= self.files("one")
        assert names <= self.files("new0")


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    (tmp_path / "places").mkdir()
    made = SqlWorld(tmp_path / "node", settings={"storage.local-folder": str(tmp_path / "places")})
    one, two = (tmp_path / "places" / name for name in ("one", "two"))
    made.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}') QUORUM 2")
    made.run("CREATE TABLE t (p Int64, v Int64, s String) ENGINE = MergeTree ORDER BY v SETTINGS storage_policy = 'r'")
    return made


@pytest.fixture(params=["heard", "unheard"])
def meanwhile(request: pytest.FixtureRequest, world: SqlWorld, tmp_path: Path) -> Meanwhile:
    return Meanwhile(world, tmp_path / "places", is_heard=request.param == "heard")


def test_an_insert_is_done_again_with_the_replicas_of_now(
    world: SqlWorld, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts_commit, "write_rows", followed(write_rows, meanwhile))
    assert world.run("INSERT INTO t VALUES (1, 1, 'a')").rows_written == 1
    assert rows_now(world) == [(1, 1, "a")]
    meanwhile.check()


def test_an_insert_of_a_server_that_never_hears_of_a_change_is_refused_by_name(world: SqlWorld) -> None:
    [real] = world.catalog.storages.all()
    world.engine._services.root.follow(lambda: [replace(real, replica_ids=("a", "b"))])
    with pytest.raises(TilthError) as caught:
        world.run("INSERT INTO t VALUES (1, 1, 'a')")
    assert (caught.value.code, caught.value.kind.value) == ("STORAGE_CHANGED", "retry")
    assert rows_now(world) == []


def test_an_insert_of_a_query_is_computed_again(world: SqlWorld, meanwhile: Meanwhile) -> None:
    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=InsertTask)
        table = table_of(world)
        rows = conform(pa.table({"p": [1], "v": [2], "s": ["b"]}), table.schema)
        parts = write_parts(layout_of(table, task.root), rows, txn=spec.txn, task=0, attempt=0)
        meanwhile()
        return msgspec.msgpack.encode(InsertResult(parts=tuple(parts)))

    world.dispatch.answer = answer
    assert world.run("INSERT INTO t SELECT 1, 2, 'b'").rows_written == 1
    assert rows_now(world) == [(1, 2, "b")]
    meanwhile.check()


def test_a_delete_is_done_again(world: SqlWorld, meanwhile: Meanwhile) -> None:
    world.run("INSERT INTO t VALUES (1, 1, 'a'), (1, 11, 'b')")
    worker = Worker(world)
    world.dispatch.answer, worker.meanwhile = worker, meanwhile
    assert world.run("DELETE FROM t WHERE v >= 10").rows_written == 1
    assert rows_now(world) == [(1, 1, "a")]
    assert len(worker.tasks) == 2
    [delta] = world.catalog.parts.snapshot(table_of(world).uuid).deltas
    assert delta.file.name in meanwhile.files("one") & meanwhile.files("new0")


def test_no_replica_gives_way_while_the_others_are_away(world: SqlWorld, tmp_path: Path) -> None:
    """Three replicas are replaced in a row, some of them away: each time another one that answers must be complete."""
    places = tmp_path / "places"
    world.run(f"ALTER STORAGE r ADD REPLICA '{places / 'three'}'")
    [table] = world.catalog.tables.all()
    world.run("INSERT INTO t SETTINGS insert_quorum = 2 VALUES (1, 1, 'a')")
    root = world.engine._services.root
    for number in (1, 2):
        (places / ("two", "three")[number - 1] / ".tilth").rename(tmp_path / f"away{number}")
        replicas_of(root.named("r"))[number].health.note("away")
    with pytest.raises(TilthError) as caught:
        world.run(f"ALTER STORAGE r REPLACE REPLICA '{places / 'one'}' WITH '{places / 'four'}'")
    assert caught.value.code == "REPLICA_NEEDED"
    # The replicas that are away can be replaced: the first one has all files.
    world.run(f"ALTER STORAGE r REPLACE REPLICA '{places / 'two'}' WITH '{places / 'four'}'")
    world.run(f"ALTER STORAGE r REPLACE REPLICA '{places / 'three'}' WITH '{places / 'five'}'")
    with pytest.raises(TilthError) as caught:
        world.run(f"ALTER STORAGE r REPLACE REPLICA '{places / 'one'}' WITH '{places / 'six'}'")
    assert caught.value.code == "REPLICA_NEEDED"
    assert world.catalog.copies.incomplete(table.uuid) == (1, 2)
    assert rows_now(world) == [(1, 1, "a")]


# Any: whatever the function takes and returns.
def followed(act: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    def both(*given: Any, **named: Any) -> Any:
        answer = act(*given, **named)
        then()
        return answer

    return both
