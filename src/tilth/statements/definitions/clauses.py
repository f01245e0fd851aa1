"""Clauses of a table's definition that CREATE and ALTER share: UNIQUE KEY with its version column, TTL, and columns
that are computed from others.

Covers: what they require of the columns, what is refused, what a new TTL means for the rows that are there. Does not
cover: other clauses (tables.py), columns (columns.py).

Tests: tests/unit/statements/definitions/test_tables.py, tests/unit/statements/test_unique_ddl.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from itertools import groupby

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.base.settings import read_settings
from tilth.base.units import show_time
from tilth.control.context.lifetimes import trash_lifetime_ms
from tilth.control.context.services import Services
from tilth.grammar.statements import CreateTable
from tilth.maintenance import gc_settings, is_expired, ttl_of
from tilth.model.table import Column, ColumnKind, Schema, TableDef, full_name, is_op_name
from tilth.model.ttl import read_ttl
from tilth.model.types import INTEGER_BITS, DataType, Decimal, Kind, Simple
from tilth.query.errors import BadDefinitionError, UnknownColumnError
from tilth.statements.errors import BadAlterError
from tilth.storage import StorageSettings, StoreRoot, insert_quorum

_SCOPE = "partition_level_unique_keys"
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_DAY_SECONDS = 86_400


def keyed_schema(statement: CreateTable, schema: Schema) -> Schema:
    """The columns, with those of the unique key and the version NOT NULL.

    Raises UnknownColumnError, and BadDefinitionError for columns that cannot be a key or a version.
    """
    if statement.unique_key:
        check_no_op_column(schema)
    key = [_found(schema, name, "UNIQUE KEY") for name in statement.unique_key]
    for column in key:
        if not can_be_key(column.type):
            raise _refused("a column of this type cannot be a key", column)
    needed = list(key)
    if statement.version_column is not None:
        version = _found(schema, statement.version_column, "the version of ENGINE = MergeTree(..)")
        if version in key:
            raise _refused("the version orders rows of one key: it cannot be a column of the key", version)
        if not _can_be_version(version.type):
            hint = "a version is a whole number, a date or a timestamp"
            raise _refused("a column of this type cannot be a version", version, hint=hint)
        needed.append(version)
    states_null = {spec.name for spec in statement.columns if spec.states_null}
    for column in needed:
        if column.name in states_null:
            what = "UNIQUE KEY" if column in key else "the version"
            hint = "leave NULL and Nullable out: it is NOT NULL by itself"
            raise _refused(f"a column of {what} is never NULL", column, hint=hint)
    names = {column.name for column in needed}
    columns = tuple(
        msgspec.structs.replace(column, nullable=False) if column.name in names else column for column in schema.columns
    )
    return msgspec.structs.replace(schema, columns=columns)


def check_computed(table: TableDef) -> None:
    """Raises BadDefinitionError where a column that is computed from others would be needed before they are there."""
    if not table.schema.inserted:
        raise BadDefinitionError("a table needs a column that is not computed", table=full_name(table))
    computed = [each for each in table.schema.columns if each.expression or each.kind is ColumnKind.MATERIALIZED]
    if not table.unique_key or not computed:
        return
    if read_settings(StorageSettings, table.settings).enable_unique_partial_update:
        hint = "leave enable_unique_partial_update out: a row gets the values that it lacks after these are computed"
        raise _refused(
            "a table with partial updates has no columns that are computed from others", computed[0], hint=hint
        )
    named = {name.lower(): "UNIQUE KEY" for name in table.unique_key}
    named |= {each.column.lower(): "PARTITION BY beside UNIQUE KEY" for each in table.partition_by}
    if table.version_column is not None:
        named[table.version_column.lower()] = "the version of ENGINE = MergeTree(..)"
    for column in computed:
        clause = named.get(column.name.lower())
        if clause is not None:
            hint = "name the columns that it is computed from, or give it by INSERT: a row that deletes brings its key"
            raise _refused(f"a column that is computed cannot be in {clause}", column, hint=hint)


def check_not_alias(schema: Schema, name: str, clause: str) -> None:
    """Raises BadDefinitionError for an ALIAS column in a clause about what is stored."""
    if schema.find(name) is None and (alias := schema.find_any(name)) is not None:
        hint = "declare it MATERIALIZED, or name the columns that it is computed from"
        raise _refused(f"an ALIAS column is not stored, so it cannot be in {clause}", alias, hint=hint)


def check_no_op_column(schema: Schema) -> None:
    """Raises BadDefinitionError for a column with the name under which inserted rows carry their operation."""
    for column in schema.all_columns:
        if is_op_name(column.name):
            hint = "choose another name: rows of a table with a UNIQUE KEY use a column of this name to delete"
            raise _refused("the name is taken", column, hint=hint)


def can_be_key(data_type: DataType) -> bool:
    return isinstance(data_type, Simple | Decimal)


def check_scope_stays(table: TableDef, changes: Mapping[str, str], reset: Iterable[str]) -> None:
    """Raises BadAlterError for another scope of existing keys: their uniqueness would have to be checked anew."""
    if not table.unique_key:
        return
    now = _scope(table.settings)
    settings = {name: text for name, text in table.settings.items() if name not in set(reset)} | dict(changes)
    if _scope(settings) != now:
        raise BadAlterError(
            "the scope of a unique key cannot be changed",
            table=full_name(table),
            setting=_SCOPE,
            value=str(now).lower(),
            hint="create a table with the other scope, then INSERT .. SELECT",
        )


def check_storage_stays(table: TableDef, root: StoreRoot, changes: Mapping[str, str], reset: Iterable[str]) -> None:
    """Raises BadAlterError for another storage, as files are not moved, and InvalidInputError for too many copies."""
    settings = {name: text for name, text in table.settings.items() if name not in set(reset)} | dict(changes)
    now, then = (read_settings(StorageSettings, each).storage_policy for each in (table.settings, settings))
    if now != then:
        hint = "create a table with the other storage_policy, then INSERT .. SELECT"
        raise BadAlterError("a table stays in its storage", table=full_name(table), storage=now, hint=hint)
    root.with_quorum(insert_quorum(settings))


def _scope(settings: Mapping[str, str]) -> bool:
    return read_settings(StorageSettings, settings).partition_level_unique_keys


def _can_be_version(data_type: DataType) -> bool:
    if isinstance(data_type, Decimal):
        # UInt64 is stored as one; decimals are compared as they are, however many digits they have.
        return data_type.scale == 0
    return isinstance(data_type, Simple) and data_type.kind in (*INTEGER_BITS, *_TIMES)


def _found(schema: Schema, name: str, clause: str) -> Column:
    check_not_alias(schema, name, clause)
    column = schema.find(name)
    if column is None:
        raise UnknownColumnError(column=name, clause=clause, hint=f"the columns are: {', '.join(schema.names)}")
    return column


def _refused(message: str, column: Column, *, hint: str = "") -> BadDefinitionError:
    return BadDefinitionError(message, column=column.name, type=column.declared_type, hint=hint)


def check_ttl(text: str, schema: Schema, now_ms: int) -> None:
    """Raises InvalidInputError for an invalid TTL, and for one by which a row of today would outlive the calendar."""
    ttl = read_ttl(text, schema)
    today = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).date()
    years, days = ttl.months / 12, ttl.seconds / _DAY_SECONDS
    if today.year + years > datetime.MAXYEAR or days > (datetime.date.max - today).days:
        hint = "leave the TTL out to keep rows for ever"
        raise InvalidInputError("this TTL leaves the range of times, which ends with year 9999", ttl=text, hint=hint)


def expired_at_once(services: Services, table: TableDef, text: str) -> str:
    """Sentence on the rows that a new TTL expires at once, and how to recover them; empty when there are none."""
    ttl = ttl_of(msgspec.structs.replace(table, ttl=text))
    assert ttl is not None
    now_ms, settings = services.clock.now_ms(), gc_settings(table.settings)
    partitions = rows = 0
    shown = sorted(services.catalog.parts.snapshot(table.uuid).parts, key=lambda part: part.name.partition)
    for _, in_partition in groupby(shown, key=lambda part: part.name.partition):
        parts = list(in_partition)
        if is_expired(ttl, parts, now_ms=now_ms, settings=settings):
            partitions += 1
            rows += sum(part.rows for part in parts)
    if not partitions:
        return ""
    until = show_time(now_ms + trash_lifetime_ms(table))
    return (
        f"; expired by it already, so that they go now, unless GC is stopped: partitions {partitions}, rows {rows}; "
        f"REMOVE TTL or a longer TTL, and then UNDROP PARTITION, brings them back until {until}"
    )
