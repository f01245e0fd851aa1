"""Batches of rows on their way from Spark to Python, bounded by their number where that bounds their bytes.

Spark measures a batch after each row that it adds, which takes twice as long as all else that it does for a row of five
columns. Where rows are known to be small, batches need not be measured.

Covers: rows of fixed size, those with texts where whoever runs the job has the memory, and rows that fail the job when
they are large, so that it can be run again with batches that are measured. Does not cover: jobs (spark.py). Always
holds: rows with lists, maps or variants are measured as Spark does.

Tests: tests/integration/warehouse/test_batches_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from tilth.model.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

#: Bytes of a batch of rows of fixed size.
BATCH_BYTES = 16 << 20
ROWS_MAX = 65_536
#: Rows of a batch with texts or binaries: as much memory as Spark lets a batch have where a row has 128 KiB.
TEXT_ROWS = 512
#: Most bytes of a value of fixed size: a decimal, and whether it is there.
_VALUE_BYTES = 17
#: Bytes of the texts and binaries of a row up to which `of_small_rows` lets it pass: a batch has 64 MiB then.
SMALL_ROW_BYTES = 128 << 10
#: Text of the error for a row that is larger.
_MARK = "tilth: a row is larger than SMALL_ROW_BYTES"
_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: Spark's number for no limit; it measures nothing then.
_UNLIMITED = str(2**31 - 1)


def batched(frame: DataFrame) -> DataFrame:
    """Return the frame in a session like its own, in which batches are bounded by their rows; itself where rows may be
    of any size, or its session sets a size.
    """
    from pyspark.sql.types import BinaryType

    # Any: handles of py4j have no types.
    session: Any = frame.sparkSession
    has_binaries = any(isinstance(leaf, BinaryType) for leaf in _leaves(frame.schema))
    if has_binaries or session._jsparkSession.sessionState().conf().contains(_BYTES_SETTING):
        return frame
    rows = rows_of_batch(frame.schema)
    return _in_clone(frame, rows) if rows else frame


def of_small_rows(frame: DataFrame) -> DataFrame:
    """Return the frame in a session like its own, in which batches are bounded by their rows; itself where they cannot
    be. A job over it fails at a row that is not small; `has_large_row` finds that in its error.
    """
    return _in_clone(with_small_rows(frame), rows_of_batch(frame.schema)) if can_count(frame.schema) else frame


def can_count(schema: StructType) -> bool:
    """Return whether the size of a row follows from the lengths of its texts and binaries, none of which is nested."""
    from pyspark.sql.types import StructType

    structs = [field.dataType for field in schema if isinstance(field.dataType, StructType)]
    has_inner = any(isinstance(leaf, _sized_types()) for each in structs for leaf in _leaves(each))
    return not has_inner and rows_of_batch(schema) > 0


def with_small_rows(frame: DataFrame) -> DataFrame:
    """Return the frame, a job over which fails at a row whose texts and binaries have more than SMALL_ROW_BYTES."""
    from pyspark.sql import functions

    names = [field.name for field in frame.schema if isinstance(field.dataType, _sized_types())]
    if not names:
        return frame
    sizes = [functions.coalesce(functions.octet_length(quoted(name)), functions.lit(0)) for name in names]
    total = reduce(lambda one, other: one + other, sizes)
    fails = functions.raise_error(functions.lit(_MARK)).cast("boolean")
    return frame.where(functions.when(total > SMALL_ROW_BYTES, fails).otherwise(functions.lit(True)))


def has_large_row(error: BaseException) -> bool:
    """Return whether a job over `of_small_rows` has failed at a row that is not small."""
    return _MARK in str(error)


def _in_clone(frame: DataFrame, rows: int) -> DataFrame:
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql import SparkSession

    # Any: handles of py4j have no types.
    session: Any = frame.sparkSession
    clone = session._jsparkSession.cloneSession()
    clone.conf().set(_BYTES_SETTING, _UNLIMITED)
    clone.conf().set(_ROWS_SETTING, str(rows))
    made = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(clone, frame._jdf.queryExecution().analyzed())
    return Frame(made, SparkSession(session.sparkContext, clone))


def rows_of_batch(schema: StructType) -> int:
    """Return how many rows of such columns a batch may have without being measured, if their texts and binaries are
    small; 0: it must be.
    """
    leaves = list(_leaves(schema))
    if not leaves or not all(isinstance(leaf, (*_fixed_types(), *_sized_types())) for leaf in leaves):
        return 0
    rows = max(1, min(ROWS_MAX, BATCH_BYTES // (_VALUE_BYTES * len(leaves))))
    return min(rows, TEXT_ROWS) if any(isinstance(leaf, _sized_types()) for leaf in leaves) else rows


def _leaves(data_type: DataType) -> Iterator[DataType]:
    from pyspark.sql.types import StructType

    if not isinstance(data_type, StructType):
        yield data_type
        return
    for field in data_type:
        yield from _leaves(field.dataType)


def _fixed_types() -> tuple[type[DataType], ...]:
    from pyspark.sql.types import AnsiIntervalType, BooleanType, DatetimeType, NumericType

    return NumericType, BooleanType, DatetimeType, AnsiIntervalType


def _sized_types() -> tuple[type[DataType], ...]:
    from pyspark.sql.types import BinaryType, StringType

    return BinaryType, StringType
