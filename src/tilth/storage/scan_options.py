"""Which of Parquet's own filters a scan of part files may use. Pure.

Spark hands the predicates of a scan to parquet-java, which skips row groups and pages by statistics, page index and
dictionaries before Spark compares a value. For some values the two disagree, and rows are lost (misjudged.py). A file
whose record says `is_filterable` has none of them where it would matter; of others it is not known, and a scan of them
switches those filters off, for itself alone.

Covers: options of a scan. Does not cover: the scan (spark.py), finding such values (misjudged.py).
Always holds: neither the options nor the settings of the session change which rows a scan has.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilth.model.part import DataFile
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, kinds_in

#: Kinds of columns with values that may be misjudged.
MISJUDGED_KINDS = frozenset({Kind.FLOAT32, Kind.FLOAT64, Kind.DATE, Kind.TIMESTAMP})
#: Of every scan; a session may be a user's own, with settings that move old dates or leave out what cannot be read.
SCAN_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    # Comparing row by row, which Spark does not ask for by default, parquet-java tells 0.0 from -0.0.
    "parquet.filter.record-level.enabled": "false",
}
#: parquet-java reads these from Hadoop's configuration, into which Spark copies the options of a relation.
UNFILTERED_OPTIONS: Mapping[str, str] = {
    **SCAN_OPTIONS,
    "parquet.filter.stats.enabled": "false",
    "parquet.filter.columnindex.enabled": "false",
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
}


def can_filter(stored: Schema, file: DataFile) -> bool:
    """Whether a scan of the file, which has these columns, may use Parquet's filters."""
    return file.is_filterable or not misjudged_columns(stored)


def misjudged_columns(schema: Schema) -> list[Column]:
    """The columns whose types have values that may be misjudged."""
    return [column for column in schema.columns if kinds_in(column.type) & MISJUDGED_KINDS]
