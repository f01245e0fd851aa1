"""SYSTEM START and STOP CONSUME, the slowing of rounds, and targets that are altered: without a broker or Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.catalog_world import SCHEMA, World
from tests.unit.ingest.consume_context import consume_context
from tests.unit.ingest.consume_world import PARTITION, Server
from tests.unit.ingest.offsets_world import FakeBroker, Reader
from tilth.base.errors import TilthError, UnavailableError
from tilth.catalog import Catalog, SchemaChangedError, TooManyPartsError
from tilth.ingest.consumer.calls import EndsReport
from tilth.ingest.errors import BrokerUnavailableError
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, ReportedEnd, Topics
from tilth.ingest.service.activity import ActivityKind, describe
from tilth.ingest.service.consumers import ConsumerEnded
from tilth.ingest.service.manager import ConsumeManager
from tilth.ingest.service.service import KafkaService, _end_kind
from tilth.ingest.service.state import ConsumerState, EndKind, ServiceLifecycle, StartConsumer, TableObservation
from tilth.ingest.service.stats import EventLog
from tilth.model.offset import TopicPartition
from tilth.model.service import ALL_TABLES, ServiceStats, SwitchState
from tilth.model.table import Column, KafkaDef, Schema
from tilth.model.types import Kind, Simple

MINUTES_MS = 60_000


@contextmanager
def managed(world: World, catalog: Catalog) -> Iterator[ConsumeManager]:
    """A server's ingestion; Kafka tables without views never ask a broker."""
    manager = ConsumeManager(replace(consume_context(world), catalog=catalog))
    manager.start()
    try:
        yield manager
    finally:
        manager.stop()


def row(manager: ConsumeManager, uuid: str, is_so: Callable[[ServiceStats], bool]) -> ServiceStats:
    """The service's row as soon as it is so."""
    for _ in range(1_000):
        found = [each for each in manager.stats() if each.uuid == uuid and is_so(each)]
        if found:
            return found[0]
        manager.wake()
        threading.Event().wait(0.01)
    raise AssertionError(manager.stats())


def is_stopped(stats: ServiceStats) -> bool:
    return stats.state == "stopped"


def is_waiting(stats: ServiceStats) -> bool:
    return stats.state == "waiting" and stats.reason != "not polled yet"


def test_a_stop_for_a_while_survives_a_restart_and_ends_by_itself() -> None:
    world = World()
    kafka = world.kafka()
    with managed(world, world.catalog) as manager:
        row(manager, kafka, is_waiting)
        until_ms = world.clock.now_ms() + 10 * MINUTES_MS
        manager.stop_table(kafka, because="the broker moves", until_ms=until_ms, query_id="q7")
    world.clock.advance(9 * 60)
    with managed(world, world.reopened()) as manager:
        stopped = row(manager, kafka, is_stopped)
        assert (stopped.switch, stopped.because) == (SwitchState.STOPPED, "the broker moves")
        assert (stopped.until_ms, stopped.asked_by) == (until_ms, "q7")
        world.clock.advance(61)
        again = row(manager, kafka, is_waiting)
        assert (again.switch, again.until_ms, again.asked_by) == (SwitchState.RUNNING, 0, "")


def test_what_was_missing_at_the_last_poll_is_not_shown_while_a_change_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement after CREATE MATERIALIZED VIEW asks for the reason, and the broker takes seconds to answer."""
    world = World()
    kafka = world.kafka()
    goes_on = threading.Event()

    def poll(service: KafkaService, act: Callable[[KafkaService], TableObservation] = KafkaService._poll) -> object:
        assert goes_on.wait(30)
        return act(service)

    with managed(world, world.catalog) as manager:
        assert "lacks a setting" in row(manager, kafka, is_waiting).reason
        monkeypatch.setattr(KafkaService, "_poll", poll)
        manager.wake(kafka)
        assert [each.reason for each in manager.stats()] == ["reading its definitions and its topic"]
        goes_on.set()
        row(manager, kafka, lambda stats: "lacks a setting" in stats.reason)


def test_states_for_alarms_are_those_of_the_rows_and_read_no_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    kafka = world.kafka()
    with managed(world, world.catalog) as manager:
        shown = row(manager, kafka, is_waiting)

        def read(*_: object) -> object:
            raise AssertionError("the catalog is read")

        for room, name in ((world.catalog.services, "of_table"), (world.catalog.offsets, "stored")):
            monkeypatch.setattr(room, name, read)
        [stream] = manager.streams()
        monkeypatch.undo()
        assert (stream.uuid, stream.state.value, stream.reason) == (kafka, shown.state, shown.reason)
        assert "lacks a setting" in stream.missing
        manager.stop_table(kafka)
        row(manager, kafka, is_stopped)
        assert [each.missing for each in manager.streams()] == [""]


def test_a_consumer_that_hangs_holds_up_the_end_and_the_return_of_no_other_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three tables move to another server; the consumers of the first do not end."""
    world = World()
    tables = [world.kafka(name) for name in ("k1", "k2", "k3")]
    hosted = set(tables)
    goes_on, ended = threading.Event(), []

    def stop(service: KafkaService, stop: Callable[[KafkaService], None] = KafkaService.stop) -> None:
        if service._kafka.uuid == tables[0]:
            assert goes_on.wait(30)
        ended.append(service._kafka.uuid)
        stop(service)

    monkeypatch.setattr(KafkaService, "stop", stop)
    manager = ConsumeManager(replace(consume_context(world), catalog=world.catalog, hosts=lambda uuid: uuid in hosted))
    manager.start()
    try:
        for table in tables:
            row(manager, table, is_waiting)
        hosted.clear()
        wait_until(lambda: set(tables[1:]) <= set(ended), manager)
        hosted.update(tables)
        # The tables come back; the service of the first one waits for the end of its former consumers.
        for table in tables[1:]:
            row(manager, table, is_waiting)
        assert tables[0] not in {each.uuid for each in manager.stats()}
        with pytest.raises(UnavailableError, match="still ending"):
            manager.restart(tables[0])
        goes_on.set()
        row(manager, tables[0], is_waiting)
    finally:
        goes_on.set()
        manager.stop()
    assert ended.count(tables[0]) == 2


def wait_until(is_so: Callable[[], bool], manager: ConsumeManager) -> None:
    for _ in range(1_000):
        if is_so():
            return
        manager.wake()
        threading.Event().wait(0.01)
    raise AssertionError(manager.stats())


def test_a_stop_of_all_tables_holds_for_those_that_come_later_until_all_are_started() -> None:
    world = World()
    first, second = world.kafka("k1"), world.kafka("k2")
    with managed(world, world.catalog) as manager:
        manager.stop_table(ALL_TABLES, because="maintenance")
        for uuid in (first, second):
            assert row(manager, uuid, is_stopped).because == "maintenance"
        late = world.kafka("k3")
        row(manager, late, is_stopped)
        manager.start_table(second)
        row(manager, second, is_waiting)
        row(manager, first, is_stopped)
    with managed(world, world.reopened()) as manager:
        row(manager, first, is_stopped)
        row(manager, second, is_waiting)
        manager.start_table(ALL_TABLES)
        for uuid in (first, second, late):
            row(manager, uuid, is_waiting)


def test_rounds_slow_down_by_the_partition_that_they_write_to(server: Server) -> None:
    world = server.world
    limits = {"parts_to_delay_insert": "2", "parts_to_throw_insert": "4"}
    world.catalog.tables.modify_settings(world.t, limits, [])
    assert [server.round("a") for _ in range(3)] == [0, 0, pytest.approx(1000**0.5)]
    assert server.slowed() == "slowed: 2 parts in partition a"
    assert server.round("b") == pytest.approx(1000)
    # Now it writes elsewhere, where there is room.
    assert server.round("b") == 0
    assert server.slowed() == ""
    assert server.dispatcher.committed == ["task1"] * 5


def test_a_consumer_that_has_read_everything_is_not_slowed_any_more(server: Server) -> None:
    limits = {"parts_to_delay_insert": "2", "parts_to_throw_insert": "4"}
    server.world.catalog.tables.modify_settings(server.world.t, limits, [])
    for _ in range(3):
        server.round("a")
    reach = PartitionEnd(stable=Offset(4), high=Offset(4))
    for end, slowed in (
        (reach, "slowed: 2 parts in partition a"),
        (PartitionEnd(stable=Offset(3), high=Offset(3)), ""),
    ):
        told = (ReportedEnd(topic_partition=PARTITION, end=end),)
        server.consumers.report_ends(
            EndsReport(kafka_table=server.kafka.uuid, consumer=0, fence=server.fence, ends=told)
        )
        assert server.slowed() == slowed


def test_a_consumer_whose_worker_has_no_spark_is_shown_as_waiting_for_it(server: Server) -> None:
    server.round("a")
    server.dispatcher.handles[-1].in_the_way = "w: Spark is away since then: it hung"
    stats = server.consumers.stats(0, [], state=ConsumerState.RUNNING)
    assert stats.doing is not None
    assert (stats.state, stats.doing.kind) == ("waiting", ActivityKind.WAITING)
    assert describe([stats.doing], flush_interval_ms=1) == "waiting for a worker: w: Spark is away since then: it hung"
    server.dispatcher.handles[-1].in_the_way = ""
    assert server.consumers.stats(0, [], state=ConsumerState.RUNNING).state == "running"


def test_a_refused_round_moves_no_offset_and_the_next_one_waits(server: Server) -> None:
    world = server.world
    world.catalog.tables.modify_settings(world.t, {"parts_to_delay_insert": "1", "parts_to_throw_insert": "2"}, [])
    server.round("a")
    server.round("a")
    with pytest.raises(TooManyPartsError) as caught:
        server.round("a")
    assert (server.stored(), caught.value.facts["partition"]) == (2, "a")
    assert _end_kind(caught.value) is EndKind.FAILURE
    server.consumers.record_end(ConsumerEnded(0, caught.value), is_failure=True)
    told = server.consumers.stats(0, [], state=ConsumerState.RUNNING).last_exception
    assert told.startswith("TOO_MANY_PARTS: ")
    server.consumers.settle(0, "refused")
    granted = server.begin()
    assert granted.wait_ms == pytest.approx(1000)
    world.catalog.transactions.abort(granted.txn, "a test")
    world.merge(list(world.catalog.parts.snapshot(world.t).parts))
    server.round("a")
    assert server.stored() == 3


WIDER = Schema(columns=(*SCHEMA.columns, Column(id=2, name="b", type=Simple(Kind.STRING))))


def test_a_round_that_was_written_before_an_alter_commits_nothing(server: Server) -> None:
    old = server.world.definition().schema_version
    server.world.alter(WIDER)
    with pytest.raises(SchemaChangedError) as caught:
        server.round("a", version=old)
    assert (server.stored(), _end_kind(caught.value)) == (0, EndKind.ALTERED)
    server.round("a")
    assert server.stored() == 1


def test_no_round_begins_with_columns_that_the_kafka_table_does_not_have_any_more(server: Server) -> None:
    server.round("a")
    checked = server.world.catalog.tables.by_id(server.kafka.uuid)
    assert isinstance(checked, KafkaDef)
    server.world.catalog.tables.alter_kafka(checked, WIDER, next_column_id=3, views=[])
    with pytest.raises(SchemaChangedError) as caught:
        server.begin()
    assert _end_kind(caught.value) is EndKind.ALTERED
    assert server.world.catalog.transactions.unfinished() == []


def test_a_consumer_whose_target_was_altered_is_replaced_at_once_and_counts_no_failure() -> None:
    heart = ServiceLifecycle()
    look = TableObservation(is_wanted=True, definition="d1", partitions={"topic": 2}, consumers=2)
    assert len(heart.observe(look, now_ms=0)) == 2
    heart.record_end(0, EndKind.ALTERED, "the columns have changed", now_ms=10)
    assert heart.consumers[0].failures == 0
    # The other one is told to end as well; then both take the new definition, with the stored offsets.
    altered = TableObservation(is_wanted=True, definition="d2", partitions={"topic": 2}, consumers=2)
    heart.observe(altered, now_ms=10)
    heart.record_end(1, EndKind.ALTERED, "the columns have changed", now_ms=11)
    assert heart.tick(now_ms=11) == [
        StartConsumer(0, (TopicPartition("topic", 0),)),
        StartConsumer(1, (TopicPartition("topic", 1),)),
    ]


class _Client(FakeBroker):
    """Client that fails for good after it could not answer once, as that of librdkafka may."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.make("a", 100, topic_id="x")
        self.fails, self.is_closed = fails, False

    def topics(self) -> Topics:
        if self.fails:
            raise BrokerUnavailableError("the Kafka broker does not answer", table="default.k")
        return super().topics()

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_failed_is_replaced_at_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    clients = [_Client(fails=True), _Client(fails=False)]
    reader = Reader(world, clients[1])
    world.view("v", reader.uuid, world.t)
    left = iter(clients)
    monkeypatch.setattr("tilth.ingest.service.service.BrokerClient", lambda config: next(left))
    service = KafkaService(consume_context(world), EventLog(events_max=10), reader.kafka)
    assert "the Kafka broker does not answer" in service._poll().trouble
    assert [each.is_closed for each in clients] == [True, False]
    assert [service._poll().partitions for _ in range(2)] == [{"a": 1}, {"a": 1}]
    assert [each.is_closed for each in clients] == [True, False]


def test_a_defect_waits_and_counts() -> None:
    assert _end_kind(TilthError("it broke")) is EndKind.FAILURE


def test_failures_are_over_when_a_consumer_has_read_all_there_is(server: Server) -> None:
    def heard(end: int) -> int:
        reach = PartitionEnd(stable=Offset(end), high=Offset(end))
        told = (ReportedEnd(topic_partition=PARTITION, end=reach),)
        server.consumers.report_ends(
            EndsReport(kafka_table=server.kafka.uuid, consumer=0, fence=server.fence, ends=told)
        )
        return server.reporter.failures([0]).count

    server.reporter.record_failure(TilthError("the view fails"), consumer=0)
    server.reporter.record_failure(TilthError("the view fails"), consumer=0)
    # A message waits: whether it can be read now, only a round can say.
    assert heard(1) == 2
    server.round("a")
    assert server.reporter.failures([0]).count == 0
    # Spark has ended under a consumer of a topic to which nothing comes: no round will ever say that all is well.
    server.reporter.record_failure(TilthError("Spark is being restarted"), consumer=0)
    assert heard(1) == 0
