"""A Spark of our own for benchmarks: plain, two cores unless set otherwise, able to import Tilth in its tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.rivals import PROJECT

_END_SECONDS_MAX = 20


@contextmanager
def own_spark(*, cores: int, scratch: Path) -> Iterator[SparkSession]:
    """A session that ends with the block, its JVM too."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["POLARS_MAX_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-Xms3g -XX:+AlwaysPreTouch",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        gateway = session.sparkContext._gateway
        assert gateway is not None
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_SECONDS_MAX)
