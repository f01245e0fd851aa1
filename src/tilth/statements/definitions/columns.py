"""Columns of a table after ADD, DROP, MODIFY and RENAME COLUMN. Pure.

Covers: the new columns, and why an operation is refused. Does not cover: reading defaults (inserts/defaults.py),
the parts that are there (tilth.storage shapes them while they are read, maintenance rewrites them).
Always holds: all operations or none; a column's id is never used again; no value that is stored is lost; columns that
files are sorted, partitioned or expired by stay as they are.

Tests: tests/unit/statements/alter/test_alter_columns.py, tests/unit/statements/test_computed_ddl.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tilth.grammar.statements import (
    AddColumn,
    ColumnOperation,
    ColumnSpec,
    DescribeColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from tilth.grammar.text.tokens import words_of
from tilth.model.checks import first_stricter, rule_text
from tilth.model.computed import dependents, reached_ids
from tilth.model.mutation import Mutation
from tilth.model.table import Column, ColumnKind, Expression, Schema, TableDef, full_name
from tilth.model.ttl import read_ttl
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct
from tilth.query.errors import BadDefinitionError, UnknownColumnError
from tilth.query.language.coerce import INTEGER_DIGITS
from tilth.statements.definitions.clauses import check_no_op_column
from tilth.statements.errors import BadAlterError, ColumnBusyError, ComputedColumnError

_FLOATS_OF = {Kind.FLOAT32: (Kind.INT8, Kind.INT16), Kind.FLOAT64: (Kind.INT8, Kind.INT16, Kind.INT32, Kind.FLOAT32)}
_WIDENING_HINT = (
    "allowed: tinyint, smallint, int, bigint in this direction; the first two to float, the first three and float to "
    "double; whole numbers and decimals to a decimal with at least as many digits before and behind the point; date to "
    "timestamp_ntz; elements, map values and fields likewise. For others: ADD a column, UPDATE it, DROP the old one"
)


@dataclass(frozen=True, slots=True)
class NewColumns:
    """Columns that the operations make."""

    schema: Schema
    next_column_id: int


def changed(
    table: TableDef,
    operations: Sequence[ColumnOperation],
    pending: Sequence[Mutation] = (),
    *,
    versions: Collection[int] = (),
) -> NewColumns | None:
    """The columns after all operations, each on what those before it have made; None: nothing changes.

    `pending`: unfinished mutations; columns that they name are not renamed, and get no other type or NULL. `versions`:
    the schema versions of the table's parts. Raises BadAlterError, ColumnBusyError, UnknownColumnError, BadValueError.
    """
    busy = {word: entry for entry in reversed(pending) for word in words_of(entry.command)}
    now = NewColumns(table.schema, table.next_column_id)
    for operation in operations:
        match operation:
            case AddColumn():
                now = _added(table, now, operation)
            case DropColumn():
                now = _dropped(table, now, operation)
            case ModifyColumn():
                now = _modified(table, now, operation, busy, versions)
            case DescribeColumn():
                now = _described(table, now, operation, versions)
            case RenameColumn(old=old):
                _check_idle(table, old, busy)
                now = _renamed(table, now, operation)
    if table.unique_key:
        check_no_op_column(now.schema)
    return None if now.schema == table.schema else now


def protected_columns(table: TableDef) -> dict[int, str]:
    """Columns that files are laid out by, by id, and by which clause."""
    found: dict[int, str] = {}
    named = [(table.order_by, "ORDER BY"), (table.unique_key, "UNIQUE KEY")]
    named.append((tuple(each.column for each in table.partition_by), "PARTITION BY"))
    if table.version_column is not None:
        named.append(((table.version_column,), "ENGINE = MergeTree(version)"))
    if table.ttl is not None:
        named.append(((read_ttl(table.ttl, table.schema).column,), "TTL"))
    for names, clause in named:
        for name in names:
            column = table.schema.find(name)
            assert column is not None
            found[column.id] = clause
    return found


def check_unprotected(table: TableDef, column: Column, what: str) -> None:
    """Raises BadAlterError for a column that files are laid out by."""
    clause = protected_columns(table).get(column.id)
    if clause is not None:
        hint = (
            "MODIFY TTL or REMOVE TTL first"
            if clause == "TTL"
            else "create a table with other keys, then INSERT .. SELECT"
        )
        raise BadAlterError(
            f"{what} cannot be used for a column of {clause}", table=full_name(table), column=column.name, hint=hint
        )


def find_in(schema: Schema, name: str) -> Column:
    """Return the column of that name; raises UnknownColumnError that lists those there are."""
    column = schema.find(name)
    if column is None:
        raise UnknownColumnError(column=name, hint=f"the columns are: {', '.join(schema.names)}")
    return column


def find_any_in(schema: Schema, name: str) -> Column:
    """Return the column of that name, stored or not; raises UnknownColumnError."""
    return schema.find_any(name) or find_in(schema, name)


def check_updated(table: TableDef, names: Sequence[str]) -> list[Column]:
    """Return the columns that an UPDATE sets.

    Raises ComputedColumnError, and BadAlterError for those that files are laid out by, themselves or through a column
    that is computed from them.
    """
    found = []
    protected = protected_columns(table)
    for name in names:
        column = find_any_in(table.schema, name)
        if column.kind is not ColumnKind.DEFAULT:
            hint = "UPDATE the columns that it is computed from"
            raise ComputedColumnError(
                "no UPDATE sets this column", table=full_name(table), column=column.name, hint=hint
            )
        check_unprotected(table, column, "UPDATE")
        for other in table.schema.columns:
            is_computed = other.kind is ColumnKind.MATERIALIZED and other.id in protected
            if is_computed and column.id in reached_ids(table.schema, [other.id]):
                hint = f"{other.name} is computed from it: create a table with other keys, then INSERT .. SELECT"
                raise BadAlterError(
                    f"UPDATE would change a column of {protected[other.id]}",
                    table=full_name(table),
                    column=column.name,
                    hint=hint,
                )
        found.append(column)
    return found


def is_widening(old: DataType, new: DataType) -> bool:
    """True if every value of the old type is a value of the new one, wherever and whenever it is read."""
    if old == new:
        return True
    match old, new:
        case Simple(kind=given), Simple(kind=wanted):
            if given in INTEGER_DIGITS and wanted in INTEGER_DIGITS:
                return INTEGER_DIGITS[given] < INTEGER_DIGITS[wanted]
            return given in _FLOATS_OF.get(wanted, ()) or (given, wanted) == (Kind.DATE, Kind.TIMESTAMP_NTZ)
        case Simple(kind=given), Decimal(precision=precision, scale=scale):
            return given in INTEGER_DIGITS and precision - scale >= INTEGER_DIGITS[given]
        case Decimal(), Decimal():
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case Array(), Array():
            return is_widening(old.element, new.element)
        case Map(), Map():
            return old.key == new.key and is_widening(old.value, new.value)
        case Struct(fields=given_fields), Struct(fields=wanted_fields):
            return len(given_fields) == len(wanted_fields) and all(
                one.name == other.name and is_widening(one.type, other.type)
                for one, other in zip(given_fields, wanted_fields, strict=True)
            )
    return False


def _added(table: TableDef, now: NewColumns, operation: AddColumn) -> NewColumns:
    spec = operation.column
    if now.schema.find_any(spec.name) is not None:
        if operation.if_not_exists:
            return now
        hint = "ADD COLUMN IF NOT EXISTS keeps the column as it is"
        raise BadAlterError("the column exists already", table=full_name(table), column=spec.name, hint=hint)
    if spec.kind is ColumnKind.ALIAS:
        identity = min((each.id for each in now.schema.aliases), default=0) - 1
        aliases = (*now.schema.aliases, column_of(spec, identity))
        return replace(now, schema=msgspec.structs.replace(now.schema, aliases=aliases))
    if not spec.nullable and _is_nothing(spec.default):
        raise BadAlterError(
            "a new column that is NOT NULL needs a default",
            table=full_name(table),
            column=spec.name,
            hint="existing rows get it",
        )
    return with_column(now, operation)


def with_column(now: NewColumns, operation: AddColumn) -> NewColumns:
    """Add the new column, which has a free name, where the operation wants it."""
    columns = list(now.schema.columns)
    position = len(columns)
    if operation.first:
        position = 0
    elif operation.after is not None:
        position = columns.index(find_in(now.schema, operation.after)) + 1
    columns.insert(position, column_of(operation.column, now.next_column_id))
    schema = msgspec.structs.replace(now.schema, columns=tuple(columns))
    return NewColumns(schema, now.next_column_id + 1)


def column_of(spec: ColumnSpec, identity: int) -> Column:
    """Return the column of a definition, without its default (inserts/defaults.py). Raises BadDefinitionError."""
    for _, zone in spec.zones:
        _check_zone(spec.name, zone)
    return Column(
        id=identity,
        name=spec.name,
        type=spec.type,
        nullable=spec.nullable,
        default=spec.default,
        comment=spec.comment,
        declared=spec.declared,
        checks=spec.checks,
        zones=spec.zones,
        written_default=spec.default,
        kind=spec.kind,
    )


def _check_zone(column: str, zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        hint = "zones have names as in 'Asia/Shanghai' or 'UTC'"
        raise BadDefinitionError("no such time zone", column=column, zone=zone, hint=hint) from error


def _dropped(table: TableDef, now: NewColumns, operation: DropColumn) -> NewColumns:
    if operation.if_exists and now.schema.find_any(operation.column) is None:
        return now
    column = find_any_in(now.schema, operation.column)
    check_unprotected(table, column, "DROP COLUMN")
    if now.schema.inserted == (column,):
        hint = "DROP TABLE drops all of it"
        raise BadAlterError(
            "the last column of a table cannot be dropped", table=full_name(table), column=column.name, hint=hint
        )
    named_by = dependents(now.schema, column.id)
    if named_by:
        names = ", ".join(each.name for each in named_by)
        hint = "DROP these columns first, or give them other expressions by MODIFY COLUMN"
        raise BadAlterError(
            "other columns are computed from this one", table=full_name(table), column=column.name, by=names, hint=hint
        )
    columns, aliases = (
        tuple(each for each in columns if each is not column) for columns in (now.schema.columns, now.schema.aliases)
    )
    return replace(now, schema=Schema(columns=columns, aliases=aliases))


def _modified(
    table: TableDef, now: NewColumns, operation: ModifyColumn, busy: Mapping[str, Mutation], versions: Collection[int]
) -> NewColumns:
    """Change type and NULL to what is written; DEFAULT and COMMENT stay unless they are written, too."""
    spec = operation.column
    if operation.if_exists and now.schema.find_any(spec.name) is None:
        return now
    old = find_any_in(now.schema, spec.name)
    if spec.default is not None or old.kind is ColumnKind.ALIAS:
        _check_stays_stored(table, old, spec.kind, has_expression=spec.default is not None)
    if old.kind is ColumnKind.ALIAS:
        return replaced(now, old, with_comment(column_of(spec, old.id), old, spec.comment))
    if (spec.type, spec.nullable) != (old.type, old.nullable):
        _check_idle(table, old.name, busy)
        check_unprotected(table, old, "MODIFY COLUMN")
    if not is_widening(old.type, spec.type):
        raise BadAlterError(
            "a stored value might be lost",
            table=full_name(table),
            column=old.name,
            type=old.declared_type,
            wanted=spec.declared,
            hint=_WIDENING_HINT,
        )
    if old.nullable and not spec.nullable:
        hint = "leave NOT NULL out: existing rows may have NULL"
        raise BadAlterError("a column cannot become NOT NULL", table=full_name(table), column=old.name, hint=hint)
    stricter = first_stricter(spec.checks, old.checks)
    if stricter is not None:
        raise BadAlterError(
            f"stored values may be other than {rule_text(stricter.rule)}",
            table=full_name(table),
            column=old.name,
            type=old.declared_type,
            wanted=spec.declared,
            hint="ADD a column of the type, UPDATE it with the values that fit, DROP the old one",
        )
    new = column_of(spec, old.id)
    if spec.default is None:
        new = with_default(new, old)
    elif not spec.nullable and _is_nothing(spec.default):
        raise BadAlterError("the default of a NOT NULL column cannot be NULL", table=full_name(table), column=old.name)
    new = msgspec.structs.replace(with_comment(new, old, spec.comment), older_default=old.older_default)
    has_value = new.default is not None or bool(new.expression)
    if (_default_of(new), new.type) != (_default_of(old), old.type) and has_value:
        _check_everywhere(table, old, versions)
    return replaced(now, old, new)


def _check_stays_stored(table: TableDef, old: Column, kind: ColumnKind, *, has_expression: bool) -> None:
    """Raises BadAlterError where a stored column would become an ALIAS, or the other way round."""
    if (old.kind is ColumnKind.ALIAS) != (kind is ColumnKind.ALIAS) or not has_expression:
        hint = "write ALIAS and an expression; a column that is stored is DROPped and ADDed, or the other way round"
        raise BadAlterError(
            "a column that is stored does not become an ALIAS, nor an ALIAS one that is stored",
            table=full_name(table),
            column=old.name,
            hint=hint,
        )


def _default_of(column: Column) -> tuple[str | None, Expression]:
    return column.written_default, column.expression


def with_comment(column: Column, old: Column, comment: str) -> Column:
    """Return the column under the name of the old one, with its comment unless another one is written."""
    return msgspec.structs.replace(column, name=old.name, comment=comment or old.comment)


def with_default(column: Column, other: Column) -> Column:
    """Return the column with the default of the other one."""
    return msgspec.structs.replace(
        column,
        default=other.default,
        written_default=other.written_default,
        is_default_computed=other.is_default_computed,
        kind=other.kind,
        expression=other.expression,
    )


def _described(table: TableDef, now: NewColumns, operation: DescribeColumn, versions: Collection[int]) -> NewColumns:
    if operation.if_exists and now.schema.find_any(operation.column) is None:
        return now
    old = find_any_in(now.schema, operation.column)
    if operation.default is not None:
        _check_stays_stored(table, old, operation.kind, has_expression=True)
    if operation.no_default and old.kind is not operation.kind:
        hint = f"the column is {old.kind}"
        raise BadAlterError(f"the column is not {operation.kind}", table=full_name(table), column=old.name, hint=hint)
    if not old.nullable and operation.default is not None and _is_nothing(operation.default):
        raise BadAlterError("the default of a NOT NULL column cannot be NULL", table=full_name(table), column=old.name)
    new = described(old, operation)
    if _default_of(new) != _default_of(old) and old.kind is not ColumnKind.ALIAS:
        _check_everywhere(table, old, versions)
    return replaced(now, old, new)


def described(column: Column, operation: DescribeColumn) -> Column:
    """Return the column with the operation's DEFAULT and COMMENT; one that is not written stays."""
    if operation.no_default or operation.default is not None:
        text = operation.default
        kind = ColumnKind.DEFAULT if operation.no_default else operation.kind
        column = msgspec.structs.replace(
            column, default=text, written_default=text, is_default_computed=None, kind=kind, expression=()
        )
    return column if operation.comment is None else msgspec.structs.replace(column, comment=operation.comment)


def _check_everywhere(table: TableDef, column: Column, versions: Collection[int]) -> None:
    """Rows of parts that do not have the column yet hold its default of now: that must not change under them.

    Where it is written down what those rows hold, it may.
    """
    if column.older_default is not None:
        return
    shapes = [shape.schema for shape in table.older_schemas if shape.version in versions]
    if any(all(each.id != column.id for each in shape.columns) for shape in shapes):
        raise ColumnBusyError(
            "parts still lack this column, and stand for its default",
            table=full_name(table),
            column=column.name,
            hint="wait until system.mutations shows its ADD COLUMN as done; after a killed one, the next ALTER of "
            "columns does its work",
        )


def _renamed(table: TableDef, now: NewColumns, operation: RenameColumn) -> NewColumns:
    if operation.if_exists and now.schema.find_any(operation.old) is None:
        return now
    old = find_any_in(now.schema, operation.old)
    check_unprotected(table, old, "RENAME COLUMN")
    existing = now.schema.find_any(operation.new)
    if existing is not None and existing is not old:
        raise BadAlterError(
            "the column exists already", table=full_name(table), column=existing.name, hint="choose another name"
        )
    return replaced(now, old, msgspec.structs.replace(old, name=operation.new))


def replaced(now: NewColumns, old: Column, new: Column) -> NewColumns:
    columns, aliases = (
        tuple(new if each is old else each for each in columns) for columns in (now.schema.columns, now.schema.aliases)
    )
    return replace(now, schema=Schema(columns=columns, aliases=aliases))


def _check_idle(table: TableDef, name: str, busy: Mapping[str, Mutation]) -> None:
    entry = busy.get(name.lower())
    if entry is not None:
        raise ColumnBusyError(
            table=full_name(table),
            column=name,
            mutation=entry.id,
            command=entry.command,
            hint="wait until system.mutations shows it as done, KILL MUTATION it, or set "
            "force_alter_conflict_check = 0",
        )


def _is_nothing(default: str | None) -> bool:
    return default is None or default.strip().upper() == "NULL"
