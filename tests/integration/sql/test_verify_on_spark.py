"""SYSTEM VERIFY in Spark's tasks finds what the server finds, in the same words.

Costs about 10 s: a dozen small jobs.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.spark_world import SparkWorld
from tilth.base.errors import CorruptError
from tilth.control.context import verify_reads
from tilth.control.context.services import Call
from tilth.control.context.verify_reads import TaskReads
from tilth.model.task import TaskState
from tilth.query.settings import session_settings
from tilth.storage import data_folder, sources_of
from tilth.verify import KeysOrder, ReadsHere

pytestmark = pytest.mark.integration


def verified(world: SparkWorld, name: str) -> list[tuple[object, ...]]:
    return world.rows(f"SYSTEM VERIFY {name}")


def in_tasks(world: SparkWorld, name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The same by tasks, of which there is at least one."""
    before = {task.id for task in world.dispatcher.tasks()}
    with monkeypatch.context() as patch:
        patch.setattr(verify_reads, "HERE_BYTES_MAX", -1)
        found = verified(world, name)
    tasks = [task for task in world.dispatcher.tasks() if task.id not in before]
    assert {(task.table, task.state) for task in tasks} == {(f"shop.{name}", TaskState.DONE)}
    return found


@pytest.fixture(scope="module")
def keyed(world: SparkWorld) -> str:
    """A table with a key, segments, a part and deletions in both."""
    world.run("CREATE TABLE keyed (k BIGINT, s String) ENGINE = MergeTree ORDER BY k UNIQUE KEY k")
    for first in (0, 500, 900):
        world.run(f"INSERT INTO keyed SELECT id, concat('s', id) FROM range({first}, {first + 600})")
    world.run("DELETE FROM keyed WHERE k % 7 = 3")
    return "keyed"


def test_what_is_right(world: SparkWorld, keyed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_tasks(world, keyed, monkeypatch)
    assert found == verified(world, keyed)
    assert len(found) == 5
    assert all(ok for _, _, ok, _ in found)
    assert "each unique key has one row" in [check for _, check, _, _ in found]


def test_files_that_are_wrong(world: SparkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE TABLE damaged (k BIGINT, s String) ENGINE = MergeTree ORDER BY k")
    for first in (0, 10, 20, 30):
        world.run(f"INSERT INTO damaged SELECT id, 'x' FROM range({first}, {first + 10})")
    world.run("DELETE FROM damaged WHERE k = 5")
    world.run("DELETE FROM damaged WHERE k = 25")
    table = world.table("damaged")
    snapshot = world.catalog.parts.snapshot(table.uuid)
    folder = Path(data_folder(world.engine._services.root, table.uuid))
    files = [*(part.file for part in snapshot.parts), *(delta.file for delta in snapshot.deltas)]
    kept = {file.name: (folder / file.name).read_bytes() for file in files}
    for file in files:
        path = folder / file.name
        for spoil in (
            path.unlink,
            lambda path=path: os.truncate(path, 10),
            lambda path=path: path.write_bytes(b"x" * 99),
        ):
            spoil()
            wrong = verified(world, "damaged")
            assert [ok for _, _, ok, _ in wrong].count(False) == 1
            assert in_tasks(world, "damaged", monkeypatch) == wrong
            path.write_bytes(kept[file.name])
    for path in (folder / files[0].name, folder / files[-1].name):
        path.write_bytes(b"")
    assert in_tasks(world, "damaged", monkeypatch) == verified(world, "damaged")


def test_keys_that_two_rows_have(world: SparkWorld) -> None:
    world.run("CREATE TABLE twice (k BIGINT, s String) ENGINE = MergeTree ORDER BY k")
    for rows in (50, 30, 7):
        world.run(f"INSERT INTO twice SELECT id, 'x' FROM range({rows})")
    table = world.table("twice")
    snapshot = world.catalog.parts.snapshot(table.uuid)
    sources = tuple(sources_of(table, snapshot.parts, snapshot.deltas))
    root = world.engine._services.root.of(table.uuid)
    reads = TaskReads(world.engine._services, Call(query_id="q", database="shop", settings=session_settings({})), table)
    has_key = msgspec.structs.replace(table, unique_key=("k",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_reads, "HERE_BYTES_MAX", -1)
        # In one scope a row of each but one of equal keys counts; in scopes of their own none does.
        for scopes, repeated in (((sources,), 37), (tuple((source,) for source in sources), 0), ((), 0)):
            order = KeysOrder(table=has_key, root=root, scopes=scopes)
            assert (reads.repeated(order), ReadsHere().repeated(order)) == (repeated, repeated)
        Path(data_folder(root, table.uuid), sources[1].file.name).unlink()
        order = KeysOrder(table=has_key, root=root, scopes=(sources,))
        with pytest.raises(CorruptError) as here:
            ReadsHere().repeated(order)
        with pytest.raises(CorruptError) as there:
            reads.repeated(order)
    assert (there.value.code, str(there.value)) == (here.value.code, str(here.value))
