"""Messages of the two topics: one that grows, one that is deleted and made anew.

Covers: sending, the messages that the broker has acknowledged. Does not cover: their rows (checkers.py).
Always holds: messages are numbered from 0; an acknowledged one is in the topic once (the producer is idempotent).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tools.broker import Broker, BrokerError
from tools.jepsen.tables import OTHER_TOPIC, TOPIC, message

PERIOD_SECONDS = 0.2
MESSAGES_EACH = 10
FLUSH_SECONDS_MAX = 60.0
OTHER_SECONDS_MAX = 5.0
#: Errors after which the broker has not stored the message.
_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass
class Messages:
    """A producer that sends a few messages several times a second until it is stopped."""

    broker: Broker
    partitions: int = 2
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="messages", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return when the broker has acknowledged all messages, or FLUSH_SECONDS_MAX have passed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(FLUSH_SECONDS_MAX + PERIOD_SECONDS)

    def add_partition(self) -> None:
        self.broker.add_partitions(TOPIC, self.partitions + 1)
        self.partitions += 1

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "linger.ms": 20,
                "enable.idempotence": True,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 2000,
            }
        )
        while not self._over.wait(PERIOD_SECONDS):
            for _ in range(MESSAGES_EACH):
                self._send(producer)
            producer.poll(0)
        producer.flush(FLUSH_SECONDS_MAX)

    def _send(self, producer: Producer) -> None:
        number = self.sent

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.add(number)

        # The producer's queue is full while the broker is away.
        with suppress(BufferError, KafkaException):
            producer.produce(TOPIC, message(number), partition=number % self.partitions, on_delivery=delivered)
            self.sent += 1


@dataclass
class RenewedTopic:
    """A topic that is deleted and made anew when all of it has been consumed."""

    broker: Broker
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    #: `True` where the current topic may hold a message that was not acknowledged: its end is not known then.
    is_doubtful: bool = False
    #: `True` where a reset of offsets may take effect late, so that messages are read twice.
    may_repeat: bool = False

    def send(self) -> None:
        """Send a few messages, and return when each is acknowledged or has timed out."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "message.timeout.ms": int(OTHER_SECONDS_MAX * 1000),
            }
        )
        for number in range(self.sent, self.sent + MESSAGES_EACH):
            producer.produce(OTHER_TOPIC, message(number), partition=0, on_delivery=self._delivered(number))
        self.sent += MESSAGES_EACH
        if producer.flush(OTHER_SECONDS_MAX * 2):
            self.is_doubtful = True

    def renew(self) -> None:
        """Delete the topic and create it anew. Raises BrokerError, also where it was deleted and not created."""
        with suppress(BrokerError):
            self.broker.delete_topic(OTHER_TOPIC)
        self.broker.create_topic(OTHER_TOPIC, 1)

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        def done(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.add(number)
            elif error.code() not in _NO_TOPIC:
                self.is_doubtful = True

        return done


@dataclass(frozen=True, slots=True)
class Sent:
    """All messages that a run sends."""

    messages: Messages
    renewed: RenewedTopic | None
