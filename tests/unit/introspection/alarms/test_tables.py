"""Alarms of tables that store rows: each is found from its threshold on, and gone when the thing is right again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.alarm_world import AlarmWorld, FakePeers
from tests.sql_world import table_of
from tilth.introspection.alarms.tables import ESTIMATES_MAX, FAILURES_MIN, READER_SECONDS_MAX, TASK_SECONDS_MAX
from tilth.maintenance import MutationProgress
from tilth.model.server import ServerRecord
from tilth.model.service import ServiceKind, ServiceStats, SwitchState
from tilth.model.task import Cost, TaskKind, TaskState
from tilth.model.txn import LostTxn, Txn, TxnState


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    """A server with a table `default.t`."""
    made = AlarmWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    return made


def insert(world: AlarmWorld, *values: int) -> None:
    """A part for each value."""
    for each in values:
        world.run(f"INSERT INTO t SETTINGS async_insert = 0 VALUES ({each})")


def failing(world: AlarmWorld, service: ServiceKind = ServiceKind.GC, failures: int = FAILURES_MIN) -> ServiceStats:
    return ServiceStats(
        database="default",
        table="t",
        uuid=table_of(world).uuid,
        service=service,
        switch=SwitchState.RUNNING,
        because="",
        state="failed",
        reason="a file cannot be removed",
        wakeups=0,
        last_wakeup_ms=0,
        running_tasks=0,
        failures=failures,
        last_exception="",
        last_exception_ms=0,
        server="s1",
    )


def stuck_mutation(world: AlarmWorld) -> MutationProgress:
    return MutationProgress(
        uuid=table_of(world).uuid,
        id=7,
        parts_to_do=2,
        parts_done=1,
        running=0,
        latest_failed_part="all_1_1_0_1",
        latest_fail_reason="no such price",
    )


def test_a_service_that_fails_again_and_again(world: AlarmWorld) -> None:
    world.maintenance.failed = [failing(world)]
    [finding] = world.found("service_failed")
    assert (finding.database, finding.table, finding.subject) == ("default", "t", "gc")
    assert finding.sentence == "gc of default.t fails: a file cannot be removed"
    world.maintenance.failed = [failing(world, failures=FAILURES_MIN - 1)]
    assert world.found("service_failed") == []


def test_a_mutation_whose_part_fails_is_one_alarm(world: AlarmWorld) -> None:
    world.maintenance.failed = [failing(world, ServiceKind.MUTATE)]
    world.maintenance.progress = [stuck_mutation(world)]
    [finding] = world.found("mutation_stuck")
    assert (finding.table, finding.subject) == ("t", "7")
    assert finding.sentence == "mutation 7 of default.t does not end, 2 parts are left: no such price"
    assert world.found("service_failed") == []
    world.maintenance.progress = [
        MutationProgress(uuid=table_of(world).uuid, id=7, parts_to_do=2, parts_done=1, running=1)
    ]
    assert world.found("mutation_stuck") == []
    assert len(world.found("service_failed")) == 1


def test_a_mutation_that_somebody_has_stopped_is_no_alarm(world: AlarmWorld) -> None:
    world.maintenance.progress = [stuck_mutation(world)]
    world.stop(ServiceKind.MUTATE)
    assert world.found("mutation_stuck") == []


def test_a_damaged_part_until_its_bytes_are_right_again(world: AlarmWorld, tmp_path: Path) -> None:
    insert(world, 1)
    table, damage = table_of(world), world.services.damage
    [part] = world.catalog.parts.snapshot(table.uuid).parts
    [path] = tmp_path.rglob(part.file.name)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    damage.check_sizes(world.catalog.parts.snapshot(table.uuid))
    world.maintenance.failed = [failing(world, ServiceKind.MERGE)]
    [finding] = world.found("part_damaged")
    assert (finding.table, finding.subject, finding.since_ms) == ("t", str(part.name), world.clock.now_ms())
    assert part.file.name in finding.sentence
    assert world.found("service_failed") == [], "one alarm for one cause"
    path.write_bytes(content)
    damage.recheck_now()
    assert world.found("part_damaged") == []


def test_a_damaged_part_is_reported_by_the_host_of_its_table(world: AlarmWorld, tmp_path: Path) -> None:
    insert(world, 1)
    snapshot = world.catalog.parts.snapshot(table_of(world).uuid)
    [path] = tmp_path.rglob(snapshot.parts[0].file.name)
    path.unlink()
    world.services.damage.check_sizes(snapshot)
    own, other = (ServerRecord(name=name, epoch=1, run="") for name in ("s1", "other"))
    world.change(peers=FakePeers(other, own))
    assert world.found("part_damaged") == []
    world.change(peers=FakePeers(own, other))
    assert len(world.found("part_damaged")) == 1
    # The first by its name, while nobody hosts anything.
    draining = [msgspec.structs.replace(each, draining="it starts") for each in (own, other)]
    world.change(peers=FakePeers(*draining))
    assert world.found("part_damaged") == []


def test_inserts_that_wait_and_inserts_that_are_refused(world: AlarmWorld) -> None:
    limits = "parts_to_delay_insert = 2, parts_to_throw_insert = 3, max_delay_to_insert = 0.001"
    world.run(f"ALTER TABLE t MODIFY SETTING {limits}")
    insert(world, 1)
    assert world.found("table_crowded") == world.found("inserts_refused") == []
    insert(world, 2)
    [finding] = world.found("table_crowded")
    assert (finding.table, finding.subject) == ("t", "all")
    assert finding.sentence == ("INSERTs into partition all of default.t wait 1 ms: 2 parts, parts_to_delay_insert = 2")
    assert world.found("inserts_refused") == []
    insert(world, 3)
    [finding] = world.found("inserts_refused")
    assert finding.sentence == (
        "INSERTs into partition all of default.t are refused: 3 parts, parts_to_throw_insert = 3"
    )
    assert world.found("table_crowded") == []


def test_a_reader_that_reads_for_long(world: AlarmWorld) -> None:
    hour_ms = READER_SECONDS_MAX * 1000
    uuid, readers = table_of(world).uuid, world.catalog.readers
    readers.open(uuid, world.catalog.clock.now(), "s1", 2 * hour_ms, client="127.0.0.1:7 (report-builder)")
    readers.open(uuid, world.catalog.clock.now(), "s1", 2 * hour_ms)
    # It has ended without a word.
    readers.open(uuid, world.catalog.clock.now(), "s1", hour_ms)
    world.clock.advance(READER_SECONDS_MAX - 1)
    assert world.found("reader_holds_files") == []
    world.clock.advance(1)
    found = {each.sentence for each in world.found("reader_holds_files")}
    rest = "has read default.t since 2026-01-01 00:00:00 UTC, and all files that were replaced since then stay"
    assert found == {f"127.0.0.1:7 (report-builder) {rest}", f"a reader of server s1 {rest}"}


def test_a_stream_that_does_not_read_on(world: AlarmWorld) -> None:
    hour_ms = READER_SECONDS_MAX * 1000
    insert(world, 1)
    uuid, readers = table_of(world).uuid, world.catalog.readers
    last = world.catalog.parts.version(uuid).last_commit_ts
    readers.open(uuid, last, "s1", 9 * hour_ms, name="billing", client="127.0.0.1:7 (spark)")
    # A table without changes is no work that waits.
    world.clock.advance(2 * READER_SECONDS_MAX)
    assert world.found("reader_holds_files") == []
    insert(world, 1)
    world.clock.advance(READER_SECONDS_MAX - 1)
    assert world.found("reader_holds_files") == []
    world.clock.advance(1)
    [finding] = world.found("reader_holds_files")
    assert finding.sentence == (
        "the stream billing of 127.0.0.1:7 (spark) has not read the changes of default.t since "
        "2026-01-01 02:00:00 UTC, and all files that were replaced since then stay"
    )


def test_a_transaction_that_the_database_has_lost(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.found("transaction_lost") == []
    lost = LostTxn(
        txn=Txn(id=5, state=TxnState.RUNNING, actor="insert", server="s1#1", outputs=(), fences=()),
        commit_ts=world.catalog.clock.now(),
        tables=(table_of(world).uuid,),
        files=("f.parquet",),
        server="s1#1",
        found_ms=9_000,
        before="1",
        now="2",
    )
    monkeypatch.setattr(world.catalog.transactions.lost, "all", lambda: [lost])
    [finding] = world.found("transaction_lost")
    assert (finding.database, finding.table, finding.subject, finding.since_ms) == ("default", "t", "5", 9_000)
    assert finding.sentence == (
        "the catalog's database has lost transaction 5, which was answered as committed at 2026-01-01 00:00:00 UTC: "
        "1 files of default.t"
    )


def test_tasks_that_run_or_wait_for_too_long(world: AlarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    [known] = world.dispatch.tasks()
    now_ms = world.clock.now_ms()
    begun_ms = now_ms - TASK_SECONDS_MAX * 1000 - 1
    running = msgspec.structs.replace(known, state=TaskState.RUNNING, started_ms=begun_ms, table="default.t")
    waiting = msgspec.structs.replace(
        running, id="t2", state=TaskState.PENDING, created_ms=begun_ms, reason="no slot is free"
    )
    large = msgspec.structs.replace(running, estimate=Cost(seconds=TASK_SECONDS_MAX / ESTIMATES_MAX + 1))
    well = (
        large,
        known,
        msgspec.structs.replace(running, kind=TaskKind.CONSUME),
        msgspec.structs.replace(running, kind=TaskKind.QUERY),
        msgspec.structs.replace(running, started_ms=begun_ms + 1),
    )
    monkeypatch.setattr(world.dispatch, "tasks", lambda: [running, waiting, *well])
    assert [each.sentence for each in world.found("task_stuck")] == [
        "a merge task of default.t has run on w1 since 2025-12-31 23:29:59 UTC",
        "a merge task of default.t has waited for a worker since 2025-12-31 23:29:59 UTC: no slot is free",
    ]
    assert [(each.table, each.subject) for each in world.found("task_stuck")] == [("t", "t1"), ("t", "t2")]
