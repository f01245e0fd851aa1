"""A node's SQL over a real Spark and a catalog in memory, without its background services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.sql_world import fake_rooms
from tilth.base.clock import SystemClock
from tilth.base.errors import TilthError
from tilth.base.ids import random_id
from tilth.base.sources import GivenSettings
from tilth.catalog import Catalog, MemoryKV
from tilth.catalog.kv import KeyValue
from tilth.ingest import check_view, replay_letters
from tilth.maintenance.damage.checks import TaskChecks
from tilth.maintenance.damage.task_spark import check_runner
from tilth.model.table import TableDef
from tilth.model.task import TaskKind
from tilth.query.results.answer import Answer
from tilth.query.worker.query_cache import QueryCache
from tilth.query.worker.spark import InsertRunner, QueryRunner
from tilth.statements.engine import SqlEngine
from tilth.statements.inserts.bodies.spark import write_body
from tilth.storage import clean_transaction, local_root
from tilth.verify.spark import read_in_tasks
from tilth.warehouse import QUERY_WAREHOUSE, Dispatcher, EmbeddedWorker, WorkerSession


class SparkWorld:
    """A node's SQL without its background services."""

    def __init__(
        self,
        folder: Path,
        session: WorkerSession,
        *,
        settings: Mapping[str, str] | None = None,
        beside: SparkWorld | None = None,
    ) -> None:
        """`session`: is running; it outlives this. `settings`: those of the node. `beside`: another server over
        the same catalog and folder.
        """
        clock = SystemClock()
        self.folder = folder
        self.kv: KeyValue = MemoryKV() if beside is None else beside.kv
        #: The cache of the worker.
        self.cache = QueryCache()
        self.catalog = Catalog(
            self.kv,
            clock,
            "s1" if beside is None else "s2",
            random_id,
            is_checking=True,
            sweep=partial(clean_transaction, local_root(folder / "tables")),
        )
        self.session = session
        self.worker = EmbeddedWorker(clock, self.session, name="w1", memory_bytes=1 << 30)
        self.dispatcher = Dispatcher(clock, random_id, {QUERY_WAREHOUSE: [self.worker]}, slots={QUERY_WAREHOUSE: 4})
        rooms = fake_rooms(clock, random_id, self.catalog, root=local_root(folder / "tables"))
        self.engine = SqlEngine(replace(rooms, dispatcher=self.dispatcher), settings=GivenSettings(settings or {}))
        self.worker.register(
            TaskKind.QUERY,
            QueryRunner(self.engine.snapshots, check_view, replay_letters, read_in_tasks, cache=self.cache),
        )
        self.worker.register(TaskKind.CHECK, check_runner())
        self.worker.register(TaskKind.INSERT, InsertRunner(self.engine.snapshots, write_body, cache=self.cache))
        self.worker.start()
        self.dispatcher.start()
        self.engine.start()

    def checks(self) -> TaskChecks:
        """Return the checks of files that are reported as damaged."""
        return TaskChecks(self.catalog, self.dispatcher)

    def stop(self) -> None:
        self.engine.stop()
        self.dispatcher.stop()
        self.worker.stop()

    def run(self, text: str, *, database: str = "shop", **settings: str) -> Answer:
        return self.engine.run(text, database=database, settings={k.replace("__", "."): v for k, v in settings.items()})

    def rows(self, text: str, *, database: str = "shop", **settings: str) -> list[tuple[object, ...]]:
        table = self.run(text, database=database, **settings).table
        return [tuple(column[row].as_py() for column in table.columns) for row in range(table.num_rows)]

    def table(self, name: str) -> TableDef:
        """A table of the database `shop`."""
        found = self.catalog.tables.get("shop", name)
        assert isinstance(found, TableDef)
        return found

    def refused(self, text: str, *, database: str = "shop", **settings: str) -> TilthError:
        with pytest.raises(TilthError) as caught:
            self.run(text, database=database, **settings)
        return caught.value
