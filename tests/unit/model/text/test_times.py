"""Dates and times as text, of every year that 64 bits of microseconds can hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.model.text.times import date_text, in_zone, read_date, read_time, time_text


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (-719_163, "0000-12-31"),
        (-719_529, "-0001-12-31"),
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_days(days: int, text: str) -> None:
    assert (date_text(days), read_date(text)) == (text, days)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (2**63 - 1, "+294247-01-10T04:00:54.775807"),
        (-(2**63), "-290308-12-21T19:59:05.224192"),
        (-1, "1969-12-31T23:59:59.999999"),
        (1_500_000, "1970-01-01T00:00:01.5"),
    ],
)
def test_times(micros: int, text: str) -> None:
    assert (time_text(micros), read_time(text), read_time(f"{text}Z")) == (text, (micros, None), (micros, 0))


@given(st.dates())
def test_python_says_the_same(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert (date_text(days), read_date(day.isoformat())) == (day.isoformat(), days)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_every_text_is_read_back(days: int, micros: int) -> None:
    assert read_date(date_text(days)) == days
    assert read_time(time_text(micros, between=" ")) == (micros, None)


@pytest.mark.parametrize(
    ("text", "offset"),
    [("2026-01-01T00:00:00+05:30", 19_800), ("2026-01-01 00:00-0100", -3_600), ("+12026-01-01T00:00:00-08", -28_800)],
)
def test_offsets(text: str, offset: int) -> None:
    assert read_time(text)[1] == offset * 1_000_000


@pytest.mark.parametrize(
    "text",
    ["2026-02-30", "2026-13-01", "+2026-01", "2026-01-01T24:00:00", "2026-01-01T00:60:00", "2026-01-01T00:00:00+25:00",
     "2026-01-01T00:00:00.1234567", "+292278994-01-01T00:00:00", "soon", ""],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):  # in whichever words
        read_time(text)


def test_zeros_below_the_microsecond_are_no_digits() -> None:
    assert read_time("2026-01-01T00:00:00.123456000Z") == read_time("2026-01-01T00:00:00.123456Z")


def test_a_date_is_a_midnight() -> None:
    assert read_date("2026-01-01T00:00:00") == read_date("2026-01-01") == read_date("20260101")
    with pytest.raises(ValueError, match="midnight"):
        read_date("2026-01-01 00:00:01")


@pytest.mark.parametrize("year", [1, 44, 1900, 1999, 2026, 9999])
def test_zones_of_years_that_python_knows(year: int) -> None:
    for zone in (ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")):
        for month in (1, 7):
            wall = datetime(year, month, 2, 12, tzinfo=UTC)
            micros = int(wall.timestamp()) * 1_000_000
            expected = wall.replace(tzinfo=zone).utcoffset()
            assert expected is not None
            assert micros - in_zone(micros, zone) == int(expected.total_seconds()) * 1_000_000


def test_zones_of_far_years_are_as_in_the_years_that_are_known() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert time_text(in_zone(read_time("+12026-07-01T00:00:00")[0], berlin)) == "+12026-06-30T22:00:00"
    assert time_text(in_zone(read_time("+12026-01-01T00:00:00")[0], berlin)) == "+12025-12-31T23:00:00"
    assert time_text(in_zone(read_time("-0044-07-01T00:00:00")[0], berlin)).startswith("-0044-06-30T23:06")
