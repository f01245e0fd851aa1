"""Back-pressure by the number of parts: oracles of docs/policies/throttling.md, settings, the refusal at commit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.catalog_world import World
from tests.oracle import Row, number, oracle
from tilth.base.settings import BadSettingError
from tilth.catalog import InsertPart, PressureSettings, TooManyPartsError, insert_delay_ms, pressure_settings
from tilth.catalog import worst_delay as worst
from tilth.catalog.rules.pressure import round_delay_ms
from tilth.model.service import ALL_TABLES, ServiceKind, Switch, SwitchState


def delay_ms(parts: int) -> float:
    return insert_delay_ms(parts, delay=1000, throw=3000, max_delay_seconds=1.0)


@pytest.mark.parametrize("row", oracle("throttling", "Wait by parts"))
def test_oracle_delay(row: Row) -> None:
    if row["wait (ms)"] == "refused":
        with pytest.raises(TooManyPartsError):
            delay_ms(int(row["parts"]))
        return
    assert delay_ms(int(row["parts"])) == pytest.approx(number(row["wait (ms)"]), abs=1e-6)


def test_oracle_refusal() -> None:
    with pytest.raises(TooManyPartsError) as caught:
        delay_ms(3000)
    assert caught.value.code == "TOO_MANY_PARTS"
    assert "EXPLAIN MERGE" in caught.value.hint


def test_a_limit_of_zero_is_none() -> None:
    assert insert_delay_ms(1 << 20, delay=0, throw=0, max_delay_seconds=1.0) == 0
    assert insert_delay_ms(5_000, delay=1000, throw=0, max_delay_seconds=1.0) == 1000
    assert insert_delay_ms(1500, delay=1000, throw=3000, max_delay_seconds=0.0) == 0


@pytest.mark.parametrize(("delay", "throw"), [("10", "10"), ("10", "9"), ("3000", "3000")])
def test_limits_that_contradict_each_other_are_refused(delay: str, throw: str) -> None:
    with pytest.raises(BadSettingError, match="more than parts_to_delay_insert"):
        pressure_settings({"parts_to_delay_insert": delay, "parts_to_throw_insert": throw})


def test_one_limit_is_checked_against_the_default_of_the_other() -> None:
    with pytest.raises(BadSettingError):
        pressure_settings({"parts_to_throw_insert": "500"})
    assert pressure_settings({"parts_to_throw_insert": "500", "parts_to_delay_insert": "0"}).throw == 500
    assert pressure_settings({"max_delay_to_insert": "2 s", "merge_selector": "x"}).max_delay_seconds == 2.0


def test_the_worst_of_the_partitions_that_are_written_to_counts() -> None:
    settings = PressureSettings(delay=10, throw=20, max_delay_seconds=1.0, total=0)
    counts = {"a": 9, "b": 12, "c": 15, "d": 40}
    found = worst(counts, ["a", "b", "c", "new"], settings)
    assert found is not None
    assert (found.partition, found.reason) == ("c", "15 parts in partition c")
    assert worst(counts, ["a", "new"], settings) is None
    # A consumer waits as long as anybody may; only the commit refuses it.
    full = worst(counts, ["d"], settings)
    assert full is not None
    assert (full.milliseconds, full.parts) == (1000, 40)


@pytest.fixture
def world() -> World:
    made = World()
    limits = {"parts_to_delay_insert": "2", "parts_to_throw_insert": "4", "max_parts_in_total": "6"}
    made.catalog.tables.modify_settings(made.t, limits, [])
    return made


def insert(world: World, *partitions: str) -> None:
    """As a writer does: with the requirement."""
    table = world.definition()
    txn = world.catalog.transactions.open("insert")
    updates = [InsertPart(table=world.t, written=world.written(each)) for each in partitions]
    txn.commit(updates, [world.catalog.throttle.requirement(table)])


def judged(world: World) -> dict[str, str]:
    """By partition why INSERTs wait or are refused."""
    return {name: each.text for name, each in world.catalog.throttle.judge(world.definition()).items()}


def test_people_who_ask_learn_why_inserts_wait_and_nothing_is_counted(world: World) -> None:
    assert judged(world) == {}
    insert(world, "a", "a", "a")
    assert judged(world) == {"a": "wait 1000 ms: 3 parts, parts_to_delay_insert = 2"}
    insert(world, "a", "b")
    assert judged(world) == {"a": "refused: 4 parts, parts_to_throw_insert = 4"}
    stop = Switch(table=ALL_TABLES, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=1, because="a copy")
    world.catalog.services.set(stop)
    assert "merges of the table are stopped (a copy): SYSTEM START MERGES" in judged(world)["a"]
    insert(world, "b")
    assert judged(world)["b"].startswith("refused: 6 parts, max_parts_in_total = 6")
    stats = world.catalog.stats()
    assert (stats.delayed, stats.crowded) == (0, 0)


def counted_tables(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tables whose parts are counted from now on."""
    read: list[str] = []
    counts = world.catalog.parts.counts

    def counted(table: str) -> dict[str, int]:
        read.append(table)
        return counts(table)

    monkeypatch.setattr(world.catalog.parts, "counts", counted)
    return read


def test_tables_are_crowded_by_their_own_limits_and_few_counts_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, others = world.catalog, [world.table(f"t{number}") for number in range(20)]
    insert(world, "a", "a", "a", "b")
    for other in others:
        world.insert("a", "a", table=other)
    read = counted_tables(world, monkeypatch)
    tables = [world.definition(each) for each in (world.t, *others)]
    [(table, found)] = catalog.throttle.crowded(tables, catalog.parts.versions(), limit=10)
    assert (table.uuid, read) == (world.t, [world.t])
    assert {name: each.is_refused for name, each in found.items()} == {"a": False}
    insert(world, "a")
    [(_, found)] = catalog.throttle.crowded(tables, catalog.parts.versions(), limit=10)
    assert {name: each.is_refused for name, each in found.items()} == {"a": True}
    assert list(catalog.throttle.crowded(tables, {}, limit=10)) == []


def test_parts_are_counted_of_so_many_tables_at_most_the_largest_ones_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, other = world.catalog, world.table("other")
    insert(world, "a", "b", "c")
    world.insert("a", "b", "c", "d", table=other)
    smaller, larger = world.definition(world.t), world.definition(other)
    larger = replace(larger, settings=smaller.settings)
    read = counted_tables(world, monkeypatch)
    versions = catalog.parts.versions()
    # No partition has too many parts: the reads are bounded, not the answers.
    assert list(catalog.throttle.crowded([smaller, larger], versions, limit=1)) == []
    assert read == [other]
    assert list(catalog.throttle.crowded([smaller, larger], versions, limit=2)) == []
    assert read == [other, other, world.t]


def test_a_commit_that_leaves_too_many_parts_is_refused_and_counted(world: World) -> None:
    throttle, table = world.catalog.throttle, world.definition()
    insert(world, "a", "a", "a")
    assert not throttle.is_calm(table)
    assert throttle.delay(table, ["b"]) is None
    delay = throttle.delay(table, ["a"])
    assert delay is not None
    assert delay.milliseconds == pytest.approx(1000)
    with pytest.raises(TooManyPartsError) as caught:
        insert(world, "a", "a")
    assert caught.value.facts["partition"] == "a"
    insert(world, "a", "b")
    with pytest.raises(TooManyPartsError):
        throttle.check(table, ["a"])
    throttle.check(table, ["b"])
    stats = world.catalog.stats()
    assert (stats.delayed, stats.crowded) == (1, 2)
    assert stats.delay_seconds == pytest.approx(1.0)


def test_the_table_has_a_limit_of_its_own(world: World) -> None:
    insert(world, "a", "b", "c", "d", "e", "f")
    with pytest.raises(TooManyPartsError) as caught:
        insert(world, "g")
    assert caught.value.facts["max_parts_in_total"] == "6"
    with pytest.raises(TooManyPartsError):
        world.catalog.throttle.check(world.definition(), ["g"])


def test_a_refusal_names_the_merges_that_are_stopped(world: World) -> None:
    def hint() -> str:
        with pytest.raises(TooManyPartsError) as caught:
            world.catalog.throttle.check(world.definition(), ["a"])
        return caught.value.hint

    insert(world, "a", "a", "a", "a")
    assert "EXPLAIN MERGE" in hint()
    stopped = Switch(
        table=ALL_TABLES,
        service=ServiceKind.MERGE,
        state=SwitchState.STOPPED,
        since_ms=world.clock.now_ms(),
        until_ms=world.clock.now_ms() + 90_000,
        because="the backup runs",
    )
    world.catalog.services.set(stopped)
    expected = "merges of the table are stopped for 90 s more (the backup runs): SYSTEM START MERGES default.t"
    assert hint() == expected
    world.clock.advance(91)
    assert "EXPLAIN MERGE" in hint()


def test_a_merge_makes_room_again(world: World) -> None:
    insert(world, "a", "a", "a", "a")
    with pytest.raises(TooManyPartsError):
        insert(world, "a")
    world.merge(list(world.catalog.parts.snapshot(world.t).parts))
    insert(world, "a")
    assert world.catalog.throttle.is_calm(world.definition()) is False
    assert world.catalog.parts.counts(world.t) == {"a": 2}


@pytest.mark.parametrize("row", oracle("throttling", "Wait of a round by unmerged parts"))
def test_rounds_wait_the_longer_the_more_parts_wait_for_a_merge(row: Row) -> None:
    unmerged, expected = int(row["unmerged parts"]), number(row["wait (ms)"])
    assert round_delay_ms(unmerged, rounds=12, max_delay_seconds=1.0) == pytest.approx(expected)
    assert round_delay_ms(unmerged, rounds=0, max_delay_seconds=1.0) == 0


def test_a_round_waits_for_merges_and_for_nothing_else() -> None:
    """Parts that a merge has made do not count, and nobody waits for merges that the user has stopped."""
    world = World()
    parts = [world.insert("p")[0] for _ in range(13)]
    delay = world.catalog.throttle.round_delay(world.definition(world.t), {"p", "other"})
    assert delay is not None
    assert delay.reason == "13 parts that wait for a merge in partition p"
    assert delay.milliseconds == pytest.approx(2000 / 12)
    assert world.catalog.throttle.delay(world.definition(world.t), {"p"}) is None
    switch = Switch(table=world.t, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=0)
    world.catalog.services.set(switch)
    assert world.catalog.throttle.round_delay(world.definition(world.t), {"p"}) is None
    world.catalog.services.set(replace(switch, state=SwitchState.RUNNING))
    assert world.catalog.throttle.round_delay(world.definition(world.t), {"p"}) is not None
    world.merge(parts)
    assert world.catalog.throttle.round_delay(world.definition(world.t), {"p"}) is None
