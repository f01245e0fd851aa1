"""A broker whose answers to single kinds of requests get lost, come late, are cut in the middle or name no broker:
consumption waits and goes on by itself; no gap is found where there is none, no wrong offset is stored, nothing is lost
or read twice.

All cases run side by side, each with a topic, a Kafka table and a client id of its own, by which the proxy tells them
apart. TILTH_PROXY_CASES=all runs every kind, fate and moment; TILTH_PROXY_SEED chooses another third of them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product
from pathlib import Path

import pytest

from tests.integration.ingest.ingest_world import EVENTS, WAIT_SECONDS_MAX, IngestWorld, events
from tests.lane_spark import session_of, settings_of
from tilth.base.errors import UnavailableError
from tilth.ingest import BrokerUnavailableError, OffsetMark, ToMark, ToTime
from tilth.ingest.kafka import broker as kafka_client
from tilth.model.offset import TopicPartition
from tilth.model.table import KafkaDef, TableDef
from tilth.warehouse import WorkerSession
from tools.broker import Broker
from tools.kafka_proxy import Api, Fate, KafkaProxy, Rule

APIS = (Api.LIST_OFFSETS, Api.FETCH, Api.METADATA, Api.OFFSET_FOR_LEADER_EPOCH, Api.API_VERSIONS)
#: Requests for lag monitors only: nothing depends on them.
OTHER_APIS = (Api.FIND_COORDINATOR, Api.OFFSET_COMMIT)
PARTITIONS = 2
#: Messages before, while and after answers get lost.
FIRST, WHILE, AFTER = 200, 200, 200
REQUEST_SECONDS = 1.5
#: Time for which answers get lost: longer than the time limit of any request.
TROUBLE_SECONDS = 6.0
LIBRARY = "socket.timeout.ms=2000;api.version.request.timeout.ms=2000;reconnect.backoff.max.ms=200"


class Moment(Enum):
    """When answers begin to get lost."""

    START = auto()
    MID_STREAM = auto()
    RESET = auto()


@dataclass(frozen=True, slots=True)
class Case:
    api: Api
    fate: Fate
    moment: Moment

    @property
    def name(self) -> str:
        return f"{self.api.name}_{self.fate.name}_{self.moment.name}".lower()


def cases() -> list[Case]:
    """Every kind with every fate, each at one moment; or all of them."""
    if os.environ.get("TILTH_PROXY_CASES") == "all":
        every = [Case(*each) for each in product((*APIS, *OTHER_APIS), Fate, Moment)]
        return [each for each in every if each.api is Api.METADATA or each.fate is not Fate.NO_BROKERS]
    seed = int(os.environ.get("TILTH_PROXY_SEED", "0"))
    moments = list(Moment)
    random.Random(seed).shuffle(moments)
    return [
        Case(api, fate, moments[(row + column + seed) % len(moments)])
        for row, api in enumerate(APIS)
        for column, fate in enumerate(Fate)
        if api is Api.METADATA or fate is not Fate.NO_BROKERS
    ]


@pytest.fixture(scope="module")
def spark(no_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSession]:
    """More tasks at once than cores: most of them wait for answers that do not come."""
    session = session_of(settings_of(master="local[8]"), tmp_path_factory.mktemp("spark"))
    session.start()
    session.warm()
    yield session
    session.stop()


@pytest.fixture
def proxy() -> Iterator[KafkaProxy]:
    with KafkaProxy() as made:
        yield made


@pytest.fixture
def proxied(java_home: Path, tmp_path: Path, proxy: KafkaProxy) -> Iterator[Broker]:
    """A broker that is met through the proxy, and around it by those who send."""
    made = Broker(tmp_path / "broker", java_home=java_home)
    made.start(proxy_port=proxy.port)
    proxy.connect(made.proxied_port)
    yield made
    made.stop()


class Run:
    """One case in the world of all."""

    def __init__(self, world: IngestWorld, broker: Broker, proxy: KafkaProxy, case: Case) -> None:
        self._world, self._proxy, self._case = world, proxy, case
        self._topic = case.name.replace("_", "-")
        self._sent = 0
        broker.create_topic(self._topic, PARTITIONS)
        self.kafka: KafkaDef = world.kafka(
            f"k_{case.name}", self._topic, kafka_client_id=case.name, kafka_extra_librdkafka_config=LIBRARY
        )
        self.target: TableDef = world.table(f"t_{case.name}", EVENTS, "id")

    def go(self) -> None:
        """Raises AssertionError where something is lost, twice, or taken for a gap."""
        world, rule = self._world, Rule(self._case.api, self._case.fate, self._case.name, seconds=2 * TROUBLE_SECONDS)
        self._send(FIRST)
        if self._case.moment is Moment.START:
            self._proxy.add(rule)
        world.view(f"v_{self._case.name}", self.kafka, self.target, f"SELECT * FROM {self.kafka.name}")
        if self._case.moment is not Moment.START:
            self._wait_rows()
            self._proxy.add(rule)
        if self._case.moment is Moment.RESET:
            self._reset()
        self._send(WHILE)
        self._wait(lambda: rule.hits > 0, "an answer is lost")
        time.sleep(TROUBLE_SECONDS)
        self._proxy.remove(rule)
        self._send(AFTER)
        self._wait_rows()
        assert world.ids(self.target) == list(range(self._sent))
        stored = world.catalog.offsets.of(self.kafka.uuid)
        half = self._sent // PARTITIONS
        assert stored == {TopicPartition(self._topic, n): half for n in range(PARTITIONS)}
        assert world.catalog.offsets.gaps(self.kafka.uuid) == []
        world.verify(self.target)

    def _reset(self) -> None:
        """All is read, so offsets stay where they are: by a right answer, or because the reset is refused."""
        before = self._world.catalog.offsets.of(self.kafka.uuid)
        late = ToTime(self._world.clock.now_ms() + 3_600_000)
        for reset in (late, ToMark(OffsetMark.STORED), ToMark(OffsetMark.END)):
            with suppress(BrokerUnavailableError, UnavailableError):
                assert self._world.manager.reset_offsets(self.kafka.uuid, reset) == before
            assert self._world.catalog.offsets.of(self.kafka.uuid) == before

    def _send(self, count: int) -> None:
        self._world.send(self._topic, events(self._sent, self._sent + count), partitions=PARTITIONS)
        self._sent += count

    def _wait_rows(self) -> None:
        self._wait(lambda: self._world.count(self.target) >= self._sent, f"{self._sent} rows")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, f"{what}; {self._world.count(self.target)} rows"
            time.sleep(0.1)


def test_answers_that_get_lost_come_late_or_are_cut(
    tmp_path: Path, spark: WorkerSession, proxied: Broker, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "REQUEST_SECONDS_MAX", REQUEST_SECONDS)
    world = IngestWorld(tmp_path / "node", spark, proxy.address)
    world.send_to = proxied.bootstrap
    try:
        runs = [Run(world, proxied, proxy, case) for case in cases()]
        wrong = []
        with ThreadPoolExecutor(len(runs)) as pool:
            for run, future in [(run, pool.submit(run.go)) for run in runs]:
                error = future.exception()
                if error is not None:
                    told = world.stats(run.kafka)
                    wrong.append(f"{run.kafka.name}: {error!r}\n  {told.reason}\n  {told.last_exception}")
        assert not wrong, "\n".join(wrong)
    finally:
        world.close()
