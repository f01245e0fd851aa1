"""Consumer groups: two Kafka tables that would read one topic for one group, by their settings. Pure.

Covers: what can be known without a broker. Does not cover: subscriptions, by which brokers prove it
(offsets/subscriptions.py).
Always holds: tables of other brokers, topics or groups are never reported.

Tests: tests/unit/statements/definitions/test_kafka.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilth.base.settings import setting_of
from tilth.ingest.errors import GroupInUseError
from tilth.ingest.settings import KafkaConfig, group_of, read_config
from tilth.model.table import KafkaDef, Relation, full_name

_PORT = "9092"
_LOOPBACK = {"localhost": "127.0.0.1", "[::1]": "127.0.0.1"}


def check_group(kafka: KafkaDef, relations: Iterable[Relation]) -> None:
    """Raises GroupInUseError naming the Kafka table that reads one of the topics for the group already."""
    config = read_config(kafka)
    for other in relations:
        if isinstance(other, KafkaDef) and other.uuid != kafka.uuid and _overlap(config, read_config(other)):
            raise group_in_use(config, full_name(other))


def group_in_use(config: KafkaConfig, other: str) -> GroupInUseError:
    """An error that says what to do; `other`: `database.table`."""
    return GroupInUseError(
        table=config.table,
        group=config.group,
        topics=",".join(config.topics),
        read_by=other,
        hint=f"set kafka_group_name to another name, or drop {other}: its offsets are the group's",
    )


def reads_elsewhere(before: KafkaDef, after: KafkaDef) -> bool:
    """True if the changed definition reads other topics, or reads for another group."""
    old, new = read_config(before), read_config(after)
    return (old.brokers, old.topics, old.group) != (new.brokers, new.topics, new.group)


def pinned_group(kafka: KafkaDef) -> dict[str, str]:
    """The setting that keeps the table's group when the table gets another name."""
    return {setting_of(KafkaConfig, "group").name: group_of(kafka)}


def _overlap(one: KafkaConfig, other: KafkaConfig) -> bool:
    return (
        one.group == other.group
        and not set(one.topics).isdisjoint(other.topics)
        and not addresses(one.brokers).isdisjoint(addresses(other.brokers))
    )


def addresses(brokers: str) -> frozenset[str]:
    """The addresses of a broker list, each spelled in one way."""
    return frozenset(_address(each) for each in brokers.split(",") if each.strip())


def _address(text: str) -> str:
    host, colon, port = text.strip().lower().rpartition("://")[2].rpartition(":")
    if not colon:
        host, port = port, _PORT
    return f"{_LOOPBACK.get(host, host)}:{port}"
