"""A table's TTL as a statement gives it: what is refused, and what it means for the rows that are there."""

from __future__ import annotations

import datetime
from itertools import groupby

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.maintenance import gc_settings, is_expired, ttl_of
from tilth.model.table import Schema, TableDef
from tilth.model.ttl import read_ttl
from tilth.sql.context.lifetimes import told_time, trash_lifetime_ms
from tilth.sql.context.services import Services

_DAY_SECONDS = 86_400


def check_ttl(text: str, schema: Schema, now_ms: int) -> None:
    """Raises InvalidInputError for what is no TTL, and for one by which a row of today would outlive the calendar."""
    ttl = read_ttl(text, schema)
    today = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).date()
    years, days = ttl.months / 12, ttl.seconds / _DAY_SECONDS
    if today.year + years > datetime.MAXYEAR or days > (datetime.date.max - today).days:
        hint = "leave the TTL out, and rows stay for ever"
        raise InvalidInputError("this TTL leaves the range of times, which ends with year 9999", ttl=text, hint=hint)


def told_expired(services: Services, table: TableDef, text: str) -> str:
    """What of the table has expired already by a new TTL, and how it can be had back; empty when nothing has."""
    ttl = ttl_of(msgspec.structs.replace(table, ttl=text))
    assert ttl is not None
    now_ms, settings = services.clock.now_ms(), gc_settings(table.settings)
    partitions = rows = 0
    shown = sorted(services.catalog.parts.snapshot(table.uuid).parts, key=lambda part: part.name.partition)
    for _, group in groupby(shown, key=lambda part: part.name.partition):
        parts = list(group)
        if is_expired(ttl, parts, now_ms=now_ms, settings=settings):
            partitions += 1
            rows += sum(part.rows for part in parts)
    if not partitions:
        return ""
    until = told_time(now_ms + trash_lifetime_ms(table))
    return (
        f"; expired by it already, so that they go now, unless GC is stopped: partitions {partitions}, rows {rows}; "
        f"REMOVE TTL or a longer TTL, and then UNDROP PARTITION, brings them back until {until}"
    )
