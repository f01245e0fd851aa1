"""Dates and times as text in ISO 8601, of every year that 64 bits of microseconds can hold. Pure.

Covers: days and microseconds since 1970 to text and back, also outside of the years 1 to 9999 that Python knows.
Always holds: the calendar is the proleptic Gregorian one, which Spark, Arrow and Parquet use too; nothing is rounded: a
text with digits below the microsecond that are not zero is refused. Years of more than four digits, and years before 0,
have a sign: `+10000-01-01`, `-0044-03-15`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo

DAY_US = 86_400_000_000
#: Digits behind the second that are kept.
SECOND_DIGITS_MAX = 6
#: Range of Python's dates, in days since 1970.
FIRST_DAY = date.min.toordinal() - date(1970, 1, 1).toordinal()
LAST_DAY = date.max.toordinal() - date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: The calendar repeats after these years and days, weekdays and all.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_DAYS_MAX = 1 << 31
_MICROS_MAX = 1 << 63
_DATE = r"(?P<year>[+-]\d{4,7}|\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
_WIDE_DATE = re.compile(_DATE)
_WIDE_TIME = re.compile(
    _DATE + r"(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?)?"
)
#: Digits that Python would cut.
_FINE = re.compile(r"[.,]\d{6}\d*[1-9]")
_ZEROS = re.compile(r"([.,]\d{6})0+")


def is_known_to_python(days: int) -> bool:
    """True if the day is in the years 1 to 9999."""
    return FIRST_DAY <= days <= LAST_DAY


def date_text(days: int) -> str:
    """`2026-01-31`, `+10000-01-01`, `-0044-03-15`."""
    year, month, day = _civil(days)
    return f"{_year_text(year)}-{month:02d}-{day:02d}"


def time_text(micros: int, *, between: str = "T") -> str:
    """`2026-01-31T12:00:00.5`: without a zone, and without zeros at the end of the second."""
    days, rest = divmod(micros, DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{date_text(days)}{between}{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def read_date(text: str) -> int:
    """Days since 1970; a time of day is taken only where it is midnight. Raises ValueError."""
    found = _WIDE_DATE.fullmatch(text)
    if found is not None:
        return _in_range(_days_of(found), _DAYS_MAX)
    if len(text) <= len("2020-W01-1"):
        return (date.fromisoformat(text) - _EPOCH.date()).days
    wall, _ = read_time(text)
    days, rest = divmod(wall, DAY_US)
    if rest:
        raise ValueError("this is not midnight")
    return days


def read_time(text: str) -> tuple[int, int | None]:
    """Microseconds since 1970 on the text's own clock, and how many it is ahead of UTC; None: the text does not say.

    Raises ValueError, also where digits below the microsecond are not zero.
    """
    if _FINE.search(text):
        raise ValueError("times are kept in microseconds")
    found = _WIDE_TIME.fullmatch(text)
    if found is not None:
        return _wide_time(found)
    # RFC 3339 lets `z` be small; Python takes the large one only.
    given = f"{text[:-1]}Z" if text.endswith("z") else text
    time = datetime.fromisoformat(_ZEROS.sub(r"\1", given))
    offset = time.utcoffset()
    return micros_of(time.replace(tzinfo=UTC)), None if offset is None else offset // _MICROSECOND


def micros_of(time: datetime) -> int:
    """Microseconds since 1970 of a time with a zone."""
    return (time - _EPOCH) // _MICROSECOND


def in_zone(wall: int, zone: tzinfo) -> int:
    """The instant at which clocks of the zone show this; the earlier one where they show it twice."""
    if zone is UTC:
        return wall
    # Years out of Python's range are like those of the calendar's cycle that Python knows.
    cycles = min(0, (LAST_DAY - 366 - wall // DAY_US) // _CYCLE_DAYS)
    cycles = cycles or max(0, -((wall // DAY_US - FIRST_DAY - 366) // _CYCLE_DAYS))
    shown = _EPOCH.replace(tzinfo=None) + timedelta(microseconds=wall + cycles * _CYCLE_DAYS * DAY_US)
    offset = shown.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return _in_range(wall - offset // _MICROSECOND, _MICROS_MAX)


def _wide_time(found: re.Match[str]) -> tuple[int, int | None]:
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("there is no such time of day")
    fraction = int((found["fraction"] or "")[:SECOND_DIGITS_MAX].ljust(SECOND_DIGITS_MAX, "0"))
    wall = (_days_of(found) * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000 + fraction
    return _in_range(wall, _MICROS_MAX), _offset_of(found["zone"])


def _offset_of(zone: str | None) -> int | None:
    if zone is None:
        return None
    if zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    if hours > 23 or minutes > 59:
        raise ValueError("there is no such offset")
    seconds = hours * 3600 + minutes * 60
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000


def _days_of(found: re.Match[str]) -> int:
    """Raises ValueError for a day that no month has."""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    cycles, year = divmod(year, _CYCLE_YEARS)
    # Python knows every year of this cycle.
    known = date(year + 2000, month, day) - date(2000, 1, 1)
    return known.days + (cycles - 5) * _CYCLE_DAYS + 10_957


def _civil(days: int) -> tuple[int, int, int]:
    cycles, rest = divmod(days - 10_957, _CYCLE_DAYS)
    known = date(2000, 1, 1) + timedelta(days=rest)
    return known.year + cycles * _CYCLE_YEARS, known.month, known.day


def _year_text(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"{'-' if year < 0 else '+'}{abs(year):04d}"


def _in_range(number: int, bound: int) -> int:
    if not -bound <= number < bound:
        raise ValueError("this is out of the range of times")
    return number
