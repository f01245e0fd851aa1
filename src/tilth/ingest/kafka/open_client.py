"""The client of a resident consumer, which stays connected between its small rounds.

Covers: how long a client stays open, how many do. Does not cover: reading with it (fetch.py), which rounds do
(policy/ranges.py).
Always holds: between two rounds a client has no topic partitions, so it requests nothing, and librdkafka drops what it
had fetched of the last ones; each round assigns its own positions, checked by their leader epochs as by a new client.
A client is used again only after it has read all of its last round; it has the settings of one consumer, whose end
closes it.

Tests: tests/integration/ingest/test_fetch.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from tilth.base.clock import Clock
from tilth.ingest.compiled import WITHOUT_KERNEL
from tilth.ingest.kafka.client import fetch_settings
from tilth.ingest.kafka.fetch import Fetched, fetch
from tilth.ingest.kafka.librdkafka import LibraryError, PolledConsumer
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange

#: Time after the last use in which a client is used again; later it is closed. Networks forget silent connections
#: after minutes.
OPEN_SECONDS_MAX = 30.0
#: Maximum number of clients of this process that stay open: each has a few threads, and a connection to each broker.
OPEN_CLIENTS_MAX = 64
#: Limit of what a client fetches ahead of a small round.
_QUEUED_KIB = 2_048

_open = threading.BoundedSemaphore(OPEN_CLIENTS_MAX)


class OpenClient:
    """The client of one consumer, or none. One thread at a time; close it."""

    def __init__(self, clock: Clock, check: Callable[[], None]) -> None:
        """`check` is called between two polls, and raises to end a fetch."""
        self._clock = clock
        self._check = check
        #: The client that stays open, and the time until which it does.
        self._idle: tuple[PolledConsumer, float] | None = None

    def fetch(
        self, clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool
    ) -> Iterator[Fetched]:
        """Yield messages as `fetch` does, by the client that is open; all calls have the same settings."""
        return fetch(
            clock,
            config,
            ranges,
            has_headers=has_headers,
            clients=self,
            check=self._check,
            loader=WITHOUT_KERNEL,
        )

    def open(self, config: KafkaConfig, *, is_replacement: bool) -> PolledConsumer:
        self.close_idle()
        idle = self._pop()
        if idle is not None and not is_replacement:
            return idle
        if idle is not None:
            idle.close()
        return PolledConsumer(fetch_settings(config) | {"queued.max.messages.kbytes": _QUEUED_KIB})

    def release(self, consumer: PolledConsumer, *, has_read_all: bool) -> None:
        if not has_read_all or not _open.acquire(blocking=False):
            consumer.close()
            return
        self._idle = (consumer, self._clock.monotonic() + OPEN_SECONDS_MAX)
        try:
            consumer.assign([])
        except LibraryError:
            self.close()

    def leave(self, consumer: PolledConsumer, partition: tuple[str, int]) -> None:
        """A pause would outlast the round; what is fetched until then is little."""

    def close_idle(self) -> None:
        """Close the client if it was not used for too long."""
        if self._idle is not None and self._clock.monotonic() >= self._idle[1]:
            self.close()

    def close(self) -> None:
        """Close the client, if there is one; the next fetch has a new one."""
        idle = self._pop()
        if idle is not None:
            idle.close()

    def _pop(self) -> PolledConsumer | None:
        idle, self._idle = self._idle, None
        if idle is None:
            return None
        _open.release()
        return idle[0]
