"""SYSTEM verbs with FOR and BECAUSE, the audit log, and INSERTs that wait, are refused, or are tried once more.

Modules: statements/operate/system.py, control/context/audit.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.base.errors import TilthError
from tilth.catalog import Committed, Requirement, StartMutation, Update
from tilth.control.running import Origin
from tilth.model.mutation import MutationKind
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState
from tilth.model.table import Column, Schema
from tilth.model.task import TaskSpec
from tilth.model.txn import LeftoverNote
from tilth.model.types import Kind, Simple
from tilth.query.snapshots.protocol import InsertResult
from tilth.storage import data_folder, local_root, read_part

KAFKA = (
    "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_broker_list = 'b:9092', kafka_topic_list = 'topic', "
    "kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
)


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64 NOT NULL, b String DEFAULT 'x') ENGINE = MergeTree PARTITION BY a ORDER BY a")
    return made


@pytest.mark.parametrize(
    ("word", "service"),
    [
        ("MERGES", ServiceKind.MERGE),
        ("MUTATIONS", ServiceKind.MUTATE),
        ("GC", ServiceKind.GC),
        ("FLUSH", ServiceKind.FLUSH),
        ("DELTAS", ServiceKind.DELTA),
    ],
)
def test_every_service_of_a_table_is_switched_and_shown(world: SqlWorld, word: str, service: ServiceKind) -> None:
    answer = world.run(f"SYSTEM STOP {word} t FOR 10 minutes BECAUSE 'backup'")
    assert answer.message == f"{word} stopped for 600 s: default.t"
    now_ms = world.clock.now_ms()
    assert world.catalog.services.switch(table_of(world).uuid, service) == Switch(
        table=table_of(world).uuid,
        service=service,
        state=SwitchState.STOPPED,
        since_ms=now_ms,
        until_ms=now_ms + 600_000,
        because="backup",
        query_id=answer.query_id,
    )
    assert ("wake", table_of(world).uuid) in world.maintenance.calls
    world.run(f"SYSTEM START {word} t")
    started = world.catalog.services.switch(table_of(world).uuid, service)
    assert started is not None
    assert (started.state, started.since_ms) == (SwitchState.RUNNING, now_ms + 1)


def test_a_word_to_all_tables_is_kept_for_those_that_come_later(world: SqlWorld) -> None:
    assert world.run("SYSTEM STOP MERGES BECAUSE 'migration'").message == "MERGES stopped: all tables"
    stopped = world.catalog.services.switch(ALL_TABLES, ServiceKind.MERGE)
    assert stopped is not None
    assert (stopped.state, stopped.because, stopped.until_ms) == (SwitchState.STOPPED, "migration", 0)
    assert world.catalog.services.switch(table_of(world).uuid, ServiceKind.MERGE) is None
    world.run("SYSTEM START MERGES t")
    own = world.catalog.services.switch(table_of(world).uuid, ServiceKind.MERGE)
    assert own is not None
    assert own.since_ms > stopped.since_ms
    world.run("SYSTEM STOP CONSUME FOR 1 hour")
    assert world.consume.calls[-2:] == [
        ("stop", ALL_TABLES, "", world.clock.now_ms() + 3_600_000),
        ("wait stopped", ALL_TABLES),
    ]
    world.run("SYSTEM START CONSUME")
    assert ("start", ALL_TABLES) in world.consume.calls


@pytest.mark.parametrize("word", ["MERGES", "MUTATIONS", "GC", "FLUSH", "DELTAS", "REPLICATION", "SCRUBS"])
def test_a_stop_of_all_tables_returns_when_the_switch_has_been_read(world: SqlWorld, word: str) -> None:
    for statement in (f"SYSTEM STOP {word} t", f"SYSTEM START {word}"):
        world.run(statement)
    assert ("wait refreshed",) not in world.maintenance.calls
    world.run(f"SYSTEM STOP {word}")
    assert world.maintenance.calls[-2:] == [("wake", None), ("wait refreshed",)]


def test_gc_of_a_partition_and_without_lifetimes(world: SqlWorld) -> None:
    world.run("INSERT INTO t (a) VALUES (1)")
    uuid = table_of(world).uuid
    assert "partition 1 of default.t" in world.run("SYSTEM GC t PARTITION 1").message
    world.run("SYSTEM FORCE GC t")
    assert [call for call in world.maintenance.calls if call[0] == "gc"] == [
        ("gc", uuid, "1", False),
        ("gc", uuid, None, True),
    ]
    assert refused(world, "SYSTEM GC t PARTITION 7").code == "PARTITION_NOT_FOUND"


def test_what_was_said_is_audited_with_what_came_of_it(world: SqlWorld) -> None:
    world.run(KAFKA)
    world.run("SYSTEM STOP MERGES t FOR 10 minutes BECAUSE 'backup'")
    said = world.run("SYSTEM RESTART CONSUME k").query_id
    world.run("OPTIMIZE TABLE t FINAL")
    rows = world.rows("SELECT verb, `table`, statement, seconds, because, outcome FROM system.audit_log")
    assert rows[-3:] == [
        ("OPTIMIZE", "default.t", "OPTIMIZE TABLE t FINAL", None, None, "done"),
        ("SYSTEM RESTART CONSUME", "default.k", "SYSTEM RESTART CONSUME k", None, None, "done"),
        (
            "SYSTEM STOP MERGES",
            "default.t",
            "SYSTEM STOP MERGES t FOR 10 minutes BECAUSE 'backup'",
            600.0,
            "backup",
            "done",
        ),
    ]
    assert world.rows("SELECT query_id FROM system.audit_log WHERE verb = 'SYSTEM RESTART CONSUME'") == [(said,)]


def test_who_said_it_is_logged(world: SqlWorld) -> None:
    origin = Origin("fe80::1", "55", "cli/1\n")
    world.engine.run("SYSTEM STOP MERGES t", database="default", origin=origin)
    shown = "[fe80::1]:55 (cli/1)"
    assert world.rows("SELECT client FROM system.audit_log") == [(shown,)]
    assert world.rows("SELECT client FROM system.query_log WHERE kind = 'SwitchService'") == [(shown,)]
    # A statement of this process has no address.
    assert world.rows("SELECT client FROM system.query_log WHERE kind = 'Query' LIMIT 1") == [(None,)]


def test_a_replay_says_what_became_of_the_letters(world: SqlWorld) -> None:
    world.run(KAFKA)
    assert refused(world, "SYSTEM REPLAY DEAD LETTERS k").code == "NO_DEAD_LETTER_TABLE"
    assert refused(world, "SYSTEM REPLAY DEAD LETTERS t").code == "WRONG_KIND_OF_TABLE"
    assert refused(world, "SYSTEM REPLAY DEAD LETTERS nothing").kind == "not_found"
    world.consume.dead = table_of(world, "t")
    answer = world.run("SYSTEM REPLAY DEAD LETTERS k")
    result = "3 letters in 1 transactions, 4 rows stored, 1 of their messages are dead letters again; 2 left: no view"
    assert answer.message == f"replayed dead letters of default.k: {result}"
    rows = world.rows("SELECT verb, outcome FROM system.audit_log WHERE `table` = 'default.k' AND verb LIKE '%REPLAY%'")
    assert rows[0] == ("SYSTEM REPLAY DEAD LETTERS", f"done: {result}")
    assert str(rows[1][1]).startswith("NO_DEAD_LETTER_TABLE: ")
    logged = world.rows(
        "SELECT text, rows_written FROM system.query_log WHERE text LIKE '%REPLAY%' AND error_code IS NULL"
    )
    assert logged[:1] == [("SYSTEM REPLAY DEAD LETTERS k", 4)]


def test_a_verb_that_fails_is_audited_with_its_error(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TilthError("the disk is full")

    monkeypatch.setattr(world.maintenance, "gc_now", fail)
    refused(world, "SYSTEM GC t")
    assert world.rows("SELECT verb, outcome FROM system.audit_log") == [
        ("SYSTEM GC", "INTERNAL_ERROR: the disk is full")
    ]


@pytest.mark.parametrize(
    "settings", ["parts_to_throw_insert = 1000", "parts_to_delay_insert = 10, parts_to_throw_insert = 5"]
)
def test_limits_that_contradict_each_other_are_refused_when_they_are_made(world: SqlWorld, settings: str) -> None:
    """docs/policies/throttling.md#parts"""
    assert refused(world, f"CREATE TABLE u (a Int64) ENGINE = MergeTree SETTINGS {settings}").code == "BAD_SETTING"
    assert refused(world, f"ALTER TABLE t MODIFY SETTING {settings}").code == "BAD_SETTING"
    assert table_of(world).settings == {}


def test_limits_are_checked_against_those_that_the_table_has(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY SETTING parts_to_delay_insert = 10")
    world.run("ALTER TABLE t MODIFY SETTING parts_to_throw_insert = 20")
    assert refused(world, "ALTER TABLE t RESET SETTING parts_to_delay_insert").code == "BAD_SETTING"
    assert table_of(world).settings == {"parts_to_delay_insert": "10", "parts_to_throw_insert": "20"}


def test_inserts_wait_and_are_refused_by_the_partition_that_they_write_to(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY SETTING parts_to_delay_insert = 2, parts_to_throw_insert = 4")
    begun = world.clock.monotonic()
    for _ in range(2):
        world.run("INSERT INTO t (a) VALUES (1)")
    assert world.clock.monotonic() == begun
    world.run("INSERT INTO t (a) VALUES (1)")
    assert world.clock.monotonic() - begun == pytest.approx(1000**0.5 / 1000)
    world.run("INSERT INTO t (a) VALUES (2)")
    assert world.clock.monotonic() - begun == pytest.approx(1000**0.5 / 1000)
    world.run("INSERT INTO t (a) VALUES (1)")
    error = refused(world, "INSERT INTO t (a) VALUES (2), (1)")
    assert (error.code, error.facts["table"]) == ("TOO_MANY_PARTS", "default.t")
    counted = "SELECT value FROM system.metrics WHERE name IN ('catalog_delayed', 'catalog_crowded') ORDER BY name"
    assert world.rows(counted) == [(1.0,), (2.0,)]
    # Nothing of it was begun: the partition that has room got nothing either.
    assert world.rows("SELECT sum(rows) FROM system.parts") == [(5,)]


def altered(world: SqlWorld, monkeypatch: pytest.MonkeyPatch, *schemas: Schema) -> list[int]:
    """ALTERs to these columns land just before the next commits of inserts, one before each."""
    transactions = world.catalog.transactions
    commit = transactions.commit
    done: list[int] = []

    def first_alter(
        txn: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> object:
        if len(done) < len(schemas):
            schema = schemas[len(done)]
            done.append(txn)
            now = table_of(world)
            begun = transactions.begin("alter")
            start = StartMutation(
                table=now.uuid,
                from_version=now.schema_version,
                kind=MutationKind.COLUMNS,
                command="ALTER",
                schema=schema,
                next_column_id=9,
            )
            assert isinstance(commit(begun.id, [start]), Committed)
        return commit(txn, updates, requirements, leftovers)

    monkeypatch.setattr(transactions, "commit", first_alter)
    return done


def schema(*columns: tuple[int, str, Kind]) -> Schema:
    return Schema(columns=tuple(Column(id=number, name=name, type=Simple(kind)) for number, name, kind in columns))


def stored(world: SqlWorld, root: Path) -> list[dict[str, object]]:
    """All rows of the table."""
    folder = data_folder(local_root(root), table_of(world).uuid)
    parts = world.catalog.parts.snapshot(table_of(world).uuid).parts
    return [row for part in parts for row in read_part(folder, part.file).to_pylist()]


#: `b` is called `c`, and a column stands before it.
RENAMED = schema((1, "a", Kind.INT64), (3, "new", Kind.INT32), (2, "c", Kind.STRING))


def test_an_insert_that_a_new_default_overtook_is_taken_as_it_is(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = table_of(world).schema.columns
    described = Schema(columns=(columns[0], msgspec.structs.replace(columns[1], default="'z'", comment="new")))
    altered(world, monkeypatch, described)
    world.run("INSERT INTO t (a) VALUES (1)")
    assert stored(world, tmp_path) == [{"a": 1, "b": "x"}]
    assert world.catalog.transactions.unfinished() == []


@pytest.mark.parametrize(
    "text", ["INSERT INTO t VALUES (1, 'y')", "INSERT INTO t (b, a) VALUES ('y', 1)", "INSERT INTO t FORMAT CSV 1,y"]
)
def test_an_insert_that_an_alter_overtook_goes_into_the_same_columns(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    altered(world, monkeypatch, RENAMED)
    assert world.run(text).rows_written == 1
    assert stored(world, tmp_path) == [{"a": 1, "new": None, "c": "y"}]
    # The first try's files are for the cleaner.
    assert [txn.actor.split()[0] for txn in world.catalog.transactions.unfinished()] == ["insert"]


def test_arrow_rows_go_into_the_same_columns_too(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered(world, monkeypatch, RENAMED)
    rows = pa.table({"b": ["y"], "a": [1]})
    answer = world.engine.insert_arrow("default", "t", rows)
    assert answer is not None
    assert answer.rows_written == 1
    assert stored(world, tmp_path) == [{"a": 1, "new": None, "c": "y"}]


def test_an_insert_whose_column_is_gone_is_refused(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    altered(world, monkeypatch, schema((1, "a", Kind.INT64)))
    assert refused(world, "INSERT INTO t VALUES (1, 'y')").code == "SCHEMA_CHANGED"
    assert world.catalog.parts.snapshot(table_of(world).uuid).parts == ()


def test_an_insert_is_tried_once_more_and_not_twice(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    done = altered(world, monkeypatch, RENAMED, schema((1, "a", Kind.INT64), (2, "d", Kind.STRING)))
    assert refused(world, "INSERT INTO t (a) VALUES (1)").code == "SCHEMA_CHANGED"
    assert len(done) == 2


def test_an_insert_of_a_query_waits_by_the_fullest_partition(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 3")
    world.run("INSERT INTO t (a) VALUES (1)")

    def answer(_: TaskSpec) -> bytes:
        return msgspec.msgpack.encode(InsertResult(parts=()))

    world.dispatch.answer = answer
    begun = world.clock.monotonic()
    world.run("INSERT INTO t SELECT 2, 'z'")
    assert world.clock.monotonic() - begun == pytest.approx(1000**0.5 / 1000)
