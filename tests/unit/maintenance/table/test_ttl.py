"""Expiry of whole partitions: by the key, by the parts, and where neither tells.

Rules: docs/policies/part-gc.md#expired-partitions.
"""

from __future__ import annotations

import datetime
from dataclasses import replace

import msgspec
import pytest

from tilth.base.errors import InvalidInputError
from tilth.maintenance.gc.policy import judge_expiry
from tilth.maintenance.merge.policy.expired_rows import judge_rows
from tilth.maintenance.table.settings import GcSettings, MergeSettings
from tilth.maintenance.table.ttl import TableTtl, is_expired, last_of_key, partition_end, ttl_of
from tilth.model.part import Bound, ColumnRange, DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion, TableDef, Transform, TransformKind
from tilth.model.types import DataType, Kind, Simple

DATE, TIME = Simple(Kind.DATE), Simple(Kind.TIMESTAMP)
SETTINGS = GcSettings()
DAY_US = 86_400_000_000


def day(*at: int) -> int:
    return (datetime.date(*at) - datetime.date(1970, 1, 1)).days


def ms(*at: int) -> int:
    return day(*at) * 86_400_000


def table(
    *partition_by: Transform, of: DataType = DATE, ttl: str | None = "d + INTERVAL 30 DAY", name: str = "d"
) -> TableDef:
    return TableDef(
        uuid="0" * 32,
        database="default",
        name="t",
        schema=Schema(columns=(Column(id=7, name=name, type=of),)),
        partition_by=partition_by,
        ttl=ttl,
    )


def known(definition: TableDef) -> TableTtl:
    found = ttl_of(definition)
    assert found is not None
    return found


def part(
    high: Bound = None, *, values: tuple[Bound, ...] = (), nulls: int = 0, column: str = "d", version: int = 1
) -> Part:
    return Part(
        name=PartName("p", 1, 1, 0, 1),
        schema_version=version,
        rows=1,
        file=DataFile(name="f", size=1, checksum=0),
        values=values,
        ranges={} if high is None else {column: ColumnRange(0, high, nulls)},
        commit_ts=1,
    )


@pytest.mark.parametrize(
    ("kind", "of", "value", "last"),
    [
        (TransformKind.IDENTITY, DATE, 100, 100),
        (TransformKind.TO_DATE, DATE, 100, 100),
        (TransformKind.TO_DATE, TIME, 100, 101 * DAY_US - 1),
        (TransformKind.TO_YYYYMM, DATE, 202402, day(2024, 2, 29)),
        (TransformKind.TO_YYYYMM, TIME, 202412, (day(2024, 12, 31) + 1) * DAY_US - 1),
        (TransformKind.TO_YYYYMMDD, DATE, 20240131, day(2024, 1, 31)),
        (TransformKind.TO_START_OF_HOUR, TIME, 7_200_000_000, 10_800_000_000 - 1),
        (TransformKind.TO_MONDAY, DATE, day(2024, 1, 1), day(2024, 1, 7)),
        (TransformKind.TO_MONDAY, TIME, day(2024, 1, 1), (day(2024, 1, 7) + 1) * DAY_US - 1),
        (TransformKind.TO_START_OF_MONTH, DATE, day(2024, 2, 1), day(2024, 2, 29)),
        (TransformKind.TO_START_OF_MONTH, DATE, 10_000_000, None),
        (TransformKind.TO_YEAR, TIME, 2024, (day(2024, 12, 31) + 1) * DAY_US - 1),
        (TransformKind.TO_YEAR, DATE, 99999, None),
        (TransformKind.TO_HOUR, TIME, 3, None),
        (TransformKind.MODULO, DATE, 3, None),
        (TransformKind.BUCKET, DATE, 3, None),
        (TransformKind.TRUNCATE, DATE, 3, None),
        (TransformKind.TO_YYYYMM, DATE, None, None),
        (TransformKind.TO_YYYYMM, DATE, 99999901, None),
    ],
)
def test_last_of_key(kind: TransformKind, of: DataType, value: Bound, last: int | None) -> None:
    definition = table(Transform(kind=TransformKind.BUCKET, column="x"), Transform(kind=kind, column="D"), of=of)
    assert last_of_key(known(definition), (5, value)) == last


def test_the_key_decides_whatever_the_parts_say() -> None:
    ttl = known(table(Transform(kind=TransformKind.TO_YYYYMM, column="d")))
    end = partition_end(ttl, [part(values=(202401,)), part(day(2024, 1, 2), values=(202401,))], settings=SETTINGS)
    assert (end.last, end.reason) == (day(2024, 1, 31), "by its key")
    # 31 January and 30 days: the beginning of 1 March.
    assert not judge_expiry("p", end, ttl, now_ms=ms(2024, 3, 1)).goes
    verdict = judge_expiry("p", end, ttl, now_ms=ms(2024, 3, 1) + 1)
    assert verdict.goes
    assert "expired at 2024-03-01 00:00:00, by its key" in verdict.reason


@pytest.mark.parametrize(
    ("parts", "fallback", "goes", "told"),
    [
        ([part(10), part(12)], True, True, "by its 2 parts"),
        ([part(10), part(day(2024, 3, 1))], True, False, "its last row expires at 2024-03-31"),
        ([part(10), part()], True, False, "1 of 2 parts do not record the newest d"),
        ([part(10, nulls=1)], True, False, "1 of 1 parts"),
        ([part("10")], True, False, "1 of 1 parts"),
        ([], True, False, "no visible part"),
        ([part(10)], False, False, "enable_partition_ttl_fallback is off"),
    ],
)
def test_without_a_key_that_bounds_it_all_parts_must_have_expired(
    parts: list[Part], fallback: bool, goes: bool, told: str
) -> None:
    ttl = known(table())
    settings = replace(SETTINGS, partition_ttl_fallback=fallback)
    verdict = judge_expiry("p", partition_end(ttl, parts, settings=settings), ttl, now_ms=ms(2024, 3, 5))
    assert verdict.goes is goes
    assert told in verdict.reason
    assert is_expired(ttl, parts, now_ms=ms(2024, 3, 5), settings=settings) is goes


def test_a_range_counts_only_for_the_column_that_it_was_noted_of() -> None:
    """The part was written when the column had another name, and another column had this one."""
    older = Schema(columns=(Column(id=7, name="e", type=DATE), Column(id=8, name="d", type=DATE)))
    definition = table()
    renamed = SchemaVersion(version=1, schema=older)
    ttl = known(
        TableDef(
            uuid=definition.uuid,
            database="default",
            name="t",
            schema=definition.schema,
            schema_version=2,
            older_schemas=(renamed,),
            ttl=definition.ttl,
        )
    )
    assert partition_end(ttl, [part(10)], settings=SETTINGS).last is None
    assert partition_end(ttl, [part(10, column="e")], settings=SETTINGS).last == 10
    assert partition_end(ttl, [part(10, version=2)], settings=SETTINGS).last == 10
    assert partition_end(ttl, [part(10, version=3)], settings=SETTINGS).last is None


def test_tables_without_ttl_and_with_one_that_is_not_understood() -> None:
    assert ttl_of(table(ttl=None)) is None
    with pytest.raises(InvalidInputError):
        ttl_of(table(ttl="d + 1"))


def test_single_rows_of_a_part_expire_with_its_next_merge() -> None:
    ttl = known(table())
    rows = part(day(2024, 12, 31))
    rows = msgspec.structs.replace(rows, ranges={"d": ColumnRange(day(2024, 1, 1), day(2024, 12, 31), 0)})
    assert (
        judge_rows(ttl, rows, settings=MergeSettings(), now_ms=ms(2024, 1, 5))
        == "its first row expires at 2024-01-31 00:00:00"
    )
    told = judge_rows(ttl, rows, settings=MergeSettings(), now_ms=ms(2024, 3, 1))
    assert told.startswith("some of its rows expired from 2024-01-31 00:00:00 on; they go with its next merge")
    # Nothing is said of what is not known: no range, a range of texts, a column of another type in this part.
    for unknown in (part(), msgspec.structs.replace(rows, ranges={"d": ColumnRange("a", "b", 0)})):
        assert judge_rows(ttl, unknown, settings=MergeSettings(), now_ms=ms(2024, 3, 1)) == ""
    assert (
        judge_rows(
            ttl, msgspec.structs.replace(rows, schema_version=99), settings=MergeSettings(), now_ms=ms(2024, 3, 1)
        )
        == ""
    )
