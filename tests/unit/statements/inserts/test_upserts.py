"""INSERT into tables with a unique key: what is left of the rows, and which input is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.base.errors import ErrorKind, TilthError
from tilth.catalog import CommitOutcome, Requirement, Update
from tilth.model.task import TaskSpec
from tilth.model.txn import LeftoverNote, TxnState
from tilth.query.snapshots.protocol import InsertPayload, InsertResult, InsertTask, ResolveResult, ResolveTask
from tilth.statements.inserts import upserts
from tilth.storage import data_folder, layout_of, local_root, read_source, resolve_all, sources_of, write_segments

COLUMNS = "(id Int64, p Int32, s String, note String NOT NULL DEFAULT 'none', n Int32 NOT NULL)"


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run(f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree PARTITION BY p ORDER BY id UNIQUE KEY (id, p)")
    return made


def rows(world: SqlWorld, tmp_path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The live rows in order; by default the key's first column and `s`."""
    table = table_of(world)
    snapshot = world.catalog.parts.snapshot(table.uuid)
    found: list[dict[str, Any]] = []
    for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
        found += read_source(data_folder(local_root(tmp_path), table.uuid), source)[0].to_pylist()
    assert len(found) == snapshot.rows
    return sorted(tuple(row[name] for name in columns or ("id", "s")) for row in found)


def test_the_last_row_of_a_key_is_left(world: SqlWorld, tmp_path: Path) -> None:
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'a', 1), (2, 0, 'b', 1), (2, 0, 'c', 1)")
    assert rows(world, tmp_path) == [(1, "a"), (2, "c")]
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'd', 2), (1, 1, 'other', 2), (3, 0, 'e', 2)")
    assert rows(world, tmp_path) == [(1, "d"), (1, "other"), (2, "c"), (3, "e")]


@pytest.mark.parametrize("word", ["1", "'d'", "'D'", "'delete'", "true"])
def test_values_that_delete(world: SqlWorld, tmp_path: Path, word: str) -> None:
    world.run("INSERT INTO t (id, p, s, n, _op) VALUES (1, 0, 'a', 1, 0), (2, 0, 'b', 1, 'upsert')")
    # A delete needs the key alone; of a key that nobody knows nothing is left.
    world.run(f"INSERT INTO t (_op, id, p) VALUES ({word}, 1, 0), ({word}, 9, 0)")
    assert rows(world, tmp_path) == [(2, "b")]


def test_objects_texts_and_arrow_that_delete(world: SqlWorld, tmp_path: Path) -> None:
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'a', 1), (2, 0, 'b', 1), (3, 0, 'c', 1), (4, 0, 'd', 1)")
    lines = [{"id": 1, "p": 0, "_op": "d"}, {"id": 5, "p": 0, "n": 1, "s": "new"}]
    data = "\n".join(map(json.dumps, lines)).encode()
    world.engine.insert_text("default", "t", input_format="JSONEachRow", data=data)
    world.run("INSERT INTO t FORMAT CSVWithNames\nid,p,_delete_flag_\n2,0,1\n")
    flags = pa.table({"ID": [3, 6], "p": [0, 0], "n": [1, 1], "s": ["c", "six"], "_Delete_Flag_": [True, False]})
    world.engine.insert_arrow("default", "t", flags)
    world.engine.insert_arrow("default", "t", pa.table({"id": [4], "p": [0], "_op": ["delete"]}))
    assert rows(world, tmp_path, "id", "s", "note") == [(5, "new", "none"), (6, "six", "none")]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("INSERT INTO t (id, p, n) VALUES (1, 0, 1), (NULL, 0, 1)", "UNIQUE_KEY_NULL", ["row=2", "column=id"]),
        ("INSERT INTO t (p, n) VALUES (0, 1)", "UNIQUE_KEY_NULL", ["missing", "column=id"]),
        ('INSERT INTO t FORMAT JSONEachRow {"id": 1, "n": 1}', "UNIQUE_KEY_NULL", ["column=p"]),
        ("INSERT INTO t (id, _op) VALUES (1, 'd')", "UNIQUE_KEY_NULL", ["missing", "column=p"]),
        ("INSERT INTO t (id, p, n, _op) VALUES (1, 0, 1, 0), (1, 0, 1, 'x')", "BAD_VALUE", ["row=2", "value=4", "_op"]),
        ("INSERT INTO t (id, p, _op) VALUES (1, 0, 'd'), (2, 0, 'u')", "BAD_VALUE", ["NOT NULL", "column=n"]),
        ("INSERT INTO t (id, p, n, _op, _delete_flag_) VALUES (1, 0, 1, 0, 0)", "BAD_VALUE", ["twice"]),
    ],
)
def test_what_is_refused_before_anything_is_written(
    world: SqlWorld, tmp_path: Path, text: str, code: str, told: list[str]
) -> None:
    error = refused(world, text)
    assert error.code == code, str(error)
    assert all(word in str(error) for word in told), str(error)
    assert world.catalog.transactions.unfinished() == []
    assert rows(world, tmp_path) == []


def test_arrow_without_keys_is_refused(world: SqlWorld) -> None:
    for given, code in (
        (pa.table({"id": pa.array([1, None], pa.int64()), "p": [0, 0], "n": [1, 1]}), "UNIQUE_KEY_NULL"),
        (pa.table({"p": [0], "n": [1]}), "UNIQUE_KEY_NULL"),
        (pa.table({"id": [1], "p": [0], "n": [1], "_op": ["x"]}), "BAD_VALUE"),
        (pa.table({"id": [1], "p": [0], "_op": ["u"]}), "BAD_COLUMN"),
    ):
        with pytest.raises(TilthError) as caught:
            world.engine.insert_arrow("default", "t", given)
        assert caught.value.code == code, str(caught.value)


def test_no_column_of_a_table_with_a_key_is_called_so(world: SqlWorld) -> None:
    """What a row does would be taken for its value, or its value for what it does."""
    for text in (
        "ALTER TABLE t ADD COLUMN _delete_flag_ Int32",
        "ALTER TABLE t RENAME COLUMN n TO _op",
        "CREATE TABLE other (id Int64, _op Int32) ENGINE = MergeTree UNIQUE KEY id",
    ):
        assert "the name is taken" in str(refused(world, text))
    world.run("CREATE TABLE plain (id Int64, _op Int32) ENGINE = MergeTree ORDER BY id")


def test_a_row_that_deletes_says_where_it_is(world: SqlWorld) -> None:
    """Else it would look for its key in the wrong partition, and quietly delete nothing."""
    table = "(id Int64, p Int32, n Int32) ENGINE = MergeTree PARTITION BY p ORDER BY id UNIQUE KEY id"
    world.run(f"CREATE TABLE local {table}")
    world.run(f"CREATE TABLE global {table} SETTINGS partition_level_unique_keys = 0")
    for text in (
        "INSERT INTO local (id, _op) VALUES (1, 'd')",
        'INSERT INTO local FORMAT JSONEachRow {"id": 1, "_op": "d"}',
        "INSERT INTO local (id, _op) SELECT 1, 'd'",
    ):
        error = refused(world, text)
        assert (error.code, "column=p" in str(error)) == ("BAD_VALUE", True), str(error)
    world.run("INSERT INTO global VALUES (1, 5, 1)")
    world.run('INSERT INTO global FORMAT JSONEachRow {"id": 1, "_op": "d"}')
    assert world.catalog.parts.snapshot(table_of(world, "global").uuid).rows == 0


def test_other_tables_know_no_op(world: SqlWorld) -> None:
    world.run("CREATE TABLE plain (a Int32) ENGINE = MergeTree ORDER BY a")
    assert refused(world, "INSERT INTO plain (a, _op) VALUES (1, 0)").code == "UNKNOWN_COLUMN"


def test_the_greater_version_wins(world: SqlWorld, tmp_path: Path) -> None:
    world.run("CREATE TABLE v (id Int64, v Int32, s String) ENGINE = MergeTree(v) ORDER BY id UNIQUE KEY id")
    for values in ("(1, 5, 'a'), (1, 4, 'b')", "(1, 3, 'c')", "(1, 5, 'd')"):
        world.run(f"INSERT INTO v VALUES {values}")
    table = table_of(world, "v")
    snapshot = world.catalog.parts.snapshot(table.uuid)
    sources = sources_of(snapshot.table, snapshot.parts, snapshot.deltas)
    found = [read_source(data_folder(local_root(tmp_path), table.uuid), source)[0] for source in sources]
    assert pa.concat_tables(found).column("s").to_pylist() == ["d"]


def test_null_keeps_the_older_value_of_partial_updates(world: SqlWorld, tmp_path: Path) -> None:
    world.run("ALTER TABLE t MODIFY SETTING enable_unique_partial_update = 1")
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'a', 1), (2, 0, 'b', 1)")
    world.run("INSERT INTO t (id, p, n) VALUES (1, 0, 7)")
    assert rows(world, tmp_path, "id", "s", "n") == [(1, "a", 7), (2, "b", 1)]


class Rival:
    """Commits something of its own right before the insert does, so often."""

    def __init__(self, world: SqlWorld, text: str, times: int) -> None:
        self._world, self._text, self._left = world, text, times
        self._commit = world.catalog.transactions.commit
        self.commits = 0

    def __call__(
        self,
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        self.commits += 1
        if self._left:
            self._left -= 1
            left, self._left = self._left, 0
            self._world.run(self._text, settings={"async_insert": "0"})
            self._left = left
            self.commits -= 1
        return self._commit(txn_id, updates, requirements, leftovers)


def rival(monkeypatch: pytest.MonkeyPatch, world: SqlWorld, text: str, times: int) -> Rival:
    made = Rival(world, text, times)
    monkeypatch.setattr(world.catalog.transactions, "commit", made)
    return made


@pytest.mark.parametrize("key", [1, 2], ids=["a key that is there", "a key that is new"])
def test_rows_that_come_in_between_are_seen(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'first', 1)")
    between = rival(monkeypatch, world, f"INSERT INTO t (id, p, s, n) VALUES ({key}, 0, 'between', 1)", times=1)
    world.run(f"INSERT INTO t (id, p, s, n) VALUES ({key}, 0, 'last', 1)")
    assert between.commits == 2
    assert [row for row in rows(world, tmp_path) if row[0] == key] == [(key, "last")]
    assert world.catalog.transactions.unfinished() == []


def test_rows_of_other_partitions_disturb_nobody(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = rival(monkeypatch, world, "INSERT INTO t (id, p, s, n) VALUES (1, 1, 'between', 1)", times=1)
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'last', 1)")
    assert between.commits == 1
    assert rows(world, tmp_path) == [(1, "between"), (1, "last")]


def test_the_key_of_a_whole_table(world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("DROP TABLE t")
    world.run(
        f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree PARTITION BY p ORDER BY id UNIQUE KEY id "
        "SETTINGS partition_level_unique_keys = 0"
    )
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'first', 1)")
    between = rival(monkeypatch, world, "INSERT INTO t (id, p, s, n) VALUES (1, 1, 'between', 1)", times=1)
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 2, 'last', 1)")
    assert between.commits == 2
    assert rows(world, tmp_path, "id", "p", "s") == [(1, 2, "last")]


@pytest.mark.parametrize("is_partial", [0, 1])
def test_a_key_that_wanders_between_partitions(world: SqlWorld, tmp_path: Path, is_partial: int) -> None:
    """Each partition has a file of its own; which row came last is known all the same."""
    world.run("DROP TABLE t")
    world.run(
        "CREATE TABLE t (id Int64, p Int32, s String, n Int32) ENGINE = MergeTree PARTITION BY p ORDER BY id "
        f"UNIQUE KEY id SETTINGS partition_level_unique_keys = 0, enable_unique_partial_update = {is_partial}"
    )
    world.run("INSERT INTO t VALUES (1, 0, 'a', 1), (2, 0, 'x', 5), (1, 1, 'b', 2), (2, 1, 'y', 6), (1, 0, 'c', NULL)")
    kept = 2 if is_partial else None
    assert rows(world, tmp_path, "id", "p", "s", "n") == [(1, 0, "c", kept), (2, 1, "y", 6)]


def test_who_is_always_late_gives_up_in_the_end(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserts, "UPSERT_TRIES_MAX", 3)
    rival(monkeypatch, world, "INSERT INTO t (id, p, s, n) VALUES (1, 0, 'between', 1)", times=100)
    error = refused(world, "INSERT INTO t (id, p, s, n) VALUES (1, 0, 'last', 1)")
    assert (error.kind, error.code) == (ErrorKind.RETRY, "TOO_MANY_CONFLICTS")
    assert rows(world, tmp_path) == [(1, "between")]
    assert [txn.state for txn in world.catalog.transactions.unfinished()] == [TxnState.ABORTED]


def test_files_of_tries_that_failed_go(world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rival(monkeypatch, world, "INSERT INTO t (id, p, s, n) VALUES (1, 0, 'between', 1)", times=2)
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'a', 1), (1, 0, 'last', 1)")
    snapshot = world.catalog.parts.snapshot(table_of(world).uuid)
    folder = Path(data_folder(local_root(tmp_path), table_of(world).uuid))
    known = {part.file.name for part in snapshot.parts} | {delta.file.name for delta in snapshot.deltas}
    assert {path.name for path in folder.iterdir()} == known


def worker(world: SqlWorld, tmp_path: Path) -> Callable[[TaskSpec], bytes]:
    """Does what the real one does, without Spark."""

    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=InsertPayload)
        if isinstance(task, ResolveTask):
            return msgspec.msgpack.encode(ResolveResult(changes=resolve_all(task.requests, attempt=1)))
        assert isinstance(task, InsertTask)
        given = pa.table(
            {
                "id": [1, 2],
                "p": [0, 0],
                "n": [1, 1],
                "s": ["q", "gone"],
                "note": ["", ""],
                "_op": pa.array([0, 1], pa.int8()),
            }
        )
        layout = layout_of(task.target, task.root)
        return msgspec.msgpack.encode(
            InsertResult(parts=tuple(write_segments(layout, given, txn=spec.txn, task=1, attempt=0)))
        )

    return answer


def test_a_query_and_large_tables_are_resolved_by_a_worker(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("INSERT INTO t (id, p, s, n) VALUES (1, 0, 'a', 1), (2, 0, 'b', 1), (3, 0, 'c', 1)")
    monkeypatch.setattr(upserts, "UPSERT_HERE_BYTES_MAX", 0)
    world.dispatch.answer = worker(world, tmp_path)
    assert world.run("INSERT INTO t (id, p, n, s, _op) SELECT 1").rows_written == 2
    assert rows(world, tmp_path) == [(1, "q"), (3, "c")]
    assert len(world.dispatch.specs) == 2
