"""Offsets on their way to a consumer group's coordinator: one at a time, and nobody waits."""

from __future__ import annotations

import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from tilth.ingest.kafka.group_offsets import GroupOffsets
from tilth.model.offset import TopicPartition

A = TopicPartition("a", 0)


class Library:
    """A Consumer of the client library whose coordinator answers when the test says so."""

    # Any: what the library takes and hands out.
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.sent: list[int] = []
        self.is_refusing = False
        #: Calls that the next `poll` makes.
        self.answers: list[Any] = []
        self.may_close = threading.Event()
        self.closed = threading.Event()

    def poll(self, timeout: float) -> None:
        assert timeout == 0
        for error in self.answers:
            self.settings["on_commit"](error, [])
        self.answers = []

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert asynchronous
        if self.is_refusing:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sent.append(offsets[0].offset)

    def close(self) -> None:
        assert self.may_close.wait(10)
        self.closed.set()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> GroupOffsets:
    monkeypatch.setattr(confluent_kafka, "Consumer", Library)
    return GroupOffsets("db.k", {"group.id": "g", "enable.auto.commit": True, "session.timeout.ms": 45_000})


def library_of(group: GroupOffsets) -> Library:
    found: Any = group._consumer
    assert isinstance(found, Library)
    return found


def test_offsets_do_not_pile_up(group: GroupOffsets) -> None:
    library = library_of(group)
    for offset in (5, 6, 7):
        group.send({A: offset})
    assert library.sent == [5]
    library.answers = [None]
    group.send({A: 8})
    assert library.sent == [5, 8]
    library.answers = [KafkaError(KafkaError._TRANSPORT)]
    group.send({A: 9})
    assert library.sent == [5, 8, 9]


def test_offsets_that_the_library_does_not_take_are_followed_by_others(group: GroupOffsets) -> None:
    library = library_of(group)
    library.is_refusing = True
    group.send({A: 5})
    library.is_refusing = False
    group.send({A: 6})
    assert library.sent == [6]


def test_nobody_waits_for_a_coordinator_that_does_not_answer(group: GroupOffsets) -> None:
    library = library_of(group)
    group.close()
    assert not library.closed.is_set()
    library.may_close.set()
    assert library.closed.wait(10)


def test_the_client_commits_nothing_by_itself(group: GroupOffsets) -> None:
    settings = library_of(group).settings
    assert (settings["enable.auto.commit"], settings["enable.auto.offset.store"]) == (False, False)
    assert settings["session.timeout.ms"] < 10_000
