"""Batches of rows on their way from Spark to Python, bounded by their number where that bounds their bytes.

Spark measures a batch after each row that it adds, which takes twice as long as all else that it does for a row of five
columns. Where rows are known to be small, batches need not be measured.

Covers: rows of fixed size, and those with texts where whoever runs the job has the memory. Does not cover: jobs
(spark.py). Always holds: rows with binaries, lists, maps or variants are measured as Spark does.

Tests: tests/integration/warehouse/test_batches_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

#: Bytes of a batch of rows of fixed size.
BATCH_BYTES = 16 << 20
ROWS_MAX = 65_536
#: Rows of a batch with texts: as much memory as Spark lets a batch have where a row has 128 KiB.
TEXT_ROWS = 512
#: Most bytes of a value of fixed size: a decimal, and whether it is there.
_VALUE_BYTES = 17
_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Spark's number for no limit; it measures nothing then.
_UNLIMITED = str(2**31 - 1)


def batched(frame: DataFrame) -> DataFrame:
    """Return the frame in a session like its own, in which batches are bounded by their rows; itself where rows may be
    of any size, or its session sets a size.
    """
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql import SparkSession

    rows = rows_of_batch(field.dataType for field in frame.schema)
    # Any: handles of py4j have no types.
    session: Any = frame.sparkSession
    if not rows or session._jsparkSession.sessionState().conf().contains(_BYTES_SETTING):
        return frame
    clone = session._jsparkSession.cloneSession()
    clone.conf().set(_BYTES_SETTING, _UNLIMITED)
    clone.conf().set(_ROWS_SETTING, str(rows))
    plan = frame._jdf.queryExecution().analyzed()
    made = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(clone, plan)
    return Frame(made, SparkSession(session.sparkContext, clone))


def rows_of_batch(types: Iterable[DataType]) -> int:
    """Return how many rows a batch of these columns may have without being measured; 0: it must be."""
    from pyspark.sql.types import AnsiIntervalType, BooleanType, DatetimeType, NumericType, StringType

    leaves = [leaf for each in types for leaf in _leaves(each)]
    fixed = (NumericType, BooleanType, DatetimeType, AnsiIntervalType)
    if not leaves or not all(isinstance(leaf, (*fixed, StringType)) for leaf in leaves):
        return 0
    rows = max(1, min(ROWS_MAX, BATCH_BYTES // (_VALUE_BYTES * len(leaves))))
    return min(rows, TEXT_ROWS) if any(isinstance(leaf, StringType) for leaf in leaves) else rows


def _leaves(data_type: DataType) -> Iterator[DataType]:
    from pyspark.sql.types import StructType

    if not isinstance(data_type, StructType):
        yield data_type
        return
    for field in data_type:
        yield from _leaves(field.dataType)
