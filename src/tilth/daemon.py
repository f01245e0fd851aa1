"""The process that Spark's Python workers are forked from: imports what every task needs once, before the forks.

Spark starts it instead of `pyspark.daemon` (property spark.python.daemon.module). A worker ends after a quiet minute
and with each task that fails; the next one costs milliseconds, where imports would last half a second. The process ends
when Spark closes its standard input, and ends the workers too.
"""

from __future__ import annotations

from tilth.base.importing import importing

with importing():
    import confluent_kafka  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import tilth.ingest.replay.spark
    import tilth.ingest.rounds.spark
    import tilth.maintenance.runners
    import tilth.query.worker.avro_spark
    import tilth.query.worker.changes_spark
    import tilth.query.worker.copy_spark
    import tilth.query.worker.export_spark
    import tilth.query.worker.file_shapes_spark
    import tilth.query.worker.lines_spark
    import tilth.query.worker.spark
    import tilth.query.worker.target_spark
    import tilth.query.worker.writing_spark
    import tilth.statements.inserts.bodies.spark
    import tilth.storage.read.overlay_spark
    import tilth.storage.read.spark
    import tilth.verify.spark
    import tilth.warehouse.session.beside_spark  # noqa: F401

__all__: list[str] = []

# Arrow's own threads are as many as Spark gives the task: one.
pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)

if __name__ == "__main__":
    manager()
