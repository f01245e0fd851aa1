"""A server in this process, and a session of a user that is attached to it, for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.served_world import ServedWorld
from tilth import attach
from tilth.warehouse import WorkerSession


@pytest.fixture(scope="module")
def world(spark: WorkerSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorld]:
    made = ServedWorld(tmp_path_factory.mktemp("served"), spark)
    made.run("CREATE DATABASE shop", database="default")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def user(world: ServedWorld) -> Iterator[SparkSession]:
    session = world.user_session()
    with attach(session, url=world.url):
        yield session
