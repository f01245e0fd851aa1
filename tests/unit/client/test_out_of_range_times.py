"""Results with dates and times of years that Python does not know: shown as text, and nothing fails."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from tilth.client.http import Result
from tilth.client.rows import show
from tilth.model.wire import Summary

_SUMMARY = Summary(query_id="q", elapsed_ms=0, rows=0, message="")
_FAR_DAYS = [2_932_897, -719_529, 0, None, 2**31 - 1, -(2**31)]
_FAR_DATES = ["+10000-01-01", "-0001-12-31", "1970-01-01", None, "+5881580-07-11", "-5877641-06-23"]
_FAR_MICROS = [2**63 - 1, -(2**63), 0, None, 1_500_000, 253_402_300_800_000_000]
_FAR_TIMES = [
    "+294247-01-10T04:00:54.775807",
    "-290308-12-21T19:59:05.224192",
    "1970-01-01T00:00:00",
    None,
    "1970-01-01T00:00:01.5",
    "+10000-01-01T00:00:00",
]


def result(**columns: pa.Array) -> Result:
    return Result(pa.table(columns), _SUMMARY)


FAR = result(
    d=pa.array(_FAR_DAYS, pa.date32()),
    z=pa.array(_FAR_MICROS, pa.timestamp("us", "UTC")),
    w=pa.array(_FAR_MICROS, pa.timestamp("us")),
    s=pa.array([value and value // 1_000_000 for value in _FAR_MICROS], pa.timestamp("s")),
    n=pa.array(range(6)),
)


def test_rows_have_what_python_knows_and_text_for_the_rest() -> None:
    rows = FAR.rows
    assert [row[0] for row in rows] == [*_FAR_DATES[:2], date(1970, 1, 1), *_FAR_DATES[3:]]
    assert rows[0][1] == f"{_FAR_TIMES[0]}Z"
    assert rows[2][1:3] == (datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1))  # noqa: DTZ001
    assert rows[3] == (None, None, None, None, 3)
    assert rows[1][3] == "-290308-12-21T19:59:05"


def test_frames_have_columns_of_text() -> None:
    frame = FAR.pandas()
    assert frame["d"].tolist() == _FAR_DATES
    assert [None if text is None else text.removesuffix("Z") for text in frame["z"].tolist()] == _FAR_TIMES
    assert frame["n"].tolist() == list(range(6))
    assert "+10000-01-01" in str(frame)
    polars = FAR.polars()
    assert polars["w"].to_list() == _FAR_TIMES
    assert "-5877641-06-23" in str(polars)


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        (
            pa.array([[2_932_897, None], None, [0]], pa.list_(pa.date32())),
            [["+10000-01-01", None], None, [date(1970, 1, 1)]],
        ),
        (
            pa.array([[(2_932_897, [0])], None], pa.map_(pa.date32(), pa.list_(pa.date32()))),
            [[("+10000-01-01", [date(1970, 1, 1)])], None],
        ),
        (pa.array([{"a": 2_932_897}, None], pa.struct([("a", pa.date32())])), [{"a": "+10000-01-01"}, None]),
    ],
)
def test_nested_times(nested: pa.Array, expected: list[Any]) -> None:
    found = result(c=nested.slice(0))
    assert [row[0] for row in found.rows] == expected
    for frame in (found.pandas(), found.polars()):
        assert "+10000-01-01" in str(frame)


def test_what_python_knows_stays_what_it_is() -> None:
    near = result(d=pa.array([-719_162, 2_932_896], pa.date32()), t=pa.array([0, None], pa.timestamp("us", "UTC")))
    assert near.rows == [(date.min, datetime(1970, 1, 1, tzinfo=UTC)), (date.max, None)]
    assert near.polars()["d"].to_list() == [date.min, date.max]
    assert result(d=pa.array([], pa.date32())).rows == []


def test_the_shell_shows_them() -> None:
    out = io.StringIO()
    show(Console(file=out, width=400), FAR.arrow(), _SUMMARY)
    for text in ("+10000-01-01", "-5877641-06-23", "+294247-01-10 04:00:54.775807Z", "1970-01-01 00:00:01.5"):
        assert text in out.getvalue()
