"""A session of the lane's Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tilth.warehouse import WorkerSession


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    return spark.session
