"""A server over an empty folder for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ingest.ingest_world import IngestWorld
from tilth.warehouse import WorkerSession
from tools.broker import Broker


@pytest.fixture
def world(tmp_path: Path, spark: WorkerSession, broker: Broker) -> Iterator[IngestWorld]:
    made = IngestWorld(tmp_path, spark, broker.bootstrap)
    yield made
    made.close()
