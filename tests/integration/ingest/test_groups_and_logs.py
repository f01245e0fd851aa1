"""Offsets that belong to a group, and logs that are not what they were, with a real broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, events
from tests.long import cases
from tilth.ingest import OffsetMark, ToMark, ToOffsets
from tilth.model.offset import TopicPartition
from tilth.model.table import KafkaDef, TableDef
from tilth.verify import verify
from tilth.warehouse import WorkerSession
from tools.broker import Broker
from tools.kafka_proxy import KafkaProxy


def kafka_sql(world: IngestWorld, topic: str, name: str = "k", *, brokers: str = "", more: str = "") -> str:
    return (
        f"CREATE TABLE {name} (id BIGINT, name STRING, price DOUBLE) ENGINE = Kafka SETTINGS kafka_broker_list = "
        f"'{brokers or world.bootstrap}', kafka_topic_list = '{topic}', kafka_format = 'JSONEachRow', "
        f"stream_flush_interval_ms = 100{more}"
    )


def kafka(world: IngestWorld, name: str = "k") -> KafkaDef:
    found = world.catalog.tables.get("default", name)
    assert isinstance(found, KafkaDef)
    return found


def made_over(world: IngestWorld, topic: str) -> TableDef:
    """A table that is fed by the topic through `k` and `v`."""
    target = world.table("t", EVENTS, "id")
    world.sql(kafka_sql(world, topic))
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k")
    return target


def test_drop_and_create_goes_on_where_the_group_stood(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("anew-table", 2)
    world.send("anew-table", events(0, 100), partitions=2)
    target = made_over(world, "anew-table")
    world.wait_rows(target, 100)
    first = kafka(world)
    world.sql("DROP VIEW v")
    world.sql("DROP TABLE k")
    world.send("anew-table", events(100, 200), partitions=2)
    message = world.sql(kafka_sql(world, "anew-table", more=", kafka_auto_offset_reset = 'latest'"))
    assert "group tilth.default.k stood at anew-table/0 at 50, anew-table/1 at 50" in message
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k")
    world.wait_rows(target, 200)
    assert world.ids(target) == list(range(200))
    told = [
        row["detail"]
        for row in world.sql_rows("SELECT event, detail FROM system.kafka_log")
        if row["event"] == "OFFSETS"
    ]
    assert told == [
        "goes on where group tilth.default.k stood: anew-table/0 at 50, anew-table/1 at 50; default.k read it last"
    ]
    phases = [f"{phase}_ms" for phase in ("fetch", "decode", "write", "commit")]
    for row in world.sql_rows("SELECT * FROM system.kafka_log"):
        assert [row[name] is None for name in phases] == [row["event"] != "COMMIT"] * len(phases), row
        if row["event"] == "COMMIT":
            assert sum(row[name] for name in phases[:3]) > 0
    assert "goes on where group tilth.default.k stood" in world.stats(kafka(world)).reason
    # When the first one is gone for good, what it has read is still known.
    world.catalog.tables.forget(first.uuid)
    ledgers = {row["uuid"] for row in world.sql_rows("SELECT DISTINCT uuid FROM system.ingest_ledger")}
    assert ledgers == {first.uuid, kafka(world).uuid}
    (report,) = world.verify(target)
    fed = next(check for check in report.checks if check.check.startswith("no offset was read"))
    assert f"default.k (gone, {first.uuid[:8]})" in fed.detail


def test_verify_names_what_two_kafka_tables_have_read_into_one_table(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("twice")
    world.send("twice", events(0, 40))
    target = made_over(world, "twice")
    world.wait_rows(target, 40)
    world.sql(kafka_sql(world, "twice", "k2"))
    world.sql("CREATE MATERIALIZED VIEW v2 TO t AS SELECT * FROM k2 WHERE id >= 0")
    world.wait_rows(target, 80)
    report = verify(world.catalog, world.root, target)
    (wrong,) = [check for check in report.checks if not check.is_ok]
    assert wrong.detail == "twice/0: 0 to 40 by default.k and default.k2"
    # Also when nothing is left of the second one but its ledger.
    world.sql("DROP VIEW v2")
    world.sql("DROP TABLE k2")
    gone = next(each.relation.uuid for each in world.catalog.tables.dropped() if each.relation.name == "k2")
    world.catalog.offsets.fold_ledger(gone, before_ts=1 << 62, settled_ts=1 << 62, kept_max=0)
    world.catalog.tables.forget(gone)
    (wrong,) = [check for check in verify(world.catalog, world.root, target).checks if not check.is_ok]
    assert wrong.detail == f"twice/0: 0 to 40 by default.k and default.k2 (gone, {gone[:8]})"


def test_brokers_prove_that_a_group_is_in_use(tmp_path: Path, spark: WorkerSession, java_home: Path) -> None:
    with KafkaProxy() as proxy:
        broker = Broker(tmp_path / "broker", java_home=java_home)
        broker.start(proxy_port=proxy.port)
        proxy.connect(broker.proxied_port)
        world = IngestWorld(tmp_path / "node", spark, broker.bootstrap)
        try:
            broker.create_topic("shared")
            world.send("shared", events(0, 10))
            target = made_over(world, "shared")
            world.wait_rows(target, 10)
            # The same cluster by an address that nothing in the catalog connects with it.
            more = ", kafka_group_name = 'tilth.default.k'"
            world.sql(kafka_sql(world, "shared", "k2", brokers=proxy.address, more=more))
            world.sql("CREATE MATERIALIZED VIEW v2 TO t AS SELECT * FROM k2")
            second = kafka(world, "k2")
            world.wait(lambda: "read_by=default.k" in world.stats(second).reason, "waits for the first one")
            assert world.stats(second).state == "waiting"
            assert world.catalog.offsets.of(second.uuid) == {}
            world.sql("DROP VIEW v")
            world.sql("DROP TABLE k")
            world.send("shared", events(10, 20))
            world.wait_rows(target, 20)
            assert world.ids(target) == list(range(20))
            world.verify(target)
        finally:
            world.close()
            broker.stop()


def test_an_unclean_leader_election_is_a_gap_though_the_topic_has_grown_again(
    tmp_path: Path, spark: WorkerSession, own_broker: Broker
) -> None:
    """The log is put back to what it was: as a replica that had not followed is, when it becomes the leader."""
    own_broker.create_topic("unclean", 2)
    world = IngestWorld(tmp_path / "node", spark, own_broker.bootstrap)
    log = own_broker.folder / "data" / "unclean-0"
    try:
        world.send("unclean", events(0, 100), partitions=2)
        target = made_over(world, "unclean")
        world.wait_rows(target, 100)
        own_broker.stop()
        shutil.copytree(log, tmp_path / "kept")
        own_broker.restart()
        world.send("unclean", events(100, 200), partitions=2)
        world.wait_rows(target, 200)
        world.sql("SYSTEM STOP CONSUME k")
        own_broker.stop()
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "kept", log)
        own_broker.restart()
        # Partition 0 holds 50 messages again, and then more than were read of it.
        world.send("unclean", events(1_000, 1_200), partitions=2)
        world.sql("SYSTEM START CONSUME k")
        world.wait(lambda: bool(world.catalog.offsets.gaps(kafka(world).uuid)), "the gap")
        (gap,) = world.catalog.offsets.gaps(kafka(world).uuid)
        assert (gap.partition, gap.start, gap.end, gap.resolution) == (0, 100, 50, "")
        assert "unclean leader election" in gap.reason
        # Partition 1 was not touched; its consumer is the same, so it waits as well.
        world.wait(lambda: "messages are missing in unclean/0" in world.stats(kafka(world)).reason, "the reason")
        assert world.manager.reset_offsets(kafka(world).uuid, ToOffsets({TopicPartition("unclean", 0): 50})) == {
            TopicPartition("unclean", 0): 50
        }
        world.wait_rows(target, 400)
        assert world.ids(target) == [*range(200), *range(1_000, 1_200)]
        world.verify(target)
    finally:
        world.close()


@pytest.mark.long
def test_a_clean_restart_of_the_broker_is_no_gap(tmp_path: Path, spark: WorkerSession, own_broker: Broker) -> None:
    own_broker.create_topic("clean", 2)
    world = IngestWorld(tmp_path / "node", spark, own_broker.bootstrap)
    try:
        target = made_over(world, "clean")
        for number in range(3):
            world.send("clean", events(100 * number, 100 * number + 100), partitions=2)
            world.wait_rows(target, 100 * number + 100)
            own_broker.restart()
        epochs = {each.epoch for each in world.catalog.offsets.stored(kafka(world).uuid).values()}
        assert min(epochs) > 0
        world.send("clean", events(300, 400), partitions=2)
        world.wait_rows(target, 400)
        assert world.ids(target) == list(range(400))
        assert world.catalog.offsets.gaps(kafka(world).uuid) == []
        world.verify(target)
    finally:
        world.close()


def test_messages_of_an_open_transaction_are_waited_for_and_counted(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("open")
    target = made_over(world, "open")
    world.send("open", events(0, 10))
    world.wait_rows(target, 10)
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    for value in events(10, 17):
        producer.produce("open", value, partition=0)
    assert producer.flush(30) == 0
    table = kafka(world)
    world.wait(lambda: "behind an open transaction since" in world.stats(table).reason, "the reason")
    (row,) = world.sql_rows(
        "SELECT reason, lag, uncommitted, offsets, stable_offsets, high_watermarks FROM system.kafka_tables"
    )
    assert row["reason"].startswith("behind an open transaction since ")
    assert row["reason"].endswith(", 7 messages")
    assert (row["lag"], row["uncommitted"]) == (7, 7)
    assert (row["offsets"], row["stable_offsets"], row["high_watermarks"]) == (
        ["open/0=10"],
        ["open/0=10"],
        ["open/0=17"],
    )
    # A message that comes behind it waits with it.
    world.send("open", events(17, 18))
    world.wait(lambda: world.manager.kafka_tables()[0].lag == 8, "the lag")
    producer.commit_transaction()
    world.wait_rows(target, 18)
    assert world.ids(target) == list(range(18))
    world.wait(lambda: "idle: no message since" in world.stats(table).reason, "idle")
    assert world.manager.kafka_tables()[0].lag == 0


def test_lag_is_known_while_consumption_is_stopped(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("resting")
    world.send("resting", events(0, 10))
    target = made_over(world, "resting")
    world.wait_rows(target, 10)
    world.sql("SYSTEM STOP CONSUME k")
    world.send("resting", events(10, 410))
    world.wait(lambda: world.manager.kafka_tables()[0].lag == 400, "the lag")
    (consumer,) = world.manager.kafka_tables()
    assert (consumer.state, consumer.last_exception) == ("stopped", "")
    assert world.ids(target) == list(range(10))


def test_of_a_topic_that_was_never_found_no_lag_is_known(world: IngestWorld, broker: Broker) -> None:
    made_over(world, "never-there")
    world.wait(lambda: "never-there" in world.stats(kafka(world)).reason, "the topic is missed")
    (consumer,) = world.manager.kafka_tables()
    assert [each.topic_partition for each in consumer.partitions] == [TopicPartition("never-there", 0)]
    assert (consumer.lag, consumer.uncommitted, consumer.lag_age) == (None, None, None)


def test_lag_is_counted_behind_a_gap_and_failures_are_forgotten(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("behind")
    world.send("behind", [*events(0, 10), b"{broken"])
    target = made_over(world, "behind")
    world.wait_rows(target, 10)
    table = kafka(world)
    # Rows of a round are seen before the report of it.
    world.wait(lambda: "broken messages, now dead letters: 1" in world.stats(table).reason, "the dead letter")
    broker.delete_topic("behind")
    world.wait(lambda: "waiting for the broker since" in world.stats(table).reason, "the topic is gone")
    assert world.stats(table).failures > 0
    broker.create_topic("behind")
    world.send("behind", events(20, 50))
    world.wait(lambda: "messages are missing in behind/0" in world.stats(table).reason, "the gap")
    # The gap may have been seen while the topic was empty.
    world.wait(lambda: world.manager.kafka_tables()[0].lag == 30, "the lag")
    (consumer,) = world.manager.kafka_tables()
    assert consumer.partitions[0].offset == 11
    assert "messages are missing" in consumer.reason
    world.manager.reset_offsets(table.uuid, ToMark(OffsetMark.BEGIN))
    world.wait_rows(target, 40)
    world.wait(lambda: world.stats(table).failures == 0, "failures in a row")
    assert world.stats(table).last_exception
    world.verify(target)


@pytest.mark.parametrize("group", cases([", kafka_group_name = 'g'", ""]))
def test_a_rename_goes_on(world: IngestWorld, broker: Broker, group: str) -> None:
    topic = "renamed-group" if group else "renamed"
    broker.create_topic(topic)
    world.send(topic, events(0, 10))
    target = world.table("t", EVENTS, "id")
    world.sql(kafka_sql(world, topic, more=group))
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k")
    world.wait_rows(target, 10)
    world.sql("DROP VIEW v")
    world.sql("RENAME TABLE k TO k3")
    world.sql("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k3")
    world.send(topic, events(10, 20))
    world.wait_rows(target, 20)
    assert world.ids(target) == list(range(20))
    assert [each.released for each in world.catalog.offsets.subscriptions()] == [None]
    world.verify(target)
