"""Messages that are read through the C interface of librdkafka are those that confluent-kafka's consumer gives."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tilth.base.clock import SystemClock
from tilth.ingest import BrokerUnavailableError
from tilth.ingest.errors import OffsetGapError
from tilth.ingest.kafka import fetch as fetching
from tilth.ingest.kafka import open_client
from tilth.ingest.kafka.fetch import fetch
from tilth.ingest.kafka.librdkafka import PolledConsumer
from tilth.ingest.kafka.messages import kernel_loader
from tilth.ingest.kafka.open_client import OpenClient
from tilth.ingest.rounds.round import Fetch
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange
from tools.broker import Broker
from tools.kafka_proxy import Api, Fate, KafkaProxy, Rule

PARTITIONS = 3
MESSAGES = 12_000
VALUES = [None, b"", b"\0", b'{"a": 1}', b"\xff\xfe", "ü".encode(), b"x" * 3_000]
KEYS = [None, b"", b"k", b"\xff\0"]
HEADERS: list[Any] = [
    None,
    [("h", b"v")],
    [("h", b"1"), ("h", b"2"), ("n", None), ("e", b""), ("", b"\xff\0")],
    [("ü" * 40, b"long" * 400)],
]
#: 0: the time of sending.
TIMES = [0, 1, 1_735_689_601_500, 1 << 50]
WITH, WITHOUT = kernel_loader(after_bytes=0), kernel_loader(after_bytes=1 << 62)

Message = tuple[str, int, int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module")
def topics(broker: Broker) -> list[str]:
    """Two topics of hostile messages, the second one with a hole of each transaction's end."""
    names = [f"fetch-{uuid.uuid4().hex[:8]}-{number}" for number in range(2)]
    chance = random.Random(5)
    for number, name in enumerate(names):
        broker.create_topic(name, PARTITIONS, {"message.timestamp.after.max.ms": str(1 << 62)})
        producer = Producer({"bootstrap.servers": broker.bootstrap} | ({"transactional.id": name} if number else {}))
        if number:
            producer.init_transactions()
        for begun in range(0, MESSAGES, 4_000):
            if number:
                producer.begin_transaction()
            for _ in range(begun, begun + 4_000):
                producer.produce(
                    name,
                    chance.choice(VALUES),
                    chance.choice(KEYS),
                    partition=chance.randrange(PARTITIONS),
                    headers=chance.choice(HEADERS),
                    timestamp=chance.choice(TIMES),
                )
                producer.poll(0)
            assert producer.flush(30) == 0
            if number:
                producer.commit_transaction()
    return names


@pytest.fixture(params=[WITH, WITHOUT], ids=["kernel", "plain"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LOADER", request.param)


def config_of(broker: Broker, topics: list[str], **more: Any) -> KafkaConfig:
    return KafkaConfig(
        table="db.k", brokers=broker.bootstrap, topics=tuple(topics), group="g", format="JSONEachRow", **more
    )


def expected(broker: Broker, topics: list[str]) -> list[Message]:
    """All messages by the client library's own consumer."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "oracle", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(name, number, 0) for name in topics for number in range(PARTITIONS)])
        while len(found) < MESSAGES * len(topics):
            for each in consumer.consume(1_000, 10):
                assert each.error() is None
                # Any: the library declares more kinds of headers than it gives.
                headers: Any = each.headers() or []
                found.append(
                    (
                        str(each.topic()),
                        int(each.partition() or 0),
                        int(each.offset() or 0),
                        each.value(),
                        each.key(),
                        each.timestamp()[1],
                        headers,
                    )
                )
    finally:
        consumer.close()
    return sorted(found, key=lambda message: message[:3])


def read(
    config: KafkaConfig, ranges: list[OffsetRange], *, has_headers: bool = True, by: Fetch = fetch
) -> list[Message]:
    return sorted(_messages(config, ranges, by, has_headers=has_headers), key=lambda message: message[:3])


def _messages(config: KafkaConfig, ranges: list[OffsetRange], by: Fetch, *, has_headers: bool) -> Iterator[Message]:
    for each in list(by(SystemClock(), config, ranges, has_headers=has_headers)):
        sent = each.messages
        assert sent.offsets.tolist() == sorted(sent.offsets.tolist())
        columns = zip(
            sent.offsets.tolist(), sent.values.items, sent.keys, sent.times.tolist(), sent.headers, strict=True
        )
        yield from ((each.topic, each.partition, *message[:-1], list(message[-1])) for message in columns)


@pytest.mark.usefixtures("loader")
def test_all_that_messages_have_is_what_the_client_library_gives(broker: Broker, topics: list[str]) -> None:
    wanted = expected(broker, topics)
    ends = {each[:2]: each[2] + 1 for each in wanted}
    ranges = [OffsetRange(topic=t, partition=p, start=0, end=end) for (t, p), end in ends.items()]
    config = config_of(broker, topics, isolation="read_committed")
    assert read(config, ranges) == wanted
    assert read(config, ranges, has_headers=False) == [(*each[:-1], []) for each in wanted]
    # Parts of the topic partitions, one of them empty, with ends inside of what one poll gives.
    some = [
        OffsetRange(topic=t, partition=p, start=100 * p, end=min(end, 100 * p + 777) if p else 0)
        for (t, p), end in ends.items()
    ]
    bounds = {(each.topic, each.partition): range(each.start, each.end) for each in some}
    assert read(config, some) == [each for each in wanted if each[2] in bounds[each[:2]]]


@pytest.mark.usefixtures("loader")
def test_what_cannot_be_read_is_said(broker: Broker, topics: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (0.4, 0.6))
    config = config_of(broker, topics)
    with pytest.raises(OffsetGapError, match=f"topic={topics[0]} partition=1"):
        read(config, [OffsetRange(topic=topics[0], partition=1, start=1 << 40, end=1 << 41)])
    late = OffsetRange(topic=topics[0], partition=2, start=MESSAGES // 4, end=MESSAGES * 2)
    with pytest.raises(BrokerUnavailableError, match="the next message does not come"):
        read(config, [late])
    with pytest.raises(BrokerUnavailableError, match=r"why=.*socket\.timeout\.ms"):
        read(config_of(broker, topics, library=(("socket.timeout.ms", "soon"),)), [late])


@pytest.mark.usefixtures("loader")
def test_a_reader_that_stops_early_leaves_nothing_behind(broker: Broker, topics: list[str]) -> None:
    whole = OffsetRange(topic=topics[0], partition=0, start=0, end=MESSAGES // 4)
    fetched = fetch(SystemClock(), config_of(broker, topics), [whole], has_headers=True)
    first = next(fetched)
    fetched.close()  # type: ignore[attr-defined]  # a generator
    assert first.messages.values.items[0] in VALUES
    assert len(read(config_of(broker, topics), [whole])) == MESSAGES // 4


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    with KafkaProxy() as made:
        yield made


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, java_home: Path, proxy: KafkaProxy) -> Iterator[Broker]:
    """A broker that is met through the proxy, and around it by those who send."""
    made = Broker(tmp_path_factory.mktemp("proxied") / "broker", java_home=java_home)
    made.start(proxy_port=proxy.port)
    proxy.connect(made.proxied_port)
    yield made
    made.stop()


def send_numbers(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def numbers_read(config: KafkaConfig, start: int, end: int, **more: Any) -> list[int]:
    wanted = OffsetRange(topic=config.topics[0], partition=0, start=start, end=end)
    return [int(each[3] or b"") for each in read(config, [wanted], **more)]


def test_a_client_that_lost_all_brokers_is_replaced(
    proxied: Broker, proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer names no brokers, as that of a broker that starts, and librdkafka asks nobody ever again."""
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (2.0, 30.0))
    proxied.create_topic("replaced")
    send_numbers(proxied, "replaced", range(100))
    config = KafkaConfig(table="db.k", brokers=proxy.address, topics=("replaced",), group="g", format="JSONEachRow")
    rule = proxy.add(Rule(Api.METADATA, Fate.NO_BROKERS))
    # It holds for the first client alone.
    made = Made(PolledConsumer, before_next=lambda: proxy.remove(rule))
    monkeypatch.setattr(fetching, "PolledConsumer", made)
    assert numbers_read(config, 0, 100) == list(range(100))
    assert rule.hits > 0
    assert len(made.clients) == 2


class Made:
    """Makes clients, and retains them; from the second one on after an act."""

    def __init__(
        self, make: Callable[[Any], PolledConsumer], *, before_next: Callable[[], None] = lambda: None
    ) -> None:
        self._make, self.before_next = make, before_next
        self.clients: list[PolledConsumer] = []

    def __call__(self, settings: Any) -> PolledConsumer:
        if self.clients:
            self.before_next()
        self.clients.append(self._make(settings))
        return self.clients[-1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """The clients that open clients make."""
    made = Made(PolledConsumer)
    monkeypatch.setattr(open_client, "PolledConsumer", made)
    return made


@pytest.fixture
def client() -> Iterator[OpenClient]:
    made = OpenClient(SystemClock(), lambda: None)
    yield made
    made.close()


def test_an_open_client_reads_each_round_from_its_own_position(
    broker: Broker, topics: list[str], client: OpenClient, made: Made
) -> None:
    """Rounds end before the messages do, so the client has always fetched more than it gave; some are read again, as
    after a commit that failed, and some topic partitions are left out.
    """
    wanted = expected(broker, topics)
    ends = {each[:2]: each[2] + 1 for each in wanted}
    config = config_of(broker, topics, isolation="read_committed")
    left, found, chance = dict.fromkeys(ends, 0), list[Message](), random.Random(7)
    while left:
        ranges = [
            OffsetRange(topic=t, partition=p, start=start, end=min(ends[t, p], start + chance.randrange(1, 900)))
            for (t, p), start in left.items()
            if chance.random() < 0.8
        ]
        for is_last in [False] * chance.randrange(3) + [True]:
            again = read(config, ranges, by=client.fetch)
            bounds = {(each.topic, each.partition): range(each.start, each.end) for each in ranges}
            assert again == [each for each in wanted if each[2] in bounds.get(each[:2], ())]
            found += again if is_last else []
        left |= {(each.topic, each.partition): each.end for each in ranges}
        left = {partition: start for partition, start in left.items() if start < ends[partition]}
    assert sorted(found, key=lambda message: message[:3]) == wanted
    assert len(made.clients) == 1


def test_an_open_client_that_does_not_answer_any_more_is_replaced(
    proxied: Broker, proxy: KafkaProxy, client: OpenClient, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (2.0, 30.0))
    proxied.create_topic("silent")
    send_numbers(proxied, "silent", range(100))
    config = KafkaConfig(table="db.k", brokers=proxy.address, topics=("silent",), group="g", format="JSONEachRow")
    assert numbers_read(config, 0, 40, by=client.fetch) == list(range(40))
    rule = proxy.add(Rule(Api.FETCH, Fate.DROP))
    made.before_next = lambda: proxy.remove(rule)
    assert numbers_read(config, 40, 70, by=client.fetch) == list(range(40, 70))
    assert rule.hits > 0
    # The new one stays.
    assert numbers_read(config, 70, 100, by=client.fetch) == list(range(70, 100))
    assert len(made.clients) == 2


def test_an_open_client_goes_on_after_its_broker_was_away_and_its_topic_made_anew(
    proxied: Broker, proxy: KafkaProxy, client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SILENT_SECONDS", (1.0, 30.0))
    proxied.create_topic("anew")
    send_numbers(proxied, "anew", range(100))
    config = config_of(proxied, ["anew"])
    assert numbers_read(config, 0, 50, by=client.fetch) == list(range(50))
    proxied.restart()
    proxy.connect(proxied.proxied_port)
    assert numbers_read(config, 50, 100, by=client.fetch) == list(range(50, 100))
    proxied.delete_topic("anew")
    proxied.create_topic("anew")
    send_numbers(proxied, "anew", range(1_000, 1_030))
    with pytest.raises(OffsetGapError):
        numbers_read(config, 100, 110, by=client.fetch)
    assert numbers_read(config, 0, 30, by=client.fetch) == list(range(1_000, 1_030))
