"""Rounds without a broker and without services: a consumer over a topic of files, a real Spark and a catalog in memory.

A consumer runs in the test's thread until it has read the topic, or raises. The topic counts who fetched what.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.ingest.file_topic import FileTopic
from tests.integration.ingest.ingest_world import schema_of
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, MemoryKV, SetOffsets
from tilth.ingest.consumer.calls import ORDER_DECODER
from tilth.ingest.consumer.task import ResidentConsumer
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.ingest.service.consumers import Consumers
from tilth.ingest.service.context import ConsumeContext
from tilth.ingest.service.definitions import read_definitions
from tilth.ingest.service.reporter import Reporter
from tilth.ingest.service.stats import EventLog
from tilth.ingest.settings import IngestSettings
from tilth.model.offset import LedgerRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef, TableDef, ViewDef
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.model.txn import TxnState
from tilth.model.types import Kind
from tilth.storage import clean_transaction, data_folder, local_root, read_source, sources_of
from tilth.verify import verify
from tilth.warehouse import QUERY_WAREHOUSE, TaskContext, WorkerSession


class FileBroker:
    """As BrokerClient, for a consumer; ends it once it has read all that there is."""

    def __init__(self, topic: FileTopic, is_over: threading.Event) -> None:
        self._topic = topic
        self._is_over = is_over

    def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        ends = {place: len(self._topic.messages(place.partition)) for place in places}
        if isinstance(places, Mapping) and all(places[place] >= end for place, end in ends.items()):
            self._is_over.set()
        return {place: PartitionEnd(stable=Offset(end), high=Offset(end)) for place, end in ends.items()}

    def ids_and_ends(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[str, str], dict[TopicPartition, PartitionEnd]]:
        return {"topic": ""}, self.ends(partitions)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nothing is open."""


class RoundWorld:
    """One Kafka table with its views; `drain` it once or several times."""

    def __init__(self, folder: Path, spark: WorkerSession, **settings: str) -> None:
        self.root = local_root(folder / "tables")
        self.topic = FileTopic(folder / "topic")
        self.catalog = Catalog(
            MemoryKV(), SystemClock(), "s1", random_id, is_checking=True, sweep=partial(clean_transaction, self.root)
        )
        self.events = EventLog(events_max=1000)
        self._spark = spark
        given = {"kafka_broker_list": "none:1", "kafka_topic_list": "topic", "kafka_format": "JSONEachRow"}
        self._settings = given | {"stream_flush_interval_ms": "0", "kafka_round_tasks_max": "2"} | settings
        self.targets: dict[str, TableDef] = {}
        self.kafka: KafkaDef | None = None

    # --- definitions -------------------------------------------------------------------------------------------------

    def source(self, columns: Mapping[str, Kind]) -> KafkaDef:
        kafka = KafkaDef(
            uuid=random_id(), database="default", name="k", schema=schema_of(columns), settings=self._settings
        )
        self.catalog.tables.create(kafka)
        self.kafka = kafka
        return kafka

    def view(self, name: str, columns: Mapping[str, Kind], select: str, **table: Any) -> TableDef:
        """A view `name` into a table `to_name`."""
        assert self.kafka is not None
        schema = schema_of(columns)
        target = TableDef(uuid=random_id(), database="default", name=f"to_{name}", schema=schema, **table)
        self.catalog.tables.create(target)
        self.catalog.tables.create(
            ViewDef(
                uuid=random_id(),
                database="default",
                name=name,
                source=self.kafka.uuid,
                target=target.uuid,
                select=select,
            )
        )
        self.targets[name] = target
        return target

    # --- the consumer ------------------------------------------------------------------------------------------------

    def drain(self, partitions: int) -> None:
        """Runs a consumer until it has read the topic; raises what ends it."""
        assert self.kafka is not None
        clock, is_over = SystemClock(), threading.Event()
        seen = read_definitions(clock, self.catalog, random_id, self.kafka.uuid)
        dispatcher = _Dispatcher()
        reporter = Reporter(clock, self.events, self.kafka)
        served = ConsumeContext(
            clock=clock,
            catalog=self.catalog,
            dispatcher=dispatcher,  # type: ignore[arg-type]  # does what is called here
            ids=random_id,
            settings=IngestSettings(),
            root=self.root,
            server="s1",
        )
        consumers = Consumers(served, reporter, self.kafka)
        positions = self._positions([TopicPartition("topic", number) for number in range(partitions)])
        consumers.dispatch(0, seen, positions, when_ended=lambda ended: None)
        order = ORDER_DECODER.decode(dispatcher.payload)
        session = self._spark.new_session(pool=QUERY_WAREHOUSE)
        spec = dispatcher.new_spec(TaskKind.CONSUME, warehouse="write", table="default.k", payload=b"")
        fit = partial(self._spark.fit, session)
        context = TaskContext(spec=spec, session=session, cancelled=is_over, fit=fit)
        broker = FileBroker(self.topic, is_over)
        consumer = ResidentConsumer(
            clock,
            consumers,
            context,
            order,
            connect=lambda config: broker,  # type: ignore[arg-type,return-value]  # does what is called here
            fetch=self.topic.fetch,
            fetch_inline=self.topic.fetch,
        )
        try:
            consumer.run()
        finally:
            dispatcher.over.set()
            consumers.settle(0, "the test's consumer has ended")

    # --- what is there -----------------------------------------------------------------------------------------------

    def _positions(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """Return the positions at which to begin, stored as the service stores first positions."""
        assert self.kafka is not None
        uuid = self.kafka.uuid
        stored = self.catalog.offsets.stored(uuid)
        first = {place: StoredOffset(0, "") for place in places if place not in stored}
        if first:
            update = SetOffsets(kafka_table=uuid, offsets=first, before={})
            self.catalog.transactions.apply("offsets default.k", [update])
        return {place: first.get(place) or stored[place] for place in places}

    def table(self, name: str) -> TableDef:
        found = self.catalog.tables.get("default", name)
        assert isinstance(found, TableDef)
        return found

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Visible rows of a table."""
        snapshot = self.catalog.parts.snapshot(self.table(name).uuid)
        folder = data_folder(self.root, snapshot.table.uuid)
        sources = sources_of(snapshot.table, snapshot.parts, snapshot.deltas)
        return [row for source in sources for row in read_source(folder, source)[0].to_pylist()]

    def dead_letters(self) -> list[dict[str, Any]]:
        return self.rows("k_dead_letters") if self.catalog.tables.find("default", "k_dead_letters") else []

    def ledger(self) -> list[LedgerRange]:
        assert self.kafka is not None
        return [each for entry in self.catalog.offsets.ledger(self.kafka.uuid) for each in entry.ranges]

    def check(self) -> None:
        """VERIFY holds, and no file is there that nobody knows."""
        tables = [each for each in self.catalog.tables.list() if isinstance(each, TableDef)]
        for table in tables:
            wrong = [check for check in verify(self.catalog, self.root, table).checks if not check.is_ok]
            assert not wrong, wrong
        for txn in self.catalog.transactions.unfinished():
            assert txn.state is TxnState.ABORTED
            clean_transaction(self.root, txn)
        for table in tables:
            snapshot = self.catalog.parts.snapshot(table.uuid)
            named = {part.file.name for part in snapshot.parts} | {delta.file.name for delta in snapshot.deltas}
            folder = Path(data_folder(self.root, table.uuid))
            assert {path.name for path in folder.glob("*")} == named, table.name


class _Dispatcher:
    """Takes an order and runs nothing."""

    def __init__(self) -> None:
        self.payload = b""
        self.over = threading.Event()

    def new_spec(self, kind: TaskKind, *, warehouse: str, table: str, payload: bytes) -> TaskSpec:
        return TaskSpec(
            id="task1", kind=kind, warehouse=warehouse, table=table, txn=0, estimate=Cost(), payload=payload
        )

    def submit(self, spec: TaskSpec) -> _Handle:
        self.payload = spec.payload
        return _Handle(spec, self.over)

    def committing(self, task_id: str) -> None:
        """Nobody asks."""

    def round_began(self, task_id: str, *, input_bytes: int) -> None:
        """There are no slots."""

    def round_ended(self, task_id: str, actual: Cost | None = None) -> None:
        """There are no slots."""


@dataclass(frozen=True, slots=True)
class _Handle:
    spec: TaskSpec
    over: threading.Event

    @property
    def id(self) -> str:
        return self.spec.id

    def wait(self) -> None:
        self.over.wait()

    def cancel(self) -> None:
        self.over.set()
