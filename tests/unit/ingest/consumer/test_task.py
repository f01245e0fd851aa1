"""Rounds of a resident consumer beside ALTER STORAGE: without a broker or Spark, over folders of the local disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from tests.catalog_world import SCHEMA, World
from tests.unit.ingest.consume_context import consume_context
from tests.unit.ingest.consume_world import FakeDispatcher
from tilth.catalog import SetOffsets, StorageChangedError
from tilth.ingest.consumer import task as consumer_task
from tilth.ingest.consumer.calls import ORDER_DECODER, BeginGranted, ViewOrder
from tilth.ingest.consumer.task import REFUSALS_MAX, ResidentConsumer
from tilth.ingest.kafka.metadata import Offset, PartitionEnd
from tilth.ingest.kafka.open_client import OpenClient
from tilth.ingest.rounds.round import RoundFacts, RoundJob, WrittenTo
from tilth.ingest.service.consumers import Consumers
from tilth.ingest.service.definitions import Definitions
from tilth.ingest.service.reporter import Reporter
from tilth.ingest.service.stats import EventLog
from tilth.ingest.settings import read_config
from tilth.model.copy_note import CopyNote
from tilth.model.offset import LedgerRange, StoredOffset, TopicPartition
from tilth.model.storage import Storage
from tilth.model.table import KafkaDef, TableDef, ViewDef
from tilth.storage import (
    NamedRoots,
    TableRoots,
    begin_table,
    local_root,
    replicated_root,
    reserve_location,
    write_parts,
)
from tilth.warehouse import Parallelism

PARTITION = TopicPartition("topic", 0)
SETTINGS = {
    "kafka_broker_list": "b:9092",
    "kafka_topic_list": "topic",
    "kafka_format": "JSONEachRow",
    "kafka_round_tasks_max": "1",
    "stream_flush_interval_ms": "0",
}


class Rounds(World):
    """A resident consumer whose rounds write real files into a storage with replicas."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.folder = folder
        self.roots = NamedRoots(self.clock, local_root(folder / "default"), self.catalog.storage_of)
        self.catalog.follow_storages(self.follow)
        for name in ("one", "two"):
            reserve_location(local_root(folder / name))
        assert self.catalog.storages.create(self.defined(("one", "two")))
        self.follow()
        self.u = self.table("u", settings={"storage_policy": "r"})
        begin_table(self.roots.of(self.u), self.u)
        self.target = self.catalog.tables.by_id(self.u)
        assert isinstance(self.target, TableDef)
        kafka = self.catalog.tables.by_id(self.kafka())
        assert isinstance(kafka, KafkaDef)
        self.k = msgspec.structs.replace(kafka, settings=SETTINGS)
        self.commit(SetOffsets(kafka_table=self.k.uuid, offsets={PARTITION: StoredOffset(0, "")}, before={}))
        context = replace(consume_context(self), dispatcher=cast(Any, FakeDispatcher()), root=self.roots)
        self.consumers = Consumers(context, Reporter(self.clock, EventLog(events_max=10), self.k), self.k)
        self.end = 0
        #: Number of messages that the broker offers at a time.
        self.offered = 1
        #: Step that runs in each round after its files were written.
        self.meanwhile: Callable[[], None] = lambda: None
        self.over = threading.Event()
        monkeypatch.setattr(consumer_task, "run_round", self.run_round)
        monkeypatch.setattr(consumer_task, "constant_defaults", lambda *_: {})
        monkeypatch.setattr(ResidentConsumer, "_plan_views", lambda _: ())

    def defined(self, names: tuple[str, ...]) -> Storage:
        """The storage with these folders, of which `name again` is the folder `name`."""
        locations = [local_root(self.folder / name.split()[0]) for name in names]
        return Storage(name="r", root=replicated_root("r", locations, 2).text, replica_ids=names)

    def follow(self) -> None:
        self.roots.follow(self.catalog.storages.all)

    def alter(self, names: tuple[str, ...], *, is_heard: bool = True) -> None:  # type: ignore[override]
        """Change the replicas as another server does; `is_heard`: this server follows the change at once."""
        [before] = self.catalog.storages.all()
        for name in names:
            reserve_location(local_root(self.folder / name))
        new = [number for number, name in enumerate(names) if name not in before.replica_ids]
        notes = [CopyNote(table=self.u, replica=number, file=None, since_ms=1, reason="it is new") for number in new]
        stay = {self.u: [number for number in range(len(names)) if number not in new]}
        assert self.catalog.storages.replace(self.defined(names), before, notes, stay)
        for number in new:
            (self.folder / names[number] / self.u / "data").mkdir(parents=True, exist_ok=True)
            (self.folder / names[number] / self.u / ".tilth").touch()
        if is_heard:
            self.follow()

    def consume(self, messages: int) -> None:
        """Let the consumer read so many more messages, one a round."""
        self.end += messages
        self.over.clear()
        self.resident().run()

    def resident(self) -> ResidentConsumer:
        view = ViewDef(uuid="v", database="default", name="v", source=self.k.uuid, target=self.u, select="SELECT 1")
        assert isinstance(self.target, TableDef)
        seen = Definitions(
            kafka=self.k,
            config=read_config(self.k),
            views=(ViewOrder(view=view, target=self.target),),
            dead_letters=None,
        )
        stored = self.catalog.offsets.stored(self.k.uuid)
        self.consumers.dispatch(0, seen, stored, when_ended=lambda ended: None)
        dispatcher = cast(FakeDispatcher, self.consumers._dispatcher)
        spec = dispatcher.handles[-1].spec
        order = ORDER_DECODER.decode(spec.payload)
        context = SimpleNamespace(
            spec=spec,
            session=SimpleNamespace(),
            fit=lambda: Parallelism(tasks=1, cores=1, reason=""),
            cancelled=self.over,
            retiring=threading.Event(),
            tries_tasks_again=False,
            is_cancelled=self.over.is_set,
            waits_for=lambda _: None,
            raise_if_cancelled=lambda: None,
        )
        broker = cast(Any, FakeBroker(self))
        return ResidentConsumer(
            self.clock, self.consumers, cast(Any, context), order, connect=lambda config: broker, fetch=cast(Any, None)
        )

    def run_round(self, session: object, job: RoundJob, **_: object) -> RoundFacts:
        [[given]] = job.splits
        rows = pa.table({SCHEMA.columns[0].name: pa.array(range(given.start, given.end), pa.int64())})
        [part] = write_parts(job.layouts[self.u], rows, txn=job.txn, task=0, attempt=0)
        self.meanwhile()
        read = LedgerRange(
            topic="topic", partition=0, start=given.start, end=given.end, messages=1, rows=part.rows, dead=0
        )
        return RoundFacts(ranges=(read,), parts=(WrittenTo(table=self.u, part=part),))

    # --- what is there ---

    def copies(self, *names: str) -> list[int]:
        """How many of the table's files are in each of these folders."""
        files = [part.file.name for part in self.catalog.parts.snapshot(self.u).parts]
        return [sum((self.folder / name / self.u / "data" / file).exists() for file in files) for name in names]


class FakeBroker:
    """Broker that offers a few messages at a time; the consumer ends after the last one."""

    def __init__(self, world: Rounds) -> None:
        self._world = world

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        end = self._world.end
        if isinstance(partitions, Mapping):
            if partitions[PARTITION] >= end:
                self._world.over.set()
            return {
                PARTITION: PartitionEnd(
                    stable=Offset(min(end, partitions[PARTITION] + self._world.offered)), high=Offset(end)
                )
            }
        return {PARTITION: PartitionEnd(stable=Offset(end), high=Offset(end))}

    def ids_and_ends(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[dict[str, str], dict[TopicPartition, PartitionEnd]]:
        return {"topic": ""}, self.ends(partitions)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Do nothing: no test reads the broker's offsets."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(tmp_path, monkeypatch)


def test_each_round_writes_to_the_replicas_of_its_begin(world: Rounds) -> None:
    changes = {1: ("one", "four"), 3: ("one", "four", "five")}

    def between() -> None:
        """Change the replicas while the second and the fourth message are read, all by one consumer."""
        names = changes.pop(world.catalog.offsets.of(world.k.uuid).get(PARTITION, 0), ())
        if names:
            world.alter(names)

    world.meanwhile = between
    world.consume(6)
    files = len(world.catalog.parts.snapshot(world.u).parts)
    [one, two, four, five] = world.copies("one", "two", "four", "five")
    assert (files, one) == (6, 6)
    # The round during REPLACE was repeated; the round during ADD reached its quorum in the former replicas.
    assert (two, four, five) == (1, 5, 2)
    notes = {(note.replica, note.file is None) for note in world.catalog.copies.of(world.u)}
    assert notes == {(1, True), (2, True), (2, False)}


def test_the_open_client_ends_with_each_round_that_leaves_messages(
    world: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.k = msgspec.structs.replace(world.k, settings=SETTINGS | {"kafka_max_block_size": "1"})
    world.offered = 10
    closed: list[int] = []
    monkeypatch.setattr(OpenClient, "close", lambda _: closed.append(world.catalog.offsets.of(world.k.uuid)[PARTITION]))
    world.consume(3)
    # The last one left none, and its client ends with the consumer.
    assert closed == [1, 2, 3]
    world.offered = 1
    world.consume(3)
    assert closed == [1, 2, 3, 6]


def test_a_round_of_a_server_that_has_not_heard_is_refused_and_done_again(world: Rounds) -> None:
    world.consume(1)
    changes = iter([("one", "four")])

    def once() -> None:
        for names in changes:
            world.alter(names, is_heard=False)

    world.meanwhile = once
    world.consume(2)
    assert world.catalog.offsets.of(world.k.uuid)[PARTITION] == 3
    assert world.copies("one", "two", "four") == [3, 1, 2]
    rows = sum(part.rows for part in world.catalog.parts.snapshot(world.u).parts)
    assert rows == 3


def test_a_consumer_whose_rounds_are_refused_for_ever_ends_with_the_reason(world: Rounds) -> None:
    tries: list[int] = []

    def again() -> None:
        tries.append(1)
        world.alter(("one", f"x{len(tries)}"))

    world.meanwhile = again
    with pytest.raises(StorageChangedError):
        world.consume(1)
    assert len(tries) == REFUSALS_MAX
    assert world.catalog.offsets.of(world.k.uuid).get(PARTITION, 0) == 0


def test_the_roots_of_a_begin_travel_to_a_worker_elsewhere(world: Rounds) -> None:
    granted = BeginGranted(txn=7, root=TableRoots({world.u: world.roots.of(world.u)}))
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(granted), type=BeginGranted)
    assert arrived.root.of(world.u).replica_ids == ("one", "two")
