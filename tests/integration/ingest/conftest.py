"""One Spark for all tests of this folder; a server over an empty folder for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ingest.ingest_world import IngestWorld
from tilth.warehouse import WorkerSession, warehouse_settings
from tools.broker import Broker


@pytest.fixture(scope="module")
def spark(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = warehouse_settings({"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"})
    session = WorkerSession(settings, folder=str(folder / "spark"), log_folder=str(folder / "log"))
    session.start()
    session.warm()
    yield session
    session.stop()


@pytest.fixture
def world(tmp_path: Path, spark: WorkerSession, broker: Broker) -> Iterator[IngestWorld]:
    made = IngestWorld(tmp_path, spark, broker.bootstrap)
    yield made
    made.close()
