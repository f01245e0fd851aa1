"""One batch with all that can be wrong with its members: each is told the truth, and no other pays for it.

An INSERT holds its table while the others arrive; then all of them are stored.

Modules: control/insert_batches.py, statements/inserts/insert.py, catalog/kv/grouped.py.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, table_of
from tests.waiting import MOMENT, wait_until
from tilth.base.errors import TilthError
from tilth.catalog import GroupedKV, MemoryKV, TxnHandle
from tilth.control.running import Origin

SECONDS_MAX = 30.0


class Neighbours:
    """Statements on threads of their own, while the storing of every INSERT is held."""

    def __init__(self, world: SqlWorld) -> None:
        self.world = world
        #: By name: the message of each statement, or its error's code.
        self.told: dict[str, str] = {}
        self.may_store, self.is_held = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._open = world.catalog.transactions.open
        world.catalog.transactions.open = self._held  # type: ignore[method-assign]

    def _held(self, actor: str, **given: object) -> TxnHandle:
        if actor.startswith("insert"):
            self.is_held.set()
            assert self.may_store.wait(SECONDS_MAX)
        return self._open(actor, **given)  # type: ignore[arg-type]

    def send(self, name: str, text: str, *, waits: bool = True, origin: Origin | None = None, **settings: str) -> None:
        """Sends a statement; returns when it waits for its batch, or when it has ended."""

        def run() -> None:
            try:
                self.told[name] = self.world.engine.run(text, settings=settings, origin=origin or Origin()).message
            except TilthError as error:
                self.told[name] = error.code

        before = self.waiting()
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        if waits:
            wait_until(lambda: self.waiting() > before, first_pause=MOMENT)
        else:
            self._threads[-1].join(SECONDS_MAX)

    def waiting(self) -> int:
        return len(self.world.engine._services.insert_batches._tickets)

    def end(self) -> None:
        self.may_store.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path, kv=GroupedKV(MemoryKV()))
    for table in ("t", "other", "gone", "changed"):
        made.run(
            f"CREATE TABLE {table} (a INT NOT NULL, s STRING) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 1"
        )
    return made


def rows_of(world: SqlWorld, name: str) -> tuple[int, int]:
    """Rows and parts of a table."""
    parts = world.catalog.parts.snapshot(table_of(world, name).uuid).parts
    return sum(part.rows for part in parts), len(parts)


def test_each_is_told_its_own_outcome_and_only_the_good_rows_are_there(world: SqlWorld) -> None:
    neighbours = Neighbours(world)
    killed = Origin()
    neighbours.send("first", "INSERT INTO t (a) VALUES (0)")
    assert neighbours.is_held.wait(SECONDS_MAX)
    neighbours.send("good", "INSERT INTO t (a) VALUES (1), (2)")
    neighbours.send("bad row", "INSERT INTO t (a) VALUES (3), ('x')", waits=False)
    neighbours.send("NULL", 'INSERT INTO t FORMAT JSONEachRow {"a": 3} {"a": null}', waits=False)
    neighbours.send("may not write", "INSERT INTO t (a) VALUES (4)", waits=False, readonly="1")
    neighbours.send("killed", "INSERT INTO t (a) VALUES (5)", origin=killed)
    neighbours.send("labelled", "INSERT INTO t (a) VALUES (6)", insertion_label="x")
    neighbours.send("sent twice", "INSERT INTO t (a) VALUES (6)", insertion_label="x")
    neighbours.send("good JSON", 'INSERT INTO t FORMAT JSONEachRow {"a": 7}')
    neighbours.send("other table", "INSERT INTO other (a) VALUES (8)")
    neighbours.send("dropped", "INSERT INTO gone (a) VALUES (9)")
    world.run("DROP TABLE gone")
    neighbours.send("altered", "INSERT INTO changed (s, a) VALUES ('x', 10)")
    world.run("ALTER TABLE changed RENAME COLUMN s TO text")
    killed.cancel("its client, which closed the connection")
    wait_until(lambda: "killed" in neighbours.told, first_pause=MOMENT)
    neighbours.end()
    assert neighbours.told == {
        "first": "inserted into default.t: 1 rows",
        "good": "inserted into default.t: 2 rows",
        "bad row": "BAD_VALUE",
        "NULL": "BAD_VALUE",
        "may not write": "READONLY_SETTING",
        "killed": "QUERY_WAS_CANCELLED",
        "labelled": "inserted into default.t: 1 rows",
        "sent twice": "already inserted into default.t: 1 rows, label x; nothing was written",
        "good JSON": "inserted into default.t: 1 rows",
        "other table": "inserted into default.other: 1 rows",
        "dropped": "TABLE_NOT_FOUND",
        "altered": "inserted into default.changed: 1 rows",
    }
    # Without the rows of those that were refused; one set of files for those that came before the second label.
    assert rows_of(world, "t") == (5, 3)
    assert rows_of(world, "other") == (1, 1)
    assert rows_of(world, "changed") == (1, 1)
    assert neighbours.waiting() == 0
    assert world.run("INSERT INTO t (a) VALUES (11)").message == "inserted into default.t: 1 rows"


def test_a_client_that_is_killed_while_its_batch_is_stored_costs_no_other_its_rows(world: SqlWorld) -> None:
    neighbours = Neighbours(world)
    killed = Origin()
    neighbours.send("killed", "INSERT INTO t (a) VALUES (1)", origin=killed)
    assert neighbours.is_held.wait(SECONDS_MAX)
    neighbours.send("next", "INSERT INTO t (a) VALUES (2)")
    killed.cancel("its client, which closed the connection")
    neighbours.end()
    # Its batch had begun: what it is told is that of its rows, which are there, or that nobody knows.
    assert neighbours.told["killed"] in ("inserted into default.t: 1 rows", "INSERT_OUTCOME_UNKNOWN")
    assert neighbours.told["next"] == "inserted into default.t: 1 rows"
    assert rows_of(world, "t") == (2, 2)


def test_a_batch_whose_leader_is_killed_is_led_by_another(world: SqlWorld) -> None:
    neighbours = Neighbours(world)
    killed = Origin()
    neighbours.send("first", "INSERT INTO t (a) VALUES (1)")
    assert neighbours.is_held.wait(SECONDS_MAX)
    neighbours.send("killed", "INSERT INTO t (a) VALUES (2)", origin=killed)
    neighbours.send("next", "INSERT INTO t (a) VALUES (3)")
    killed.cancel("its client, which closed the connection")
    wait_until(lambda: "killed" in neighbours.told, first_pause=MOMENT)
    neighbours.end()
    assert neighbours.told["killed"] == "QUERY_WAS_CANCELLED"
    assert neighbours.told["next"] == "inserted into default.t: 1 rows"
    assert rows_of(world, "t") == (2, 2)
