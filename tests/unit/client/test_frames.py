"""Rows of every library that `Connection.insert` takes, and what it says to others; no socket, no Spark."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import InvalidInputError
from tilth.client import Connection
from tilth.client.frames import arrow_table
from tilth.server import build_app

COLUMNS = {"id": [1, 2], "s": ["x", None]}
TABLE = pa.table(COLUMNS)


class SparkFrame:
    """What a Spark DataFrame is for the client."""

    __module__ = "pyspark.sql.classic.dataframe"

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        return TABLE


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        TABLE.to_batches()[0],
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
        pd.DataFrame(COLUMNS, index=[7, 9]),
        pl.DataFrame(COLUMNS),
        SparkFrame(),
        [{"id": 1, "s": "x"}, {"id": 2}],
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_of_every_library_arrive(rows: object) -> None:
    rooms = FakeRooms()
    with Connection("http://tilth.test", database="shop", transport=AppTransport(build_app(context_of(rooms)))) as made:
        made.insert("t", rows)
    assert rooms.calls == [("insert_arrow", "shop", "t", TABLE.to_pylist(), {})]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (7, "these are not rows: given=int"),
        ([], "these are not rows: given=list"),
        ([1, 2], "these are not rows: given=list"),
        ({"id": [1]}, "these are not rows: given=dict"),
        (pd.Series([1]), "these are not rows: given=pandas"),
        ([{"id": 1}, {"id": "x"}], "these rows cannot be sent as Arrow: reason="),
        (pd.DataFrame({"a": [1, "x"]}), "these rows cannot be sent as Arrow: reason="),
    ],
    ids=str,
)
def test_what_is_no_rows_is_named_with_what_is_taken(rows: object, told: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        arrow_table(rows)
    assert refused.value.message.startswith(told)
    assert "pandas, Polars or Spark DataFrame" in refused.value.hint
