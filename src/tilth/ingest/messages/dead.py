"""The dead-letter table: messages that cannot be decoded, or that a view cannot take, with what is wrong with them.

Covers: its definition, which tables can serve as one, its rows. Does not cover: when messages go there
(rounds/source.py, rounds/spark.py).
Always holds: the raw bytes are kept as they came, so a message can be mended and sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from tilth.ingest.messages.decode import Broken
from tilth.ingest.settings import KafkaConfig
from tilth.model.table import Column, KafkaDef, Schema, TableDef, full_name
from tilth.model.types import Kind, Simple
from tilth.storage import arrow_type

#: The column that tables of older versions lack.
VIEW_COLUMN = "view"

_COLUMNS = {
    "topic": Kind.STRING,
    "partition": Kind.INT32,
    "offset": Kind.INT64,
    "timestamp": Kind.TIMESTAMP,
    "key": Kind.BINARY,
    "reason": Kind.STRING,
    "raw": Kind.BINARY,
    VIEW_COLUMN: Kind.STRING,
}
#: Columns that have a value in every dead letter.
_ALWAYS_GIVEN = {"topic", "partition", "offset", "reason"}
DEAD_LETTER_SCHEMA = Schema(
    columns=tuple(
        Column(id=i, name=name, type=Simple(kind)) for i, (name, kind) in enumerate(_COLUMNS.items(), start=1)
    )
)


def dead_letter_table(kafka: KafkaDef, config: KafkaConfig, *, uuid: str, now_ms: int) -> TableDef:
    """The table that takes the dead letters of a Kafka table."""
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


def takes_dead_letters(table: TableDef) -> bool:
    """True if the table can take all dead letters: it has their columns, and needs no others.

    It may lack `view`, which older versions did not make, and have more columns.
    """
    has_all = all(_fits(table.schema, column) for column in DEAD_LETTER_SCHEMA.columns if column.name != VIEW_COLUMN)
    required = {column.name.lower() for column in table.schema.columns if not column.nullable}
    return has_all and required | {name.lower() for name in table.unique_key} <= _ALWAYS_GIVEN


def with_view_column(table: TableDef) -> TableDef | None:
    """The table with the column that it lacks; None: it lacks none, or has another one of that name."""
    if table.schema.find(VIEW_COLUMN) is not None:
        return None
    column = Column(id=table.next_column_id, name=VIEW_COLUMN, type=Simple(Kind.STRING))
    schema = Schema(columns=(*table.schema.columns, column))
    return msgspec.structs.replace(table, schema=schema, next_column_id=table.next_column_id + 1)


def dead_letter_rows(broken: Sequence[Broken], schema: Schema) -> pa.Table:
    """The rows of these messages, for a table with these columns."""
    has_view = _fits(schema, DEAD_LETTER_SCHEMA.columns[-1])
    columns = {
        "topic": [each.topic for each in broken],
        "partition": [each.partition for each in broken],
        "offset": [each.offset for each in broken],
        "timestamp": [each.timestamp for each in broken],
        "key": [each.key for each in broken],
        "reason": [each.reason if has_view else each.reason_text for each in broken],
        "raw": [each.raw for each in broken],
    }
    if has_view:
        columns[VIEW_COLUMN] = [each.view for each in broken]
    return pa.table({name: pa.array(values, arrow_type(Simple(_COLUMNS[name]))) for name, values in columns.items()})


def addressee(schema: Schema) -> str:
    """Return Spark SQL for the view that a dead letter is of, as `database.view`; empty: it was not decoded, and is for
    all views.

    In rows of older versions the reason names it, in the words of `Broken.reason_text`.
    """
    in_reason = r"nullif(regexp_extract(`reason`, '^view ([^:]+): ', 1), '')"
    named = f"`{VIEW_COLUMN}`, " if _fits(schema, DEAD_LETTER_SCHEMA.columns[-1]) else ""
    return f"coalesce({named}{in_reason}, '')"


def _fits(schema: Schema, column: Column) -> bool:
    found = schema.find(column.name)
    return found is not None and found.type == column.type and not found.checks
