"""Parquet's own filters that a scan of part files may use. Pure.

parquet-java skips row groups and pages by predicates that it gets from Spark, and misjudges some values
(unfilterable.py). A file whose record has `is_filterable` is safe from that. Of other files it is not known: a scan of
them switches these filters off, for itself alone.

Covers: the options of a scan. Does not cover: the scan (read/spark.py).
Always holds: neither these options nor the settings of a user's session change which rows a scan finds, or values.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilth.model.part import DataFile
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, kinds_in

#: Kinds of columns with values that may be unfilterable.
UNFILTERABLE_KINDS = frozenset({Kind.FLOAT32, Kind.FLOAT64, Kind.DATE, Kind.TIMESTAMP})
#: Options of every scan. The session may be a user's own, with settings that move old dates or skip damaged files.
SCAN_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Row by row, which Spark does not request by default, parquet-java would not find -0.0 for 0.0 either.
    "parquet.filter.record-level.enabled": "false",
}
#: parquet-java reads the additional ones from the Hadoop configuration, into which Spark copies a relation's options.
UNFILTERED_OPTIONS: Mapping[str, str] = {
    **SCAN_OPTIONS,
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}


def can_filter(stored: Schema, file: DataFile) -> bool:
    """True if a scan of the file, which has these columns, may use Parquet's filters."""
    return file.is_filterable or is_always_filterable(stored)


def is_always_filterable(stored: Schema) -> bool:
    """True if Parquet's filters may be used on any file with these columns."""
    # With a dot in its name a column may be taken for a field of another one.
    return not (unfilterable_columns(stored) or any("." in name for name in stored.names))


def unfilterable_columns(schema: Schema) -> list[Column]:
    return [column for column in schema.columns if kinds_in(column.type) & UNFILTERABLE_KINDS]
