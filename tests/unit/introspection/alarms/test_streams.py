"""Alarms of Kafka tables: each is found from its threshold on, and not where somebody has stopped reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alarm_world import AlarmWorld
from tilth.base.units import show_time
from tilth.catalog import AddGap, ResolveGaps, SetOffsets
from tilth.ingest import ActivityKind, Doing, StreamState
from tilth.introspection.alarms.streams import (
    FAILURES_MIN,
    LAG_SECONDS_MAX,
    ROUND_SECONDS_MAX,
    START_SECONDS_MAX,
)
from tilth.model.offset import IngestGap, StoredOffset, TopicPartition
from tilth.model.service import ServiceKind, ServiceState


@pytest.fixture
def world(tmp_path: Path) -> AlarmWorld:
    return AlarmWorld(tmp_path)


def stream(*doings: Doing, uuid: str = "u1", state: ServiceState = ServiceState.RUNNING, **more: object) -> StreamState:
    known = {"database": "shop", "table": "orders", "uuid": uuid, "lifecycle": state, "reason": "the reason"}
    return StreamState(**(known | more), doings=doings)  # type: ignore[arg-type]  # fields by name


def sentences(world: AlarmWorld, name: str, *states: StreamState) -> list[str]:
    """What the alarm says of these streams; it names the table of each."""
    world.consume.states = list(states)
    found = world.found(name)
    assert {(each.database, each.table) for each in found} <= {("shop", "orders")}
    return [each.sentence for each in found]


def test_a_stream_that_fails_again_and_again(world: AlarmWorld) -> None:
    failed = stream(state=ServiceState.FAILED, failures=FAILURES_MIN)
    assert sentences(world, "stream_failed", failed) == [
        "shop.orders is not read, after 3 failures in a row: the reason"
    ]
    well = (
        stream(state=ServiceState.FAILED, failures=FAILURES_MIN - 1),
        stream(state=ServiceState.STOPPED, failures=FAILURES_MIN),
        stream(failures=FAILURES_MIN),
    )
    assert sentences(world, "stream_failed", *well) == []


def test_a_stream_whose_dependency_is_missing(world: AlarmWorld) -> None:
    waiting = stream(state=ServiceState.WAITING, missing="no materialized view reads from shop.orders")
    assert sentences(world, "stream_waits", waiting) == [
        "shop.orders is not read until something else is there: the reason"
    ]
    well = (stream(state=ServiceState.WAITING), stream(state=ServiceState.STOPPED, missing="no view"))
    assert sentences(world, "stream_waits", *well) == []


def test_a_round_that_does_not_end(world: AlarmWorld) -> None:
    now_ms = world.clock.now_ms()
    long = ROUND_SECONDS_MAX + 1.0
    stuck = Doing(
        kind=ActivityKind.READING, since_ms=now_ms - 1, round_seconds=long, view="shop.v", view_seconds=long - 1
    )
    assert sentences(world, "stream_stuck", stream(stuck)) == [
        "shop.orders has had one round under way for 121 s, view shop.v for 120 s of it"
    ]
    [finding] = world.found("stream_stuck")
    assert finding.since_ms == now_ms - 1
    at_work = Doing(kind=ActivityKind.READING, since_ms=now_ms, round_seconds=float(ROUND_SECONDS_MAX))
    idle = Doing(kind=ActivityKind.IDLE, since_ms=0)
    assert sentences(world, "stream_stuck", stream(at_work), stream(idle), stream()) == []


def test_a_consumer_that_never_polls(world: AlarmWorld) -> None:
    now_ms = world.clock.now_ms()
    since_ms = now_ms - START_SECONDS_MAX * 1000
    silent = Doing(kind=ActivityKind.STARTING, since_ms=since_ms - 1)
    assert sentences(world, "stream_stuck", stream(silent)) == [
        "shop.orders has a consumer that has not polled the broker since its start at 2025-12-31 23:57:59 UTC"
    ]
    assert sentences(world, "stream_stuck", stream(Doing(kind=ActivityKind.STARTING, since_ms=since_ms))) == []


def test_a_lag_that_takes_long_at_the_present_rate(world: AlarmWorld) -> None:
    late = Doing(kind=ActivityKind.READING, since_ms=1, behind=10 * LAG_SECONDS_MAX, rate=5.0, bounded_by="a_setting")
    assert sentences(world, "stream_lags", stream(late)) == [
        "shop.orders is 6,000 messages behind, 20 minutes at its present rate of 5 messages/s, bounded by a_setting"
    ]
    # Together two consumers are fast enough; the rate of a first round is not known.
    fast = Doing(kind=ActivityKind.READING, since_ms=1, rate=5.0)
    unknown = Doing(kind=ActivityKind.READING, since_ms=1, behind=1_000_000)
    assert sentences(world, "stream_lags", stream(late, fast), stream(unknown)) == []


def kafka_table(world: AlarmWorld) -> str:
    world.run("CREATE DATABASE shop")
    world.run("CREATE TABLE shop.orders (a Int64) ENGINE = Kafka('b:9092', 'topic', 'g', 'JSONEachRow')")
    return world.catalog.tables.get("shop", "orders").uuid


@pytest.mark.parametrize(("bound", "seconds"), [("", 120), ("15 min", 900)])
def test_a_transaction_that_stays_open(world: AlarmWorld, bound: str, seconds: int) -> None:
    kafka = kafka_table(world)
    if bound:
        world.run(f"ALTER TABLE shop.orders MODIFY SETTING kafka_open_transaction_bound = '{bound}'")
    since_ms = world.clock.now_ms() - seconds * 1000
    blocked = Doing(kind=ActivityKind.OPEN_TRANSACTION, since_ms=since_ms - 1, uncommitted=5)
    [sentence] = sentences(world, "stream_blocked", stream(blocked, uuid=kafka))
    assert sentence == (
        f"shop.orders is behind an open transaction since {show_time(since_ms - 1)}: 5 messages are not committed"
    )
    [finding] = world.found("stream_blocked")
    assert finding.since_ms == since_ms - 1
    new = Doing(kind=ActivityKind.OPEN_TRANSACTION, since_ms=since_ms, uncommitted=5)
    well = (stream(new, uuid=kafka), stream(uuid=kafka), stream(blocked, uuid="of a table that is gone"))
    assert sentences(world, "stream_blocked", *well) == []


def test_a_gap_until_somebody_decides(world: AlarmWorld) -> None:
    kafka = kafka_table(world)
    partition, stored = TopicPartition("topic", 1), StoredOffset(7, "")
    gap = IngestGap(kafka_table=kafka, topic="topic", partition=1, start=7, end=9, reason="gone", at_ms=1_000)
    txn = world.catalog.transactions.open("consume")
    txn.commit([SetOffsets(kafka_table=kafka, offsets={partition: stored}, before={}), AddGap(gap=gap, stored=stored)])
    failed = stream(uuid=kafka, state=ServiceState.FAILED, failures=FAILURES_MIN)
    assert sentences(world, "ingest_gap", failed) == [
        "shop.orders does not read topic/1, because offsets from 7 to 8 are missing: gone"
    ]
    [finding] = world.found("ingest_gap")
    assert (finding.subject, finding.since_ms) == ("topic/1", 1_000)
    assert world.found("stream_failed") == [], "one alarm for one cause"
    world.stop(ServiceKind.CONSUME, kafka)
    assert world.found("ingest_gap") == []


def test_a_gap_that_somebody_has_decided(world: AlarmWorld) -> None:
    kafka = kafka_table(world)
    partition, stored = TopicPartition("topic", 1), StoredOffset(7, "")
    gap = IngestGap(kafka_table=kafka, topic="topic", partition=1, start=7, end=-1, reason="gone", at_ms=1_000)
    txn = world.catalog.transactions.open("consume")
    offsets = {partition: stored}
    txn.commit([SetOffsets(kafka_table=kafka, offsets=offsets, before={}), AddGap(gap=gap, stored=stored)])
    assert [each.subject for each in world.found("ingest_gap")] == ["topic/1"]
    txn = world.catalog.transactions.open("reset")
    decided = ResolveGaps(
        kafka_table=kafka, partitions=frozenset({partition}), resolution="given up", known=(gap,), before=offsets
    )
    txn.commit([decided])
    assert world.found("ingest_gap") == []


def test_dead_letters_until_they_are_gone(world: AlarmWorld) -> None:
    kafka_table(world)
    assert world.found("dead_letters") == []
    letters = "shop.orders_dead_letters"
    world.run(f"INSERT INTO {letters} (topic) VALUES ('topic'), ('topic')")
    assert sentences(world, "dead_letters") == [
        "2 dead letters of shop.orders wait in shop.orders_dead_letters: messages that could not be decoded, or that a "
        "view could not take"
    ]
    assert [each.subject for each in world.found("dead_letters")] == ["orders_dead_letters"]
    world.run(f"TRUNCATE TABLE {letters}")
    assert world.found("dead_letters") == []


def test_dead_letters_in_a_table_that_a_setting_names(world: AlarmWorld) -> None:
    options = (
        "kafka_broker_list = 'b:9092', kafka_topic_list = 't', kafka_group_name = 'g', kafka_format = 'JSONEachRow'"
    )
    world.run(f"CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS {options}, dead_letter_table = 'letters'")
    world.run("INSERT INTO letters (topic) VALUES ('topic')")
    assert [(each.table, each.subject) for each in world.found("dead_letters")] == [("k", "letters")]
