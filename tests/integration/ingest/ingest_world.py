"""A server's ingestion over a real RocksDB, Spark and Kafka, with shorthands for what the tests say again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from tests.sql_world import fake_rooms
from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.catalog import Catalog, RocksKV
from tilth.ingest import (
    ConsumeContext,
    ConsumeManager,
    IngestSettings,
    check_view,
    consume_runner,
    replay_letters,
)
from tilth.model.service import ServiceStats
from tilth.model.table import Column, KafkaDef, Schema, TableDef, ViewDef
from tilth.model.task import TaskKind
from tilth.model.types import Kind, Simple
from tilth.query.worker.query_cache import QueryCache
from tilth.query.worker.spark import QueryRunner
from tilth.statements.engine import SqlEngine
from tilth.storage import arrow_schema, clean_transaction, data_folder, local_root, read_source, sources_of
from tilth.verify import VerifyReport, verify
from tilth.verify.spark import read_in_tasks
from tilth.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE, Dispatcher, EmbeddedWorker, WorkerSession

WAIT_SECONDS_MAX = 180.0
EVENTS = {"id": Kind.INT64, "name": Kind.STRING, "price": Kind.FLOAT64}


def schema_of(columns: Mapping[str, Kind]) -> Schema:
    named = enumerate(columns.items(), start=1)
    return Schema(columns=tuple(Column(id=i, name=name, type=Simple(kind)) for i, (name, kind) in named))


class IngestWorld:
    """One server; `close` and make another over the same folder to see a restart."""

    def __init__(self, folder: Path, session: WorkerSession, bootstrap: str) -> None:
        self.folder = folder
        #: Where Kafka tables read, and where `send` sends.
        self.bootstrap = self.send_to = bootstrap
        self.clock = SystemClock()
        self.catalog = Catalog(
            RocksKV(str(folder / "catalog")),
            self.clock,
            "s1",
            random_id,
            is_checking=True,
            sweep=partial(clean_transaction, local_root(folder / "tables")),
        )
        self.worker = EmbeddedWorker(self.clock, session, name="w1", memory_bytes=1 << 40)
        workers = {QUERY_WAREHOUSE: [self.worker], WRITE_WAREHOUSE: [self.worker]}
        self.dispatcher = Dispatcher(self.clock, random_id, workers, slots={QUERY_WAREHOUSE: 2, WRITE_WAREHOUSE: 2})
        self.root = local_root(folder / "tables")
        context = ConsumeContext(
            clock=self.clock,
            catalog=self.catalog,
            dispatcher=self.dispatcher,
            ids=random_id,
            settings=IngestSettings(manager_interval=0.5),
            root=self.root,
            server="s1",
        )
        self.manager = ConsumeManager(context)
        self.worker.register(TaskKind.CONSUME, consume_runner(self.clock, self.manager))
        rooms = fake_rooms(self.clock, random_id, self.catalog, root=self.root)
        self.engine = SqlEngine(replace(rooms, dispatcher=self.dispatcher, consume=self.manager))
        self.worker.register(
            TaskKind.QUERY,
            QueryRunner(self.engine.snapshots, check_view, replay_letters, read_in_tasks, cache=QueryCache()),
        )
        self.worker.start()
        self.dispatcher.start()
        self.manager.start()

    def close(self) -> None:
        self.manager.stop()
        self.dispatcher.stop()
        self.worker.stop()
        self.catalog.close()

    def sql(self, text: str) -> str:
        """Runs a statement; returns what it answers."""
        return self.engine.run(text).message

    def sql_rows(self, text: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.engine.run(text).table.to_pylist()
        return rows

    # --- definitions -------------------------------------------------------------------------------------------------

    def kafka(self, name: str, topics: str, columns: Mapping[str, Kind] = EVENTS, **settings: str) -> KafkaDef:
        given = {
            "kafka_broker_list": self.bootstrap,
            "kafka_topic_list": topics,
            "kafka_format": "JSONEachRow",
            "stream_flush_interval_ms": "100",
        }
        relation = KafkaDef(
            uuid=random_id(), database="default", name=name, schema=schema_of(columns), settings=given | settings
        )
        self.catalog.tables.create(relation)
        return relation

    def table(
        self,
        name: str,
        columns: Mapping[str, Kind] = EVENTS,
        *order_by: str,
        unique_key: tuple[str, ...] = (),
        schema: Schema | None = None,
        **more: Any,
    ) -> TableDef:
        relation = TableDef(
            uuid=random_id(),
            database="default",
            name=name,
            schema=schema or schema_of(columns),
            order_by=order_by or unique_key,
            unique_key=unique_key,
            **more,
        )
        self.catalog.tables.create(relation)
        return relation

    def view(self, name: str, source: KafkaDef, target: TableDef, select: str) -> ViewDef:
        relation = ViewDef(
            uuid=random_id(), database="default", name=name, source=source.uuid, target=target.uuid, select=select
        )
        self.catalog.tables.create(relation)
        self.manager.wake()
        return relation

    # --- what is there -----------------------------------------------------------------------------------------------

    def rows(self, table: TableDef | str) -> pa.Table:
        """All visible rows; NULL where a part is older than a column."""
        found = self.catalog.tables.get("default", table if isinstance(table, str) else table.name)
        assert isinstance(found, TableDef)
        snapshot = self.catalog.parts.snapshot(found.uuid)
        folder = data_folder(self.root, found.uuid)
        sources = sources_of(snapshot.table, snapshot.parts, snapshot.deltas)
        tables = [read_source(folder, source)[0] for source in sources]
        if not tables:
            return arrow_schema(found.schema).empty_table()
        return pa.concat_tables(tables, promote_options="default")

    def ids(self, table: TableDef) -> list[int]:
        values: list[int] = sorted(self.rows(table)["id"].to_pylist())
        return values

    def count(self, table: TableDef) -> int:
        return self.catalog.parts.snapshot(table.uuid).rows

    def stats(self, kafka: KafkaDef) -> ServiceStats:
        """The service's row, as soon as there is one."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            found = [each for each in self.manager.stats() if each.uuid == kafka.uuid]
            if found:
                return found[0]
            assert time.monotonic() < deadline, "no service"
            time.sleep(0.02)

    def verify(self, *tables: TableDef) -> list[VerifyReport]:
        """Asserts that every check holds."""
        reports = [verify(self.catalog, self.root, table) for table in tables]
        wrong = [check for report in reports for check in report.checks if not check.is_ok]
        assert not wrong, wrong
        return reports

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        wait_until(is_so, lambda: f"{what}: {self.manager.stats()}", seconds_max=WAIT_SECONDS_MAX)

    def wait_rows(self, table: TableDef, rows: int) -> None:
        self.wait(lambda: self.count(table) >= rows, f"{rows} rows in {table.name}")

    # --- messages ----------------------------------------------------------------------------------------------------

    def send(self, topic: str, values: Iterable[bytes | None], *, partitions: int = 1) -> None:
        """Message i goes to partition i mod n."""
        producer = Producer({"bootstrap.servers": self.send_to, "linger.ms": 5})
        for index, value in enumerate(values):
            producer.produce(topic, value, partition=index % partitions, key=f"k{index}".encode())
            producer.poll(0)
        assert producer.flush(30) == 0


def event(number: int, **changed: Any) -> bytes:
    """A message of the columns EVENTS."""
    return json.dumps({"id": number, "name": f"n{number % 7}", "price": number / 2} | changed).encode()


def events(start: int, end: int) -> list[bytes]:
    return [event(number) for number in range(start, end)]
