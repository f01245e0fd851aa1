"""Past times: which ones can be read, what is held for them, what a reader gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sql_world import SqlWorld, refused, table_of
from tilth.base.errors import TilthError
from tilth.base.hybrid import COUNTER_MAX, milliseconds, pack
from tilth.catalog import RestorePartition
from tilth.datasource.options import milliseconds_of
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.query.snapshots.as_of import SETTLE_MS, SKEW_MS, ReadTime, read_time_of, readable_from
from tilth.query.snapshots.pins import Pins
from tilth.query.snapshots.predicates import Undecided
from tilth.query.snapshots.protocol import AsOf, AsOfTime, AsOfVersion
from tilth.storage import local_root

HOUR = 3600.0


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    """Three versions, ten minutes apart."""
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    for value in (1, 2, 3):
        made.clock.advance(600)
        made.run(f"INSERT INTO t VALUES ({value})")
    return made


def commits(world: SqlWorld) -> list[int]:
    """The times of the versions, the oldest first."""
    return [ts for _, ts in reversed(world.catalog.history.listing(table_of(world).uuid, 100))]


def at_ms(ms: int) -> AsOfTime:
    return AsOfTime(micros=ms * 1000)


def read_time(world: SqlWorld, as_of: AsOf) -> ReadTime:
    return read_time_of(world.catalog, world.clock, table_of(world), as_of)


def told(world: SqlWorld, as_of: AsOf) -> TilthError:
    with pytest.raises(TilthError) as caught:
        read_time(world, as_of)
    return caught.value


def values(snapshot: Snapshot) -> list[object]:
    return [part.ranges["a"].low for part in snapshot.parts]


def read(world: SqlWorld, *as_of: AsOf | None) -> list[list[object]]:
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)] * len(as_of), list(as_of))
        sources = service.pin("q", [Undecided()] * len(as_of))
        return [values(source.snapshot) for source in sources if source.snapshot is not None]


def test_a_time_shows_all_of_its_millisecond(world: SqlWorld) -> None:
    first, second, third = commits(world)
    for ts, expected in ((first, [1]), (second, [1, 2]), (third, [1, 2, 3])):
        assert read_time(world, at_ms(milliseconds(ts))).ts == pack(milliseconds(ts), COUNTER_MAX)
        assert read(world, at_ms(milliseconds(ts))) == [expected]
    assert read(world, at_ms(milliseconds(second) - 1)) == [[1]]
    assert read(world, AsOfTime(micros=milliseconds(second) * 1000 + 999)) == [[1, 2]]


def test_a_version_is_read_at_its_end(world: SqlWorld) -> None:
    first, second, third = commits(world)
    assert read_time(world, AsOfVersion(version=1)) == ReadTime(ts=second - 1)
    assert read_time(world, AsOfVersion(version=3)) == ReadTime(ts=third, is_newest=True)
    assert first < second - 1
    assert read(
        world, AsOfVersion(version=1), AsOfVersion(version=2), AsOfVersion(version=3), None, AsOfVersion(version=1)
    ) == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 3],
        [1],
    ]


def test_each_moment_has_one_lease_of_exactly_its_time(world: SqlWorld) -> None:
    first, second, third = commits(world)
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True) as query:
        service.resolve("q", [("t",)] * 3, [AsOfVersion(version=1), None, at_ms(milliseconds(second) - 1)])
        service.pin("q", [Undecided()] * 3)
        leases = sorted(lease.snapshot_ts for lease in world.catalog.readers.list())
        assert leases == sorted([second - 1, third, pack(milliseconds(second) - 1, COUNTER_MAX)])
        assert query.parts_read == 5
        world.clock.advance(20)
        service.renew_all()
        assert {lease.expires_ms for lease in world.catalog.readers.list()} == {world.clock.now_ms() + 30_000}
    assert world.catalog.readers.list() == []
    assert first


def test_what_is_before_the_mark_is_refused_with_both_times(world: SqlWorld) -> None:
    first, _, third = commits(world)
    world.clock.advance(HOUR - 599)
    mark_ms = world.clock.now_ms() - 3_600_000
    assert read(world, at_ms(mark_ms)) == [[1, 2]]
    error = told(world, at_ms(mark_ms - 1))
    assert (error.code, error.facts["difference"]) == ("INVALID_SNAPSHOT", "0.001 s")
    assert {"snapshot", "ancient_history_mark", "setting"} <= set(error.facts)
    # A version that was the present one at the mark is there, the one before it is not.
    assert read(world, AsOfVersion(version=2)) == [[1, 2]]
    assert told(world, AsOfVersion(version=1)).code == "INVALID_SNAPSHOT"
    world.clock.advance(2 * HOUR)
    assert read(world, AsOfVersion(version=3)) == [[1, 2, 3]]
    assert told(world, at_ms(milliseconds(third))).code == "INVALID_SNAPSHOT"
    world.run("ALTER TABLE t MODIFY SETTING history_max_age_sec = 100000")
    assert read(world, AsOfVersion(version=1), at_ms(milliseconds(first))) == [[1], [1]]


def test_without_history_only_the_present_is_read(world: SqlWorld) -> None:
    world.run("ALTER TABLE t MODIFY SETTING tablet_history_max_age_sec = -1")
    assert read(world, AsOfVersion(version=3), None) == [[1, 2, 3], [1, 2, 3]]
    assert told(world, AsOfVersion(version=2)).code == "INVALID_SNAPSHOT"
    assert told(world, at_ms(world.clock.now_ms() - 1000)).code == "INVALID_SNAPSHOT"


def test_it_is_looked_at_again_when_the_lease_is_there(world: SqlWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then what that time shows may be collected."""
    service, opened = world.engine.snapshots, world.catalog.readers.open_all

    def late(*given: Any, **named: Any) -> list[ReaderLease]:
        world.clock.advance(2 * HOUR)
        return opened(*given, **named)

    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)], [AsOfVersion(version=1)])
        monkeypatch.setattr(world.catalog.readers, "open_all", late)
        with pytest.raises(TilthError) as caught:
            service.pin("q", [Undecided()])
        assert caught.value.code == "INVALID_SNAPSHOT"
        assert world.catalog.readers.list() == []


def test_what_a_shorter_history_has_collected_does_not_come_back(world: SqlWorld) -> None:
    first, second, third = commits(world)
    world.catalog.history.trim(table_of(world).uuid, second)
    error = told(world, at_ms(milliseconds(first)))
    assert (error.code, error.facts["oldest_version"]) == ("INVALID_SNAPSHOT", "2")
    assert told(world, AsOfVersion(version=1)).facts["oldest"] == "2"
    assert read(world, at_ms(milliseconds(second)), AsOfVersion(version=2)) == [[1, 2], [1, 2]]
    assert third


def test_the_future_is_refused_and_what_is_nearly_there_is_waited_for(world: SqlWorld) -> None:
    started = world.clock.now_ms()
    error = told(world, at_ms(started + SKEW_MS + 1))
    assert error.code == "SNAPSHOT_IN_FUTURE"
    assert world.clock.now_ms() == started
    assert told(world, AsOfTime(micros=1 << 62)).code == "SNAPSHOT_IN_FUTURE"
    found = read_time(world, at_ms(started + SKEW_MS))
    assert world.clock.now_ms() == started + SKEW_MS + SETTLE_MS + 1
    world.run("INSERT INTO t VALUES (4)")
    assert commits(world)[-1] > found.ts
    # The time of a commit that was answered needs no wait.
    started = world.clock.now_ms()
    read_time(world, at_ms(milliseconds(commits(world)[-1]) - 1))
    assert world.clock.now_ms() == started


def test_unknown_versions_name_those_there_are(world: SqlWorld) -> None:
    for version in (0, 4, 10**17):
        error = told(world, AsOfVersion(version=version))
        assert (error.code, error.facts["oldest"], error.facts["newest"]) == ("UNKNOWN_VERSION", "1", "3")
    world.run("CREATE TABLE e (a Int64) ENGINE = MergeTree ORDER BY a")
    empty = table_of(world, "e")
    with pytest.raises(TilthError) as caught:
        read_time_of(world.catalog, world.clock, empty, AsOfVersion(version=0))
    assert caught.value.facts["newest"] == "0"
    with pytest.raises(TilthError, match="did not exist yet"):
        read_time_of(world.catalog, world.clock, empty, at_ms(world.clock.now_ms() - 60_000))


def test_a_past_moment_has_the_columns_of_then(world: SqlWorld) -> None:
    world.run("ALTER TABLE t ADD COLUMN b Int64 DEFAULT 5")
    world.run("INSERT INTO t VALUES (4, 4)")
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        old, new = service.resolve("q", [("t",), ("t",)], [AsOfVersion(version=3), None])
        assert (old.schema.names, new.schema.names) == (("a",), ("a", "b"))
        sources = service.pin("q", [Undecided(), Undecided()])
        tables = [source.snapshot.table.schema.names for source in sources if source.snapshot is not None]
        assert tables == [("a",), ("a", "b")]


def test_system_tables_have_no_past(world: SqlWorld) -> None:
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True), pytest.raises(TilthError, match="has no history"):
        service.resolve("q", [("system", "parts")], [AsOfVersion(version=1)])


def test_readers_outside_get_the_past(world: SqlWorld, tmp_path: Path) -> None:
    _, second, _ = commits(world)
    pins = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s1")
    snapshot, lease, _ = pins.pin("default", "t", milliseconds(second))
    assert (values(snapshot), snapshot.ts) == ([1, 2], lease.snapshot_ts)
    assert values(pins.pin("default", "t", version=1)[0]) == [1]
    assert values(pins.pin("default", "t")[0]) == [1, 2, 3]
    for as_of_ms, version in ((7, None), (None, 9), (7, 1)):
        with pytest.raises(TilthError):
            pins.pin("default", "t", as_of_ms, version=version)
    assert len(world.catalog.readers.list()) == 3


def test_times_of_readers_outside() -> None:
    assert milliseconds_of("2026-01-31 12:00:00.0019") == milliseconds_of("2026-01-31T13:00:00.001+01:00")
    with pytest.raises(TilthError, match="not a time"):
        milliseconds_of("soon")


def test_versions_are_listed_with_what_can_be_read(world: SqlWorld) -> None:
    world.clock.advance(HOUR - 599)
    shown = world.rows("SELECT version, readable, ended IS NULL FROM system.table_versions WHERE table = 't'")
    assert shown == [(3, True, True), (2, True, False), (1, False, False)]


def test_a_version_says_who_made_it(world: SqlWorld) -> None:
    statements = [
        "INSERT INTO t VALUES (4)",
        "ALTER TABLE t ADD COLUMN b Int64",
        "ALTER TABLE t DROP PARTITION ID 'all'",
        "ALTER TABLE t UNDROP PARTITION ID 'all'",
        "TRUNCATE TABLE t",
    ]
    for statement in statements:
        world.run(statement)
    world.catalog.transactions.apply("rebuild", [RestorePartition(table=table_of(world).uuid, partition="all")])
    shown = world.rows("SELECT kind, actor, statement FROM system.table_versions WHERE table = 't'")[::-1]
    kinds = ["insert", "alter", "drop", "undrop", "truncate", "rebuild"]
    assert [(kind, statement) for kind, _, statement in shown[3:]] == list(zip(kinds, [*statements, None], strict=True))
    [(query_id,)] = world.rows("SELECT query_id FROM system.query_log WHERE text = 'TRUNCATE TABLE t'")
    assert shown[-2][1] == f"truncate default.t by {query_id}"


@pytest.mark.parametrize(
    ("listed", "mark", "oldest"),
    [
        ([], 5, None),
        ([(9, 50)], 60, 9),
        ([(9, 50), (8, 40), (7, 30)], 49, 8),
        ([(9, 50), (8, 40), (7, 30)], 50, 9),
        ([(9, 50), (8, 40), (7, 30)], 0, 7),
        ([(9, 50), (8, 40)], None, 9),
    ],
)
def test_the_oldest_version_that_can_be_read(
    listed: list[tuple[int, int]], mark: int | None, oldest: int | None
) -> None:
    assert readable_from(listed, mark) == oldest


def test_no_worker_no_query_of_the_past(world: SqlWorld) -> None:
    assert refused(world, "SELECT * FROM t VERSION AS OF 1").code == "UNAVAILABLE"
