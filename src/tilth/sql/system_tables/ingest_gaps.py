"""`system.ingest_gaps`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, TableNames


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    for gap in services.catalog.offsets.gaps():
        yield Row(
            gap, **names.row(gap.kafka_table), end=gap.end if gap.end >= 0 else None, resolution=gap.resolution or None
        )


TABLE = SystemTable(
    name="ingest_gaps",
    doc="One row for each stretch of offsets that could not be read. An open one stops its consumer until SYSTEM RESET "
    "CONSUME OFFSET decides, or until the broker proves that the messages are there.",
    columns=(
        ColumnDoc("database", TEXT, "The Kafka table's database."),
        ColumnDoc("table", TEXT, "The Kafka table."),
        ColumnDoc("topic", TEXT, "The topic."),
        ColumnDoc("partition", INTEGER, "Its partition."),
        ColumnDoc("start", INTEGER, "The first offset that is missing."),
        ColumnDoc("end", INTEGER, "The first that is there again; NULL: not known."),
        ColumnDoc("reason", TEXT, "Why."),
        ColumnDoc("at", TIME, "When it was found."),
        ColumnDoc("resolution", TEXT, "What the user decided, or why it was closed by itself; NULL while it is open."),
    ),
    rows=_rows,
)
