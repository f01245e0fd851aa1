"""A node's SQL over the lane's Spark, served over HTTP for Spark sessions of users in the same JVM."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark_world import SparkWorld
from tests.unit.fake_rooms import IDLE
from tilth.base.clock import SystemClock
from tilth.base.ids import random_id
from tilth.model.wire import Health
from tilth.query.snapshots.pins import Pins
from tilth.server import AppContext, HttpServer, build_app
from tilth.storage import local_root
from tilth.warehouse import QUERY_WAREHOUSE, WorkerSession

_WELL = Health(status="ok", version="0", server="s1", components={})


class ServedWorld(SparkWorld):
    """The same with an address."""

    def __init__(self, folder: Path, session: WorkerSession) -> None:
        super().__init__(folder, session)
        clock = SystemClock()
        self.pins = Pins(clock, self.catalog, root=local_root(folder / "tables"), server="s1")
        context = AppContext(
            clock=clock,
            statements=self.engine,
            snapshots=self.pins,
            health=lambda: _WELL,
            ready=lambda: _WELL,
            failed_services=dict,
            metrics=lambda: b"",
            maintenance=lambda: IDLE,
            ids=random_id,
        )
        self.server = HttpServer(clock, build_app(context), host="127.0.0.1", port=0)
        self.server.start()

    @property
    def url(self) -> str:
        return self.server.url

    def user_session(self) -> SparkSession:
        """A session as a user has one."""
        return self.session.new_session(pool=QUERY_WAREHOUSE)

    def stop(self) -> None:
        self.server.stop()
        super().stop()
