"""The server's side of one consumer: calls as its task makes them, without a task, a broker or Spark."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from tests.catalog_world import SCHEMA, World
from tests.unit.ingest.consume_context import consume_context
from tilth.catalog import SetOffsets
from tilth.ingest.consumer.calls import BeginGranted, BeginRound, RoundDone, WrittenSchema
from tilth.ingest.rounds.round import RoundFacts, WrittenTo
from tilth.ingest.service.consumers import Consumers
from tilth.ingest.service.definitions import Definitions
from tilth.ingest.service.reporter import Reporter
from tilth.ingest.service.state import ConsumerState
from tilth.ingest.service.stats import EventLog
from tilth.ingest.settings import read_config
from tilth.model.lease import Fence
from tilth.model.offset import LedgerRange, OffsetRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef
from tilth.model.task import Cost, TaskKind, TaskSpec

PARTITION = TopicPartition("topic", 0)


class FakeHandle:
    """A consumer that runs until it is cancelled."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.id = spec.id
        self._over = threading.Event()
        #: Reason why its task does not go on; empty: it does.
        self.in_the_way = ""

    def wait(self) -> None:
        self._over.wait(10)

    def cancel(self) -> None:
        self._over.set()

    def obstacle(self) -> str:
        return self.in_the_way


@dataclass
class FakeDispatcher:
    """Records the tasks whose commits begin."""

    committed: list[str] = field(default_factory=list)
    handles: list[FakeHandle] = field(default_factory=list)
    #: Rounds that use a slot.
    rounds: int = 0

    def new_spec(self, kind: TaskKind, *, warehouse: str, table: str, payload: bytes) -> TaskSpec:
        return TaskSpec(
            id="task1", kind=kind, warehouse=warehouse, table=table, txn=0, estimate=Cost(), payload=payload
        )

    def submit(self, spec: TaskSpec) -> FakeHandle:
        self.handles.append(FakeHandle(spec))
        return self.handles[-1]

    def committing(self, task_id: str) -> None:
        self.committed.append(task_id)

    def round_began(self, task_id: str, *, input_bytes: int) -> None:
        self.rounds += 1

    def round_ended(self, task_id: str, actual: Cost | None = None) -> None:
        self.rounds = 0


class Server:
    """The server's side of one consumer that was dispatched."""

    def __init__(self) -> None:
        self.world = World()
        uuid = self.world.kafka()
        kafka = self.world.catalog.tables.by_id(uuid)
        assert isinstance(kafka, KafkaDef)
        settings = {"kafka_broker_list": "b:9092", "kafka_topic_list": "topic", "kafka_format": "JSONEachRow"}
        self.kafka = KafkaDef(uuid=uuid, database="default", name="k", schema=SCHEMA, settings=settings)
        self.dispatcher = FakeDispatcher()
        self.reporter = reporter = Reporter(self.world.clock, EventLog(events_max=10), self.kafka)
        context = replace(
            consume_context(self.world),
            dispatcher=self.dispatcher,  # type: ignore[arg-type]  # does what is called here
        )
        self.consumers = Consumers(context, reporter, self.kafka)
        seen = Definitions(kafka=self.kafka, config=read_config(self.kafka), views=(), dead_letters=None)
        self.world.commit(SetOffsets(kafka_table=uuid, offsets={PARTITION: StoredOffset(0, "")}, before={}))
        self.consumers.dispatch(0, seen, {PARTITION: StoredOffset(0, "")}, when_ended=lambda ended: None)
        self.fence = Fence(f"consumer/{uuid}/0", 1)
        self.offset = 0

    def close(self) -> None:
        for handle in self.dispatcher.handles:
            handle.cancel()

    def begin(self, read: OffsetRange | None = None, *, fence: Fence | None = None) -> BeginGranted:
        """Begin a round that reads one message, or `read`."""
        call = BeginRound(
            kafka_table=self.kafka.uuid,
            consumer=0,
            fence=fence or self.fence,
            tasks=1,
            tables=(self.world.t,),
            ranges=(read or OffsetRange(topic="topic", partition=0, start=self.offset, end=self.offset + 1),),
        )
        return self.consumers.begin(call)

    def round(self, partition: str, *, version: int | None = None) -> float:
        """Commit a round of one message and one part; return the time that it has to wait before it writes."""
        granted = self.begin()
        given = LedgerRange(
            topic="topic", partition=0, start=self.offset, end=self.offset + 1, messages=1, rows=10, dead=0
        )
        done = RoundDone(
            kafka_table=self.kafka.uuid,
            consumer=0,
            fence=self.fence,
            txn=granted.txn,
            facts=RoundFacts(
                ranges=(given,), parts=(WrittenTo(table=self.world.t, part=self.world.written(partition)),)
            ),
            schemas=(WrittenSchema(table=self.world.t, version=version or self.world.definition().schema_version),),
            seconds=0.1,
        )
        self.consumers.commit(done)
        self.offset += 1
        return granted.wait_ms

    def stored(self) -> int:
        return self.world.catalog.offsets.of(self.kafka.uuid).get(PARTITION, 0)

    def slowed(self) -> str:
        return self.consumers.stats(0, [], state=ConsumerState.RUNNING).slowed


def replaced(server: Server) -> Fence:
    """Dispatch another consumer instead of the first one; return its fence."""
    seen = Definitions(kafka=server.kafka, config=read_config(server.kafka), views=(), dead_letters=None)
    start = StoredOffset(server.offset, "")
    server.consumers.dispatch(0, seen, {PARTITION: start}, when_ended=lambda ended: None)
    return Fence(server.fence.name, server.fence.epoch + 1)


def begin(server: Server, fence: Fence) -> int:
    """Begin a round of the first message; return its transaction."""
    return server.begin(OffsetRange(topic="topic", partition=0, start=0, end=1), fence=fence).txn


def done(server: Server, fence: Fence, txn: int, *, may_have_retried: bool = False) -> RoundDone:
    """Return the commit of this round, with one part."""
    read = LedgerRange(topic="topic", partition=0, start=0, end=1, messages=1, rows=10, dead=0)
    written = WrittenTo(table=server.world.t, part=server.world.written("a"))
    return RoundDone(
        kafka_table=server.kafka.uuid,
        consumer=0,
        fence=fence,
        txn=txn,
        facts=RoundFacts(ranges=(read,), parts=(written,)),
        schemas=(WrittenSchema(table=server.world.t, version=1),),
        seconds=0.1,
        may_have_retried=may_have_retried,
    )
