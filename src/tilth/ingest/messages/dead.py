"""The dead-letter table: messages that cannot be decoded, or that a view cannot take, with the reason.

Covers: its definition, which tables can serve as one, its rows. Does not cover: when messages go there
(rounds/source.py, rounds/spark.py).
Always holds: the raw bytes are kept as they came, so a message can be mended and sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tilth.ingest.messages.decode import Broken
from tilth.ingest.settings import KafkaConfig
from tilth.model.table import Column, KafkaDef, Schema, TableDef, full_name
from tilth.model.types import Kind, Simple
from tilth.storage import arrow_type

_COLUMNS = {
    "topic": Kind.STRING,
    "partition": Kind.INT32,
    "offset": Kind.INT64,
    "timestamp": Kind.TIMESTAMP,
    "key": Kind.BINARY,
    "reason": Kind.STRING,
    "raw": Kind.BINARY,
    "view": Kind.STRING,
}
#: Columns that have a value in every dead letter.
_ALWAYS_GIVEN = {"topic", "partition", "offset", "reason"}
DEAD_LETTER_SCHEMA = Schema(
    columns=tuple(
        Column(id=i, name=name, type=Simple(kind)) for i, (name, kind) in enumerate(_COLUMNS.items(), start=1)
    )
)


def dead_letter_table(kafka: KafkaDef, config: KafkaConfig, *, uuid: str, now_ms: int) -> TableDef:
    """Return the definition of the table for the dead letters of a Kafka table."""
    return TableDef(
        uuid=uuid,
        database=kafka.database,
        name=config.dead_letter_table,
        schema=DEAD_LETTER_SCHEMA,
        order_by=("topic", "partition", "offset"),
        comment=f"messages of {full_name(kafka)} that could not be decoded, or that a view could not take",
        created_ms=now_ms,
        next_column_id=len(_COLUMNS) + 1,
    )


def accepts_dead_letters(table: TableDef) -> bool:
    """Return whether the table can store all dead letters: it has their columns, and needs no others."""
    has_all = all(_fits(table.schema, column) for column in DEAD_LETTER_SCHEMA.columns)
    required = {column.name.lower() for column in table.schema.columns if not column.nullable}
    return has_all and required | {name.lower() for name in table.unique_key} <= _ALWAYS_GIVEN


def dead_letter_rows(broken: Sequence[Broken]) -> pa.Table:
    """The rows of these messages."""
    columns = {
        "topic": [each.topic for each in broken],
        "partition": [each.partition for each in broken],
        "offset": [each.offset for each in broken],
        "timestamp": [each.timestamp for each in broken],
        "key": [each.key for each in broken],
        "reason": [each.reason for each in broken],
        "raw": [each.raw for each in broken],
        "view": [each.view for each in broken],
    }
    return pa.table({name: pa.array(values, arrow_type(Simple(_COLUMNS[name]))) for name, values in columns.items()})


def _fits(schema: Schema, column: Column) -> bool:
    found = schema.find(column.name)
    return found is not None and found.type == column.type and not found.checks
