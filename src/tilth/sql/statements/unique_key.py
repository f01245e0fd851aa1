"""What UNIQUE KEY and the version column ask of a table's columns, and what of them no statement changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tilth.base.settings import read_settings
from tilth.model.row_op import is_op_name
from tilth.model.table import Column, Schema, TableDef, full_name
from tilth.model.types import DataType, Decimal, Kind, Simple, spark_name
from tilth.sql.errors import BadAlterError, BadDefinitionError, UnknownColumnError
from tilth.sql.grammar import CreateTable
from tilth.storage import StorageSettings

_SCOPE = "partition_level_unique_keys"
_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def keyed_schema(statement: CreateTable, schema: Schema) -> Schema:
    """The columns, with those of the unique key and the version NOT NULL.

    Raises UnknownColumnError, and BadDefinitionError for columns that cannot be a key or a version.
    """
    if statement.unique_key:
        check_no_op_column(schema)
    key = [_found(schema, name, "UNIQUE KEY") for name in statement.unique_key]
    for column in key:
        if not can_be_key(column.type):
            raise _refused("rows have no key in a column of this type", column)
    needed = list(key)
    if statement.version_column is not None:
        version = _found(schema, statement.version_column, "the version of ENGINE = MergeTree(..)")
        if version in key:
            raise _refused("the version tells rows with one key apart: it is no column of the key", version)
        if not _can_be_version(version.type):
            hint = "a version is a whole number, a date or a timestamp"
            raise _refused("a column of this type is no version", version, hint=hint)
        needed.append(version)
    said = {spec.name for spec in statement.columns if spec.says_null}
    for column in needed:
        if column.name in said:
            what = "UNIQUE KEY" if column in key else "the version"
            hint = "leave NULL and Nullable out: it is NOT NULL by itself"
            raise _refused(f"a column of {what} is never NULL", column, hint=hint)
    names = {column.name for column in needed}
    columns = tuple(
        msgspec.structs.replace(column, nullable=False) if column.name in names else column for column in schema.columns
    )
    return Schema(columns=columns)


def check_no_op_column(schema: Schema) -> None:
    """Raises BadDefinitionError for a column whose name says, in rows on their way in, what the row does."""
    for column in schema.columns:
        if is_op_name(column.name):
            hint = "call it otherwise: rows of a table with a UNIQUE KEY tell by a column of this name that they delete"
            raise _refused("the name is taken", column, hint=hint)


def can_be_key(data_type: DataType) -> bool:
    """Whether a key may have a column of this type."""
    return isinstance(data_type, Simple | Decimal)


def check_scope_stays(table: TableDef, changes: Mapping[str, str], reset: Iterable[str]) -> None:
    """Raises BadAlterError for another scope of the keys that are there: rows would have to be looked at again."""
    if not table.unique_key:
        return
    now = _scope(table.settings)
    settings = {name: text for name, text in table.settings.items() if name not in set(reset)} | dict(changes)
    if _scope(settings) != now:
        raise BadAlterError(
            "the scope of a unique key stays as it is",
            table=full_name(table),
            setting=_SCOPE,
            value=str(now).lower(),
            hint="make a table with the other scope, INSERT .. SELECT",
        )


def _scope(settings: Mapping[str, str]) -> bool:
    return read_settings(StorageSettings, settings).partition_level_unique_keys


def _can_be_version(data_type: DataType) -> bool:
    return isinstance(data_type, Simple) and data_type.kind in (*_INTEGERS, *_TIMES)


def _found(schema: Schema, name: str, clause: str) -> Column:
    column = schema.find(name)
    if column is None:
        raise UnknownColumnError(column=name, clause=clause, hint=f"the columns are: {', '.join(schema.names)}")
    return column


def _refused(told: str, column: Column, *, hint: str = "") -> BadDefinitionError:
    return BadDefinitionError(told, column=column.name, type=spark_name(column.type), hint=hint)
