"""The stored offsets of one Kafka table, where they are not moved by a round: first ones, gaps, resets.

Covers: finding first offsets once and storing them, noticing and recording gaps, moving offsets for a user. Does not
cover: rounds (service.py). Always holds: whatever is found out from the broker becomes true by a commit before anybody
acts on it, so that it is found out only once. See also: DESIGN.md 7, "Gaps".
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import AddGap, AddLedger, Catalog, ResolveGaps, SetOffsets, Update
from tilth.ingest.gaps import find_gaps
from tilth.ingest.kafka import BrokerClient
from tilth.ingest.reset import OffsetMark, OffsetReset, ToMark, ToOffsets, ToTime, check_offsets, moved
from tilth.ingest.settings import KafkaConfig, OffsetStart
from tilth.model.offset import IngestGap, TopicPartition
from tilth.model.table import KafkaDef, full_name

_SKIPPED = "passed over: kafka_enable_skip_offsets_hole = 1"

_log = Log("ingest")


class Positions:
    """The offsets of one Kafka table."""

    def __init__(self, clock: Clock, catalog: Catalog, uuid: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._uuid = uuid
        #: Finding first offsets and moving offsets take turns: neither may overwrite what the other has just stored.
        self._turn = threading.Lock()

    def of(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The stored offsets of these partitions."""
        stored = self._catalog.offsets.of(self._uuid)
        return {place: stored[place] for place in places if place in stored}

    def settle(
        self, kafka: KafkaDef, config: KafkaConfig, broker: BrokerClient, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets to start from; looks up and stores those that are not stored yet.

        A partition that was added to a topic that is read already starts at its first message.
        """
        with self._turn:
            stored = self._catalog.offsets.of(self._uuid)
            missing = [place for place in places if place not in stored]
            if missing:
                known_topics = {place.topic for place in stored}
                late = [p for p in missing if config.start is OffsetStart.LATEST and p.topic not in known_topics]
                found = broker.earliest([place for place in missing if place not in late]) | broker.ends(late)
                self._remember_topics(broker.topic_ids() | self._known_topics())
                self._commit(kafka, [SetOffsets(kafka_table=self._uuid, offsets=found)])
                stored |= found
            return {place: stored[place] for place in places}

    def check(
        self, kafka: KafkaDef, config: KafkaConfig, broker: BrokerClient, places: Collection[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Compares what is stored with what the topics hold, records new gaps; returns the partitions with open
        ones.
        """
        stored = self.of(places)
        if stored:
            recreated = self._recreated(broker)
            found = find_gaps(
                self._uuid,
                stored=stored,
                earliest=broker.earliest(stored),
                ends=broker.ends(stored),
                recreated=recreated,
                now_ms=self._clock.now_ms(),
            )
            if found:
                self._record(kafka, config, found)
            # A topic made anew of which nothing had been read is the topic from now on.
            ids = broker.topic_ids()
            harmless = recreated - {gap.topic for gap in found}
            self._remember_topics(self._known_topics() | {topic: ids[topic] for topic in harmless})
        return frozenset(self._open())

    def move(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        reset: OffsetReset,
        places: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """Moves the stored offsets and takes open gaps as decided; returns the new offsets. Raises ResetError."""
        with self._turn:
            return self._moved(kafka, config, broker, reset, places)

    def _moved(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        reset: OffsetReset,
        places: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        wanted = self._wanted(kafka, config, broker, reset, places)
        updates: list[Update] = [ResolveGaps(kafka_table=self._uuid, resolution=_told(reset))]
        if wanted:
            updates.append(SetOffsets(kafka_table=self._uuid, offsets=wanted))
        line = moved(self._uuid, stored=self._catalog.offsets.of(self._uuid), wanted=wanted)
        if line is not None:
            updates.append(AddLedger(entry=line))
        self._remember_topics(self._known_topics() | broker.topic_ids())
        self._commit(kafka, updates)
        _log.info("offsets_moved", table=full_name(kafka), to=_told(reset), partitions=len(wanted))
        return wanted

    def _wanted(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        broker: BrokerClient,
        reset: OffsetReset,
        places: Collection[TopicPartition],
    ) -> dict[TopicPartition, int]:
        match reset:
            case ToTime(timestamp_ms=timestamp_ms):
                return broker.at_time(places, timestamp_ms)
            case ToOffsets(offsets=offsets):
                earliest, ends = broker.earliest(places), broker.ends(places)
                return check_offsets(offsets, earliest=earliest, ends=ends, table=full_name(kafka))
            case ToMark(mark=mark):
                return self._marked(config, broker, mark, places)
        assert_never(reset)

    def _marked(
        self, config: KafkaConfig, broker: BrokerClient, mark: OffsetMark, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        match mark:
            case OffsetMark.STORED:
                return {}
            case OffsetMark.INVALID:
                is_late = config.start is OffsetStart.LATEST
                return broker.ends(places) if is_late else broker.earliest(places)
            case OffsetMark.BEGIN:
                return broker.earliest(places)
            case OffsetMark.END:
                return broker.ends(places)
        assert_never(mark)

    def _record(self, kafka: KafkaDef, config: KafkaConfig, found: Sequence[IngestGap]) -> None:
        known = {(g.topic, g.partition, g.start) for g in self._catalog.offsets.gaps(self._uuid) if not g.resolution}
        new = [gap for gap in found if (gap.topic, gap.partition, gap.start) not in known]
        if not new:
            return
        updates: list[Update] = []
        for gap in new:
            _log.warning("gap", table=full_name(kafka), topic=gap.topic, partition=gap.partition, start=gap.start)
            if config.skip_holes and gap.end > gap.start:
                place = TopicPartition(gap.topic, gap.partition)
                line = moved(self._uuid, stored={place: gap.start}, wanted={place: gap.end})
                assert line is not None
                updates += [AddGap(gap=msgspec.structs.replace(gap, resolution=_SKIPPED)), AddLedger(entry=line)]
                self._commit(kafka, [*updates, SetOffsets(kafka_table=self._uuid, offsets={place: gap.end})])
                updates = []
            else:
                updates.append(AddGap(gap=gap))
        if updates:
            self._commit(kafka, updates)

    def _open(self) -> set[TopicPartition]:
        gaps = self._catalog.offsets.gaps(self._uuid)
        return {TopicPartition(gap.topic, gap.partition) for gap in gaps if not gap.resolution}

    def _recreated(self, broker: BrokerClient) -> frozenset[str]:
        """Topics whose id is not the one that reading began with."""
        known = self._known_topics()
        return frozenset(topic for topic, id_ in broker.topic_ids().items() if known.get(topic, id_) != id_)

    def _remember_topics(self, ids: Mapping[str, str]) -> None:
        if self._known_topics() != ids:
            self._catalog.state.put(self._state_name, msgspec.msgpack.encode(dict(ids)))

    def _known_topics(self) -> dict[str, str]:
        found = self._catalog.state.get(self._state_name)
        return {} if found is None else msgspec.msgpack.decode(found, type=dict[str, str])

    @property
    def _state_name(self) -> str:
        return f"ingest/{self._uuid}/topics"

    def _commit(self, kafka: KafkaDef, updates: Sequence[Update]) -> None:
        transactions = self._catalog.transactions
        txn = transactions.begin(f"offsets {full_name(kafka)}")
        transactions.commit_or_raise(txn.id, updates)


def _told(reset: OffsetReset) -> str:
    """The user's decision in words."""
    match reset:
        case ToMark(mark=mark):
            return f"reset to {mark.name.lower()}"
        case ToTime(timestamp_ms=timestamp_ms):
            return f"reset to timestamp {timestamp_ms}"
        case ToOffsets(offsets=offsets):
            named: Mapping[TopicPartition, int] = offsets
            return "reset to " + ", ".join(f"{p.topic}/{p.partition}@{offset}" for p, offset in sorted(named.items()))
    assert_never(reset)
