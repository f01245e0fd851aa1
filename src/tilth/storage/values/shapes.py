"""Shapes of parts: the columns that a file has, and how they become the columns that a reader wants. Pure.

Covers: which parts are scanned alike, what each wanted column is made of. Does not cover: the scan (read/spark.py).
Always holds: columns are matched by id, so that a renamed column keeps its values and a new column with an old name
never finds the old one's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from tilth.model.computed import value_text
from tilth.model.part import DataFile, Part
from tilth.model.table import Column, Schema, SchemaVersion, TableDef, full_name
from tilth.model.types import quoted, spark_name
from tilth.storage.errors import PartShapeUnknownError
from tilth.storage.values.scan_options import is_always_filterable


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScan:
    """Parts that one scan reads."""

    #: The names and types to scan by.
    stored: Schema
    #: Schema of the resulting rows; its defaults are those that rows of these files get.
    wanted: Schema
    parts: tuple[Part, ...]
    #: `True` if a scan may use Parquet's filters on these files.
    is_filterable: bool = False

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(part.file for part in self.parts)


def scans_of(table: TableDef, parts: Iterable[Part]) -> list[PartScan]:
    """Divide parts among scans of Spark's own: by shape, and by whether Parquet's filters may be used on the files."""
    apart: dict[bool, list[Part]] = {False: [], True: []}
    is_safe: dict[int, bool] = {}
    for part in parts:
        version = part.schema_version
        if version not in is_safe:
            is_safe[version] = is_always_filterable(stored_schema(table, part))
        apart[part.file.is_filterable or is_safe[version]].append(part)
    return [
        replace(scan, is_filterable=is_filterable)
        for is_filterable, members in apart.items()
        for scan in scans_by_shape(table, members)
    ]


def scans_by_shape(table: TableDef, parts: Iterable[Part]) -> list[PartScan]:
    """Divide the parts among scans by their shape, older shapes first.

    Parts whose files a scan by the table's present columns reads rightly are one scan, whatever their version. Raises
    PartShapeUnknownError naming a part whose columns nobody knows any more.
    """
    found: dict[int, list[Part]] = {}
    presently_read: dict[int, bool] = {}
    for part in parts:
        version = part.schema_version
        if version not in presently_read:
            presently_read[version] = is_read_by(stored_schema(table, part), wanted_of(table, version))
        found.setdefault(table.schema_version if presently_read[version] else version, []).append(part)
    return [
        PartScan(
            stored=table.schema_of(version) or table.schema,
            wanted=wanted_of(table, version),
            parts=tuple(found[version]),
        )
        for version in sorted(found)
    ]


def stored_schema(table: TableDef, part: Part) -> Schema:
    """The columns that the part's file has; raises PartShapeUnknownError naming the part."""
    stored = table.schema_of(part.schema_version)
    if stored is None:
        raise PartShapeUnknownError(
            part=part.name,
            table=full_name(table),
            schema_version=part.schema_version,
            hint="the catalog has lost the columns that the part was written with: restore it from a backup",
        )
    return stored


def is_read_by(stored: Schema, wanted: Schema) -> bool:
    """True if a scan of a file with the stored columns by the wanted names and types needs nothing more.

    That is the case if columns only went or only came without a default: Parquet leaves out the former and makes NULL
    of the latter.
    """
    known = {column.id: column for column in stored.columns}
    for column in wanted.columns:
        found = known.get(column.id)
        if found is None:
            if column.default is not None or column.expression or stored.find(column.name) is not None:
                return False
        elif (found.name, found.type) != (column.name, column.type):
            return False
    return True


def wanted_of(table: TableDef, version: int) -> Schema:
    """The table's present columns for the rows of parts of a version, which may lack some.

    A column that they lack has the default that it came with: a default that was changed later is for later rows, and
    what a reader sees must not change when the parts are rewritten.
    """
    stored = table.schema_of(version)
    if stored is None or version == table.schema_version:
        return table.schema
    known = {column.id for column in stored.columns}
    later = sorted((each for each in table.older_schemas if each.version > version), key=lambda each: each.version)
    columns = (
        column if column.id in known else _as_it_came(column, [*later, table.schema_now])
        for column in table.schema.columns
    )
    return msgspec.structs.replace(table.schema, columns=tuple(columns))


def expressions(stored: Schema, wanted: Schema, needed: Collection[int] | None = None) -> list[str]:
    """Return for each wanted column its Spark SQL over the stored columns.

    `needed`: the ids of the columns that the reader uses; the others are NULL. None: all.
    """
    known = {column.id: column for column in stored.columns}
    return [
        _expression(known, column, wanted)
        if needed is None or column.id in needed
        else f"CAST(NULL AS {spark_name(column.type)}) AS {quoted(column.name)}"
        for column in wanted.columns
    ]


def are_computed(stored: Schema, wanted: Schema) -> bool:
    """True if a wanted column is computed from others of the file, by a clock that must be UTC's."""
    known = {column.id for column in stored.columns}
    return any(column.expression and column.id not in known for column in wanted.columns)


def _as_it_came(column: Column, versions: list[SchemaVersion]) -> Column:
    if column.older_default is not None:
        return msgspec.structs.replace(column, default=column.older_default)
    for version in versions:
        first = next((each for each in version.schema.columns if each.id == column.id), None)
        if first is None:
            continue
        default = first.default
        if default is not None and first.type != column.type:
            default = f"CAST({default} AS {spark_name(first.type)})"
        return msgspec.structs.replace(column, default=default, expression=first.expression)
    return column


def _expression(known: Mapping[int, Column], wanted: Column, schema: Schema) -> str:
    name, stored = quoted(wanted.name), known.get(wanted.id)
    if stored is not None and stored.type == wanted.type:
        return f"{quoted(stored.name)} AS {name}" if stored.name != wanted.name else name
    if stored is not None or not wanted.expression:
        return f"{_stored_value(stored, wanted)} AS {name}"
    value = value_text(
        wanted,
        schema,
        given=lambda column: _stored_value(known.get(column.id), column),
        computes=lambda column: column.id not in known,
    )
    return f"{value} AS {name}"


def _stored_value(stored: Column | None, wanted: Column) -> str:
    """Return the value of a column that the file has, or that has one value for all rows of it."""
    value = (wanted.default or "NULL") if stored is None else quoted(stored.name)
    return f"CAST({value} AS {spark_name(wanted.type)})"
