"""The subscriptions of one Kafka table: which topics it reads for its group, and the offsets of the group.

Covers: subscribing, taking over the offsets of a dropped Kafka table, releasing topics that are not read any more. Does
not cover: what is known without a broker (policy/groups.py), the table's own offsets (positions.py).
Always holds: one Kafka table at a time reads a topic for a group; its offsets and its subscription change in one
commit, which requires the subscriptions and offsets that it was computed from.

Tests: tests/unit/ingest/offsets/test_reset.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import AddLedger, Catalog, Release, ResolveGaps, Subscribe, Unsubscribe, Update
from tilth.ingest.kafka.metadata import Topics
from tilth.ingest.offsets.reset import moved
from tilth.ingest.policy.groups import addresses, group_in_use
from tilth.ingest.settings import KafkaConfig, read_config
from tilth.model.offset import StoredOffset, Subscription, TopicPartition
from tilth.model.table import KafkaDef, full_name

#: Offsets of a topic that a sentence names.
_NAMED_MAX = 8

_log = Log("ingest")


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
        found = {topic: self._find(config, topics, topic) for topic in topics.ids}
        wanted = frozenset((topics.cluster, topics.ids[topic], config.group) for topic in found)
        updates: list[Update] = []
        notes: list[str] = []
        if wanted != self._settled:
            updates += self._release_updates(config, topics, wanted)
        adopted: dict[TopicPartition, StoredOffset] = {}
        for topic, before in found.items():
            if before is not None and before.kafka_table == self._uuid and before.released is None:
                continue
            new = self._new(kafka, config, topics, topic, before)
            updates.append(Subscribe(subscription=new, before=before, offsets=offsets))
            if before is not None and before.released:
                wanted_here, update, note = self._takeover(before)
                adopted |= wanted_here
                updates.append(update)
                notes.append(note)
        # All topics share one line of the ledger: a commit has no more.
        line = moved(self._uuid, stored=offsets, wanted=adopted)
        if line is not None:
            updates.append(AddLedger(entry=line))
        if updates:
            apply(kafka, updates)
            _log.info("subscribed", table=full_name(kafka), group=config.group, topics=len(found), notes=len(notes))
        self._settled = wanted
        return notes

    def _find(self, config: KafkaConfig, topics: Topics, topic: str) -> Subscription | None:
        """Return the subscription of the group to the topic, as it is stored. Raises GroupInUseError."""
        stored = self._catalog.offsets.subscription(topics.cluster, topics.ids[topic], config.group)
        if stored is None or stored.kafka_table == self._uuid or stored.released is not None:
            return stored
        holder = self._catalog.tables.by_id(stored.kafka_table)
        raise group_in_use(config, stored.name if holder is None else full_name(holder))

    def _new(
        self, kafka: KafkaDef, config: KafkaConfig, topics: Topics, topic: str, before: Subscription | None
    ) -> Subscription:
        return Subscription(
            cluster=topics.cluster,
            topic_id=topics.ids[topic],
            group=config.group,
            topic=topic,
            kafka_table=self._uuid,
            name=full_name(kafka),
            brokers=config.brokers,
            since_ms=self._clock.now_ms(),
            targets=() if before is None else before.targets,
        )

    def _takeover(self, before: Subscription) -> tuple[dict[TopicPartition, StoredOffset], ResolveGaps, str]:
        """Return the offsets of a subscription that the table takes over, the update of its own gaps, and the note."""
        assert before.released, "there is something to take over"
        note = f"goes on where group {before.group} stood: {describe_offsets(before.topic, before.released)}"
        wanted = {TopicPartition(before.topic, partition): stored for partition, stored in before.released}
        known = tuple(gap for gap in self._catalog.offsets.gaps(self._uuid) if not gap.resolution)
        update = ResolveGaps(kafka_table=self._uuid, resolution=note, partitions=frozenset(wanted), known=known)
        return wanted, update, f"{note}; {before.name} read it last"

    def _release_updates(
        self, config: KafkaConfig, topics: Topics, wanted: frozenset[tuple[str, str, str]]
    ) -> Sequence[Release | Unsubscribe]:
        """Return the updates for those of this Kafka table's subscriptions that it does not need any more."""
        updates: list[Release | Unsubscribe] = []
        targets: frozenset[str] | None = None
        for each in self._catalog.offsets.subscriptions():
            if each.kafka_table != self._uuid or each.released is not None or each.key in wanted:
                continue
            is_read = each.topic in config.topics and each.group == config.group
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


def describe_group_offsets(catalog: Catalog, kafka: KafkaDef) -> str:
    """Describe the position of the group of a Kafka table that is being made, by the catalog; empty: none.

    Brokers may prove later that it is another cluster or topic.
    """
    config = read_config(kafka)
    found = [
        describe_offsets(each.topic, each.released)
        for each in catalog.offsets.subscriptions()
        if each.released
        and each.group == config.group
        and each.topic in config.topics
        and not addresses(each.brokers).isdisjoint(addresses(config.brokers))
    ]
    return f"group {config.group} stood at {', '.join(found)}" if found else ""


def describe_offsets(topic: str, offsets: Sequence[tuple[int, StoredOffset]]) -> str:
    """Describe the position of a group on a topic: `t/0 at 120, t/1 at 99`."""
    named = ", ".join(f"{topic}/{partition} at {each.offset}" for partition, each in offsets[:_NAMED_MAX])
    more = len(offsets) - _NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
