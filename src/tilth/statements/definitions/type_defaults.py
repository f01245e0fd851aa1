"""Columns without NULL as ClickHouse has them: rows that do not bring one get the default of its type. Pure.

Covers: data_type_default_nullable = 0. Does not cover: reading defaults (inserts/defaults.py).
Always holds: a default keeps the checks of its column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from tilth.grammar.statements import AddColumn, ColumnOperation, ColumnSpec, ModifyColumn
from tilth.model.checks import Check, OneOf, UuidText
from tilth.model.table import ColumnKind
from tilth.model.types import Array, DataType, Decimal, Kind, Map, Simple, Struct

_ZEROS = {
    Kind.BOOLEAN: "false",
    Kind.DATE: "'1970-01-01'",
    Kind.TIMESTAMP: "TIMESTAMP '1970-01-01 00:00:00Z'",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP_NTZ '1970-01-01 00:00:00'",
    Kind.STRING: "''",
    Kind.BINARY: "''",
}
_NO_UUID = "'00000000-0000-0000-0000-000000000000'"


def without_null(spec: ColumnSpec) -> ColumnSpec:
    """The column with the default of its type, and NOT NULL, unless NULL or Nullable is written."""
    if spec.states_null:
        return spec
    if spec.kind is ColumnKind.ALIAS:
        # A reader sees whatever the expression gives.
        return spec
    default = type_default(spec.type, spec.checks) if spec.default is None else spec.default
    return replace(spec, nullable=False, default=default)


def operations_without_null(operations: Sequence[ColumnOperation]) -> list[ColumnOperation]:
    """The operations of an ALTER with such columns; one that is modified keeps the default that it has."""
    return [_without_null(operation) for operation in operations]


def _without_null(operation: ColumnOperation) -> ColumnOperation:
    match operation:
        case AddColumn(column=column):
            return replace(operation, column=without_null(column))
        case ModifyColumn(column=column) if not column.states_null:
            return replace(operation, column=replace(column, nullable=False))
    return operation


def type_default(data_type: DataType, checks: Sequence[Check]) -> str:
    """The type's default as a literal: 0, empty, the first name of an Enum."""
    match data_type:
        case Simple(kind=kind):
            rules = [check.rule for check in checks if not check.path]
            names = next((rule.names for rule in rules if isinstance(rule, OneOf)), None)
            if names is not None:
                return "'{}'".format(names[0].replace("\\", "\\\\").replace("'", "''"))
            return _NO_UUID if UuidText() in rules else _ZEROS.get(kind, "0")
        case Decimal():
            return "0"
        case Array():
            return "[]"
        case Map():
            return "{}"
        case Struct(fields=fields):
            inner = [
                type_default(field.type, [Check(c.rule, c.path[1:]) for c in checks if c.path[:1] == (field.name,)])
                for field in fields
            ]
            return f"({', '.join(inner)})"
    assert_never(data_type)
