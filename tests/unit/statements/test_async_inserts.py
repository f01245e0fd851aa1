"""Small inserts through the engine: where their rows land, who shares a commit, and what each is told.

Modules: control/insert_batches.py, statements/inserts/insert.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.codes import WithCode
from tests.sql_world import SqlWorld, fake_rooms, refused, table_of
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryGate
from tilth.base.rand import new_rng
from tilth.catalog import TxnHandle, Unknown
from tilth.model.part import Part
from tilth.model.txn import TxnState
from tilth.query.results.answer import Answer
from tilth.statements.engine import SqlEngine
from tilth.storage import local_root


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int32 NOT NULL, s String) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 1")
    made.run("CREATE TABLE plain (a Int32) ENGINE = MergeTree ORDER BY a")
    return made


def parts(world: SqlWorld, name: str = "t") -> tuple[Part, ...]:
    return world.catalog.parts.snapshot(table_of(world, name).uuid).parts


def at_once(world: SqlWorld, *texts: str, rows_max: int = 100) -> dict[str, str]:
    """Runs the statements from threads of their own; by statement its message, or the code of its error.

    With `rows_max` rows a group is full and waits no longer.
    """
    wait_ms = 1000 if rows_max == 100 else 60_000
    told: dict[str, str] = {}

    def run(text: str) -> None:
        try:
            told[text] = world.run(
                text, settings={"async_insert_busy_timeout_ms": str(wait_ms), "async_insert_max_rows": str(rows_max)}
            ).message
        except TilthError as error:
            told[text] = error.code

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return told


def test_rows_of_a_memory_table_land_in_segments_of_others_in_parts(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (2, 'b'), (1, 'a')")
    world.run("INSERT INTO t VALUES (3, 'c')", settings={"async_insert": "0"})
    world.run("INSERT INTO plain VALUES (1)")
    world.run("INSERT INTO plain VALUES (1)", settings={"async_insert": "1"})
    assert [part.is_segment for part in parts(world)] == [True, True]
    assert [part.is_segment for part in parts(world, "plain")] == [False, False]


class Later:
    """Answers that come later, in their order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._answered = threading.Condition()

    def __call__(self, get: Callable[[], Answer]) -> None:
        try:
            told = get().message
        except TilthError as error:
            told = error.code
        with self._answered:
            self.told.append(told)
            self._answered.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._answered:
            assert self._answered.wait_for(lambda: len(self.told) >= count, 30)
            return self.told


def test_an_insert_that_shares_a_commit_is_answered_later_and_logged_once(world: SqlWorld) -> None:
    later, rows = Later(), pa.table({"a": [1, 2], "s": ["x", "y"]})
    given = {"insertion_label": "one"}
    assert world.engine.insert_arrow("default", "t", rows, settings=given, on_complete=later) is None
    assert later.wait(1) == ["inserted into default.t: 2 rows"]
    # The label is known before any batch.
    again = world.engine.insert_arrow("default", "t", rows, settings=given, on_complete=later)
    assert again is not None
    assert again.message.startswith("already inserted")
    plain = world.engine.insert_text(
        "default", "plain", input_format="JSONEachRow", data=b'{"a": 3}', on_complete=later
    )
    assert plain is None
    assert later.wait(2)[1] == "inserted into default.plain: 1 rows"
    assert world.engine.insert_text("default", "t", input_format="CSV", data=b"4,z\n", on_complete=later) is None
    later.wait(3)
    logged = world.rows("SELECT rows_written FROM system.query_log WHERE kind LIKE 'Insert%' ORDER BY 1")
    assert logged == [(0,), (1,), (1,), (2,)]
    assert not world.engine._services.running.list()


def test_inserts_that_share_no_commit_are_stored_at_once_and_hold_up_nobody(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, begin, everybody = Later(), world.catalog.transactions.open, threading.Barrier(4)

    def together(actor: str, **given: object) -> TxnHandle:
        everybody.wait(30)
        return begin(actor, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(world.catalog.transactions, "open", together)
    for number in range(4):
        rows = pa.table({"a": pa.array([number], pa.int32())})
        assert world.engine.insert_arrow("default", "plain", rows, on_complete=later) is None
    assert later.wait(4) == ["inserted into default.plain: 1 rows"] * 4
    assert sum(part.rows for part in parts(world, "plain")) == 4
    world.engine.stop()
    with pytest.raises(UnavailableError, match="stopping"):
        world.engine.insert_arrow("default", "plain", pa.table({"a": pa.array([5], pa.int32())}), on_complete=later)


def test_an_insert_as_sql_is_answered_later_with_its_notices_and_other_statements_at_once(world: SqlWorld) -> None:
    later, notices = Later(), list[tuple[str, ...]]()

    def noted(get: Callable[[], Answer]) -> None:
        answer = get()
        notices.append(answer.notices)
        later(lambda: answer)

    text = "INSERT INTO t SETTINGS max_insert_threads = 4 VALUES (1, 'a')"
    assert world.engine.run_insert(text, on_complete=noted) is None
    assert later.wait(1) == ["inserted into default.t: 1 rows"]
    assert notices == [world.run(text).notices]
    assert notices[0]
    at_once = world.engine.run_insert("SHOW TABLES", on_complete=noted)
    assert at_once is not None
    assert at_once.table.num_rows == 2
    with pytest.raises(TilthError, check=WithCode("TABLE_NOT_FOUND")):
        world.engine.run_insert("INSERT INTO nowhere VALUES (1)", on_complete=noted)
    assert not world.engine._services.running.list()


def test_an_insert_that_fails_later_gets_its_error_and_leaves_nothing(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, rows = Later(), pa.table({"a": [1], "s": ["x"]})
    with monkeypatch.context() as patch:
        patch.setattr(world.catalog.transactions, "open", refuse)
        assert world.engine.insert_arrow("default", "t", rows, on_complete=later) is None
        assert later.wait(1) == ["UNAVAILABLE"]
    assert not parts(world)
    assert not world.engine._services.running.list()


def test_an_insert_that_meets_an_alter_is_done_again_before_its_answer(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, begin = Later(), world.catalog.transactions.open

    def altered(actor: str, **given: object) -> TxnHandle:
        monkeypatch.setattr(world.catalog.transactions, "open", begin)
        world.run("ALTER TABLE t RENAME COLUMN s TO text")
        return begin(actor, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(world.catalog.transactions, "open", altered)
    assert world.engine.insert_arrow("default", "t", pa.table({"a": [1], "s": ["x"]}), on_complete=later) is None
    assert later.wait(1) == ["inserted into default.t: 1 rows"]
    assert sum(part.rows for part in parts(world)) == 1


def refuse(*_: object, **__: object) -> TxnHandle:
    raise UnavailableError("the disk is away")


def test_what_is_large_is_sorted_at_once(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (2, 'b'), (1, 'a')", settings={"async_insert_max_rows": "1"})
    world.engine.insert_arrow(
        "default", "t", pa.table({"a": [1], "s": ["x" * 2000]}), settings={"async_insert_max_data_size": "1 KiB"}
    )
    assert [part.is_segment for part in parts(world)] == [False, False]


@pytest.mark.parametrize(
    ("of_table", "of_statement", "is_grouped"),
    [("", "auto", False), ("1", "auto", True), ("1", "0", False), ("0", "1", True), ("auto", "true", True)],
)
def test_the_statement_decides_then_the_table(
    world: SqlWorld, of_table: str, of_statement: str, is_grouped: bool
) -> None:
    if of_table:
        world.run(f"ALTER TABLE plain MODIFY SETTING async_insert = '{of_table}'")
    before = world.clock.monotonic()
    settings = {"async_insert": of_statement, "async_insert_busy_timeout_ms": "5"}
    world.run("INSERT INTO plain VALUES (1)", settings=settings)
    # Whoever leads a group waits for others; the clock moves by that.
    assert (world.clock.monotonic() > before) is is_grouped


def test_a_bad_insert_among_good_ones_fails_alone(world: SqlWorld) -> None:
    good = [f"INSERT INTO t VALUES ({number}, 'x')" for number in range(12)]
    bad = "INSERT INTO t VALUES ('one', 'x')"
    told = at_once(world, *good, bad)
    assert told.pop(bad) == "BAD_VALUE"
    assert set(told.values()) == {"inserted into default.t: 1 rows"}
    assert sum(part.rows for part in parts(world)) == len(good)


def test_an_alter_in_between_is_no_error(world: SqlWorld) -> None:
    """Each reads its rows again, for the columns as they are now."""
    commit, is_first = world.catalog.transactions.commit, [True]

    def altered(*arguments: object) -> object:
        if is_first:
            is_first.clear()
            world.run("ALTER TABLE t RENAME COLUMN s TO text")
        return commit(*arguments)  # type: ignore[arg-type]

    world.catalog.transactions.commit = altered  # type: ignore[assignment,method-assign]
    told = at_once(world, *(f"INSERT INTO t (s, a) VALUES ('x', {number})" for number in range(4)), rows_max=4)
    assert set(told.values()) == {"inserted into default.t: 1 rows"}
    assert sum(part.rows for part in parts(world)) == 4
    assert {part.schema_version for part in parts(world)} == {table_of(world).schema_version}


def test_an_outcome_that_is_not_known_is_told_as_such(world: SqlWorld) -> None:
    def lost(*_: object) -> object:
        return Unknown("the answer was lost")

    world.catalog.transactions.commit = lost  # type: ignore[assignment,method-assign]
    told = at_once(world, "INSERT INTO t VALUES (1, 'x')", "INSERT INTO t VALUES (2, 'x')")
    assert set(told.values()) == {"UNKNOWN_OUTCOME"}
    # Nothing is given up that may have landed.
    assert {txn.state for txn in world.catalog.transactions.unfinished()} == {TxnState.RUNNING}


def test_memory_that_runs_out_refuses_inserts_but_not_what_is_done(world: SqlWorld, tmp_path: Path) -> None:
    used = [0]
    gate = MemoryGate(lambda: MemoryReading(used=used[0], hard=1000, soft=800), new_rng(1))
    engine = SqlEngine(
        replace(fake_rooms(world.clock, world.new_id, world.catalog, root=local_root(tmp_path)), memory=gate)
    )
    engine.run("INSERT INTO t VALUES (1, 'x')", settings={"insertion_label": "x"})
    used[0] = 1001
    statements: Sequence[str] = (
        "INSERT INTO t VALUES (1, 'x')",
        "INSERT INTO t SELECT 1",
        "INSERT INTO t FORMAT CSV 1,x",
    )
    for statement in statements:
        with pytest.raises(TilthError) as caught:
            engine.run(statement)
        assert caught.value.code == "MEMORY_PRESSURE"
    assert gate.rejections == len(statements)
    assert "already" in engine.run(statements[0], settings={"insertion_label": "x"}).message
    engine.run("SHOW TABLES")


def test_nothing_is_taken_after_the_stop(world: SqlWorld) -> None:
    world.engine.stop()
    error = refused(world, "INSERT INTO t VALUES (1, 'x')")
    assert isinstance(error, UnavailableError)
    assert "stopping" in str(error)
    assert parts(world) == ()
