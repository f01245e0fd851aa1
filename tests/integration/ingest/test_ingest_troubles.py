"""What may happen to brokers, topics, offsets and consumers; rows stay exactly once or the service says what is
wrong.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from tests.integration.ingest.ingest_world import EVENTS, WAIT_SECONDS_MAX, IngestWorld, events
from tilth.base.errors import FencedError, TilthError
from tilth.catalog import TxnNotFoundError
from tilth.ingest import OffsetMark, ResetError, ToMark, ToOffsets, ToTime
from tilth.ingest.consumer.calls import BeginRound, RoundDone
from tilth.ingest.kafka import broker as kafka_client
from tilth.ingest.kafka import fetch as fetching
from tilth.model.lease import Fence
from tilth.model.offset import TopicPartition
from tilth.model.service import SwitchState
from tilth.verify import verify
from tilth.warehouse import WorkerSession
from tilth.warehouse.worker import embedded
from tools.broker import Broker


def test_broker_killed_in_the_middle(
    tmp_path: Path, spark: WorkerSession, own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker that is gone is given up sooner.
    monkeypatch.setattr(kafka_client, "REQUEST_SECONDS_MAX", 1.0)
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (1.0, 2.0, 3.0))
    own_broker.create_topic("killed", 2)
    world = IngestWorld(tmp_path / "node", spark, own_broker.bootstrap)
    try:
        kafka = world.kafka("k", "killed", kafka_max_block_size="2000")
        target = world.table("t", EVENTS, "id")
        world.send("killed", events(0, 20_000), partitions=2)
        world.view("v", kafka, target, "SELECT * FROM k")
        world.wait_rows(target, 2000)
        own_broker.kill()
        world.wait(lambda: "does not answer" in world.stats(kafka).last_exception, "the trouble is told")
        own_broker.restart()
        world.send("killed", events(20_000, 21_000), partitions=2)
        world.wait_rows(target, 21_000)
        assert world.ids(target) == list(range(21_000))
        world.verify(target)
    finally:
        world.close()


def test_server_restart_and_stop_survive(tmp_path: Path, spark: WorkerSession, broker: Broker) -> None:
    broker.create_topic("restart")
    world = IngestWorld(tmp_path, spark, broker.bootstrap)
    kafka = world.kafka("k", "restart", kafka_max_block_size="500")
    target = world.table("t", EVENTS, "id")
    world.send("restart", events(0, 5000))
    world.view("v", kafka, target, "SELECT id, upper(name) AS name, price FROM k")
    world.wait_rows(target, 500)
    world.close()
    world = IngestWorld(tmp_path, spark, broker.bootstrap)
    try:
        world.wait_rows(target, 5000)
        world.manager.stop_table(kafka.uuid, because="a test")
        assert world.stats(kafka).switch is SwitchState.STOPPED
        world.send("restart", events(5000, 5100))
        time.sleep(1)
        assert world.count(target) == 5000
    finally:
        world.close()
    world = IngestWorld(tmp_path, spark, broker.bootstrap)
    try:
        world.wait(
            lambda: any(s.state == "stopped" and s.because == "a test" for s in world.manager.stats()), "stopped"
        )
        assert world.count(target) == 5000
        world.manager.start_table(kafka.uuid)
        world.wait_rows(target, 5100)
        assert world.ids(target) == list(range(5100))
        world.verify(target)
    finally:
        world.close()


def test_partitions_are_added(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("grows", 1)
    kafka = world.kafka("k", "grows", kafka_num_consumers="2", kafka_auto_offset_reset="latest")
    target = world.table("t", EVENTS, "id")
    world.send("grows", events(0, 10))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: len(world.catalog.offsets.of(kafka.uuid)) == 1, "offsets settled at the end")
    world.send("grows", events(10, 20))
    world.wait_rows(target, 10)
    broker.add_partitions("grows", 3)
    world.send("grows", events(20, 50), partitions=3)
    world.wait_rows(target, 40)
    assert world.ids(target) == list(range(10, 50))
    assert len(world.manager.kafka_tables()) == 2
    world.verify(target)


def test_deleted_messages_are_a_gap_until_somebody_decides(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("holes", 2)
    kafka = world.kafka("k", "holes", kafka_num_consumers="2")
    target = world.table("t", EVENTS, "id")
    world.send("holes", events(0, 100), partitions=2)
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 100)
    world.manager.stop_table(kafka.uuid)
    world.send("holes", events(100, 200), partitions=2)
    _delete_before(broker, "holes", partition=1, offset=80)
    world.manager.start_table(kafka.uuid)
    # Partition 0 is read on; partition 1 waits.
    world.wait_rows(target, 150)
    world.wait(lambda: "messages are missing in holes/1" in world.stats(kafka).reason, "the reason")
    gap = world.catalog.offsets.gaps(kafka.uuid)[0]
    assert (gap.topic, gap.partition, gap.start, gap.end, gap.resolution) == ("holes", 1, 50, 80, "")
    assert not verify(world.catalog, world.root, target).is_ok
    world.manager.reset_offsets(kafka.uuid, ToOffsets({TopicPartition("holes", 1): OffsetMark.BEGIN}))
    world.wait_rows(target, 170)
    assert world.catalog.offsets.gaps(kafka.uuid)[0].resolution == "reset to holes/1@-2"
    world.verify(target)


def test_holes_are_passed_over_when_told_to(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("skipped")
    kafka = world.kafka("k", "skipped", kafka_enable_skip_offsets_hole="1")
    target = world.table("t", EVENTS, "id")
    world.send("skipped", events(0, 10))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 10)
    world.manager.stop_table(kafka.uuid)
    world.send("skipped", events(10, 30))
    _delete_before(broker, "skipped", partition=0, offset=20)
    world.manager.start_table(kafka.uuid)
    world.wait_rows(target, 20)
    assert world.ids(target) == [*range(10), *range(20, 30)]
    assert "passed over" in world.catalog.offsets.gaps(kafka.uuid)[0].resolution
    world.verify(target)


def test_topic_made_anew_is_noticed(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("anew")
    kafka = world.kafka("k", "anew")
    target = world.table("t", EVENTS, "id")
    world.send("anew", events(0, 50))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 50)
    world.manager.stop_table(kafka.uuid)
    broker.delete_topic("anew")
    broker.create_topic("anew")
    # There are as many as before and more: the offsets alone tell nothing.
    world.send("anew", events(100, 200))
    world.manager.start_table(kafka.uuid)
    world.wait(lambda: bool(world.catalog.offsets.gaps(kafka.uuid)), "the gap")
    assert "made anew" in world.catalog.offsets.gaps(kafka.uuid)[0].reason
    assert world.count(target) == 50
    world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.BEGIN))
    world.wait_rows(target, 150)
    assert world.ids(target) == [*range(50), *range(100, 200)]
    world.verify(target)


def test_forms_of_reset(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("resets", 2)
    kafka = world.kafka("k", "resets")
    target = world.table("t", EVENTS, "id")
    world.send("resets", events(0, 20), partitions=2)
    time.sleep(0.1)
    between = world.clock.now_ms()
    time.sleep(0.1)
    world.send("resets", events(20, 40), partitions=2)
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 40)
    first, second = TopicPartition("resets", 0), TopicPartition("resets", 1)
    world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.BEGIN))
    world.wait_rows(target, 80)
    assert world.manager.reset_offsets(kafka.uuid, ToTime(between)) == {first: 10, second: 10}
    world.wait_rows(target, 100)
    world.manager.reset_offsets(kafka.uuid, ToOffsets({second: 19}))
    world.wait_rows(target, 101)
    assert world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.STORED)) == {first: 20, second: 20}
    assert world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.INVALID)) == {first: 0, second: 0}
    world.wait_rows(target, 141)
    for wrong in ({second: 21}, {TopicPartition("resets", 7): 0}):
        with pytest.raises(ResetError):
            world.manager.reset_offsets(kafka.uuid, ToOffsets(wrong))
    world.manager.stop_table(kafka.uuid)
    world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.BEGIN))
    time.sleep(1)
    assert world.count(target) == 141
    assert world.stats(kafka).state == "stopped"
    world.manager.reset_offsets(kafka.uuid, ToMark(OffsetMark.END))
    world.manager.start_table(kafka.uuid)
    world.send("resets", events(40, 42), partitions=2)
    world.wait_rows(target, 143)
    world.verify(target)


def test_replaced_consumer_is_refused(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("fenced")
    kafka = world.kafka("k", "fenced")
    target = world.table("t", EVENTS, "id")
    world.send("fenced", events(0, 10))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait_rows(target, 10)
    name = f"consumer/{kafka.uuid}/0"
    lease = world.catalog.leases.get(name)
    assert lease is not None
    old = Fence(name, lease.epoch)
    world.manager.restart(kafka.uuid)
    world.send("fenced", events(10, 20))
    world.wait_rows(target, 20)
    call = BeginRound(kafka_table=kafka.uuid, consumer=0, fence=old, tasks=1, tables=(target.uuid,), ranges=())
    with pytest.raises(FencedError):
        world.manager.begin(call)
    with pytest.raises(FencedError):
        world.catalog.transactions.begin("a zombie", fences=[old])
    assert world.ids(target) == list(range(20))
    # Somebody else takes the lease: the running consumer's next round is refused, and a new one goes on.
    world.catalog.leases.acquire(name, "another")
    world.send("fenced", events(20, 30))
    world.wait_rows(target, 30)
    assert world.ids(target) == list(range(30))
    world.verify(target)


def test_a_consumer_that_hangs_in_its_commit_is_replaced_and_what_it_commits_later_is_refused(
    world: IngestWorld, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "stall_bound", lambda *_: 3.0)
    commit, hung, go_on, late = world.manager.commit, threading.Event(), threading.Event(), []

    def hanging(done: RoundDone) -> None:
        if not hung.is_set():
            hung.set()
            assert go_on.wait(WAIT_SECONDS_MAX)
            try:
                commit(done)
            except TilthError as error:
                late.append(error)
                raise
        commit(done)

    monkeypatch.setattr(world.manager, "commit", hanging)
    broker.create_topic("hangs")
    kafka = world.kafka("k", "hangs")
    target = world.table("t", EVENTS, "id")
    world.send("hangs", events(0, 100))
    world.view("v", kafka, target, "SELECT * FROM k")
    try:
        assert hung.wait(WAIT_SECONDS_MAX)
        world.wait(lambda: "it has been committing a round for" in world.stats(kafka).last_exception, "the trouble")
        world.wait_rows(target, 100)
    finally:
        go_on.set()
    world.wait(lambda: bool(late), "the end of the one that hung")
    assert isinstance(late[0], FencedError | TxnNotFoundError), late
    assert world.ids(target) == list(range(100))
    world.verify(target)


def test_settings_change_restarts_and_missing_things_are_told(world: IngestWorld, broker: Broker) -> None:
    kafka = world.kafka("k", "not-there-yet")
    world.manager.wake()
    world.wait(lambda: bool(world.manager.stats()), "the service")
    world.wait(lambda: "no materialized view" in world.stats(kafka).reason, "waits for a view")
    target = world.table("t", EVENTS, "id")
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: "topic=not-there-yet" in world.stats(kafka).reason, "names the topic")
    broker.create_topic("not-there-yet")
    world.send("not-there-yet", events(0, 10))
    world.wait_rows(target, 10)
    task = world.manager.kafka_tables()[0].task
    world.catalog.tables.modify_settings(kafka.uuid, {"kafka_max_block_size": "77"})
    world.manager.wake(kafka.uuid)
    world.wait(lambda: world.manager.kafka_tables()[0].task not in ("", task), "a new consumer")
    world.send("not-there-yet", events(10, 200))
    world.wait_rows(target, 200)
    assert max(each.messages for each in world.manager.log() if each.kind.name == "COMMIT") <= 77
    world.verify(target)


def _delete_before(broker: Broker, topic: str, *, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, partition, offset)]).values():
        future.result()


def test_unwritable_folder_is_told_and_cured(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("unwritable")
    kafka = world.kafka("k", "unwritable")
    target = world.table("t", EVENTS, "id")
    # A file where the table's folder should be: nobody can write there, root included.
    blocked = Path(str(world.root)) / target.uuid
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("in the way")
    world.send("unwritable", events(0, 10))
    world.view("v", kafka, target, "SELECT * FROM k")
    world.wait(lambda: "cannot be written" in world.stats(kafka).last_exception, "the reason")
    assert world.stats(kafka).state in ("failed", "running")
    assert world.count(target) == 0
    blocked.unlink()
    world.wait_rows(target, 10)
    assert world.ids(target) == list(range(10))
    world.verify(target)
