"""A turn of the manager ends in time, however many tables there are, and the next ones do what it has left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.counted_kv import CountedKV
from tests.maintenance_world import ROOT, MaintenanceWorld
from tilth.base.settings import read_settings
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.manager import feed, refreshes
from tilth.maintenance.manager.manager import STEP_SECONDS_MAX
from tilth.maintenance.manager.refreshes import REFRESH_MS
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.table.watch import TableWatch
from tilth.model.part import PartEvent
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState
from tilth.model.table import TableDef
from tilth.testing.clock import ManualClock

#: Rows of a part that no merge takes.
LARGE = 10**9
TURNS_MAX = 1_000


class TickingClock(ManualClock):
    """A clock that goes on by a tick whenever its time is read, as if work had been done."""

    def __init__(self, clock: ManualClock, tick_ms: int) -> None:
        super().__init__(clock.now_ms())
        self._clock = clock
        self.tick_ms = tick_ms
        self._ticks = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        self._ticks += self.tick_ms
        return self._clock.monotonic() + self._ticks / 1000

    @property
    def ticked_ms(self) -> int:
        return self._ticks


class TickingWorld(MaintenanceWorld):
    """Tables with two parts each; with ticks of more than a step's time, a step does one piece of work."""

    def __init__(self, tables: int, *, tick_ms: int) -> None:
        super().__init__()
        self.tables = [self.t, *(self.table(f"t{number}") for number in range(1, tables))]
        for uuid in self.tables:
            self.insert("all", table=uuid, rows=LARGE)
            self.insert("all", table=uuid, rows=LARGE)
        self.clock.advance(60)
        self.ticking = TickingClock(self.clock, tick_ms)
        self.manager = MaintenanceManager(
            self.ticking, self.catalog, self.dispatcher, ROOT, read_settings(ManagerSettings, {})
        )

    @property
    def registered(self) -> set[str]:
        return {table.watch.uuid for table in self.manager._registry.all()}

    def turns_until(self, is_reached: Callable[[], bool]) -> int:
        for turn in range(1, TURNS_MAX):
            self.turn()
            if is_reached():
                return turn
        raise AssertionError("it is never reached")

    def is_at_rest(self) -> bool:
        return self.manager._behind_seconds == 0

    def come_to_rest(self) -> None:
        """Let the manager do all that is to be done, as fast as can be."""
        self.ticking.tick_ms, tick_ms = 0, self.ticking.tick_ms
        self.work()
        self.ticking.tick_ms = tick_ms


def test_a_start_takes_turns_that_end_in_time() -> None:
    world = TickingWorld(100, tick_ms=1)
    turns = 0
    while len(world.registered) < 100 or not world.is_at_rest():
        before, registered = world.ticking.ticked_ms, len(world.registered)
        world.turn()
        # Three steps of 20 ms at most, 10 ms of polls, and reads of the clock beside them.
        assert world.ticking.ticked_ms - before < 3 * STEP_SECONDS_MAX * 1000 + 10 + 20
        assert len(world.registered) - registered <= STEP_SECONDS_MAX * 1000
        turns += 1
    assert turns > 5
    assert not [op for op in world.manager.ops() if op.stats.about == "not checked yet"]


def test_tables_that_come_and_go_during_a_pass() -> None:
    world = TickingWorld(9, tick_ms=30)
    world.turns_until(lambda: len(world.registered) == 4)
    # Behind the pass: one that a command has reported, one that nobody has; ahead of it one more.
    reported, unknown, ahead = (
        world.catalog.tables.create(
            TableDef(uuid=uuid, database="default", name=name, schema=world.definition().schema, next_column_id=2)
        ).uuid
        for uuid, name in (("0" * 31 + "!", "reported"), ("0" * 30 + "!!", "unknown"), ("f" * 32, "ahead"))
    )
    kept = world.manager._registry.get(reported)
    for gone in (world.tables[1], world.tables[6]):
        world.catalog.tables.drop(gone)
    world.turns_until(lambda: world.manager._refreshes._ended == 1)
    # The next pass finds changes behind this one that nobody has reported.
    there = {*world.tables, reported, ahead} - {world.tables[6]}
    assert world.registered == there
    assert world.manager._registry.get(reported) is kept
    world.clock.advance(REFRESH_MS / 1000)
    world.turns_until(lambda: world.manager._refreshes._ended == 2)
    assert world.registered == (there | {unknown}) - {world.tables[1]}


def test_rows_that_come_between_two_steps_of_a_pass_are_found() -> None:
    """A version that was read in one step does not hide what came before the next."""
    world = TickingWorld(3, tick_ms=30)
    world.turns_until(lambda: len(world.registered) == 1)
    for uuid in world.tables:
        world.insert_segment("all", table=uuid)
    world.turns_until(lambda: len(world.registered) == 3)
    world.come_to_rest()
    for uuid in world.tables:
        assert "1 segments" in world.service(ServiceKind.FLUSH, uuid).reason


def test_a_switch_that_is_set_during_a_pass_counts_for_tables_that_were_read_before() -> None:
    world = TickingWorld(5, tick_ms=30)
    world.turns_until(lambda: len(world.registered) == 3)
    stopped = Switch(table=ALL_TABLES, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=0)
    world.catalog.services.set(stopped)
    world.manager.wake()
    world.clock.advance(refreshes.REFRESH_WAIT_SECONDS_MAX)
    world.turns_until(lambda: world.manager._refreshes._ended == 2)
    now_ms = world.clock.now_ms()
    assert [table.watch.is_on(ServiceKind.MERGE, now_ms) for table in world.manager._registry.all()] == [False] * 5


def test_news_are_reported_over_several_turns_each_once_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "READ_EVENTS", 7)
    monkeypatch.setattr(feed, "NEWS_EVENTS", 3)
    world = TickingWorld(4, tick_ms=30)
    world.come_to_rest()
    reported: list[str] = []
    observe = TableWatch.observe

    def observed(watch: TableWatch, event: PartEvent) -> str:
        reported.append(event.part)
        return observe(watch, event)

    monkeypatch.setattr(TableWatch, "observe", observed)
    for number in range(20):
        world.insert("all", table=world.tables[number % 4], rows=LARGE)
        world.clock.advance(0.01)
    expected = [event.part for event in world.catalog.part_log.recent(limit=20)]
    assert world.turns_until(lambda: len(reported) >= 20) >= 20 / 3
    for _ in range(5):
        world.turn()
    assert reported == expected


def test_all_tables_are_notified_over_several_turns_where_events_were_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TickingWorld(5, tick_ms=30)
    world.come_to_rest()
    notified: list[str] = []
    notice_all = TableOps.notice_all

    def noticed(table: TableOps) -> None:
        notified.append(table.watch.uuid)
        notice_all(table)

    monkeypatch.setattr(TableOps, "notice_all", noticed)
    monkeypatch.setattr(feed, "EVENTS_MAX", 3)
    for uuid in world.tables:
        world.insert("all", table=uuid, rows=LARGE)
    # More are missed in each turn, and no table waits for ever.
    assert world.turns_until(lambda: len(notified) == 5) >= 5
    assert set(notified) == set(world.tables)


def test_a_new_table_is_read_alone() -> None:
    reads = []
    for tables in (2, 20):
        counted = CountedKV()
        world = MaintenanceWorld(counted)
        for number in range(tables):
            world.insert("all", table=world.table(f"t{number}"), rows=LARGE)
        world.work()
        new = world.table("new")
        world.manager.wake(new)
        counted.taken()
        world.manager.step()
        assert new in {table.watch.uuid for table in world.manager._registry.all()}
        reads.append(counted.taken())
    assert reads[0] == reads[1]
    assert reads[0]["relation"] == 1
