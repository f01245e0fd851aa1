"""ALTER, DELETE, UPDATE and KILL over a catalog in memory: what is made, what is refused, who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, answer_defaults, answer_view_tasks, refused, table_of
from tilth.base.errors import ErrorKind, TilthError
from tilth.catalog import AcceptMutation, SchemaChangedError, Update
from tilth.maintenance import MutationProgress
from tilth.model.mutation import Mutation, MutationKind, MutationState
from tilth.model.part import ColumnRange, DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion, TableDef, ViewDef
from tilth.model.task import TaskSpec
from tilth.model.types import Kind, Simple
from tilth.query.snapshots.predicates import Compare, Comparison, Undecided
from tilth.query.snapshots.protocol import CheckedExpressions, CheckTask, ExpressionsTask, WorkerTask
from tilth.query.snapshots.prune import as_present, keeper

KAFKA = (
    "CREATE TABLE k (a Int64, s String) ENGINE = Kafka SETTINGS kafka_broker_list = 'b:9092', "
    "kafka_topic_list = 't', kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
)
#: Clause of statements that wait for their mutation.
WAITING = "SETTINGS mutations_sync = 1"


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64, d Date, v Int32, s String) ENGINE = MergeTree PARTITION BY d ORDER BY a")
    made.dispatch.answer = worker
    return made


def worker(spec: TaskSpec) -> bytes:
    """Finds nothing wrong."""
    task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
    if isinstance(task, ExpressionsTask):
        return answer_defaults({"1 + 1": 2, "upper('x')": "X"})(spec)
    assert isinstance(task, CheckTask)
    return b""


def defaults_of(world: SqlWorld) -> dict[str, tuple[str | None, str | None, str | None]]:
    """By column its default as it is kept, as it was written, and for rows that are older than the column."""
    return {
        column.name: (column.default, column.written_default, column.older_default)
        for column in table_of(world).schema.columns
    }


def entries(world: SqlWorld) -> list[Mutation]:
    return world.catalog.mutations.all(table_of(world).uuid)


def test_columns_change_at_once_and_as_one(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    answer = world.run("ALTER TABLE t ADD COLUMN n Int64 DEFAULT 5 AFTER a, RENAME COLUMN v TO w, DROP COLUMN s")
    now = table_of(world)
    assert now.schema.names == ("a", "n", "d", "w")
    assert (now.schema_version, now.next_column_id) == (2, 6)
    (entry,) = entries(world)
    assert (entry.kind, entry.state) == (MutationKind.COLUMNS, MutationState.PENDING)
    assert entry.command == "ADD COLUMN n Int64 DEFAULT 5 AFTER a, RENAME COLUMN v TO w, DROP COLUMN s"
    assert str(entry.id) in answer.message
    assert ("wake", now.uuid) in world.maintenance.calls
    assert world.dispatch.specs == []
    assert world.catalog.transactions.unfinished() == []


def test_a_default_or_comment_changes_without_a_mutation(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    world.run("ALTER TABLE t UPDATE v = 1 WHERE a > 0")
    for text in ("v Int32 DEFAULT 8", "v Int32 COMMENT 'how many'", "a Int64 COMMENT 'the key'"):
        answer = world.run(f"ALTER TABLE t MODIFY COLUMN {text} SETTINGS mutations_sync = 1")
        assert answer.message == "columns changed: default.t"
    now = table_of(world)
    assert now.schema.find("v") == Column(
        id=3,
        name="v",
        type=Simple(Kind.INT32),
        declared="Int32",
        default="CAST(8 AS int)",
        comment="how many",
        written_default="8",
        is_default_computed=False,
    )
    assert (now.schema_version, now.columns_commit_ts) == (4, 0)
    assert [entry.kind for entry in entries(world)] == [MutationKind.UPDATE]
    [part] = world.catalog.parts.snapshot(now.uuid).parts
    assert now.schema_of(part.schema_version) is not None
    assert world.catalog.transactions.unfinished() == []
    refused(world, "ALTER TABLE t MODIFY COLUMN v Int64 COMMENT 'wider'")


def test_a_default_that_is_computed_is_checked_though_nothing_is_rewritten(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY COLUMN s String DEFAULT upper('x')")
    task = msgspec.msgpack.decode(world.dispatch.specs[-1].payload, type=WorkerTask)
    assert isinstance(task, ExpressionsTask)
    assert task.defaults == ("s",)
    assert entries(world) == []
    assert defaults_of(world)["s"] == ("'X'", "upper('x')", None)


def test_consumers_are_told_of_a_new_default(world: SqlWorld) -> None:
    world.run(KAFKA)
    world.dispatch.answer = answer_view_tasks(("default", "k"))
    world.run("CREATE MATERIALIZED VIEW w TO t AS SELECT * FROM k")
    world.dispatch.answer = None
    world.run("ALTER TABLE t MODIFY COLUMN v Int32 DEFAULT 8")
    assert world.consume.calls[-1] == ("wake", world.catalog.tables.get("default", "k").uuid)


def test_what_is_refused_leaves_nothing(world: SqlWorld) -> None:
    before = table_of(world)
    for text in ("DROP COLUMN a", "ADD COLUMN n Int64, RENAME COLUMN x TO y", "MODIFY COLUMN v Int8"):
        refused(world, f"ALTER TABLE t {text}")
    assert table_of(world) == before
    assert entries(world) == []
    assert world.catalog.transactions.unfinished() == []
    verbs = [(event.verb, event.outcome.split(":")[0]) for event in world.catalog.audit.recent(10)]
    assert ("ALTER .. DROP COLUMN", "BAD_ALTER") in verbs


def test_a_default_that_is_computed_is_checked_by_a_worker(world: SqlWorld) -> None:
    world.run("ALTER TABLE t ADD COLUMN n Int64 DEFAULT 1 + 1, MODIFY COLUMN s String DEFAULT upper('x')")
    task = msgspec.msgpack.decode(world.dispatch.specs[-1].payload, type=WorkerTask)
    assert isinstance(task, ExpressionsTask)
    assert task.defaults == ("s", "n")
    # Rows from before the new column have this value for good.
    assert defaults_of(world)["n"] == ("CAST(2 AS bigint)", "1 + 1", "CAST(2 AS bigint)")
    assert defaults_of(world)["s"] == ("'X'", "upper('x')", None)


@pytest.mark.parametrize(
    ("operations", "name", "is_added"),
    [
        ("ADD COLUMN n Int64 DEFAULT 1 + 1, RENAME COLUMN n TO m", "m", True),
        ("DROP COLUMN v, ADD COLUMN v Int64 DEFAULT 1 + 1", "v", True),
        ("RENAME COLUMN v TO w, ADD COLUMN v Int64 DEFAULT 1 + 1", "v", True),
        ("MODIFY COLUMN v Int32 DEFAULT 1 + 1, RENAME COLUMN v TO w", "w", False),
    ],
)
def test_a_default_is_checked_whatever_its_column_is_called(
    world: SqlWorld, operations: str, name: str, is_added: bool
) -> None:
    world.run(f"ALTER TABLE t {operations}")
    task = msgspec.msgpack.decode(world.dispatch.specs[-1].payload, type=WorkerTask)
    assert isinstance(task, ExpressionsTask)
    assert task.defaults == (name,)
    found, written, older = defaults_of(world)[name]
    assert (written, older) == ("1 + 1", found if is_added else None)


def test_rows_change_by_what_the_worker_has_fixed(world: SqlWorld) -> None:
    def fixing(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        assert isinstance(task, ExpressionsTask)
        assert (task.assignments, task.predicate) == ((("v", "v + 1"),), "d < now()")
        return msgspec.msgpack.encode(CheckedExpressions(assignments=task.assignments, predicate="d < 'fixed'"))

    world.dispatch.answer = fixing
    world.run("ALTER TABLE t UPDATE V = v + 1 WHERE d < now()")
    (entry,) = entries(world)
    assert (entry.kind, entry.assignments, entry.predicate) == (
        MutationKind.UPDATE,
        (("v", "v + 1"),),
        "d < 'fixed'",
    )
    assert entry.command == "UPDATE V = v + 1 WHERE d < now()"
    assert table_of(world).mutation_ts == entry.commit_ts


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("ALTER TABLE t UPDATE a = 1 WHERE true", "BAD_ALTER", "ORDER BY"),
        ("ALTER TABLE t UPDATE d = NULL WHERE true", "BAD_ALTER", "PARTITION BY"),
        ("UPDATE t SET x = 1 WHERE true", "UNKNOWN_COLUMN", "x"),
        ("DELETE FROM k WHERE a = 1", "WRONG_KIND_OF_TABLE", "MergeTree"),
        ("ALTER TABLE k DROP PARTITION '1'", "WRONG_KIND_OF_TABLE", "MergeTree"),
        ("ALTER TABLE k_dead_letters ADD COLUMN x Int64", "TABLE_IN_USE", "default.k"),
        ("ALTER TABLE system.parts DELETE WHERE true", "READ_ONLY", "system.parts"),
        ("ALTER TABLE t UNDROP PARTITION '2020-01-01'", "NOTHING_TO_UNDROP", "2020-01-01"),
        ("ALTER TABLE t MODIFY TTL v + INTERVAL 1 DAY", "INVALID_INPUT", "v"),
        ("ALTER TABLE t MODIFY TTL x + INTERVAL 1 DAY", "INVALID_INPUT", "x"),
        ("KILL MUTATION '17'", "MUTATION_NOT_FOUND", "17"),
        ("KILL MUTATION WHERE nope = 1", "UNKNOWN_COLUMN", "nope"),
    ],
)
def test_refusals(world: SqlWorld, text: str, code: str, named: str) -> None:
    world.run(KAFKA)
    error = refused(world, text)
    assert error.code == code
    assert named in f"{error} {error.hint}"
    assert entries(world) == []


def test_a_mutation_reckons_in_utc(world: SqlWorld) -> None:
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert refused(world, "DELETE FROM t WHERE d < '2020-01-01'", zone).code == "BAD_SETTING"


def test_who_asks_for_it_waits_until_a_mutation_is_done(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}", {"mutations_wait_timeout_seconds": "2"})
    assert (error.code, error.kind) == ("MUTATION_NOT_DONE", ErrorKind.CONFLICT)
    (entry,) = entries(world)
    assert error.facts["mutation"] == str(entry.id)
    assert "nobody works on it yet" in error.message
    for told in ("do not send the statement again", f"mutation_id = '{entry.id}'", f"KILL MUTATION '{entry.id}'"):
        assert told in error.hint
    world.maintenance.progress = [
        MutationProgress(
            uuid=entry.table,
            id=entry.id,
            parts_to_do=1,
            parts_done=0,
            running=0,
            latest_failed_part="p_1",
            latest_fail_ms=1_000,
            latest_fail_reason="the disk is full",
            state_reason="waits",
        )
    ]
    assert world.rows(
        "SELECT mutation_id, table, kind, is_done, parts_to_do, latest_failed_part, latest_fail_reason "
        "FROM system.mutations"
    ) == [(str(entry.id), "t", "delete", False, 1, "p_1", "the disk is full")]
    assert world.rows("SELECT mutations_pending FROM system.tables WHERE name = 't'") == [(1,)]
    world.run(f"KILL MUTATION '{entry.id}'")
    empty = world.run("CREATE TABLE e (a Int64, v Int64) ENGINE = MergeTree ORDER BY a").message
    assert empty
    sleep = world.clock.sleep

    def finishing(seconds: float) -> None:
        sleep(seconds)
        for each in world.catalog.mutations.pending(table_of(world, "e").uuid):
            world.catalog.mutations.finish(each.table, each.id)

    world.clock.sleep = finishing  # type: ignore[method-assign]
    assert "is done" in world.run(f"ALTER TABLE e UPDATE v = 1 WHERE a = 2 {WAITING}").message
    assert "is done" in world.run("ALTER TABLE e DELETE WHERE a = 2", settings={"mutations_sync": "1"}).message


def test_who_waits_for_a_killed_mutation_is_told(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    sleep = world.clock.sleep

    def killing(seconds: float) -> None:
        sleep(seconds)
        world.run("KILL MUTATION WHERE table = 't'")

    world.clock.sleep = killing  # type: ignore[method-assign]
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}")
    assert (error.code, error.hint) == ("MUTATION_KILLED", "0 of 1 parts were done before and stay so")


def test_who_waits_for_a_dropped_table_is_told(world: SqlWorld) -> None:
    sleep = world.clock.sleep

    def dropping(seconds: float) -> None:
        sleep(seconds)
        world.run("DROP TABLE t")

    world.clock.sleep = dropping  # type: ignore[method-assign]
    assert refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}").code == "TABLE_NOT_FOUND"


def test_kill_by_id_and_by_condition(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    for value in (1, 2, 3):
        world.run(f"ALTER TABLE t DELETE WHERE v = {value}")
    first, second, third = entries(world)
    assert world.rows(f"KILL MUTATION '{second.id}'") == [(str(second.id), "default.t", "DELETE WHERE v = 2", "killed")]
    killed = world.rows(f"KILL MUTATION WHERE table = 't' AND mutation_id != '{first.id}' -- all others")
    assert killed == [(str(third.id), "default.t", "DELETE WHERE v = 3", "killed")]
    nothing = world.run("KILL MUTATION WHERE kind = 'columns'")
    assert (nothing.table.num_rows, nothing.message) == (0, "nothing was killed: no pending mutation matches")
    assert [entry.state for entry in entries(world)] == [
        MutationState.PENDING,
        MutationState.KILLED,
        MutationState.KILLED,
    ]
    assert world.rows("SELECT count(*) FROM system.mutations WHERE is_killed AND end_time IS NOT NULL") == [(2,)]
    assert "KILL MUTATION" in [event.verb for event in world.catalog.audit.recent(10)]


def outcomes(world: SqlWorld, verb: str) -> list[str]:
    """Of the audit log, oldest first."""
    return [event.outcome for event in reversed(world.catalog.audit.recent(20)) if event.verb == verb]


def test_kill_tells_how_far_it_came(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x'), (2, '2020-01-02', 2, 'x')")
    world.run("ALTER TABLE t DELETE WHERE v = 3")
    (entry,) = entries(world)
    world.maintenance.progress = [running(entry, parts_to_do=1, parts_done=1)]
    assert world.rows("SELECT parts_to_do, parts_done FROM system.mutations") == [(1, 1)]
    first, _ = world.catalog.parts.snapshot(entry.table).parts
    commit(world, AcceptMutation(table=entry.table, parts=(first.name,), mutation=entry.id))
    answer = world.run(f"KILL MUTATION '{entry.id}'")
    left = "1 of 2 parts were done before and stay so"
    assert answer.message == f"mutation {entry.id} of default.t was killed: {left}"
    [(to_do, done, reason)] = world.rows("SELECT parts_to_do, parts_done, state_reason FROM system.mutations")
    assert (to_do, done) == (1, 1)
    assert str(reason).endswith(f"; {left}")
    world.run("ALTER TABLE t ADD COLUMN n Int64")
    told = world.run("KILL MUTATION WHERE kind = 'columns'").message
    assert told.endswith("was killed: the new columns stay in force, and 0 of 2 parts were done before and stay so")


def test_a_mutation_is_killed_once(world: SqlWorld) -> None:
    world.run("ALTER TABLE t DELETE WHERE v = 1")
    world.run("ALTER TABLE t DELETE WHERE v = 2")
    first, second = entries(world)
    world.catalog.mutations.finish(first.table, first.id)
    answer = world.run(f"KILL MUTATION '{first.id}'")
    assert answer.table.column("state").to_pylist() == ["done"]
    assert answer.message == f"nothing was killed: mutation {first.id} of default.t is done already"
    world.run(f"KILL MUTATION '{second.id}'")
    answer = world.run(f"KILL MUTATION '{second.id}'")
    assert answer.message == f"nothing was killed: mutation {second.id} of default.t was killed already"
    told = outcomes(world, "KILL MUTATION")
    assert [outcome.split(":")[0] for outcome in told] == ["MUTATION_ENDED", "done", "MUTATION_ENDED"]
    assert "state=done" in told[0]


def test_mutations_of_a_dropped_table_are_named_and_left(world: SqlWorld) -> None:
    world.run("ALTER TABLE t DELETE WHERE v = 1")
    world.run("ALTER TABLE t DELETE WHERE v = 2")
    done, pending = entries(world)
    world.catalog.mutations.finish(done.table, done.id)
    world.run("DROP TABLE t")
    answer = world.run(f"KILL MUTATION '{done.id}'")
    assert answer.table.column("table").to_pylist() == ["default.t"]
    error = refused(world, f"KILL MUTATION '{pending.id}'")
    assert (error.code, error.facts["table"]) == ("TABLE_NOT_FOUND", "default.t")
    answer = world.run("KILL MUTATION WHERE true")
    assert answer.table.column("state").to_pylist() == ["pending"]
    assert answer.message == f"nothing was killed: default.t, the table of mutation {pending.id}, was dropped"


def running(entry: Mutation, *, parts_to_do: int = 1, parts_done: int = 0, **told: object) -> MutationProgress:
    made = MutationProgress(
        uuid=entry.table, id=entry.id, parts_to_do=parts_to_do, parts_done=parts_done, running=0, state_reason="waits"
    )
    return replace(made, **told)  # type: ignore[arg-type]


def commit(world: SqlWorld, update: Update) -> None:
    txn = world.catalog.transactions.open("test")
    txn.commit([update])


def failing(world: SqlWorld, told: Callable[[list[Mutation]], list[MutationProgress]]) -> None:
    """From the first sleep on, maintenance says this of the pending mutations."""
    sleep = world.clock.sleep

    def sleeping(seconds: float) -> None:
        sleep(seconds)
        world.maintenance.progress = told(world.catalog.mutations.pending(table_of(world).uuid))

    world.clock.sleep = sleeping  # type: ignore[method-assign]


def test_who_waits_is_told_at_once_of_a_part_that_fails_for_good(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    failing(world, lambda pending: [running(pending[0], lasting_failure="part p_1: it does not fit")])
    started = world.clock.monotonic()
    error = refused(world, f"ALTER TABLE t UPDATE v = v + 1 WHERE true {WAITING}")
    assert world.clock.monotonic() - started < 5
    (entry,) = entries(world)
    assert entry.state is MutationState.PENDING
    assert (error.code, error.kind) == ("MUTATION_FAILED", ErrorKind.CONFLICT)
    assert (error.facts["mutation"], error.facts["why"]) == (str(entry.id), "part p_1: it does not fit")
    assert f"KILL MUTATION '{entry.id}'" in error.hint
    assert "later mutations" in error.hint


def test_a_failure_that_waiting_may_heal_is_waited_for(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    failing(world, lambda pending: [running(pending[0], latest_failed_part="p_1", latest_fail_reason="no answer")])
    error = refused(
        world, f"ALTER TABLE t UPDATE v = v + 1 WHERE true {WAITING}", {"mutations_wait_timeout_seconds": "30"}
    )
    assert (error.code, error.facts["why"]) == ("MUTATION_NOT_DONE", "part p_1: no answer")
    assert world.clock.monotonic() >= 30


def test_who_waits_behind_one_that_fails_is_told_which(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    world.run("ALTER TABLE t UPDATE v = 1 WHERE true")
    (first,) = entries(world)
    failing(world, lambda pending: [running(first, lasting_failure="part p_1: bad"), *map(running, pending[1:])])
    error = refused(
        world, f"ALTER TABLE t UPDATE v = v + 1 WHERE true {WAITING}", {"mutations_wait_timeout_seconds": "30"}
    )
    assert error.code == "MUTATION_NOT_DONE"
    assert error.facts["why"] == f"mutation {first.id} comes first and fails: part p_1: bad"
    assert error.hint.startswith(f"KILL MUTATION '{first.id}'")


@pytest.mark.parametrize("where", ["MUTATIONS t", "MUTATIONS"])
def test_nobody_waits_for_mutations_that_are_stopped(world: SqlWorld, where: str) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    world.run(f"SYSTEM STOP {where} BECAUSE 'the disk is being changed'")
    started = world.clock.monotonic()
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}")
    assert world.clock.monotonic() - started < 1
    assert (error.code, error.kind) == ("MUTATION_NOT_DONE", ErrorKind.CONFLICT)
    assert error.facts["because"] == "the disk is being changed"
    assert error.facts["stopped_until"] == "SYSTEM START MUTATIONS default.t"
    assert "do not send the statement again" in error.hint
    assert [entry.state for entry in entries(world)] == [MutationState.PENDING]
    answer = world.run("ALTER TABLE t DELETE WHERE v = 3")
    assert "has begun" in answer.message


def test_a_stop_that_ends_in_time_is_waited_for(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    world.run("SYSTEM STOP MUTATIONS t FOR 20 SECOND")
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}", {"mutations_wait_timeout_seconds": "10"})
    assert error.facts["stopped_until"] == "2026-01-01 00:00:20 UTC"
    assert world.clock.monotonic() < 1
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}", {"mutations_wait_timeout_seconds": "30"})
    assert "nobody works on it yet" in error.message
    assert world.clock.monotonic() >= 30


def test_what_runs_when_mutations_are_stopped_is_waited_for(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x')")
    failing(world, lambda pending: [running(pending[0], running=1 if world.clock.monotonic() < 3 else 0)])
    sleep = world.clock.sleep

    def stopping(seconds: float) -> None:
        sleep(seconds)
        if not world.catalog.services.all():
            world.run("SYSTEM STOP MUTATIONS t")

    world.clock.sleep = stopping  # type: ignore[method-assign]
    error = refused(world, f"ALTER TABLE t DELETE WHERE v = 2 {WAITING}")
    assert "stopped_until" in error.facts
    assert 3 <= world.clock.monotonic() < 5


def test_a_column_under_change_is_left_alone_unless_told(world: SqlWorld) -> None:
    world.run("ALTER TABLE t UPDATE v = 1 WHERE s = 'x'")
    assert refused(world, "ALTER TABLE t RENAME COLUMN s TO z").code == "COLUMN_BUSY"
    world.run("ALTER TABLE t RENAME COLUMN s TO z", settings={"force_alter_conflict_check": "0"})
    assert table_of(world).schema.names == ("a", "d", "v", "z")


def test_ttl(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY TTL d + INTERVAL 30 DAY DELETE")
    assert table_of(world).ttl == "d + INTERVAL 30 DAY"
    assert world.rows("SELECT ttl FROM system.tables WHERE name = 't'") == [("d + INTERVAL 30 DAY",)]
    assert "TTL d + INTERVAL 30 DAY" in str(world.rows("SHOW CREATE TABLE t"))
    world.run("ALTER TABLE t REMOVE TTL")
    assert table_of(world).ttl is None
    world.run("CREATE TABLE u (a Int64, d Date) ENGINE = MergeTree ORDER BY a TTL d + INTERVAL 1 MONTH")
    assert table_of(world, "u").ttl == "d + INTERVAL 1 MONTH"


def test_a_dropped_partition_comes_back(world: SqlWorld) -> None:
    world.run("INSERT INTO t VALUES (1, '2020-01-01', 2, 'x'), (2, '2020-01-02', 2, 'x')")
    uuid = table_of(world).uuid
    world.run("ALTER TABLE t DROP PARTITION '2020-01-01'")
    assert ("cancel", uuid, "2020-01-01") in world.maintenance.calls
    assert world.catalog.parts.snapshot(uuid).rows == 1
    world.run("ALTER TABLE t UNDROP PARTITION '2020-01-01'")
    assert world.catalog.parts.snapshot(uuid).rows == 2
    world.run("TRUNCATE TABLE t")
    assert ("cancel", uuid, None) in world.maintenance.calls
    world.run("ALTER TABLE t UNDROP PARTITION ID '2020-01-02'")
    assert world.catalog.parts.snapshot(uuid).rows == 1
    verbs = {event.verb for event in world.catalog.audit.recent(20)}
    assert {"ALTER .. DROP PARTITION", "ALTER .. UNDROP PARTITION", "TRUNCATE TABLE"} <= verbs


def test_a_view_goes_with_its_columns(world: SqlWorld) -> None:
    world.run(KAFKA)
    world.run("CREATE TABLE e (a Int64, s String, x Int64) ENGINE = MergeTree ORDER BY a")
    target = table_of(world, "e")
    filled = [("A", 1), ("s", 2)]

    def answer(spec: TaskSpec) -> bytes:
        task = msgspec.msgpack.decode(spec.payload, type=WorkerTask)
        if isinstance(task, CheckTask):
            return msgspec.msgpack.encode(filled)
        return answer_view_tasks(("k",))(spec)

    world.dispatch.answer = answer
    world.run("CREATE MATERIALIZED VIEW w TO e AS SELECT a, s FROM k")
    view = world.catalog.tables.get("default", "w")
    assert isinstance(view, ViewDef)
    assert view.target_columns == (("A", 1), ("s", 2))
    error = refused(world, "ALTER TABLE e DROP COLUMN s")
    assert error.code == "TABLE_IN_USE"
    assert "default.w" in str(error)
    world.run("ALTER TABLE e DROP COLUMN x, RENAME COLUMN s TO note")
    task = msgspec.msgpack.decode(world.dispatch.specs[-1].payload, type=WorkerTask)
    assert isinstance(task, CheckTask)
    assert (task.target.schema.names, task.target_columns) == (("a", "note"), view.target_columns)
    assert world.consume.calls[-1] == ("wake", view.source)
    ((shown,),) = world.rows("SHOW CREATE TABLE w")
    assert str(shown).endswith("AS SELECT `A` AS `a`, `s` AS `note` FROM (SELECT a, s FROM k)")
    assert table_of(world, "e").uuid == target.uuid


def test_a_query_begins_anew_when_columns_change_under_it(world: SqlWorld) -> None:
    answers: Iterator[TilthError | bytes] = iter([SchemaChangedError(table="default.t"), stream(pa.table({"n": [1]}))])

    def answer(spec: TaskSpec) -> bytes:
        found = next(answers)
        if isinstance(found, TilthError):
            raise found
        return found

    world.dispatch.answer = answer
    assert world.rows("SELECT count(*) AS n FROM t") == [(1,)]
    service = world.engine.snapshots
    world.dispatch.answer = worker
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        world.run("ALTER TABLE t RENAME COLUMN v TO w")
        with pytest.raises(SchemaChangedError):
            service.pin("q", [Undecided()])
    assert world.catalog.readers.list() == []


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_ranges_count_for_the_column_that_they_were_made_of() -> None:
    long, integer = Simple(Kind.INT64), Simple(Kind.INT32)
    before = Schema(
        columns=(
            Column(id=1, name="a", type=long),
            Column(id=2, name="b", type=long),
            Column(id=3, name="c", type=integer),
        )
    )
    now = Schema(
        columns=(
            Column(id=2, name="a", type=long),
            Column(id=3, name="c", type=long),
            Column(id=4, name="b", type=long),
        )
    )
    definition = TableDef(
        uuid="u",
        database="d",
        name="t",
        schema=now,
        schema_version=2,
        older_schemas=(SchemaVersion(version=1, schema=before),),
    )
    part = Part(
        name=PartName("all", 1, 1, 0, 1),
        schema_version=1,
        rows=5,
        file=DataFile(name="f", size=1, checksum=0),
        ranges={name: ColumnRange(low, low + 9, 0) for name, low in (("a", 0), ("b", 100), ("c", 0))},
    )
    assert as_present(part, definition).ranges == {"a": ColumnRange(100, 109, 0)}
    for name, value, expected in (("a", 5, False), ("a", 105, True), ("b", 105, True), ("c", 500, True)):
        assert keeper(Compare(name, Comparison.EQUAL, value), definition)(part) is expected, (name, value)
    unknown = msgspec.structs.replace(part, schema_version=7)
    assert as_present(unknown, definition).ranges == {}
