"""One Spark for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tilth.warehouse import WorkerSession, warehouse_settings


@pytest.fixture(scope="module")
def spark(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = warehouse_settings({"warehouse.master": "local[2]", "warehouse.driver-memory": "1g"})
    owner = WorkerSession(settings, folder=str(folder / "spark"), log_folder=str(folder / "log"))
    owner.start()
    yield owner
    owner.stop()


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    return spark.session
