"""Readers of changes: what they hold, where they may begin, how they lose it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sql_world import SqlWorld, table_of
from tilth.base.errors import TilthError
from tilth.base.hybrid import milliseconds
from tilth.model.change_feed import NOTHING_READ, FeedStart
from tilth.model.snapshot import Snapshot
from tilth.query.snapshots.feeds import ChangeFeeds
from tilth.storage import local_root

HOUR_MS = 3_600_000


class World(SqlWorld):
    """A table of three versions, a second apart."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
        for value in (1, 2, 3):
            self.clock.advance(1)
            self.run(f"INSERT INTO t VALUES ({value})")
        self.feeds = ChangeFeeds(self.clock, self.catalog, root=local_root(folder), server="s1")

    def open(self, version: int | None = None, *, name: str = "r", hold_ms: int = HOUR_MS) -> FeedStart:
        return self.feeds.open("default", "t", name=name, hold_ms=hold_ms, version=version)

    def changed(self, opened: FeedStart, start: int, end: int) -> list[tuple[int, object]]:
        found = self.feeds.changes(opened.lease.id, start, end).changes
        return [(change.version, change.part.ranges["a"].low) for change in found]

    def trim(self, before_version: int) -> None:
        uuid = table_of(self).uuid
        ts = self.catalog.history.time_of(uuid, before_version)
        assert ts is not None
        self.catalog.history.trim(uuid, ts)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _code(act: Callable[[], object]) -> str:
    with pytest.raises(TilthError) as refused:
        act()
    return refused.value.code


def test_changes_are_those_after_a_version(world: World) -> None:
    opened = world.open(1)
    assert (opened.position, opened.newest) == (1, 3)
    assert world.changed(opened, 1, 3) == [(2, 2), (3, 3)]
    assert world.changed(opened, 1, 2) == [(2, 2)]
    assert world.changed(opened, 3, 3) == []
    assert world.changed(world.open(0), 0, 3) == [(1, 1), (2, 2), (3, 3)]


def test_the_whole_table_is_first_where_nothing_was_read(world: World) -> None:
    opened = world.open(NOTHING_READ)
    world.run("INSERT INTO t VALUES (4)")
    assert opened.position == NOTHING_READ
    assert sorted(world.changed(opened, NOTHING_READ, 3)) == [(3, 1), (3, 2), (3, 3)]
    assert sorted(world.changed(opened, NOTHING_READ, 4)) == [(4, 1), (4, 2), (4, 3), (4, 4)]


def test_a_reader_begins_now_or_at_a_time(world: World) -> None:
    assert world.open().position == 3
    second = world.catalog.history.time_of(table_of(world).uuid, 2)
    assert second is not None
    opened = world.feeds.open("default", "t", name="r", hold_ms=HOUR_MS, as_of_ms=milliseconds(second))
    assert opened.position == 1
    assert world.feeds.open("default", "t", name="r", hold_ms=HOUR_MS, as_of_ms=0).position == 0


def test_a_name_belongs_to_the_last_who_opened_it(world: World) -> None:
    first, other = world.open(1), world.open(1, name="other")
    second = world.open(2)
    assert [lease.name for lease in world.catalog.readers.list()] in (["r", "other"], ["other", "r"])
    for act in (
        lambda: world.feeds.newest(first.lease.id, HOUR_MS),
        lambda: world.feeds.changes(first.lease.id, 1, 3),
        lambda: world.feeds.advance(first.lease.id, 3, HOUR_MS),
    ):
        assert _code(act) == "READER_LOST"
    assert world.feeds.newest(second.lease.id, HOUR_MS) == world.feeds.newest(other.lease.id, HOUR_MS) == 3


def test_a_hold_ends_when_it_is_not_renewed(world: World) -> None:
    opened = world.open(1, hold_ms=60_000)
    world.clock.advance(59)
    assert world.feeds.newest(opened.lease.id, 60_000) == 3
    world.clock.advance(59)
    assert world.changed(opened, 1, 3) == [(2, 2), (3, 3)]
    world.clock.advance(2)
    assert _code(lambda: world.feeds.newest(opened.lease.id, 60_000)) == "READER_LOST"


def test_an_idle_reader_does_not_write_its_hold_each_time(world: World) -> None:
    opened = world.open(hold_ms=60_000)
    expires = opened.lease.expires_ms
    for seconds, later_ms in ((0.9, 0), (0.2, 1100), (0.5, 1100)):
        world.clock.advance(seconds)
        world.feeds.newest(opened.lease.id, 60_000)
        [lease] = world.catalog.readers.list()
        assert lease.expires_ms - expires == later_ms
    # A tenth of a short hold is less.
    world.feeds.newest(opened.lease.id, 1_000)
    world.clock.advance(0.1)
    world.feeds.newest(opened.lease.id, 1_000)
    [lease] = world.catalog.readers.list()
    assert lease.expires_ms == world.clock.now_ms() + 1_000


def test_what_was_read_is_held_no_more(world: World) -> None:
    opened, uuid = world.open(1), table_of(world).uuid
    times = [world.catalog.history.time_of(uuid, version) for version in (1, 3)]
    now = world.clock.now_ms()
    assert world.catalog.readers.oldest(uuid, now, is_named=True) == times[0]
    assert world.catalog.readers.oldest(uuid, now) is None
    world.feeds.advance(opened.lease.id, 3, HOUR_MS)
    assert world.catalog.readers.oldest(uuid, now, is_named=True) == times[1]
    # Never back.
    world.feeds.advance(opened.lease.id, 2, HOUR_MS)
    assert world.catalog.readers.oldest(uuid, now, is_named=True) == times[1]


def test_a_version_that_is_gone_is_refused(world: World) -> None:
    opened = world.open(1)
    world.trim(3)
    assert _code(lambda: world.feeds.changes(opened.lease.id, 1, 3)) == "INVALID_SNAPSHOT"
    assert _code(lambda: world.open(1)) == "INVALID_SNAPSHOT"
    late = world.open(3)
    assert world.changed(late, 3, 3) == []
    assert _code(lambda: world.feeds.changes(late.lease.id, NOTHING_READ, 2)) == "INVALID_SNAPSHOT"


def test_the_whole_table_has_no_version_that_comes_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, snapshot = world.open(NOTHING_READ), world.catalog.parts.snapshot

    # Any: the arguments of the snapshot.
    def overtaken(*given: Any, **named: Any) -> Snapshot:
        monkeypatch.undo()
        world.run("INSERT INTO t VALUES (4)")
        return snapshot(*given, **named)

    monkeypatch.setattr(world.catalog.parts, "snapshot", overtaken)
    assert sorted(world.changed(opened, NOTHING_READ, 3)) == [(3, 1), (3, 2), (3, 3)]
    assert world.changed(opened, 3, 4) == [(4, 4)]


def test_without_history_only_what_a_reader_holds_is_read(world: World) -> None:
    world.run("ALTER TABLE t MODIFY SETTING tablet_history_max_age_sec = -1")
    assert _code(lambda: world.open(1)) == "INVALID_SNAPSHOT"
    newest = world.open()
    world.run("INSERT INTO t VALUES (4)")
    # The stream was stopped, and starts again while its hold lasts.
    assert world.changed(world.open(newest.position), newest.position, newest.position + 1) == [
        (newest.position + 1, 4)
    ]
    world.clock.advance(2 * HOUR_MS / 1000)
    assert _code(lambda: world.open(newest.position)) == "INVALID_SNAPSHOT"


def test_what_cannot_be_meant_is_refused(world: World) -> None:
    opened = world.open(1)
    for start, end in ((2, 1), (1, 9), (-2, 1)):
        assert _code(partial(world.feeds.changes, opened.lease.id, start, end)) == "INVALID_INPUT"
    assert _code(lambda: world.open(9)) == "UNKNOWN_VERSION"
    assert _code(lambda: world.open(name="")) == "INVALID_INPUT"
    assert _code(lambda: world.open(name="a\nb")) == "INVALID_INPUT"
    assert _code(lambda: world.open(hold_ms=10**12)) == "INVALID_INPUT"
    world.run("DROP TABLE t SYNC")
    assert _code(lambda: world.feeds.newest(opened.lease.id, HOUR_MS)) in ("TABLE_NOT_FOUND", "READER_LOST")
