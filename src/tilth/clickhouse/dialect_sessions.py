"""Requirements of ClickHouse's dialect for sessions and for columns of tables: settings, time zones.

Covers: settings of Spark that change answers, the zones of columns. Does not cover: which settings a statement can set
(query/language/spark_settings.py). Always holds: with what is let through, a function means the same as in ClickHouse.
Pure.

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tilth.clickhouse.dialect_words import refused
from tilth.model.table import Schema
from tilth.model.text.zones import SPARK_PREFIX, UTC_NAMES, ZONE

_TIME = re.compile(r"'(\d{4})-(\d\d?)-(\d\d?)[ T](\d\d?):(\d\d?)")
#: Settings of Spark with the value that the dialect was compared with.
_FIXED = {
    f"{SPARK_PREFIX}{name}": value
    for name, value in (
        ("ansi.enabled", "true"),
        ("decimalOperations.allowPrecisionLoss", "true"),
        ("groupByAliases", "true"),
        ("groupByOrdinal", "true"),
        ("orderByOrdinal", "true"),
        ("legacy.timeParserPolicy", "corrected"),
        ("mapKeyDedupPolicy", "exception"),
    )
}


def check_session(spark: Mapping[str, str], *, is_view: bool) -> None:
    """Raises UnsupportedSqlError for a setting of Spark with which answers differ. `is_view`: the query runs later."""
    for name, value in _FIXED.items():
        given = spark.get(name, value)
        if given.strip().lower() != value:
            raise refused(f"{name} = {given}", f"leave the setting out, or SET {name} = {value}")
    zone = spark.get(ZONE, UTC_NAMES[0])
    if is_view and zone not in UTC_NAMES:
        raise refused(f"a view in the time zone {zone}", f"views compute in UTC: SET {ZONE} = 'UTC'")


def check_times(text: str, spark: Mapping[str, str]) -> None:
    """Raises UnsupportedSqlError for a text that is a time which the clock of the session's zone skips."""
    name = spark.get(ZONE, UTC_NAMES[0])
    if name in UTC_NAMES:
        return
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # The zone is an offset, or is refused elsewhere.
        return
    for found in _TIME.finditer(text):
        try:
            year, month, day, hour, minute = (int(each) for each in found.groups())
            time = datetime(year, month, day, hour, minute, tzinfo=UTC).replace(tzinfo=None)
        except ValueError:
            continue
        known = time.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None)
        if known != time:
            raise refused(f"the time {found[0][1:]}, which the clock of {name} skips", "name a time that there is")


def check_zones(schema: Schema, zone: str, table: str) -> None:
    """Raises UnsupportedSqlError for a column whose times ClickHouse would show in another zone."""
    for column in schema.columns:
        for _, other in column.zones:
            if other != zone and not (other in UTC_NAMES and zone in UTC_NAMES):
                what = f"the time zone {other} of the column {column.name} of {table} in a session in {zone}"
                raise refused(what, f"SET {ZONE} = '{other}', or declare the column without a zone")
