"""INSERT by value: what is stored, and which row, value and column an error names."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.errors import TilthError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.table import TableDef
from tilth.model.task import TaskSpec
from tilth.model.txn import TxnState
from tilth.query.snapshots.protocol import InsertResult
from tilth.storage import conform, data_folder, layout_of, local_root, read_part, write_parts
from tilth.warehouse import TaskLostError


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run(
        "CREATE TABLE t (a Int32 NOT NULL, s String DEFAULT 'none', d Date, ts Timestamp, m Decimal(10, 2), "
        "l Array(Int8), x Map(String, Int64), p Tuple(u Int64, v String), f Float64, b Bool) "
        "ENGINE = MergeTree PARTITION BY d ORDER BY a"
    )
    return made


def stored(world: SqlWorld, tmp_path: Path) -> list[dict[str, object]]:
    """All rows in the order of their parts."""
    table = world.catalog.tables.get("default", "t")
    assert isinstance(table, TableDef)
    parts = world.catalog.parts.snapshot(table.uuid).parts
    tables = [read_part(data_folder(local_root(tmp_path), table.uuid), part.file) for part in parts]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_values_of_every_type(world: SqlWorld, tmp_path: Path) -> None:
    answer = world.run(
        "INSERT INTO t VALUES (2, 'b', '2020-01-02', '2020-01-02 03:04:05', 1.5, [1, NULL], {'k': 7}, (1, 'z'), 1e3, "
        "true), (1, 'a', DATE '2020-01-02', TIMESTAMP '2020-01-02 03:04:05.000006', 2, [], {}, NULL, 2, 0)"
    )
    assert (answer.rows_written, answer.message) == (2, "inserted into default.t: 2 rows")
    first, second = stored(world, tmp_path)
    assert [first["a"], second["a"]] == [1, 2]
    assert second == {
        "a": 2,
        "s": "b",
        "d": date(2020, 1, 2),
        "ts": datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC),
        "m": Decimal("1.50"),
        "l": [1, None],
        "x": [("k", 7)],
        "p": {"u": 1, "v": "z"},
        "f": 1000.0,
        "b": True,
    }


def test_columns_may_be_chosen_and_defaults_fill_the_rest(world: SqlWorld, tmp_path: Path) -> None:
    world.run("INSERT INTO t (D, a) VALUES ('2020-01-01', 1)")
    (row,) = stored(world, tmp_path)
    assert (row["a"], row["s"], row["d"], row["f"]) == (1, "none", date(2020, 1, 1), None)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("INSERT INTO t (a, nope) VALUES (1, 2)", "UNKNOWN_COLUMN", ["nope"]),
        (
            "INSERT INTO t (a, s) VALUES (1, 'x'), (2, 'y'), ('three', 'z')",
            "BAD_VALUE",
            ["row=3", "value=1", "column=a"],
        ),
        ("INSERT INTO t (a, m) VALUES (1, 1.234)", "BAD_VALUE", ["column=m", "2 digits behind"]),
        ("INSERT INTO t (a) VALUES (NULL)", "BAD_VALUE", ["NOT NULL", "row=1", "column=a"]),
        ("INSERT INTO t (s) VALUES ('x')", "BAD_VALUE", ["NOT NULL", "column=a"]),
        ("INSERT INTO t (a) VALUES (2147483648)", "BAD_VALUE", ["column=a", "2147483647"]),
        ("INSERT INTO t (a, l) VALUES (1, [300])", "BAD_VALUE", ["column=l", "127"]),
        ("INSERT INTO t (a, d) VALUES (1, 'soon')", "BAD_VALUE", ["column=d", "soon"]),
        ("INSERT INTO t FORMAT CSVWithNames a,A\n1,2", "BAD_VALUE", ["column=A"]),
        ("INSERT INTO nope VALUES (1)", "TABLE_NOT_FOUND", ["nope"]),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1}\n{"a": 2, "zz": 1}', "UNKNOWN_COLUMN", ["zz", "row=2"]),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1}\n{"a": "x"}', "BAD_VALUE", ["row=2", "column=a"]),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1}\n{"a": ', "BAD_VALUE", ["row=2", "not JSON"]),
        ("INSERT INTO t (a, s) FORMAT CSV 1,x\n2", "BAD_VALUE", ["row=2", "values=1"]),
        ("INSERT INTO t FORMAT XML <a/>", "BAD_VALUE", ["XML", "JSONEachRow"]),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_stored(
    world: SqlWorld, tmp_path: Path, text: str, code: str, told: list[str]
) -> None:
    error = refused(world, text)
    assert error.code == code
    assert all(word in str(error) for word in told), str(error)
    assert stored(world, tmp_path) == []


def test_rows_as_text(world: SqlWorld, tmp_path: Path) -> None:
    world.run(
        'INSERT INTO t FORMAT JSONEachRow\n{"a": 1, "S": "x", "l": [1, 2], "p": {"u": 5}}\n{"a": 2, "x": {"k": 1}}'
    )
    world.run('INSERT INTO t (a, s, d) FORMAT CSV\n3,"q,""r",2020-01-01\n4,\\N,')
    world.run("INSERT INTO t FORMAT CSVWithNames\ns,a\nw,5")
    rows = {row["a"]: row for row in stored(world, tmp_path)}
    assert (rows[1]["s"], rows[1]["l"], rows[1]["p"]) == ("x", [1, 2], {"u": 5, "v": None})
    assert (rows[2]["s"], rows[2]["x"]) == ("none", [("k", 1)])
    assert (rows[3]["s"], rows[3]["d"]) == ('q,"r', date(2020, 1, 1))
    assert (rows[4]["s"], rows[4]["d"]) == (None, None)
    assert rows[5]["s"] == "w"


def test_arrow_and_text_through_the_door(world: SqlWorld, tmp_path: Path) -> None:
    world.engine.insert_arrow("default", "t", pa.table({"A": pa.array([1], pa.int64())}))
    world.engine.insert_text("default", "t", input_format="JSONEachRow", data=b'{"a": 2}')
    assert [(row["a"], row["s"]) for row in stored(world, tmp_path)] == [(1, "none"), (2, "none")]
    with pytest.raises(TilthError, match="column=nope"):
        world.engine.insert_arrow("default", "t", pa.table({"nope": [1]}))
    small = {"max_insert_bytes": "1"}
    with pytest.raises(TilthError, match="bytes_max=1"):
        world.engine.insert_arrow("default", "t", pa.table({"a": [1]}), settings=small)
    with pytest.raises(TilthError, match="bytes_max=1"):
        world.engine.insert_text("default", "t", input_format="CSV", data=b"12", settings=small)


def test_an_unknown_format_is_refused_before_the_query_runs(world: SqlWorld) -> None:
    assert refused(world, "SELECT * FROM t FORMAT Parquet").code == "UNKNOWN_OUTPUT_FORMAT"
    assert world.dispatch.specs == []


def test_what_failed_attempts_left_goes_after_the_commit(world: SqlWorld, tmp_path: Path) -> None:
    table = world.catalog.tables.get("default", "t")
    assert isinstance(table, TableDef)

    def answer(spec: TaskSpec) -> bytes:
        rows = conform(pa.table({"a": pa.array([1], pa.int32())}), table.schema)
        layout = layout_of(table, local_root(tmp_path))
        write_parts(layout, rows, txn=spec.txn, task=1, attempt=0)
        return msgspec.msgpack.encode(
            InsertResult(parts=tuple(write_parts(layout, rows, txn=spec.txn, task=1, attempt=1)))
        )

    world.dispatch.answer = answer
    assert world.run("INSERT INTO t (a) SELECT 1").rows_written == 1
    assert [row["a"] for row in stored(world, tmp_path)] == [1]
    # Tasks of the first attempt may still write on an unreachable worker.
    [note] = world.catalog.transactions.leftover_notes()
    assert note.may_write_on
    cleaner = Cleaner(world.clock, world.catalog, local_root(tmp_path), dropped_kept_ms=86_400_000)
    cleaner.tick()
    world.clock.advance(GRACE_MS / 1000)
    cleaner.tick()
    (left,) = Path(data_folder(local_root(tmp_path), table.uuid)).iterdir()
    assert left.name == world.catalog.parts.snapshot(table.uuid).parts[0].file.name


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_that_ended_well_write_on_no_more_and_those_that_were_cut_off_may(
    world: SqlWorld, tmp_path: Path, fails: bool
) -> None:
    table = world.catalog.tables.get("default", "t")
    assert isinstance(table, TableDef)

    def answer(spec: TaskSpec) -> bytes:
        if fails:
            raise TaskLostError("the worker is gone", task=spec.id)
        rows = conform(pa.table({"a": pa.array([1], pa.int32())}), table.schema)
        layout = layout_of(table, local_root(tmp_path))
        return msgspec.msgpack.encode(
            InsertResult(parts=tuple(write_parts(layout, rows, txn=spec.txn, task=1, attempt=0)))
        )

    world.dispatch.answer = answer
    if fails:
        refused(world, "INSERT INTO t (a) SELECT 1")
    else:
        world.run("INSERT INTO t (a) SELECT 1")
    assert [note.may_write_on for note in world.catalog.transactions.leftover_notes()] == ([] if fails else [False])
    cleaner = Cleaner(world.clock, world.catalog, local_root(tmp_path), dropped_kept_ms=86_400_000)
    cleaner.tick()
    world.clock.advance(GRACE_MS / 1000)
    cleaner.tick()
    assert len(world.catalog.transactions.tombstones.all()) == int(fails)


def test_too_large_an_insert_is_refused(world: SqlWorld, tmp_path: Path) -> None:
    with pytest.raises(TilthError) as caught:
        world.run('INSERT INTO t (a) SETTINGS max_insert_bytes = 10 FORMAT JSONEachRow {"a": 1, "s": "long enough"}')
    assert caught.value.code == "INSERT_TOO_LARGE"
    assert stored(world, tmp_path) == []


def test_a_time_without_a_zone_is_in_the_session_s(world: SqlWorld, tmp_path: Path) -> None:
    world.run(
        "INSERT INTO t (a, ts) VALUES (1, '2020-01-01 12:00:00')",
        settings={"spark.sql.session.timeZone": "Europe/Berlin"},
    )
    assert stored(world, tmp_path)[0]["ts"] == datetime(2020, 1, 1, 11, tzinfo=UTC)


def test_truncate_and_drop_partition(world: SqlWorld, tmp_path: Path) -> None:
    world.run("INSERT INTO t (a, d) VALUES (1, '2020-01-01'), (2, '2020-01-02'), (3, '2020-01-03')")
    world.run("ALTER TABLE t DROP PARTITION '2020-01-01'")
    world.run("ALTER TABLE t DROP PARTITION ID '2020-01-02'")
    assert [row["a"] for row in stored(world, tmp_path)] == [3]
    assert refused(world, "ALTER TABLE t DROP PARTITION '2021-01-01'").code == "PARTITION_NOT_FOUND"
    world.run("TRUNCATE TABLE t")
    assert stored(world, tmp_path) == []


def test_files_of_an_insert_that_fails_here_go_at_once(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.catalog.tables.get("default", "t")
    folder = Path(data_folder(local_root(tmp_path), table.uuid))
    seen: list[int] = []

    def cancelled() -> None:
        seen.append(len(list(folder.iterdir())))
        raise TilthError("it was cancelled behind the files")

    monkeypatch.setattr("tilth.statements.inserts.commit.raise_if_cancelled", cancelled)
    with pytest.raises(TilthError, match="behind the files"):
        world.run("INSERT INTO t (a) VALUES (1)")
    (txn,) = world.catalog.transactions.unfinished()
    assert (seen, list(folder.iterdir()), txn.state) == ([1], [], TxnState.ABORTED)
    assert "behind the files" in txn.reason


def test_files_of_an_insert_that_a_task_may_still_write_are_left_to_the_cleaner(
    world: SqlWorld, tmp_path: Path
) -> None:
    table = world.catalog.tables.get("default", "t")
    assert isinstance(table, TableDef)

    def answer(spec: TaskSpec) -> bytes:
        rows = conform(pa.table({"a": pa.array([1], pa.int32())}), table.schema)
        write_parts(layout_of(table, local_root(tmp_path)), rows, txn=spec.txn, task=0, attempt=0)
        raise TilthError("the task failed, and others write on")

    world.dispatch.answer = answer
    with pytest.raises(TilthError, match="write on"):
        world.run("INSERT INTO t (a) SELECT 1")
    (txn,) = world.catalog.transactions.unfinished()
    assert txn.state is TxnState.ABORTED
    assert len(list(Path(data_folder(local_root(tmp_path), table.uuid)).iterdir())) == 1


def test_a_failed_write_leaves_an_aborted_transaction(world: SqlWorld, tmp_path: Path) -> None:
    """The cleaner finds it there, and with it the names of its files."""
    assert refused(world, "INSERT INTO t (a) SELECT 1").code == "UNAVAILABLE"
    (txn,) = world.catalog.transactions.unfinished()
    assert txn.state is TxnState.ABORTED
