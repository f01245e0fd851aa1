"""The Spark of the process, for the tests that share it; they leave the root session as they found it."""

from __future__ import annotations

import pytest

from tests.lane_spark import LaneSpark
from tilth.warehouse import WorkerSession


@pytest.fixture(scope="module")
def spark(lane_spark: LaneSpark) -> WorkerSession:
    """A running Spark that all tests share."""
    return lane_spark.running()
