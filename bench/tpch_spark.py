"""A Spark, plain or of a rival, that answers queries over Parquet files or Iceberg tables.

    python tpch_spark.py KIT WORK CORES MEMORY FOLDER

Reads one call from each line of its input, `[verb, arguments]`, and writes one line of JSON for each:

- `views {name: [path, ..]}`: each name is a view of these Parquet files.
- `iceberg {name: {"path", "columns", "order"}}`: each name is an Iceberg table with the rows of this file, in order.
- `query [text, in_iceberg]`: `{"seconds", "rows"}`, from the text to the rows in Python.

KIT and WORK are those of the kit of rivals; KIT is empty for a plain Spark. A rival's Spark runs in that rival's own
Python, which has no module of this project: this file imports none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_ICEBERG_DATABASE = "ice.tpch"


def _plain(cores: int, memory: str, folder: Path) -> SparkSession:
    settings = {
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _of_kit(kit: str, work: str, cores: int, memory: str, folder: Path) -> SparkSession:
    sys.path.insert(0, kit)
    import local_spark  # type: ignore[import-not-found]  # of the kit
    from work import WorkDir  # type: ignore[import-not-found]  # of the kit

    local_spark.DRIVER_MEMORY = memory
    local_spark.HEAP_TOUCHED = ""
    session: SparkSession = local_spark.open_spark(WorkDir(Path(work)), cores=cores, scratch=folder)
    return session


# Any, here and below: arguments and answers are described above.
def _views(session: SparkSession, arguments: Any) -> Any:
    for name, paths in arguments.items():
        session.read.parquet(*paths).createOrReplaceTempView(name)
    return len(arguments)


def _iceberg(session: SparkSession, arguments: Any) -> Any:
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {_ICEBERG_DATABASE}")
    for name, table in arguments.items():
        session.sql(f"CREATE TABLE {_ICEBERG_DATABASE}.{name} ({table['columns']}) USING iceberg")
        rows = session.read.parquet(table["path"]).coalesce(1).sortWithinPartitions(*table["order"].split(", "))
        rows.writeTo(f"{_ICEBERG_DATABASE}.{name}").append()
    return len(arguments)


def _query(session: SparkSession, arguments: Any) -> Any:
    text, in_iceberg = arguments
    if session.catalog.currentCatalog() != ("ice" if in_iceberg else "spark_catalog"):
        session.sql(f"USE {_ICEBERG_DATABASE}" if in_iceberg else "USE spark_catalog.default")
    began = time.perf_counter()
    table = session.sql(text).toArrow()
    seconds = time.perf_counter() - began
    rows = [[None if cell is None else str(cell) for cell in row.values()] for row in table.to_pylist()]
    return {"seconds": seconds, "rows": rows}


_VERBS = {"views": _views, "iceberg": _iceberg, "query": _query}


def main() -> None:
    kit, work, cores, memory, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    # Whatever else is printed must not come between the answers.
    os.dup2(2, 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if kit:
        session = _of_kit(kit, work, int(cores), memory, Path(folder))
    else:
        session = _plain(int(cores), memory, Path(folder))
    for line in sys.stdin:
        verb, arguments = json.loads(line)
        print(json.dumps(_VERBS[verb](session, arguments)), file=answers, flush=True)
    session.stop()


if __name__ == "__main__":
    main()
