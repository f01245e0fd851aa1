"""A node's SQL over the lane's Spark, with an empty database, for each module; some modules add tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_world import SparkWorld
from tilth.warehouse import WorkerSession


@pytest.fixture(scope="module")
def world(spark: WorkerSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWorld]:
    made = SparkWorld(tmp_path_factory.mktemp("world"), spark)
    made.run("CREATE DATABASE shop", database="default")
    yield made
    made.stop()
