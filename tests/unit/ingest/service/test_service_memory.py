"""Rounds wait for memory where other writers are refused."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.catalog_world import SCHEMA, World
from tests.unit.ingest.consume_context import consume_context
from tilth.base.errors import TilthError
from tilth.base.memory import MemoryReading
from tilth.ingest.consumer.calls import BeginGranted, BeginRound
from tilth.ingest.service.memory_wait import MEMORY_WAIT_SECONDS_MAX
from tilth.ingest.service.service import KafkaService
from tilth.ingest.service.stats import EventLog
from tilth.model.lease import Fence
from tilth.model.table import KafkaDef
from tilth.storage import TableRoots

CALL = BeginRound(kafka_table="k", consumer=0, fence=Fence("f", 1), tasks=1, tables=(), ranges=())


class Granting:
    """Consumers that may all begin."""

    def begin(self, call: BeginRound) -> BeginGranted:
        return BeginGranted(txn=7, root=TableRoots({}), wait_ms=10)

    def slowed(self) -> str:
        return ""

    def refusing(self) -> str:
        return ""

    def broken(self) -> str:
        return ""


class Server:
    """A service that was not started, and the memory that it sees."""

    def __init__(self) -> None:
        world = World()
        self.clock = world.clock
        self.used = 0
        kafka = KafkaDef(uuid=world.kafka(), database="default", name="k", schema=SCHEMA)
        context = replace(consume_context(world), memory=lambda: MemoryReading(used=self.used, hard=1000, soft=800))
        self.service = KafkaService(context, EventLog(events_max=10), kafka)
        self.service._consumers = Granting()  # type: ignore[assignment]  # does what is called here


def test_the_wait_grows_from_the_soft_limit_on() -> None:
    server = Server()
    waits = []
    for used in (0, 800, 850, 900, 999):
        server.used = used
        waits.append(server.service.begin(CALL).wait_ms)
    assert waits == [10, 10, 250, 500, 995]
    assert "memory is at 100 % of its limit" in server.service.stats().reason
    server.used = 0
    server.service.begin(CALL)
    assert "memory" not in server.service.stats().reason


@pytest.mark.parametrize("is_freed", [True, False])
def test_above_the_hard_limit_it_waits_until_memory_is_freed_or_its_time_is_over(is_freed: bool) -> None:
    server = Server()
    server.used = 1001
    told: list[object] = []

    def begin() -> None:
        try:
            told.append(server.service.begin(CALL).txn)
        except TilthError as error:
            told.append(error.code)

    thread = threading.Thread(target=begin)
    thread.start()
    for _ in range(3):
        server.clock.advance(0.3)
        thread.join(0.02)
    assert told == []
    if is_freed:
        server.used = 100
    server.clock.advance(MEMORY_WAIT_SECONDS_MAX)
    thread.join(10)
    assert told == [7 if is_freed else "MEMORY_PRESSURE"]
