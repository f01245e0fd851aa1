"""Rows that a target does not take: which ones, why, and with which messages they go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.ingest.views.refusals import by_message, misfits, without
from tilth.model.table import OP_COLUMN, Column, Schema
from tilth.model.types import Decimal, Kind, Simple
from tilth.storage import BadColumnError, TableLayout, local_folder


def layout(**more: Any) -> TableLayout:
    columns = (
        Column(id=1, name="Id", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="small", type=Simple(Kind.INT8)),
        Column(id=3, name="amount", type=Decimal(4, 1)),
    )
    return TableLayout(folder=local_folder("/nowhere"), schema=Schema(columns=columns), **more)


def test_each_row_is_refused_for_itself_and_named_by_its_column() -> None:
    rows = pa.table(
        {
            "id": pa.array([1, None, 3, 4, None]),
            "small": pa.array([1, 2, 300, 4, 300], pa.int32()),
            "amount": pa.array(["1.5", "2", "3", "1.25", "5"]),
        }
    )
    rows = rows.set_column(2, "amount", rows["amount"].cast(pa.decimal128(10, 2)))
    found = misfits(layout(), rows)
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1] == found[4] == "column `Id`: nulls in a column that is NOT NULL"
    assert found[2].startswith("column `small`: the values do not fit the column, type tinyint")
    assert found[3].startswith("column `amount`: the values do not fit the column, type decimal(4,1)")


@given(st.lists(st.none() | st.integers(-200, 200), max_size=60))
def test_exactly_the_rows_that_do_not_fit_are_found(values: list[int | None]) -> None:
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "small": pa.array(values, pa.int16())})
    expected = [row for row, value in enumerate(values) if value is not None and not -128 <= value <= 127]
    assert sorted(misfits(layout(), rows)) == expected


def test_rows_without_their_key_are_refused_and_deletes_may_lack_the_rest() -> None:
    keyed = layout(is_buffered=True, unique_key=("small",))
    rows = pa.table(
        {
            "Id": pa.array([1, None, None, 4]),
            "small": pa.array([1, 2, 3, None], pa.int8()),
            OP_COLUMN: pa.array([0, 1, 0, 1], pa.int8()),
        }
    )
    assert misfits(keyed, rows) == {
        2: "column `Id`: nulls in a column that is NOT NULL",
        3: "column `small`: a row has no value in a column of the unique key",
    }


def test_what_no_row_is_to_blame_for_is_raised() -> None:
    assert misfits(layout(), pa.table({"Id": pa.array([], pa.int64())})) == {}
    with pytest.raises(BadColumnError, match="no such column"):
        misfits(layout(), pa.table({"Id": [1, 2], "other": [1, 2]}))


def test_a_message_goes_with_all_of_its_rows() -> None:
    owners = np.array([0, 0, 1, 3, 3, 3])
    assert by_message({4: "b", 1: "a", 5: "c"}, owners) == {0: "a", 3: "b"}
    assert by_message({4: "b", 1: "a"}, None) == {1: "a", 4: "b"}
    rows, left = without(pa.table({"x": range(6)}), owners, {0: "a", 3: "b"})
    assert (rows["x"].to_pylist(), left is not None and left.tolist()) == ([2], [1])
    rows, left = without(pa.table({"x": range(3)}), None, {1: "a"})
    assert (rows["x"].to_pylist(), left is not None and left.tolist()) == ([0, 2], [0, 2])
    assert without(rows, None, {}) == (rows, None)
