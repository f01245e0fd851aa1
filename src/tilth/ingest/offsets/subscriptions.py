"""The subscriptions of one Kafka table: which topics it reads for its group, and where the group stands.

Covers: subscribing, taking over where a Kafka table that is gone stood, giving up what is not read any more. Does not
cover: what is known without a broker (policy/groups.py), offsets of one's own (positions.py).
Always holds: one Kafka table at a time reads a topic for a group; its offsets and its subscription change in one
commit, which requires the subscriptions and offsets that it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import AddLedger, Catalog, Release, ResolveGaps, SetOffsets, Subscribe, Unsubscribe, Update
from tilth.ingest.kafka.reach import Topics, topic_id_of
from tilth.ingest.offsets.reset import moved
from tilth.ingest.policy.groups import addresses, group_in_use
from tilth.ingest.settings import KafkaConfig, read_config
from tilth.model.offset import StoredOffset, Subscription, TopicPartition
from tilth.model.table import KafkaDef, full_name

#: Offsets of a topic that a sentence names.
_NAMED_MAX = 8

_log = Log("ingest")


@dataclass(frozen=True, slots=True)
class _Found:
    """The subscription that a topic is read by, as it is stored."""

    topic: str
    group: str
    stored: Subscription | None


class Subscriptions:
    """Subscriptions of one Kafka table. One thread at a time."""

    def __init__(self, clock: Clock, catalog: Catalog, uuid: str) -> None:
        self._clock = clock
        self._catalog = catalog
        self._uuid = uuid
        #: Keys that were settled last; None: not yet.
        self._settled: frozenset[tuple[str, str, str]] | None = None

    def settle(
        self,
        kafka: KafkaDef,
        config: KafkaConfig,
        topics: Topics,
        *,
        apply: Callable[[KafkaDef, Sequence[Update]], None],
    ) -> list[str]:
        """Subscribe to the topics, and give up others; `apply` commits the updates. Return notes for the user, as
        sentences.

        Raises GroupInUseError while another Kafka table reads one of them for the group.
        """
        offsets = self._catalog.offsets.stored(self._uuid)
        found = [self._found(config, topics, topic, offsets) for topic in topics.ids]
        wanted = frozenset((topics.cluster, topics.ids[each.topic], each.group) for each in found)
        updates: list[Update] = []
        notes: list[str] = []
        if wanted != self._settled:
            updates += self._given_up(config, topics, wanted)
        stamped = self._stamped(topics, offsets)
        if stamped:
            before_stamps = {position: offsets[position] for position in stamped}
            updates.append(SetOffsets(kafka_table=self._uuid, offsets=stamped, before=before_stamps))
        own = offsets | stamped
        taken: dict[TopicPartition, StoredOffset] = {}
        for each in found:
            before = each.stored
            if before is not None and before.kafka_table == self._uuid and before.released is None:
                continue
            new = self._new(kafka, config, topics, each)
            updates.append(Subscribe(subscription=new, before=before, offsets=own))
            if before is not None and before.released:
                wanted_here, update, note = self._taken_over(before)
                taken |= wanted_here
                updates.append(update)
                notes.append(note)
        # All topics share one line of the ledger: a commit has no more.
        line = moved(self._uuid, stored=own, wanted=taken)
        if line is not None:
            updates.append(AddLedger(entry=line))
        if updates:
            apply(kafka, updates)
            _log.info("subscribed", table=full_name(kafka), group=config.group, topics=len(found), notes=len(notes))
        self._settled = wanted
        return notes

    def _found(
        self, config: KafkaConfig, topics: Topics, topic: str, offsets: Mapping[TopicPartition, StoredOffset]
    ) -> _Found:
        topic_id = topics.ids[topic]
        own_group = self._own_group(config)
        own = self._catalog.offsets.subscription(topics.cluster, topic_id, own_group)
        if own is not None and own.kafka_table == self._uuid:
            return _Found(topic, own_group, own)
        stored = self._catalog.offsets.subscription(topics.cluster, topic_id, config.group)
        if stored is None or stored.kafka_table == self._uuid or stored.released is not None:
            return _Found(topic, config.group, stored)
        ids = [each.topic_id for position, each in offsets.items() if position.topic == topic]
        if ids and not any(ids):
            # Older programs let several Kafka tables share a group, each with offsets of its own: they go on like that.
            return _Found(topic, own_group, None)
        holder = self._catalog.tables.by_id(stored.kafka_table)
        raise group_in_use(config, stored.name if holder is None else full_name(holder))

    def _new(self, kafka: KafkaDef, config: KafkaConfig, topics: Topics, each: _Found) -> Subscription:
        return Subscription(
            cluster=topics.cluster,
            topic_id=topics.ids[each.topic],
            group=each.group,
            topic=each.topic,
            kafka_table=self._uuid,
            name=full_name(kafka),
            brokers=config.brokers,
            since_ms=self._clock.now_ms(),
            targets=() if each.stored is None else each.stored.targets,
        )

    def _taken_over(self, before: Subscription) -> tuple[dict[TopicPartition, StoredOffset], ResolveGaps, str]:
        """Return the offsets of a subscription that the table takes over, the update of its own gaps, and the note."""
        assert before.released, "there is something to take over"
        note = f"goes on where group {before.group} stood: {standing(before.topic, before.released)}"
        wanted = {TopicPartition(before.topic, partition): stored for partition, stored in before.released}
        known = tuple(gap for gap in self._catalog.offsets.gaps(self._uuid) if not gap.resolution)
        update = ResolveGaps(kafka_table=self._uuid, resolution=note, partitions=frozenset(wanted), known=known)
        return wanted, update, f"{note}; {before.name} read it last"

    def _given_up(
        self, config: KafkaConfig, topics: Topics, wanted: frozenset[tuple[str, str, str]]
    ) -> Sequence[Release | Unsubscribe]:
        """Return the updates for those of this Kafka table's subscriptions that it does not need any more."""
        updates: list[Release | Unsubscribe] = []
        targets: frozenset[str] | None = None
        for each in self._catalog.offsets.subscriptions():
            if each.kafka_table != self._uuid or each.released is not None or each.key in wanted:
                continue
            is_read = each.topic in config.topics and each.group in (config.group, self._own_group(config))
            if is_read and each.cluster == topics.cluster:
                # The topic was deleted and made anew: nobody can read the old one.
                updates.append(Unsubscribe(subscription=each))
            else:
                if targets is None:
                    ledger = self._catalog.offsets.ledger(self._uuid)
                    # The ledger lacks the target of a view whose first round is just being committed.
                    views = {view.target for view in self._catalog.tables.views_of(self._uuid)}
                    targets = frozenset(views.union(*(entry.tables for entry in ledger)))
                updates.append(Release(subscription=each, targets=targets))
        return updates

    def _own_group(self, config: KafkaConfig) -> str:
        """The group under which it subscribes where another Kafka table shares its group from old times."""
        return f"{config.group}#{self._uuid}"

    def _stamped(
        self, topics: Topics, offsets: Mapping[TopicPartition, StoredOffset]
    ) -> dict[TopicPartition, StoredOffset]:
        """The offsets of older programs, which kept topic ids elsewhere, with the ids of their topics."""
        bare = {
            position: each for position, each in offsets.items() if not each.topic_id and position.topic in topics.ids
        }
        if not bare:
            return {}
        found = self._catalog.state.get(f"ingest/{self._uuid}/topics")
        old = {} if found is None else msgspec.msgpack.decode(found, type=dict[str, str])
        known = {**topics.ids, **{topic: topic_id_of(topic_id, topic) for topic, topic_id in old.items()}}
        return {
            position: msgspec.structs.replace(each, topic_id=known[position.topic]) for position, each in bare.items()
        }


def standing_of(catalog: Catalog, kafka: KafkaDef) -> str:
    """Describe the position of the group of a Kafka table that is being made, as far as the catalog knows it; empty:
    none.

    Brokers may prove later that it is another cluster or topic.
    """
    config = read_config(kafka)
    found = [
        standing(each.topic, each.released)
        for each in catalog.offsets.subscriptions()
        if each.released
        and each.group == config.group
        and each.topic in config.topics
        and not addresses(each.brokers).isdisjoint(addresses(config.brokers))
    ]
    return f"group {config.group} stood at {', '.join(found)}" if found else ""


def standing(topic: str, offsets: Sequence[tuple[int, StoredOffset]]) -> str:
    """Describe the position of a group on a topic: `t/0 at 120, t/1 at 99`."""
    named = ", ".join(f"{topic}/{partition} at {each.offset}" for partition, each in offsets[:_NAMED_MAX])
    more = len(offsets) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
