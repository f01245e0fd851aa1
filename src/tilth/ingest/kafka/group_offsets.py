"""Offsets of a consumer group at the brokers, for lag monitors.

Covers: sending offsets, best effort. Does not cover: which offsets are right; the catalog knows that.
Always holds: no group is joined, nothing is read, and nobody waits for a broker, not even to close. The admin client
can send offsets too, but an assertion in librdkafka 2.16.1 ends the process if the coordinator's connection breaks
while it does (confluentinc/librdkafka#5397).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from tilth.base.logs import Log
from tilth.model.offset import TopicPartition

#: Time after which offsets that no coordinator accepts are dropped; newer ones follow.
GIVE_UP_SECONDS = 6
#: Events that the client library may hold between two calls; more are left for the next call.
EVENTS_MAX = 100_000

_log = Log("ingest")


class GroupOffsets:
    """Sends a group's offsets to its coordinator. One thread at a time."""

    # Any: settings of the client library.
    def __init__(self, table: str, settings: Mapping[str, Any]) -> None:
        """Raises the client library's errors for settings that it does not accept."""
        self._table = table
        self._is_sending = False
        self._consumer = confluent_kafka.Consumer(
            {
                **settings,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "session.timeout.ms": GIVE_UP_SECONDS * 1000,
                "heartbeat.interval.ms": GIVE_UP_SECONDS * 1000 // 3,
                "on_commit": self._on_sent,
            }
        )

    def send(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Send the offsets; do nothing while earlier ones are on their way."""
        # The client library calls `_sent` and drops what else it has to report.
        for _ in range(EVENTS_MAX):
            if self._consumer.poll(0) is None:
                break
        if self._is_sending:
            return
        positions = [confluent_kafka.TopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            _log.debug("offsets_not_sent", table=self._table, reason=error)
            return
        self._is_sending = True

    def close(self) -> None:
        """End the client's threads, in the background: a coordinator that is away would be waited for."""
        threading.Thread(target=self._consumer.close, name="tilth-group-offsets-end", daemon=True).start()

    # Any: what the client library gives.
    def _on_sent(self, error: Any, positions: Any) -> None:
        self._is_sending = False
        if error is not None:
            _log.debug("offsets_not_sent", table=self._table, reason=error)
