"""Settings of storage: how files are written, what a unique key means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilth.base.settings import (
    SWITCH,
    SettingCheck,
    SettingGroup,
    cached_settings,
    settings_of,
    table_setting,
    within,
)
from tilth.base.units import KIB, MIB, parse_bytes
from tilth.model.storage import DEFAULT_STORAGE
from tilth.model.table import TableDef

#: More replicas than anybody has.
REPLICAS_MAX = 64


def parse_quorum(text: str) -> int:
    """Read a number of copies; `auto` is 0. Raises ValueError."""
    return 0 if text.strip().lower() == "auto" else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Rules for the files of one table, and the meaning of its unique key."""

    parquet_compression_level: int = table_setting(
        "parquet_compression_level",
        1,
        within(int, 1, 19),
        "Level of zstd. Higher: smaller files, slower inserts and merges. Sorted columns gain little above 3.",
    )
    parquet_row_group_rows: int = table_setting(
        "parquet_row_group_rows",
        256 * 1024,
        within(int, 1),
        "Rows of a Parquet row group. More: better compression, fewer footers to read. Fewer: a query with a selective "
        "filter skips more, merges hold less memory.",
        unit="rows",
    )
    parquet_row_group_bytes: int = table_setting(
        "parquet_row_group_bytes",
        128 * MIB,
        within(parse_bytes, 64 * KIB, words="64 KiB and up"),
        "Size of a Parquet row group before compression, by estimate; the smaller of the two limits counts. More: "
        "fewer footers to read. Less: writers and merges of wide tables hold less memory.",
        unit="bytes",
    )
    segment_mb: int = table_setting(
        "log_segment_size_mb",
        64,
        within(int, 0),
        "Size at which a row segment rolls, before compression: the next rows go into another file; 0 never. More: "
        "fewer files and requests. Less: flushes hold less memory, and segments that nobody needs go sooner.",
        unit="MiB",
    )
    storage_policy: str = table_setting(
        "storage_policy",
        DEFAULT_STORAGE,
        SettingCheck(str, "the name of a storage"),
        "The storage where all files of the table are, see SHOW STORAGES. Chosen when the table is made: files are not "
        "moved.",
    )
    insert_quorum: int = table_setting(
        "insert_quorum",
        0,
        SettingCheck(parse_quorum, "auto, 0, or a number of replicas", lambda n: 0 <= n <= REPLICAS_MAX),
        "Of a table in a storage with replicas: so many copies of a file are safe before the commit that names it; "
        "auto or 0 is the storage's own QUORUM. More: a commit survives the loss of more replicas. Less: writes go on "
        "while more of them are away. INSERT .. SETTINGS insert_quorum = n sets it for one statement.",
    )
    memory_buffer: bool = table_setting(
        "memory_buffer",
        False,
        SWITCH,
        "On: rows first land in small segments in the order in which they come, readable at once, and are sorted into "
        "parts later. Rows are visible sooner and small inserts cost less; until then queries read unsorted rows. "
        "Tables with a UNIQUE KEY always do so.",
    )
    partition_level_unique_keys: bool = table_setting(
        "partition_level_unique_keys",
        True,
        SWITCH,
        "Of tables with a UNIQUE KEY. On: a key is unique within its partition, and an insert searches for older rows "
        "there only. Off: it is unique in the whole table, and an insert searches all partitions.",
    )
    enable_unique_partial_update: bool = table_setting(
        "enable_unique_partial_update",
        False,
        SWITCH,
        "Of tables with a UNIQUE KEY. On: NULL in a row that comes in means that the older row's value stays. Off: "
        "NULL is a value, the whole row is replaced.",
    )


TABLE_SETTINGS = SettingGroup(settings_of(StorageSettings))


def insert_quorum(settings: Mapping[str, str]) -> int:
    """Return the copies that a table's settings require; 0: the storage's own quorum. Raises BadSettingError."""
    return cached_settings(StorageSettings, settings).insert_quorum


def storage_settings(table: TableDef) -> StorageSettings:
    """Raises BadSettingError."""
    return cached_settings(StorageSettings, table.settings)
