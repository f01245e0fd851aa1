"""Columns of a Kafka table that messages fill: by their exact names, or in their order.

Covers: the check of a format against the columns, names, values of columns that a message lacks, reasons.

Tests: tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilth.formats import BadValueError, Format, find_format, is_text
from tilth.ingest.errors import FormatError
from tilth.ingest.settings import Envelope, KafkaConfig
from tilth.model.table import Column, Schema


class MessageColumns:
    """The columns that the rows of a message may fill."""

    def __init__(self, schema: Schema, *, skip_unknown: bool) -> None:
        self.ordered = self.named = schema.columns
        self._by_name = {column.name: column for column in schema.columns}
        self._skip_unknown = skip_unknown

    def find(self, name: str, row: int | None) -> Column | None:
        found = self._by_name.get(name)
        if found is None and not self._skip_unknown:
            facts: dict[str, Any] = {} if row is None else {"row": row}
            raise BadValueError("a name is no column", name=name, **facts)
        return found


def format_of(config: KafkaConfig) -> Format:
    found = find_format(config.format)
    assert found is not None, config.format
    return found


def check_format(schema: Schema, config: KafkaConfig) -> None:
    """Check the format. Raises FormatError when it cannot fill such columns."""
    form = format_of(config)
    if form.is_one_value and (len(schema.columns) != 1 or not is_text(schema.columns[0])):
        hint = "declare exactly one column, of type STRING or BINARY"
        raise FormatError(table=config.table, format=form.name, columns=len(schema.columns), hint=hint)
    if config.envelope is not Envelope.NONE and not form.is_objects:
        hint = "set kafka_format = 'JSONEachRow', or leave kafka_envelope out"
        raise FormatError(
            "an envelope is JSON", table=config.table, format=form.name, envelope=config.envelope.value, hint=hint
        )


def missing_value(column: Column, defaults: Mapping[str, object]) -> object:
    """Return the value of a column that a row lacks; raises BadValueError where there is none."""
    found = defaults.get(column.name)
    if found is None and not column.nullable:
        raise BadValueError("it is missing", column=column.name)
    return found


def reason_of(error: Exception) -> str:
    """Describe the error in a line, with the column first if it is known."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if not isinstance(error, BadValueError):
        return str(error)
    facts = dict(error.facts)
    column, why, given = (facts.pop(name, "") for name in ("column", "why", "given"))
    what = error.message.partition(": ")[0] if error.facts else error.message
    if column and why and given:
        return f"column `{column}`: {why}, given {given}"
    text = ", ".join([what, *(f"{name} {value}" for name, value in facts.items() if name not in ("value", "type"))])
    text = f"{text}: {why}" if why else text
    return f"column `{column}`: {text}" if column else text
