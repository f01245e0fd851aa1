"""A catalog and a broker of the test's making: topics that grow, are cut, deleted and made anew."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.catalog_world import SCHEMA, World
from tilth.catalog import AddLedger, AdvanceOffsets
from tilth.ingest.kafka.broker import Holds
from tilth.ingest.kafka.metadata import Offset, PartitionEnd, Topics
from tilth.ingest.offsets.positions import Positions
from tilth.ingest.offsets.reset import OffsetReset
from tilth.ingest.settings import KafkaConfig, read_config
from tilth.model.offset import IngestGap, LedgerEntry, LedgerRange, OffsetRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef

SETTINGS = {"kafka_broker_list": "b:9092", "kafka_topic_list": "a", "kafka_format": "JSONEachRow"}
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


@dataclass(slots=True)
class Log:
    """One topic partition."""

    low: int = 0
    high: int = 0
    #: Epoch of its leader.
    epoch: int = 0
    #: End of the messages of each leader epoch.
    ended: dict[int, int] = field(default_factory=dict)
    #: Messages at the end that are in an open transaction.
    uncommitted: int = 0


class FakeBroker:
    """Answers what a BrokerClient would."""

    def __init__(self) -> None:
        self.cluster = "c1"
        self.logs: dict[TopicPartition, Log] = {}
        self.ids: dict[str, str] = {}
        #: Questions whether a log still is the one of an offset.
        self.asked: list[TopicPartition] = []

    def make(self, topic: str, *highs: int, topic_id: str) -> None:
        """The topic, whatever it was before."""
        self.logs = {partition: log for partition, log in self.logs.items() if partition.topic != topic}
        self.logs |= {TopicPartition(topic, number): Log(high=high) for number, high in enumerate(highs)}
        self.ids[topic] = topic_id

    def truncate(self, partition: TopicPartition, at: int) -> None:
        """An unclean election: the new leader has no more than this."""
        log = self.logs[partition]
        log.ended[log.epoch] = min(at, log.high)
        log.high, log.epoch = at, log.epoch + 1

    def topics(self) -> Topics:
        counts = {topic: sum(partition.topic == topic for partition in self.logs) for topic in self.ids}
        return Topics(cluster=self.cluster, partitions=counts, ids=dict(self.ids))

    def topic_ids(self) -> dict[str, str]:
        return dict(self.ids)

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {partition: Offset(self.logs[partition].low) for partition in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        logs = {partition: self.logs[partition] for partition in partitions}
        return {
            partition: PartitionEnd(stable=Offset(log.high - log.uncommitted), high=Offset(log.high), epoch=log.epoch)
            for partition, log in logs.items()
        }

    def at_time(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, Offset]:
        return {partition: Offset(self.logs[partition].high // 2) for partition in partitions}

    def holds(self, partition: TopicPartition, stored: StoredOffset) -> tuple[Holds, int]:
        self.asked.append(partition)
        log = self.logs[partition]
        if stored.epoch < 0 or stored.epoch > log.epoch:
            return Holds.UNKNOWN, -1
        end = min([each for epoch, each in log.ended.items() if epoch >= stored.epoch], default=log.high)
        return (Holds.YES, -1) if end >= stored.offset else (Holds.NO, end)


class Reader:
    """The offsets of one Kafka table, read as its service and its consumers would."""

    def __init__(self, world: World, broker: FakeBroker, name: str = "k", **settings: str) -> None:
        relation = KafkaDef(
            uuid=world.new_id(), database="default", name=name, schema=SCHEMA, settings=SETTINGS | settings
        )
        world.catalog.tables.create(relation)
        self.world, self.broker, self.uuid = world, broker, relation.uuid
        self.notes: list[str] = []
        self.positions = self._positions()

    def _positions(self) -> Positions:
        return Positions(self.world.clock, self.world.catalog, self.uuid, note=self.notes.append)

    @property
    def kafka(self) -> KafkaDef:
        found = self.world.catalog.tables.by_id(self.uuid)
        assert isinstance(found, KafkaDef)
        return found

    @property
    def config(self) -> KafkaConfig:
        return read_config(self.kafka)

    def look(self, *suspects: TopicPartition) -> dict[int, int]:
        """What the service does now and then; returns the stored offsets of topic `a` by partition."""
        broker, topics = self.broker, self.broker.topics()
        self.positions.settle(self.kafka, self.config, broker, topics)  # type: ignore[arg-type]  # does what is called
        self.positions.check(self.kafka, self.config, broker, topics, reported_gaps=suspects)  # type: ignore[arg-type]
        return self.stored()

    def move(self, reset: OffsetReset) -> dict[TopicPartition, int]:
        topics = self.broker.topics()
        return self.positions.move(self.kafka, self.config, self.broker, reset, topics)  # type: ignore[arg-type]

    def read(self, partition: TopicPartition, end: int, *, since: StoredOffset | None = None) -> None:
        """A round up to this offset, into the world's table; `since`: from another offset than the stored one."""
        stored = since or self.world.catalog.offsets.stored(self.uuid)[partition]
        start = stored.offset
        moved = OffsetRange(
            topic=partition.topic,
            partition=partition.partition,
            start=start,
            end=end,
            topic_id=stored.topic_id,
            epoch=stored.epoch,
            end_epoch=self.broker.logs[partition].epoch,
        )
        line = LedgerRange(
            topic=partition.topic, partition=partition.partition, start=start, end=end, messages=0, rows=0, dead=0
        )
        entry = LedgerEntry(
            txn=0, kafka_table=self.uuid, consumer=0, ranges=(line,), stored={}, targets=(self.world.t,)
        )
        self.world.commit(AdvanceOffsets(kafka_table=self.uuid, ranges=(moved,)), AddLedger(entry=entry))

    def alter(self, **settings: str) -> None:
        self.world.catalog.tables.modify_settings(self.uuid, settings)

    def drop(self) -> None:
        self.world.catalog.tables.drop(self.uuid)

    def undrop(self) -> None:
        """Back again, with a service that knows nothing of before."""
        self.world.catalog.tables.undrop("default", "k")
        self.positions = self._positions()

    def stored(self) -> dict[int, int]:
        return {partition.partition: offset for partition, offset in self.world.catalog.offsets.of(self.uuid).items()}

    def gaps(self) -> dict[int, IngestGap]:
        """Those that wait for a decision, by partition."""
        return {each.partition: each for each in self.world.catalog.offsets.gaps(self.uuid) if not each.resolution}

    def resolutions(self) -> list[str]:
        return [each.resolution for each in self.world.catalog.offsets.gaps(self.uuid) if each.resolution]
