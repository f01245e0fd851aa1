"""Batches on their way from real Spark to Python: bounded by their rows where these are known to be small."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tilth.warehouse import QUERY_WAREHOUSE, WorkerSession, batched, has_large_row, of_small_rows, run_tasks
from tilth.warehouse.session.batches_spark import SMALL_ROW_BYTES, TEXT_ROWS

pytestmark = pytest.mark.integration

BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def session(spark: WorkerSession) -> SparkSession:
    return spark.new_session(pool=QUERY_WAREHOUSE)


def sizes(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> list[int]:
    return [batch.num_rows for batch in rows]


def total(rows: Iterator[pa.RecordBatch], /, *, task: int, attempt: int) -> int:
    return sum(len(text.as_buffer()) for batch in rows for text in batch.column(1))


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ("id", 65_536),
        ("id, named_struct('a', id, 'b', DATE '2026-01-01') AS s", 65_536),
        ("id, 'x' AS s", TEXT_ROWS),
        ("id, named_struct('a', id, 'b', 'x') AS s", TEXT_ROWS),
        ("id, CAST('x' AS BINARY) AS s", 0),
        ("id, array(id) AS s", 0),
        ("id, map(id, 'x') AS s", 0),
        ("id, NULL AS s", 0),
        ("id, parse_json('1') AS s", 0),
        (", ".join(f"id AS c{number}" for number in range(1000)), 986),
    ],
)
def test_only_rows_of_small_values_are_counted(session: SparkSession, columns: str, rows: int) -> None:
    frame = session.sql(f"SELECT {columns} FROM range(10)")
    counted = batched(frame)
    assert (counted is frame) == (not rows)
    if rows:
        assert counted.sparkSession.conf.get(ROWS_SETTING) == str(rows)


def test_rows_arrive_in_batches_of_their_number_and_the_session_stays_as_it_is(session: SparkSession) -> None:
    session.sql("SELECT 7 AS k").createOrReplaceTempView("seven")
    frame = session.sql("SELECT id + k AS id, 'x' AS s FROM range(0, 5000, 1, 2), seven")
    counted = batched(frame)
    assert [sum(each) for each in run_tasks(counted, sizes, list[int])] == [2500, 2500]
    assert [max(each) for each in run_tasks(counted, sizes, list[int])] == [TEXT_ROWS, TEXT_ROWS]
    assert session.conf.get(BYTES_SETTING) != counted.sparkSession.conf.get(BYTES_SETTING) == str(2**31 - 1)
    session.conf.set(BYTES_SETTING, "1000")
    assert batched(frame) is frame


def test_texts_of_128_kib_pass(session: SparkSession) -> None:
    frame = session.sql("SELECT id, repeat('x', 131072) AS s FROM range(0, 1300, 1, 1)")
    assert run_tasks(batched(frame), total, int) == [1300 * 131072]


def test_a_row_that_is_not_small_fails_the_job(session: SparkSession) -> None:
    text = (
        "SELECT id, repeat('x', CAST(if(id = 700, {size}, 3) AS INT)) AS `s.1`, CAST(NULL AS BINARY) AS b FROM {rows}"
    )
    small = of_small_rows(session.sql(text.format(size=SMALL_ROW_BYTES, rows="range(0, 1300, 1, 1)")))
    assert run_tasks(small, sizes, list[int]) == [[512, 512, 276]]
    large = of_small_rows(session.sql(text.format(size=SMALL_ROW_BYTES + 1, rows="range(0, 1300, 1, 1)")))
    with pytest.raises((PySparkException, Py4JError)) as raised:
        run_tasks(large, sizes, list[int])
    assert has_large_row(raised.value)
    for nested in ("array('x')", "named_struct('a', 'x')"):
        frame = session.sql(f"SELECT id, {nested} AS s FROM range(3)")
        assert of_small_rows(frame) is frame
