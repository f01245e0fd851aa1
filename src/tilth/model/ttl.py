"""TTL: after how long a row has expired, by one column of dates or times. Pure.

Covers: reading the clause, and what it means at a time. Does not cover: its syntax in SQL (sql), removing rows
(storage's merges, garbage collection of partitions).
Always holds: a value that is below `expired_below` has expired; where months have different lengths a row stays rather
a day too long. Times are in UTC.
"""

from __future__ import annotations

import calendar
import datetime
import re
from dataclasses import dataclass

from tilth.base.errors import InvalidInputError
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, Kind, Simple

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNITS = "|".join([*_SECONDS, *_MONTHS])
#: Bare, or quoted as Spark or ClickHouse do.
_NAME = r"[A-Za-z_]\w*|`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\""
_TTL = re.compile(
    rf"\s*(?:(?P<function>\w+)\s*\(\s*(?P<argument>{_NAME})\s*\)|(?P<column>{_NAME}))"
    rf"(?:\s*\+\s*(?:"
    rf"interval\s*(?P<quote>'?)\s*(?P<count>\d{{1,9}})\s*(?:(?P=quote)\s*(?P<unit>{_UNITS})s?|(?P<in_quote>{_UNITS})s?\s*')"
    rf"|tointerval(?P<of_call>{_UNITS})s?\s*\(\s*(?P<in_call>\d{{1,9}})\s*\)"
    rf"))?(?:\s+delete)?\s*",
    re.IGNORECASE,
)
_HINT = (
    "write: column or column + INTERVAL n unit; units are SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR; "
    "toDate(column) and toDateTime(column) may stand for the column, toIntervalDay(n) and the like for the interval"
)
_EPOCH = datetime.date(1970, 1, 1)
_DAY_US = 86_400_000_000
#: Below this there is no value: the first day of year 1. The last day of year 9999 begins at the other.
_FIRST_US = (datetime.date.min - _EPOCH).days * _DAY_US
_LAST_US = (datetime.date.max - _EPOCH).days * _DAY_US


@dataclass(frozen=True, slots=True)
class Ttl:
    """A row expires when its column's time plus the months, then plus the seconds, has passed."""

    #: The column's name as the schema writes it.
    column: str
    months: int
    seconds: int
    #: True: it counts from the beginning of the time's day.
    is_by_day: bool = False


def read_ttl(text: str, schema: Schema) -> Ttl:
    """Parse a TTL clause, `d + INTERVAL 30 DAY` or `toDateTime(d) + toIntervalMonth(1)`.

    Raises InvalidInputError for any other expression, and for a column that is not there or has no date or time.
    """
    found = _TTL.fullmatch(text)
    function = (found["function"] or "").lower() if found is not None else ""
    if found is None or function not in ("", "todate", "todatetime", "date", "timestamp"):
        raise InvalidInputError("a TTL must be a column, or a column plus an interval", ttl=text, hint=_HINT)
    column = _column(found["argument"] or found["column"], schema)
    unit = (found["unit"] or found["in_quote"] or found["of_call"] or "second").lower()
    count = int(found["count"] or found["in_call"] or 0)
    return Ttl(
        column=column.name,
        months=count * _MONTHS.get(unit, 0),
        seconds=count * _SECONDS.get(unit, 0),
        is_by_day=function in ("todate", "date") and column.type != Simple(Kind.DATE),
    )


def expired_below(ttl: Ttl, now_ms: int, data_type: DataType) -> int:
    """Values of the column below this have expired: days since 1970 for dates, microseconds for times."""
    below_us = _months_before(now_ms * 1000 - ttl.seconds * 1_000_000, ttl.months)
    is_date = data_type == Simple(Kind.DATE)
    if not is_date and not ttl.is_by_day:
        return below_us
    # A day counts from its beginning, so the first that has not expired begins at or after the limit.
    days = -(-below_us // _DAY_US)
    return days if is_date else days * _DAY_US


def ends_ms(ttl: Ttl, value: int, data_type: DataType) -> int:
    """Return the time from which a value of the column lies below `expired_below`, to two ms; for planning."""
    at_us = value * _DAY_US if data_type == Simple(Kind.DATE) else value
    if ttl.is_by_day:
        at_us -= at_us % _DAY_US
    return max(0, (_months_after(at_us, ttl.months) + ttl.seconds * 1_000_000) // 1000 + 1)


def _column(quoted: str, schema: Schema) -> Column:
    mark = quoted[0]
    name = quoted[1:-1].replace(mark * 2, mark) if mark in '`"' else quoted
    column = schema.find(name)
    if column is None and schema.find_any(name) is not None:
        hint = "declare it MATERIALIZED, or name the column that it is computed from"
        raise InvalidInputError("an ALIAS column is not stored, so rows cannot expire by it", column=name, hint=hint)
    if column is None:
        raise InvalidInputError(
            "the TTL's column does not exist", column=name, hint=f"columns: {', '.join(schema.names)}"
        )
    if column.type not in (Simple(Kind.DATE), Simple(Kind.TIMESTAMP), Simple(Kind.TIMESTAMP_NTZ)):
        raise InvalidInputError(
            "the TTL's column has neither dates nor times",
            column=column.name,
            type=column.declared_type,
            hint="store the time as Date or DateTime",
        )
    return column


def _months_before(at_us: int, months: int) -> int:
    """The first instant that, so many months later, is not before this one."""
    if at_us < _FIRST_US:
        return _FIRST_US
    days, rest = divmod(at_us, _DAY_US)
    at = _EPOCH + datetime.timedelta(days=days)
    year, month = divmod(at.year * 12 + at.month - 1 - months, 12)
    if year < datetime.MINYEAR:
        return _FIRST_US
    if at.day <= calendar.monthrange(year, month + 1)[1]:
        return (datetime.date(year, month + 1, at.day) - _EPOCH).days * _DAY_US + rest
    # 30 March less a month: the last of February becomes 28 March, the first of March becomes 1 April.
    return _first_of_next(year, month + 1)


def _months_after(at_us: int, months: int) -> int:
    """The first instant whose `_months_before` is not before this one."""
    days, rest = divmod(min(max(at_us, _FIRST_US), _LAST_US), _DAY_US)
    at = _EPOCH + datetime.timedelta(days=days)
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    if year >= datetime.MAXYEAR:
        return _LAST_US
    if at.day <= calendar.monthrange(year, month + 1)[1]:
        return (datetime.date(year, month + 1, at.day) - _EPOCH).days * _DAY_US + rest
    return _first_of_next(year, month + 1)


def _first_of_next(year: int, month: int) -> int:
    """The beginning of the month after."""
    first = (datetime.date(year, month, 1) - _EPOCH).days
    return (first + calendar.monthrange(year, month)[1]) * _DAY_US
