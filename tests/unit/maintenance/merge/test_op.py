"""The manager and its merges over a memory catalog, with a worker that merges by adding numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.catalog_world import SCHEMA, WIDER
from tests.maintenance_world import MaintenanceWorld, aborted
from tilth.base.errors import CorruptError, FencedError, NotFoundError, TilthError, UnavailableError
from tilth.catalog import (
    CommitOutcome,
    HideEverything,
    InsertPart,
    PartsGoneError,
    SchemaChangedError,
    TableNotFoundError,
    Unknown,
)
from tilth.maintenance.kinds import OpKind
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.part import ColumnRange
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef, Transform, TransformKind
from tilth.model.txn import TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import Expiry, PartFileCorruptError, PartFileNotFoundError

DATE = Simple(Kind.DATE)


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


def test_many_small_parts_become_few_and_no_row_is_lost(world: MaintenanceWorld) -> None:
    for _ in range(30):
        world.insert("a")
    before = world.catalog.parts.snapshot(world.t)
    assert world.work() >= 1
    after = world.catalog.parts.snapshot(world.t)
    assert after.rows == before.rows == 300
    assert len(after.parts) < 5
    # The past reads as before.
    assert world.catalog.parts.snapshot(world.t, at=before.ts).parts == before.parts
    assert {event.event for event in world.catalog.part_log.recent(limit=100)} >= {"new", "merge"}
    assert world.catalog.transactions.unfinished() == []
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.running_tasks, service.failures) == ("idle", 0, 0)
    assert service.reason
    lease = world.catalog.leases.get(f"table/{world.t}")
    assert lease is not None
    assert lease.holder == "s1"


def test_each_choice_and_refusal_leaves_its_reason(world: MaintenanceWorld) -> None:
    for _ in range(10):
        world.insert("a")
    world.insert("lonely")
    world.work()
    rows = world.manager.choices()
    assert any(row.op == "MERGE(default.t)" and row.rule == "read_gain" and "parts of" in row.reason for row in rows)
    assert any(row.rule == "refused" and row.reason == "lonely: only one part" for row in rows)
    assert rows[0].rule == "nothing_to_gain"
    names = [run.name for run in world.manager.runs()]
    assert "MERGE(default.t)" in names
    assert {row.name for row in world.manager.ops()} >= {"MERGE(default.t)", "PART_GC(default.t)"}


def test_parts_that_come_later_are_noticed_by_the_part_log(world: MaintenanceWorld) -> None:
    world.work()
    for _ in range(12):
        world.insert("a")
    world.clock.advance(1.1)
    assert world.work() >= 1
    assert world.visible_count() < 12


def test_a_stopped_service_merges_nothing_and_says_why(world: MaintenanceWorld) -> None:
    def switch(state: SwitchState, until_ms: int = 0) -> None:
        world.catalog.services.set(
            Switch(
                table=world.t,
                service=ServiceKind.MERGE,
                state=state,
                since_ms=world.clock.now_ms(),
                until_ms=until_ms,
                because="a test",
            )
        )
        world.manager.wake(world.t)

    switch(SwitchState.STOPPED)
    for _ in range(10):
        world.insert("a")
    world.work(2)
    service = world.service(ServiceKind.MERGE)
    assert (service.switch, service.state, service.reason) == (SwitchState.STOPPED, "stopped", "a test")
    assert world.worker.merges == 0
    switch(SwitchState.RUNNING)
    world.work(2)
    assert world.worker.merges == 1
    # A pause ends by itself.
    switch(SwitchState.STOPPED, until_ms=world.clock.now_ms() + 60_000)
    for _ in range(10):
        world.insert("a")
    world.work(2)
    assert world.worker.merges == 1
    world.work(60)
    assert world.worker.merges == 2


def test_a_failed_merge_is_reported_waits_and_is_tried_again(world: MaintenanceWorld) -> None:
    world.worker.errors = [UnavailableError("no space left on device", path="p")] * 2
    for _ in range(10):
        world.insert("a")
    for _ in range(8):
        world.insert("b", rows=1)
    assert world.turn()
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures) == ("failed", 1)
    assert "no space left on device: path=p" in service.reason
    assert "next try in 1 s" in service.reason
    assert service.last_exception_ms == world.clock.now_ms() == service.next_attempt_ms - 1000
    # Nothing is lost, nothing is left.
    assert world.visible_count() == 18
    assert [txn.state for txn in world.catalog.transactions.unfinished()] == [TxnState.ABORTED]
    world.work(2)
    world.work(10)
    assert world.visible_count() < 6
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures, service.next_attempt_ms) == ("idle", 0, 0)


@pytest.mark.parametrize(
    ("error", "failures", "seconds"),
    [
        (UnavailableError("no disk"), 1, 1),
        (PartFileCorruptError(), 1, 60),
        (PartFileNotFoundError(), 1, 60),
        (SchemaChangedError(), 0, 1),
        (TableNotFoundError(), 0, 1),
        (FencedError(), 0, 1),
    ],
)
def test_what_follows_from_a_merge_that_did_not_land_is_the_rule_of_all_services(
    world: MaintenanceWorld, error: TilthError, failures: int, seconds: int
) -> None:
    world.worker.errors = [error]
    for _ in range(10):
        world.insert("a")
    assert world.turn()
    assert world.service(ServiceKind.MERGE).failures == failures
    world.work(seconds - 0.1)
    assert world.worker.merges == 0
    world.work(1.2)
    assert (world.worker.merges, world.visible_count()) == (1, 1)


def test_a_drop_while_a_merge_runs_wins_and_is_no_failure(world: MaintenanceWorld) -> None:
    def truncate(task: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        world.commit(HideEverything(table=world.t))

    world.worker.on_merge = truncate
    for _ in range(10):
        world.insert("a")
    assert world.turn()
    assert world.visible_count() == 0
    assert aborted(world) == ["merge default.t"]
    assert world.service(ServiceKind.MERGE).failures == 0
    assert any(PartsGoneError().message in row.reason for row in world.manager.choices())
    [run] = [run for run in world.manager.runs() if run.name == "MERGE(default.t)"]
    assert "not visible any more" in run.error


@pytest.mark.parametrize("has_landed", [True, False])
def test_an_unknown_outcome_deletes_nothing_and_is_resolved_later(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, *, has_landed: bool
) -> None:
    real = world.catalog.transactions.commit
    left = [True]

    def lossy(*given: object) -> CommitOutcome:
        if world.worker.merges and left:
            left.clear()
            if has_landed:
                real(*given)  # type: ignore[arg-type]  # as it was called
            return Unknown("the answer was lost")
        return real(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.catalog.transactions, "commit", lossy)
    for _ in range(10):
        world.insert("a")
    world.manager.step()
    world.settle()
    [run] = world.manager.runs()
    assert "the answer was lost" in run.error
    states = [txn.state for txn in world.catalog.transactions.recent(1)]
    assert states == [TxnState.FINISHED if has_landed else TxnState.RUNNING]
    world.work(2)
    assert world.worker.merges == 1
    assert world.visible_count() == 1
    assert world.catalog.transactions.unfinished() == []


def test_no_more_runs_at_once_than_threads(world: MaintenanceWorld) -> None:
    world.worker.is_holding = True
    for table in [world.t, *(world.table(name) for name in "uvw")]:
        for _ in range(10):
            world.insert("a", table=table)
    started = sum(world.turn() for _ in range(10))
    assert started == world.running() == 2
    assert world.manager.choices()[0].reason == "no free threads"
    assert {world.service(ServiceKind.MERGE, table).state for table in [world.t, world.table("u")]} <= {
        "running",
        "waiting",
    }
    # Parts under merge are not chosen again, and the transaction of a long merge is not taken for lost.
    world.clock.advance(700)
    world.turn()
    world.worker.let_go()
    world.settle()
    world.work(2)
    assert all(world.visible_count(world.table(name)) == 1 for name in "tuvw")
    assert world.worker.merges == 4


def test_stop_cancels_what_runs_and_the_next_start_cleans_up(world: MaintenanceWorld) -> None:
    world.worker.is_holding = True
    for _ in range(10):
        world.insert("a")
    world.turn()
    assert world.running() == 1
    world.manager.stop()
    [txn] = world.catalog.transactions.unfinished()
    assert (txn.state, txn.actor) == (TxnState.ABORTED, "merge default.t")
    assert world.catalog.leases.list() == []
    world.worker.is_holding = False
    world.manager = world.new_manager()
    world.manager.start()
    try:
        assert world.catalog.transactions.unfinished() == []
    finally:
        world.manager.stop()


def test_optimize_merges_what_the_background_would_leave(world: MaintenanceWorld) -> None:
    world.insert("a", rows=100_000)
    world.insert("a", rows=10)
    world.insert("b")
    assert world.work() == 0
    report = world.manager.optimize(world.t)
    assert (report.partitions, report.merges, report.parts_before, report.parts_after) == (2, 1, 3, 2)
    assert report.rows_merged == 100_010
    assert world.manager.optimize(world.t, "b", final=True).merges == 0
    with pytest.raises(NotFoundError, match=r"no such partition: table=default\.t partition=z"):
        world.manager.optimize(world.t, "z")
    with pytest.raises(TableNotFoundError):
        world.manager.optimize("nothing")
    world.insert("a")
    world.worker.errors = [UnavailableError("no worker")]
    with pytest.raises(UnavailableError, match="no worker"):
        world.manager.optimize(world.t, "a", final=True)


def test_a_dropped_table_is_left_alone_and_forgotten_after_its_time(world: MaintenanceWorld) -> None:
    world.insert("a")
    world.work()
    world.catalog.tables.drop(world.t)
    world.manager.wake()
    world.work(6)
    assert world.manager.stats() == []
    assert len(world.catalog.tables.dropped()) == 1
    world.work(259_200)
    assert world.catalog.tables.dropped() == []
    assert list(world.catalog.parts.all_entries(world.t)) == []


def test_a_transaction_that_nobody_works_on_is_lost_after_ten_minutes(world: MaintenanceWorld) -> None:
    world.work()
    lost = world.catalog.transactions.begin("insert")
    world.work(599)
    assert world.catalog.transactions.resolve(lost.id) is TxnState.RUNNING
    world.work(6)
    assert world.catalog.transactions.resolve(lost.id) is TxnState.ABORTED
    # The grace: a task that is being killed may still write.
    world.work(6)
    world.work(16)
    assert world.catalog.transactions.resolve(lost.id) is None


def test_a_table_may_be_merged_by_command_only(world: MaintenanceWorld) -> None:
    """docs/policies/size-tiered.md#settings: disable_compaction"""
    for _ in range(10):
        world.insert("a")
    world.catalog.tables.modify_settings(world.t, {"disable_compaction": "true"}, ())
    world.work(2)
    world.work(3600)
    assert (world.worker.merges, world.service(ServiceKind.MERGE).reason) == (0, "disable_compaction is on")
    assert world.manager.optimize(world.t).merges == 1
    for _ in range(10):
        world.insert("a")
    world.catalog.tables.modify_settings(world.t, {}, ("disable_compaction",))
    world.manager.wake(world.t)
    world.work(2)
    assert world.worker.merges == 2


def test_a_bad_setting_of_one_table_stops_no_other(world: MaintenanceWorld) -> None:
    bad = world.table("bad")
    world.catalog.tables.modify_settings(bad, {"old_parts_lifetime": "never"}, ())
    for _ in range(10):
        world.insert("a")
    assert world.work() >= 1
    assert {row.uuid for row in world.manager.stats()} == {world.t}
    assert any("old_parts_lifetime" in row.reason for row in world.manager.choices())


def broken_for(world: MaintenanceWorld, table: str, is_broken: Callable[[], bool]) -> Callable[..., Snapshot]:
    """`parts.snapshot` that cannot read the entries of one table."""
    real = world.catalog.parts.snapshot

    def snapshot(uuid: str, **given: Any) -> Snapshot:
        if uuid == table and is_broken():
            raise CorruptError("a value of the catalog cannot be read", key="entry/x")
        return real(uuid, **given)

    return snapshot


def test_a_table_that_cannot_be_looked_at_stops_no_other(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, broken = world.table("u"), [True]
    # From now on each table reads its own parts.
    world.work()
    monkeypatch.setattr(world.catalog.parts, "snapshot", broken_for(world, world.t, lambda: bool(broken)))
    for table in (world.t, other):
        for _ in range(10):
            world.insert("a", table=table)
    assert world.work(1) >= 1
    assert world.visible_count(other) == 1
    assert world.visible_count() == 10
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures) == ("failed", 1)
    assert "cannot be read: key=entry/x; failed 1 times, next try in 60 s" in service.reason
    [row] = [row for row in world.manager.ops() if row.name == "MERGE(default.t)"]
    assert (row.stats.is_runnable, "cannot be read" in row.stats.about) == (False, True)
    # A table with a damaged entry waits long for its next try, and is merged when it can be read again.
    world.work(59)
    assert world.service(ServiceKind.MERGE).failures == 1
    world.work(1.1)
    assert world.service(ServiceKind.MERGE).failures == 2
    broken.clear()
    assert world.work(61) >= 1
    assert world.visible_count() == 1
    assert world.service(ServiceKind.MERGE).failures == 0


def test_parts_are_given_back_when_a_merge_cannot_be_prepared(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.work()
    for _ in range(10):
        world.insert("a")
    world.clock.advance(1)
    looks = [False, True]
    real = broken_for(world, world.t, lambda: bool(looks) and looks.pop(0))
    monkeypatch.setattr(world.catalog.parts, "snapshot", real)
    assert world.manager.step().op_name == "MERGE(default.t)"
    assert world.manager.runs() == []
    assert world.service(ServiceKind.MERGE).state == "failed"
    assert world.manager.numbers().prepare_failed == 1
    assert world.work(61) >= 1
    assert world.visible_count() == 1
    assert world.service(ServiceKind.MERGE).failures == 0


def test_optimize_gives_parts_back_when_they_cannot_be_read(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.insert("a", "a")
    # The look, then the merge's own parts.
    looks = [False, True]
    real = broken_for(world, world.t, lambda: bool(looks) and looks.pop(0))
    monkeypatch.setattr(world.catalog.parts, "snapshot", real)
    with pytest.raises(CorruptError):
        world.manager.optimize(world.t, "a")
    assert looks == []
    assert world.manager.optimize(world.t, "a").merges == 1


def test_transactions_that_another_service_works_on_are_not_lost(world: MaintenanceWorld) -> None:
    mine, lost = world.catalog.transactions.open("consume"), world.catalog.transactions.begin("consume")
    world.work(700)
    assert world.catalog.transactions.resolve(mine.id) is TxnState.RUNNING
    assert world.catalog.transactions.resolve(lost.id) is TxnState.ABORTED


def test_what_was_done_is_counted(world: MaintenanceWorld) -> None:
    for _ in range(10):
        world.insert("a")
    world.work()
    world.clock.advance(1)
    world.manager.gc_now(world.t, is_forced=True)
    numbers = world.manager.numbers()
    assert (numbers.ops[OpKind.MERGE].ended, numbers.ops[OpKind.MERGE].running) == (world.worker.merges, 0)
    assert numbers.ops[OpKind.PART_GC].ended >= 1
    assert numbers.moved >= 10
    assert (numbers.removed, numbers.removed_bytes) == (10, 10_000)
    assert numbers.choices >= 2
    # A table that goes takes nothing along.
    world.catalog.tables.drop(world.t)
    world.manager.wake()
    world.work()
    assert world.manager.numbers().removed == 10


def merged_tasks(world: MaintenanceWorld) -> list[MergeTask]:
    """The tasks of all merges from here on."""
    tasks: list[MergeTask] = []
    world.worker.on_merge = tasks.append
    return tasks


def test_a_merge_has_the_columns_of_its_sources(world: MaintenanceWorld) -> None:
    """Those of before an ALTER merge as they are; nothing merges across it."""
    switch_off(world, ServiceKind.MUTATE)
    for _ in range(10):
        world.insert("a")
    alter(world)
    for _ in range(10):
        world.insert("a")
    tasks = merged_tasks(world)
    world.work()
    world.work(1.1)
    assert [task.layout.schema.names for task in tasks] == [("a",), ("a", "b")]
    old, new = sorted(world.catalog.parts.snapshot(world.t).parts, key=lambda part: part.name)
    assert (old.schema_version, new.schema_version) == (1, 2)
    assert (old.rows, new.rows) == (100, 100)


def test_an_alter_while_a_merge_runs_aborts_nothing(world: MaintenanceWorld) -> None:
    switch_off(world, ServiceKind.MUTATE)

    def widen(_: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        alter(world)

    world.worker.on_merge = widen
    for _ in range(10):
        world.insert("a")
    world.work()
    assert world.visible_count() == 1
    assert world.service(ServiceKind.MERGE).failures == 0


def test_optimize_says_that_a_mutation_keeps_parts_apart(world: MaintenanceWorld) -> None:
    switch_off(world, ServiceKind.MUTATE)
    world.insert("a")
    world.insert("a")
    world.alter_delete("false")
    world.insert("a")
    world.work()
    report = world.manager.optimize(world.t, "a")
    assert (report.merges, report.parts_after) == (1, 2)
    assert report.note == "a pending mutation (delete) keeps parts of a apart"
    assert world.manager.optimize(world.table("u")).note == ""
    [row] = [row for row in world.manager.explain_merge(world.t) if row.state == "lone"][1:]
    assert "separated by a pending mutation" in row.reason


def test_merges_of_a_partition_can_be_cancelled(world: MaintenanceWorld) -> None:
    world.worker.is_holding = True
    for partition in "ab":
        for _ in range(10):
            world.insert(partition)
    world.turn()
    world.turn()
    running = world.running()
    assert running >= 1
    assert world.manager.cancel_partition(world.t, "z") == 0
    assert world.manager.cancel_partition(world.t, None) == running
    world.settle()
    assert world.visible_count() == 20
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures) != ("failed", 1)
    assert any("the task was cancelled" in row.reason for row in world.manager.choices())
    world.worker.is_holding = False
    world.work(2)
    world.work(2)
    assert world.visible_count() == 2


def test_rows_that_have_expired_are_left_out(world: MaintenanceWorld) -> None:
    aged = world.aging_table()
    world.manager.wake()
    world.clock.advance(3600)
    tasks = merged_tasks(world)
    for _ in range(10):
        world.insert("a", table=aged)
    for _ in range(10):
        world.insert("a")
    world.work()
    today = world.clock.now_ms() // 86_400_000
    found = {task.layout.folder.path.split("/")[-2]: task.expired for task in tasks}
    assert found == {aged: Expiry(column="d", below=today), world.t: None}


def test_a_partition_that_has_expired_is_not_merged(world: MaintenanceWorld) -> None:
    schema = Schema(columns=(Column(id=1, name="d", type=DATE),))
    definition = TableDef(
        uuid=world.new_id(),
        database="default",
        name="aged",
        schema=schema,
        partition_by=(Transform(kind=TransformKind.IDENTITY, column="d"),),
        ttl="d + INTERVAL 1 DAY",
    )
    aged = world.catalog.tables.create(definition).uuid
    switch_off(world, ServiceKind.GC)
    for _ in range(10):
        written = msgspec.structs.replace(world.written("10"), values=(10,))
        world.commit(InsertPart(table=aged, written=written))
    world.work()
    assert world.worker.merges == 0
    assert any(row.reason == "10: all its rows have expired" for row in world.manager.choices())


def test_a_table_with_a_unique_key_is_merged_by_key(world: MaintenanceWorld) -> None:
    def made(name: str, **more: Any) -> str:
        definition = TableDef(
            uuid=world.new_id(),
            database="default",
            name=name,
            schema=SCHEMA,
            next_column_id=2,
            order_by=("a",),
            unique_key=("a",),
            **more,
        )
        return world.catalog.tables.create(definition).uuid

    unique, told = made("unique"), made("told", settings={"merge_policy": "size_tiered"})
    for table in (unique, told):
        for number in range(3):
            ranges = {"a": ColumnRange(100 * (number // 2), 100 * (number // 2) + 99, 0)}
            written = msgspec.structs.replace(world.written("p"), ranges=ranges)
            world.commit(InsertPart(table=table, written=written))
    world.work()
    # Three young parts are too few by size; two of them are one too many by key.
    assert world.visible_count(told) == 3
    assert world.visible_count(unique) < 3
    assert any("parts that a key is looked up in" in row.reason for row in world.manager.choices())
    assert [event.key for event in world.catalog.part_log.recent(table=unique, limit=9) if event.event == "new"] == [
        ColumnRange(0, 99, 0),
        ColumnRange(0, 99, 0),
        ColumnRange(100, 199, 0),
    ]
    assert world.manager.explain_merge(unique)[0].score <= 0


def test_the_most_crowded_partition_comes_first_where_it_is_asked_for(world: MaintenanceWorld) -> None:
    world.catalog.tables.modify_settings(
        world.t, {"partition_strategy": "parts", "max_partition_for_multi_select": "1"}, ()
    )
    world.work()
    for partition, count in (("a", 9), ("b", 30), ("c", 9)):
        for _ in range(count):
            world.insert(partition)
    world.work(2)
    world.work(2)
    assert world.visible_count() < 30


def alter(world: MaintenanceWorld) -> None:
    """A new column."""
    txn = world.catalog.transactions.open("alter")
    txn.commit([world.start(WIDER)])
    world.manager.wake(world.t)


def switch_off(world: MaintenanceWorld, service: ServiceKind) -> None:
    world.catalog.services.set(
        Switch(table=world.t, service=service, state=SwitchState.STOPPED, since_ms=0, until_ms=0, because="a test")
    )
    if service is ServiceKind.GC:
        for relation in world.catalog.tables.list():
            world.catalog.services.set(
                Switch(table=relation.uuid, service=service, state=SwitchState.STOPPED, since_ms=0, because="a test")
            )
    world.manager.wake()
