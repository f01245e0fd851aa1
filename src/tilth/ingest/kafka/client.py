"""Settings and errors of the Kafka client library, for all that uses it.

Covers: its settings for a Kafka table, its error codes, errors of Tilth for them. Does not cover: which settings a
table may have (library.py). Always holds: an error shows no secret.

Tests: tests/integration/ingest/test_fetch.py.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tilth.base.secrets import without_secrets
from tilth.ingest.errors import BrokerUnavailableError, UnknownTopicError
from tilth.ingest.settings import KafkaConfig

HINT = "check that the brokers run and that kafka_broker_list names them"
OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
UNKNOWN = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
)
#: Passing troubles that the client library mends by itself.
PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
_RECEIVE_BYTES_MIN = 100_000_000
_QUEUED_KIB = 16_384


def client_settings(config: KafkaConfig) -> dict[str, Any]:
    """Return the settings of any client."""
    return {
        "bootstrap.servers": config.brokers,
        "socket.connection.setup.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 1_000,
        # The client library's own lines would go to standard error, or into a queue that nobody empties; what matters
        # comes back as an error.
        "log_level": 0,
        **dict(config.library),
    }


def fetch_settings(config: KafkaConfig) -> dict[str, Any]:
    """Return the settings of a consumer. By small fetches the first message of a fresh one comes within 15 ms."""
    return {
        "group.id": config.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": config.isolation,
        "fetch.max.bytes": max(config.fetch_bytes, 1_000_000),
        "max.partition.fetch.bytes": config.fetch_bytes,
        "receive.message.max.bytes": max(_RECEIVE_BYTES_MIN, 2 * config.fetch_bytes),
        "queued.max.messages.kbytes": _QUEUED_KIB,
        "queued.min.messages": 100_000,
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 5,
        # The range must be whole and as it was sent.
        "check.crcs": True,
        **client_settings(config),
    }


def unavailable(config: KafkaConfig, error: object) -> BrokerUnavailableError:
    text = error.args[0].str() if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError) else error
    why = without_secrets(str(text), config.secrets) or "no answer"
    return BrokerUnavailableError(table=config.table, brokers=config.brokers, why=why, hint=HINT)


def unknown_topic(config: KafkaConfig, topic: str) -> UnknownTopicError:
    hint = "create the topic, or correct kafka_topic_list"
    return UnknownTopicError(table=config.table, topic=topic, brokers=config.brokers, hint=hint)
