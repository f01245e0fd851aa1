"""The knobs of storage: how part files are written."""

from __future__ import annotations

from tilth.base.settings import Scope, Setting, SettingGroup
from tilth.base.units import KIB, MIB, parse_bytes

PARQUET_COMPRESSION_LEVEL = Setting(
    name="parquet_compression_level",
    scope=Scope.TABLE,
    default=1,
    parse=int,
    check=lambda level: 1 <= level <= 19,
    allowed="1 to 19",
    doc="Level of zstd. Higher: smaller files, slower inserts and merges. Sorted columns gain little above 3.",
)
PARQUET_ROW_GROUP_ROWS = Setting(
    name="parquet_row_group_rows",
    scope=Scope.TABLE,
    default=256 * 1024,
    parse=int,
    check=lambda rows: rows >= 1,
    allowed="1 and up",
    unit="rows",
    doc="Rows of a Parquet row group. More: better compression, fewer footers to read. Fewer: a query with a "
    "selective filter skips more, merges hold less memory.",
)
PARQUET_ROW_GROUP_BYTES = Setting(
    name="parquet_row_group_bytes",
    scope=Scope.TABLE,
    default=128 * MIB,
    parse=parse_bytes,
    check=lambda size: size >= 64 * KIB,
    allowed="64 KiB and up",
    unit="bytes",
    doc="Size of a Parquet row group before compression, by estimate; the smaller of the two limits counts. More: "
    "fewer footers to read. Less: writers and merges of wide tables hold less memory.",
)

TABLE_SETTINGS = SettingGroup((PARQUET_COMPRESSION_LEVEL, PARQUET_ROW_GROUP_ROWS, PARQUET_ROW_GROUP_BYTES))
#: Their canonical names.
TABLE_SETTING_NAMES = frozenset(setting.name for setting in TABLE_SETTINGS.all)
