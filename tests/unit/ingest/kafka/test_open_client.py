"""When the client of a consumer stays open, and when the next round has a new one: over clients that are played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tilth.ingest.batch import MessageBatch, Numbers, Texts
from tilth.ingest.errors import BrokerUnavailableError
from tilth.ingest.kafka import fetch as fetching
from tilth.ingest.kafka import open_client
from tilth.ingest.kafka.fetch import SILENT_SECONDS
from tilth.ingest.kafka.librdkafka import LibraryError
from tilth.ingest.kafka.open_client import OPEN_SECONDS_MAX, OpenClient
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange
from tilth.testing import ManualClock

CONFIG = KafkaConfig(table="db.k", brokers="b:1", topics=("t",), group="g", format="JSONEachRow")


class PlayedClient:
    """A client of librdkafka: a poll gives the next messages of its topic partition, a few at a time."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self.assigned: list[tuple[str, int, int, int]] = []
        self.is_closed = False

    def assign(self, positions: Any) -> None:
        assert not self.is_closed
        self.assigned = list(positions)
        if not self.assigned and self._played.cannot_unassign:
            raise LibraryError("gone")
        self._played.positions.append(self.assigned)

    def poll(self, count_max: int, seconds_max: float) -> Numbers:
        [(topic, partition, offset, epoch)] = self.assigned
        if self._played.is_silent(self):
            self._played.clock.advance(seconds_max)
            return np.zeros(0, np.int64)
        offset += self._played.shift
        found = np.arange(offset, offset + min(count_max, 5))
        self.assigned = [(topic, partition, int(found[-1]) + 1, epoch)]
        return found

    def pause(self, topic: str, partition: int) -> None:
        raise AssertionError("a pause would outlast the round")

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class PlayedMessages:
    """As Polled, of which each pointer is an offset."""

    def __init__(self, offsets: Numbers, *, loader: object) -> None:
        self.offsets, self.errors = offsets, np.zeros(len(offsets), np.int32)

    def by_partition(self) -> Iterator[tuple[tuple[str, int], Numbers]]:
        if len(self.offsets):
            yield ("t", 0), np.arange(len(self.offsets))

    def leader_epoch(self, row: int) -> int:
        return 3

    def messages(self, rows: Numbers, *, has_headers: bool) -> MessageBatch:
        texts = Texts([b"%d" % offset for offset in self.offsets[rows].tolist()])
        return MessageBatch(texts, offsets=self.offsets[rows], keys=None, times=np.zeros(len(rows), np.int64))

    def __enter__(self) -> PlayedMessages:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to destroy."""


class Played:
    """All clients that were made, and an open client over them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.made: list[PlayedClient] = []
        self.positions: list[list[tuple[str, int, int, int]]] = []
        self.is_silent: Callable[[PlayedClient], bool] = lambda client: False
        self.check: Callable[[], None] = lambda: None
        self.cannot_unassign = False
        self.shift = 0
        monkeypatch.setattr(open_client, "PolledConsumer", self._make)
        monkeypatch.setattr(fetching, "Polled", PlayedMessages)
        self.client = self.another()

    def another(self) -> OpenClient:
        return OpenClient(self.clock, lambda: self.check())

    def read(self, start: int, end: int, client: OpenClient | None = None) -> list[int]:
        """Return the offsets that a round over the range has read."""
        wanted = [OffsetRange(topic="t", partition=0, start=start, end=end, epoch=2)]
        fetched = (client or self.client).fetch(self.clock, CONFIG, wanted, has_headers=False)
        return [offset for each in fetched for offset in each.messages.offsets.tolist()]

    def open_ones(self) -> list[PlayedClient]:
        return [each for each in self.made if not each.is_closed]

    def _make(self, settings: Mapping[str, object]) -> PlayedClient:
        self.made.append(PlayedClient(self))
        return self.made[-1]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    made = Played(monkeypatch)
    yield made
    made.client.close()
    assert made.open_ones() == []
    # Every place was given back.
    assert open_client._open._value == open_client.OPEN_CLIENTS_MAX


def test_rounds_in_turn_have_one_client_that_has_no_partitions_between_them(played: Played) -> None:
    for start in (0, 12, 24):
        assert played.read(start, start + 12) == list(range(start, start + 12))
    [client] = played.made
    assert client.assigned == []
    # Each round begins at its own position, with the epoch that proves its log.
    assert played.positions == [step for start in (0, 12, 24) for step in ([("t", 0, start, 2)], [])]


def test_a_client_whose_round_was_not_read_to_its_end_is_in_doubt(played: Played) -> None:
    wanted = [OffsetRange(topic="t", partition=0, start=0, end=12)]
    fetched = played.client.fetch(played.clock, CONFIG, wanted, has_headers=False)
    next(fetched)
    fetched.close()  # type: ignore[attr-defined]  # a generator
    assert played.open_ones() == []
    assert played.read(0, 12) == list(range(12))
    assert len(played.made) == 2


def test_a_cancelled_round_ends_between_two_polls(played: Played) -> None:
    played.read(0, 5)

    def cancelled() -> None:
        raise InterruptedError

    played.check = cancelled
    played.is_silent = lambda client: True
    with pytest.raises(InterruptedError):
        played.read(5, 10)
    assert played.open_ones() == []


def test_a_silent_client_is_replaced_by_a_new_one_which_stays(played: Played) -> None:
    played.read(0, 5)
    first = played.made[0]
    played.is_silent = lambda client: client is first
    assert played.read(5, 10) == [5, 6, 7, 8, 9]
    assert first.is_closed
    assert played.read(10, 15) == [10, 11, 12, 13, 14]
    assert len(played.made) == 2


def test_where_all_clients_are_silent_none_stays(played: Played) -> None:
    played.is_silent = lambda client: True
    with pytest.raises(BrokerUnavailableError, match="the next message does not come"):
        played.read(0, 5)
    assert len(played.made) == len(SILENT_SECONDS)
    assert played.open_ones() == []


def test_messages_before_the_position_end_the_client(played: Played) -> None:
    played.read(0, 5)
    played.shift = -3
    with pytest.raises(BrokerUnavailableError, match="a message comes twice: offset=2 next=5"):
        played.read(5, 10)
    assert played.open_ones() == []


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_client_that_was_idle_for_too_long_is_closed(played: Played, is_noticed: bool) -> None:
    played.read(0, 5)
    played.clock.advance(OPEN_SECONDS_MAX - 0.001)
    played.client.close_idle()
    assert len(played.open_ones()) == 1
    played.clock.advance(0.002)
    if is_noticed:
        played.client.close_idle()
        assert played.open_ones() == []
    played.read(5, 10)
    assert len(played.made) == 2
    assert played.made[0].is_closed


def test_a_client_without_a_place_is_closed_after_its_round(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_client, "_open", threading.BoundedSemaphore(1))
    other = played.another()
    played.read(0, 5)
    assert played.read(0, 5, other) == [0, 1, 2, 3, 4]
    assert played.open_ones() == [played.made[0]]
    # The place is free again once the other consumer ends.
    played.client.close()
    played.read(5, 10, other)
    assert len(played.open_ones()) == 1
    other.close()
    monkeypatch.undo()


def test_a_client_that_cannot_let_go_of_its_partitions_is_closed(played: Played) -> None:
    played.cannot_unassign = True
    assert played.read(0, 5) == [0, 1, 2, 3, 4]
    assert played.open_ones() == []
