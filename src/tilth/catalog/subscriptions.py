"""Subscriptions of consumer groups to topics: what becomes of them when their Kafka table goes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tilth.model.offset import StoredOffset, Subscription, TopicPartition


def released(
    subscription: Subscription, offsets: Mapping[TopicPartition, StoredOffset], targets: Iterable[str]
) -> Subscription:
    """Return the subscription with the offsets of its topic among those of its Kafka table: where the group stands.

    `targets`: uuids of the tables that the Kafka table has written to.
    """
    kept = tuple(
        (position.partition, stored)
        for position, stored in sorted(offsets.items())
        if is_on(subscription, position, stored)
    )
    everything = tuple(sorted({*subscription.targets, *targets}))
    return msgspec.structs.replace(subscription, released=kept, targets=everything)


def is_on(subscription: Subscription, position: TopicPartition, stored: StoredOffset) -> bool:
    """True if the offset is one of the subscription's topic, and not of another one that had its name."""
    return position.topic == subscription.topic and stored.topic_id == subscription.topic_id
