"""Partitions that expire: dropped by a range when their last row has, and never with a row that has not."""

from __future__ import annotations

import msgspec
import pytest

from tests.maintenance_world import MaintenanceWorld
from tilth.base.errors import ConflictError, FencedError
from tilth.catalog import ExpirePartition, HideEverything, InsertPart, PartsGoneError, RestorePartition
from tilth.maintenance.gc.expiry import ExpiryPhase
from tilth.maintenance.one_part.task_spark import MergeTask
from tilth.model.part import ColumnRange, Part
from tilth.model.service import ServiceKind
from tilth.model.table import Column, Schema, TableDef, Transform, TransformKind
from tilth.model.types import Kind, Simple

#: The world's clock begins on 1 January 2026.
FIRST_DAY = 20_454
DAY = 86_400
TTL = "d + INTERVAL 30 DAY"


class ExpiryWorld(MaintenanceWorld):
    """With a table `e` whose column `d` expires after 30 days."""

    def __init__(self, *partition_by: Transform) -> None:
        super().__init__()
        assert self.clock.now_ms() == FIRST_DAY * DAY * 1000
        definition = TableDef(
            uuid=self.new_id(),
            database="default",
            name="e",
            schema=Schema(columns=(Column(id=1, name="d", type=Simple(Kind.DATE)),)),
            partition_by=partition_by,
            ttl=TTL,
            # The merges of this world know no ranges.
            settings={"max_addition_bg_task_num": "0"},
        )
        self.e = self.catalog.tables.create(definition).uuid

    def put(self, partition: str, value: int | str, *days: int) -> list[Part]:
        """Parts whose newest row is so many days after the first."""
        return [self._put(partition, value, day) for day in days]

    def _put(self, partition: str, value: int | str, day: int) -> Part:
        written = self.written(partition)
        ranges = {"d": ColumnRange(FIRST_DAY - 1, FIRST_DAY + day, 0)}
        written = msgspec.structs.replace(written, values=(value,), ranges=ranges)
        return self.commit(InsertPart(table=self.e, written=written))[0]

    def here(self) -> set[str]:
        return {name.partition for name in self.names(table=self.e)}

    def days(self, count: float) -> None:
        """So long, some hours at a time, until nothing is left to do."""
        for _ in range(int(count * 4)):
            self.work(21_600)


@pytest.fixture
def by_month() -> ExpiryWorld:
    return ExpiryWorld(Transform(kind=TransformKind.TO_YYYYMM, column="d"))


@pytest.fixture
def by_parts() -> ExpiryWorld:
    return ExpiryWorld(Transform(kind=TransformKind.IDENTITY, column="other"))


def test_a_server_that_has_lost_the_table_drops_no_partition(by_month: ExpiryWorld) -> None:
    by_month.put("202512", 202512, -1)
    by_month.manager.step()
    # A run in progress would lose the table, and the next one would acquire it again.
    assert by_month.manager._runs.wait_until_idle(10)
    by_month.clock.advance(60 * DAY)
    by_month.manager._table_leases.fence(by_month.e)
    by_month.catalog.leases.acquire(f"table/{by_month.e}", "s2")
    with pytest.raises(FencedError):
        by_month.manager.gc_now(by_month.e)
    assert by_month.here() == {"202512"}


def test_by_the_key_when_its_last_day_is_over(by_month: ExpiryWorld) -> None:
    by_month.put("202512", 202512, -1)
    by_month.put("202601", 202601, 0)
    by_month.days(29)
    assert by_month.here() == {"202512", "202601"}
    # The last of December and 30 days: the beginning of 30 January.
    by_month.days(1.5)
    assert by_month.here() == {"202601"}
    hidden = next(event for event in by_month.catalog.part_log.recent(limit=100) if event.event == "hide")
    assert (hidden.table, hidden.rows) == (by_month.e, 10)
    assert hidden.reason == f"TTL {TTL}: all its rows expired at 2026-01-30 00:00:00, by its key"
    by_month.days(1)
    assert by_month.catalog.parts.partitions(by_month.e) == ["202601"]
    assert not by_month.catalog.transactions.unfinished()
    assert by_month.service(ServiceKind.GC, by_month.e).failures == 0
    assert by_month.manager.numbers().expired == 1


def test_by_the_parts_when_the_key_does_not_bound_it(by_parts: ExpiryWorld) -> None:
    by_parts.put("x", "x", 0, 2)
    by_parts.put("y", "y", 9)
    by_parts.days(32)
    assert by_parts.here() == {"x", "y"}
    by_parts.days(0.5)
    assert by_parts.here() == {"y"}
    # New rows of an old partition begin a new life.
    by_parts.put("x", "x", 20)
    by_parts.days(10)
    assert by_parts.here() == {"x"}


def test_one_part_without_a_range_keeps_the_partition(by_parts: ExpiryWorld) -> None:
    by_parts.put("x", "x", 0)
    by_parts.commit(InsertPart(table=by_parts.e, written=by_parts.written("x")))
    by_parts.days(40)
    assert by_parts.here() == {"x"}
    rows = by_parts.manager.explain_gc(by_parts.e)
    assert all("1 of 1 parts do not record" in row.reason or "1 of 2 parts" in row.reason for row in rows)


def test_old_rows_that_come_late_go_soon(by_month: ExpiryWorld) -> None:
    by_month.days(1)
    by_month.put("202501", 202501, -360)
    by_month.work(1)
    by_month.work(30)
    assert by_month.here() == set()


def test_explain_shows_when_a_partition_goes(by_month: ExpiryWorld) -> None:
    by_month.put("202601", 202601, 3)
    [row] = by_month.manager.explain_gc(by_month.e)
    assert "its last row expires at 2026-03-02 00:00:00, by its key" in row.reason
    assert row.until_ms == (FIRST_DAY + 60) * DAY * 1000 + 1


def test_a_part_that_comes_between_verdict_and_commit_refuses_it(
    by_parts: ExpiryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either it is left out of what is hidden, or nothing is hidden."""
    by_parts.put("x", "x", 0)
    by_parts.work()
    by_parts.clock.advance(31 * DAY)
    look = ExpiryPhase._drop

    def late(self: ExpiryPhase, partition: str, *rest: object) -> None:
        by_parts.put("x", "x", 31)
        look(self, partition, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ExpiryPhase, "_drop", late)
    by_parts.manager.gc_now(by_parts.e)
    [left] = by_parts.names(table=by_parts.e)
    assert left.min_block == max(name.min_block for name in by_parts.names(table=by_parts.e))
    assert by_parts.visible_count(by_parts.e) == 1


def test_the_catalog_refuses_what_was_not_judged(by_parts: ExpiryWorld) -> None:
    first, second, third = by_parts.put("x", "x", 0, 1, 2)

    def expire(*parts: Part, ttl: str = TTL) -> None:
        names = tuple(part.name for part in parts)
        by_parts.commit(ExpirePartition(table=by_parts.e, partition="x", parts=names, ttl=ttl, reason=""))

    with pytest.raises(PartsGoneError, match="were not judged"):
        expire(first, third)
    with pytest.raises(ConflictError, match="TTL has changed"):
        expire(first, ttl="d + INTERVAL 1 DAY")
    expire(first, second)
    assert by_parts.names(table=by_parts.e) == [third.name]
    with pytest.raises(PartsGoneError):
        expire(first)
    by_parts.commit(RestorePartition(table=by_parts.e, partition="x"))
    assert by_parts.visible_count(by_parts.e) == 3


def test_a_ttl_that_is_not_understood_is_reported_and_expires_nothing(
    by_month: ExpiryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    definition = TableDef(
        uuid=by_month.new_id(),
        database="default",
        name="old",
        schema=Schema(columns=(Column(id=1, name="d", type=Simple(Kind.DATE)),)),
        ttl="somehow(d)",
    )
    uuid = by_month.catalog.tables.create(definition).uuid
    by_month.commit(InsertPart(table=uuid, written=by_month.written()))
    by_month.days(1)
    assert by_month.visible_count(uuid) == 1
    assert "a TTL must be a column, or a column plus an interval" in caplog.text


def test_a_drop_while_optimize_merges_leaves_it_what_is_there() -> None:
    world = MaintenanceWorld()

    def truncate(task: MergeTask) -> None:
        world.worker.on_merge = lambda _: None
        world.commit(HideEverything(table=world.t))
        world.insert("a", "a")

    world.insert("a", "a")
    world.worker.on_merge = truncate
    report = world.manager.optimize(world.t, "a", final=True)
    assert (report.merges, report.parts_after) == (1, 1)
    assert world.service(ServiceKind.MERGE).failures == 0
