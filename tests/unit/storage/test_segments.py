"""Layouts of tables with segments, and names of what lies beside a part's file.

Modules: storage/store/paths.py, storage/settings.py.
"""

from __future__ import annotations

import msgspec
import pytest

from tilth.base.settings import BadSettingError
from tilth.model.delta import Delta, DeltaKind, Target
from tilth.model.part import DataFile, Part, PartName
from tilth.model.table import Column, Schema, SchemaVersion, TableDef
from tilth.model.types import Kind, Simple
from tilth.storage import (
    FILTER_EXTENSION,
    MAP_EXTENSION,
    PartShapeUnknownError,
    StorageSettings,
    file_name,
    layout_of,
    local_root,
    sidecar_name,
    sources_of,
    storage_settings,
)

SCHEMA = Schema(
    columns=(Column(id=1, name="k", type=Simple(Kind.INT64)), Column(id=2, name="v", type=Simple(Kind.INT64)))
)
TABLE = TableDef(uuid="ab", database="d", name="t", schema=SCHEMA, order_by=("k",))


def test_rows_come_into_segments_where_the_table_is_set_so_or_has_a_unique_key() -> None:
    assert not layout_of(TABLE, local_root("/data")).is_buffered
    buffered = msgspec.structs.replace(TABLE, settings={"memory_buffer": "1"})
    assert layout_of(buffered, local_root("/data")).is_buffered
    unique = layout_of(msgspec.structs.replace(TABLE, unique_key=("k",), version_column="v"), local_root("/data"))
    assert (unique.is_buffered, unique.unique_key, unique.version_column) == (True, ("k",), "v")


def test_the_settings_of_a_table_are_read() -> None:
    assert storage_settings(TABLE) == StorageSettings()
    assert StorageSettings().partition_level_unique_keys
    given = {"partition_level_unique_keys": "0", "enable_unique_partial_update": "true", "merge_policy": "key_range"}
    read = storage_settings(msgspec.structs.replace(TABLE, settings=given))
    assert (read.memory_buffer, read.partition_level_unique_keys, read.enable_unique_partial_update) == (
        False,
        False,
        True,
    )
    with pytest.raises(BadSettingError):
        storage_settings(msgspec.structs.replace(TABLE, settings={"memory_buffer": "maybe"}))


def test_what_lies_beside_a_file_is_named_by_its_stem() -> None:
    name = file_name(txn=1, task=2, attempt=3, n=4)
    assert sidecar_name(name, MAP_EXTENSION) == "1-2.3-4.map"
    assert sidecar_name(name, FILTER_EXTENSION) == "1-2.3-4.filter"
    assert file_name(txn=1, task=2, attempt=3, n=4, extension="puffin") == "1-2.3-4.puffin"


def _file(name: str) -> DataFile:
    return DataFile(name=name, size=1, checksum=0)


def test_each_part_gets_the_deltas_that_name_it_and_the_columns_of_its_version() -> None:
    older = Schema(columns=SCHEMA.columns[:1])
    table = msgspec.structs.replace(TABLE, schema_version=2, older_schemas=(SchemaVersion(version=1, schema=older),))
    parts = [
        Part(
            name=PartName("all", block, block, 0, block), schema_version=version, rows=9, file=_file(f"{block}.parquet")
        )
        for block, version in ((1, 1), (2, 2))
    ]
    deltas = [
        Delta(
            kind=DeltaKind.CHANGES,
            partition="all",
            file=_file(f"{ts}.arrow"),
            targets=tuple(Target(file=name, deleted=1) for name in names),
            change_ts=ts,
            commit_ts=ts,
        )
        for ts, names in ((8, ("1.parquet", "2.parquet")), (7, ("1.parquet", "3.parquet")))
    ]
    first, second = sources_of(table, parts, deltas)
    assert ([delta.change_ts for delta in first.deltas], first.schema) == ([7, 8], older)
    assert ([delta.change_ts for delta in second.deltas], second.schema) == ([8], SCHEMA)
    lost = msgspec.structs.replace(parts[0], schema_version=9)
    with pytest.raises(PartShapeUnknownError, match="all_1_1_0_1"):
        sources_of(table, [lost], deltas)
