"""What a TTL clause means: its texts, its faults, and which values have expired at a time."""

from __future__ import annotations

import calendar
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.base.errors import InvalidInputError
from tilth.model.table import Column, Schema
from tilth.model.ttl import Ttl, ends_ms, expired_below, read_ttl
from tilth.model.types import Kind, Simple

DATE, TIME = Simple(Kind.DATE), Simple(Kind.TIMESTAMP)
SCHEMA = Schema(
    columns=(
        Column(id=1, name="d", type=DATE),
        Column(id=2, name="At", type=TIME),
        Column(id=3, name="my col", type=Simple(Kind.TIMESTAMP_NTZ)),
        Column(id=4, name="n", type=Simple(Kind.INT64)),
    )
)
UTC = datetime.UTC
DAY = 86_400


@pytest.mark.parametrize(
    ("text", "ttl"),
    [
        ("d + INTERVAL 30 DAY", Ttl("d", 0, 30 * DAY)),
        ("d + INTERVAL 30 DAY DELETE", Ttl("d", 0, 30 * DAY)),
        ("toDateTime(d) + toIntervalDay(30)", Ttl("d", 0, 30 * DAY)),
        ("at + INTERVAL '1' MONTH", Ttl("At", 1, 0)),
        ("at + interval '1 month'", Ttl("At", 1, 0)),
        ("AT+toIntervalQuarter( 2 )", Ttl("At", 6, 0)),
        ("`my col` + INTERVAL 2 YEARS", Ttl("my col", 24, 0)),
        ('"my col" + INTERVAL 1 WEEK', Ttl("my col", 0, 7 * DAY)),
        ("at + INTERVAL 5 SECOND", Ttl("At", 0, 5)),
        ("at + INTERVAL 5 minutes", Ttl("At", 0, 300)),
        ("toDate(at) + INTERVAL 2 HOUR", Ttl("At", 0, 7200, is_by_day=True)),
        ("toDate(d) + INTERVAL 2 HOUR", Ttl("d", 0, 7200)),
        ("d", Ttl("d", 0, 0)),
    ],
)
def test_reads(text: str, ttl: Ttl) -> None:
    assert read_ttl(text, SCHEMA) == ttl


@pytest.mark.parametrize(
    "text",
    [
        "",
        "d - INTERVAL 1 DAY",
        "d + 30",
        "d + INTERVAL n DAY",
        "d + INTERVAL 1 FORTNIGHT",
        "d + INTERVAL '1 DAY",
        "toMonth(d) + INTERVAL 1 DAY",
        "n + INTERVAL 1 DAY",
        "missing + INTERVAL 1 DAY",
        "d + INTERVAL 1 DAY TO VOLUME 'x'",
        "d + INTERVAL 99999999999 DAY",
    ],
)
def test_refuses_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_ttl(text, SCHEMA)
    assert refused.value.hint


def _ms(*at: int) -> int:
    return int(datetime.datetime(*at, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def _day(*at: int) -> int:
    return (datetime.date(*at) - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("ttl", "now", "first_kept"),
    [
        (Ttl("d", 0, 30 * DAY), (2024, 3, 31), (2024, 3, 1)),
        # A date's row expires once the day's beginning and the interval have passed.
        (Ttl("d", 0, 30 * DAY), (2024, 3, 31, 0, 0, 1), (2024, 3, 2)),
        (Ttl("d", 0, 3600), (2024, 3, 31, 0, 30), (2024, 3, 31)),
        (Ttl("d", 1, 0), (2024, 3, 15), (2024, 2, 15)),
        # There is no 30 February: the 29th becomes 29 March, 1 March becomes 1 April.
        (Ttl("d", 1, 0), (2024, 3, 30), (2024, 3, 1)),
        (Ttl("d", 12, 0), (2024, 2, 29), (2023, 3, 1)),
        (Ttl("d", 12 * 5000, 0), (2024, 2, 29), (1, 1, 1)),
        (Ttl("d", 0, 999_999_999 * 604_800), (2024, 2, 29), (1, 1, 1)),
        (Ttl("d", 999_999_999 * 12, 0), (2024, 2, 29), (1, 1, 1)),
    ],
)
def test_dates(ttl: Ttl, now: tuple[int, ...], first_kept: tuple[int, int, int]) -> None:
    assert expired_below(ttl, _ms(*now), DATE) == _day(*first_kept)


def test_times() -> None:
    now = _ms(2024, 3, 31, 12)
    assert expired_below(Ttl("At", 0, 3600), now, TIME) == _ms(2024, 3, 31, 11) * 1000
    assert expired_below(Ttl("At", 1, 0), _ms(2024, 3, 15, 12), TIME) == _ms(2024, 2, 15, 12) * 1000
    assert expired_below(Ttl("At", 0, DAY, is_by_day=True), now, TIME) == _ms(2024, 3, 31) * 1000


#: Between 1960 and 2060.
_TIMES_MS = st.integers(-315_619_200_000, 2_840_140_800_000)


@given(
    value_ms=_TIMES_MS,
    now_ms=_TIMES_MS,
    months=st.integers(0, 30),
    seconds=st.integers(0, 40 * DAY),
)
def test_nothing_expires_early_and_nothing_stays_a_month_longer(
    value_ms: int, now_ms: int, months: int, seconds: int
) -> None:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    value, now = (epoch + datetime.timedelta(milliseconds=each) for each in (value_ms, now_ms))
    year, month = divmod(value.year * 12 + value.month - 1 + months, 12)
    day = min(value.day, calendar.monthrange(year, month + 1)[1])
    ends = value.replace(year=year, month=month + 1, day=day) + datetime.timedelta(seconds=seconds)
    is_expired = value_ms * 1000 < expired_below(Ttl("At", months, seconds), now_ms, TIME)
    if is_expired:
        assert ends < now
    # Ends of months: at most the days by which two months differ.
    elif ends < now:
        assert months
        assert now - ends < datetime.timedelta(days=3)


@given(
    ttl=st.builds(
        Ttl,
        column=st.just("At"),
        months=st.integers(0, 30),
        seconds=st.integers(0, 40 * DAY),
        is_by_day=st.booleans(),
    ),
    value_ms=st.integers(0, 2_840_140_800_000),
    of=st.sampled_from([DATE, TIME]),
)
def test_the_end_is_when_a_value_expires(ttl: Ttl, value_ms: int, of: Simple) -> None:
    value = value_ms // 86_400_000 if of == DATE else value_ms * 1000 + 1
    at_ms = ends_ms(ttl, value, of)
    assert value < expired_below(ttl, at_ms, of)
    assert value >= expired_below(ttl, at_ms - 2, of)


def test_an_end_that_no_calendar_has_is_far() -> None:
    assert ends_ms(Ttl("d", 12 * 9000, 0), _day(2024, 1, 1), DATE) > _ms(9990, 1, 1)
    assert ends_ms(Ttl("d", 0, 0), -10_000_000, DATE) == 0
