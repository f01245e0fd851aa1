"""Partitions that have expired as a whole by the table's TTL. Pure.

Covers: the newest time that a partition's rows can have, by its key or by its parts. Does not cover: the verdict
(gc/policy.py), single rows that have expired (merge/policy/expired_rows.py), leaving them out (storage).
Always holds: what is said of a partition is true of every row of the parts it was said of; where it is not known, the
partition stays.
See also: docs/policies/part-gc.md#expired-partitions.
"""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from tilth.maintenance.table.settings import GcSettings
from tilth.model.part import Bound, ColumnRange, Part
from tilth.model.table import Column, TableDef, Transform, TransformKind
from tilth.model.ttl import Ttl, expired_below, read_ttl
from tilth.model.types import Kind, Simple

_EPOCH = datetime.date(1970, 1, 1)
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTtl:
    """A table's TTL with what it needs of the table's definition."""

    text: str
    ttl: Ttl
    #: Current definition of the TTL's column.
    column: Column
    definition: TableDef

    def below(self, now_ms: int) -> int:
        """Return the value of the column below which values have expired."""
        return expired_below(self.ttl, now_ms, self.column.type)

    def column_of(self, part: Part) -> Column | None:
        """The TTL's column as the part has it; None where it has another type there, or is not there."""
        schema = self.definition.schema_of(part.schema_version)
        column = None if schema is None else next((one for one in schema.columns if one.id == self.column.id), None)
        return column if column is not None and column.type == self.column.type else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryBound:
    """End of the last row of a partition."""

    #: The largest value of the TTL's column that a row can have; none: it is not known.
    last: int | None
    #: Source of the bound, or why it is not known. A bound by the key holds for later rows too.
    reason: str


def ttl_of(definition: TableDef) -> TableTtl | None:
    """None for a table without TTL. Raises InvalidInputError for one that is not understood."""
    if definition.ttl is None:
        return None
    ttl = read_ttl(definition.ttl, definition.schema)
    column = definition.schema.find(ttl.column)
    assert column is not None
    return TableTtl(text=definition.ttl, ttl=ttl, column=column, definition=definition)


def partition_end(table: TableTtl, parts: Sequence[Part], *, settings: GcSettings) -> ExpiryBound:
    """Return the end by the partition's key where it bounds the column, else by the visible parts of the partition."""
    if not parts:
        return ExpiryBound(last=None, reason="it has no visible part")
    by_key = last_of_key(table, parts[0].values)
    if by_key is not None:
        return ExpiryBound(last=by_key, reason="by its key")
    if not settings.partition_ttl_fallback:
        reason = "its key does not bound the column, and enable_partition_ttl_fallback is off"
        return ExpiryBound(last=None, reason=reason)
    known = [last for last in (last_of_part(table, part) for part in parts) if last is not None]
    if len(known) < len(parts):
        reason = f"{len(parts) - len(known)} of {len(parts)} parts do not record the newest {table.column.name}"
        return ExpiryBound(last=None, reason=reason)
    return ExpiryBound(last=max(known), reason=f"by its {len(parts)} parts")


def is_expired(table: TableTtl, parts: Sequence[Part], *, now_ms: int, settings: GcSettings) -> bool:
    """True if a partition is about to be dropped, so that nothing else is worth doing in it.

    `parts` are the visible ones of one partition."""
    end = partition_end(table, parts, settings=settings)
    return end.last is not None and end.last < table.below(now_ms)


def last_of_key(table: TableTtl, values: Sequence[Bound]) -> int | None:
    """Largest value of the TTL's column that rows of a partition with these values can have; none: not bounded."""
    is_date = table.column.type == Simple(Kind.DATE)
    found = [
        _last_of_value(transform, value, is_date=is_date)
        for transform, value in zip(table.definition.partition_by, values, strict=False)
        if transform.column.lower() == table.column.name.lower()
    ]
    return min((last for last in found if last is not None), default=None)


def _last_of_value(transform: Transform, value: Bound, *, is_date: bool) -> int | None:
    if not isinstance(value, int):
        return None
    match transform.kind:
        case TransformKind.IDENTITY:
            return value
        case TransformKind.TO_DATE:
            return _last_of_day(value, is_date=is_date)
        case TransformKind.TO_YYYYMM:
            year, month = divmod(value, 100)
            return _last_of_date(year, month, None, is_date=is_date)
        case TransformKind.TO_YYYYMMDD:
            months, day = divmod(value, 100)
            year, month = divmod(months, 100)
            return _last_of_date(year, month, day, is_date=is_date)
        case TransformKind.TO_MONDAY:
            return _last_of_day(value + 6, is_date=is_date)
        case TransformKind.TO_START_OF_MONTH:
            first = _EPOCH + datetime.timedelta(days=value) if _is_in_calendar(value) else None
            return None if first is None else _last_of_date(first.year, first.month, None, is_date=is_date)
        case TransformKind.TO_YEAR:
            return _last_of_date(value, 12, 31, is_date=is_date)
        case TransformKind.TO_START_OF_HOUR:
            return value + _HOUR_US - 1
        case _:
            return None


def _is_in_calendar(day: int) -> bool:
    """True if Python knows the date: from 0001-01-01 to 9999-12-31."""
    return -719_162 <= day <= 2_932_896


def _last_of_date(year: int, month: int, day: int | None, *, is_date: bool) -> int | None:
    """Return none for a year that the calendar does not have."""
    try:
        date = datetime.date(year, month, day or calendar.monthrange(year, month)[1])
    except ValueError:
        return None
    return _last_of_day((date - _EPOCH).days, is_date=is_date)


def _last_of_day(day: int, *, is_date: bool) -> int:
    return day if is_date else (day + 1) * _DAY_US - 1


def last_of_part(table: TableTtl, part: Part) -> int | None:
    """Return the last value by the range that was noted when the part was written; rows without value stay."""
    known = range_of(table, part)
    if known is None or known.nulls or isinstance(known.high, bool) or not isinstance(known.high, int):
        return None
    return known.high


def range_of(table: TableTtl, part: Part) -> ColumnRange | None:
    """The range of the TTL's column, if it is of the same column as now."""
    column = table.column_of(part)
    return None if column is None else part.ranges.get(column.name)


def shown(at_ms: int) -> str:
    seconds = min(at_ms // 1000, 253_402_300_799)
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
