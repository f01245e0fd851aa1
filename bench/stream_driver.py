"""Driver of a stream from files into a table, which bench/spark_streams.py kills.

    python -m bench.stream_driver URL TABLE SOURCE CHECKPOINT SCRATCH

Each file of the source is a batch; it ends when all files that are there have been written. Executors are processes of
their own, and a failed task is tried again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tilth

#: Executors, cores of each, and MiB that each may have.
_MASTER = "local-cluster[2,1,768]"


def main() -> None:
    url, table, source, checkpoint, scratch = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(Path(scratch) / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(_MASTER)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    with tilth.attach(session, url=url):
        rows = session.readStream.schema("a long, b string").option("maxFilesPerTrigger", 1).json(source)
        query = (
            rows.repartition(2)
            .writeStream.format("tilth")
            .option("checkpointLocation", checkpoint)
            .option("stream", "bench")
            .option("silence_seconds", 20)
            .trigger(availableNow=True)
            .start(table)
        )
        query.awaitTermination()


if __name__ == "__main__":
    main()
