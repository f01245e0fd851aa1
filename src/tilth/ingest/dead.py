"""The dead-letter table: broken messages with where they stood and what is wrong with them.

Covers: its definition and its rows. Does not cover: when messages go there (spark.py).
Always holds: the raw bytes are kept as they came, so a message can be mended and sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tilth.ingest.decode import Broken
from tilth.ingest.settings import KafkaConfig
from tilth.model.table import Column, KafkaDef, Schema, TableDef, full_name
from tilth.model.types import Kind, Simple
from tilth.storage import arrow_schema

_COLUMNS = {
    "topic": Kind.STRING,
    "partition": Kind.INT32,
    "offset": Kind.INT64,
    "timestamp": Kind.TIMESTAMP,
    "key": Kind.BINARY,
    "reason": Kind.STRING,
    "raw": Kind.BINARY,
}
DEAD_LETTER_SCHEMA = Schema(
    columns=tuple(
        Column(id=i, name=name, type=Simple(kind)) for i, (name, kind) in enumerate(_COLUMNS.items(), start=1)
    )
)


def dead_letter_table(kafka: KafkaDef, config: KafkaConfig, *, uuid: str, now_ms: int) -> TableDef:
    """The table that takes the broken messages of a Kafka table."""
    return TableDef(
        uuid=uuid,
        database=kafka.database,
        name=config.dead_letter_table,
        schema=DEAD_LETTER_SCHEMA,
        order_by=("topic", "partition", "offset"),
        comment=f"messages of {full_name(kafka)} that could not be decoded",
        created_ms=now_ms,
        next_column_id=len(_COLUMNS) + 1,
    )


def dead_letter_rows(broken: Sequence[Broken]) -> pa.Table:
    """The rows of these messages."""
    schema = arrow_schema(DEAD_LETTER_SCHEMA, field_ids=False)
    columns = [
        [each.topic for each in broken],
        [each.partition for each in broken],
        [each.offset for each in broken],
        [each.timestamp_ms * 1000 for each in broken],
        [each.key for each in broken],
        [each.reason for each in broken],
        [each.raw for each in broken],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)
