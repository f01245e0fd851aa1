"""The knobs of storage: how files are written, what a unique key means."""

from __future__ import annotations

from tilth.base.settings import Scope, Setting, SettingGroup, parse_bool
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

MEMORY_BUFFER = Setting(
    name="memory_buffer",
    scope=Scope.TABLE,
    default=False,
    parse=parse_bool,
    allowed="true or false",
    doc="On: rows first land in small segments in the order in which they come, readable at once, and are sorted into "
    "parts later. Rows are visible sooner and small inserts cost less; until then queries read unsorted rows. Tables "
    "with a UNIQUE KEY always do so.",
)
PARTITION_LEVEL_UNIQUE_KEYS = Setting(
    name="partition_level_unique_keys",
    scope=Scope.TABLE,
    default=True,
    parse=parse_bool,
    allowed="true or false",
    doc="Of tables with a UNIQUE KEY. On: a key is unique within its partition, and an insert looks for older rows "
    "there only. Off: it is unique in the whole table, and an insert looks through all partitions.",
)
ENABLE_UNIQUE_PARTIAL_UPDATE = Setting(
    name="enable_unique_partial_update",
    scope=Scope.TABLE,
    default=False,
    parse=parse_bool,
    allowed="true or false",
    doc="Of tables with a UNIQUE KEY. On: NULL in a row that comes in means that the older row's value stays. Off: "
    "NULL is a value, the whole row is replaced.",
)

TABLE_SETTINGS = SettingGroup(
    (
        PARQUET_COMPRESSION_LEVEL,
        PARQUET_ROW_GROUP_ROWS,
        PARQUET_ROW_GROUP_BYTES,
        MEMORY_BUFFER,
        PARTITION_LEVEL_UNIQUE_KEYS,
        ENABLE_UNIQUE_PARTIAL_UPDATE,
    )
)
#: Their canonical names.
TABLE_SETTING_NAMES = frozenset(setting.name for setting in TABLE_SETTINGS.all)
