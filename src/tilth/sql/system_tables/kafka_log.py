"""`system.kafka_log`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for event in services.consume.log():
        yield Row(
            event,
            consumer=event.consumer if event.consumer >= 0 else None,
            event=event.kind.name,
            txn=event.txn or None,
            detail=event.told,
        )


TABLE = SystemTable(
    name="kafka_log",
    doc="One row for each step of the last rounds of this server's consumers; empty after a restart.",
    columns=(
        ColumnDoc("at", TIME, "When."),
        ColumnDoc("database", TEXT, "The Kafka table's database."),
        ColumnDoc("table", TEXT, "The Kafka table."),
        ColumnDoc("consumer", INTEGER, "The consumer's index; NULL: the service itself."),
        ColumnDoc(
            "event",
            TEXT,
            "`EMPTY`, `POLL`, `PARSE_ERROR`, `WRITE`, `EXCEPTION`, `EMPTY_MESSAGE`, `FILTER`, `COMMIT`; "
            "`OFFSETS`: offsets were taken over from a group, a gap was found or closed.",
        ),
        ColumnDoc("messages", INTEGER, "Messages that it is about."),
        ColumnDoc("rows", INTEGER, "Rows that it is about."),
        ColumnDoc("bytes", INTEGER, "Bytes that it is about."),
        ColumnDoc("duration_ms", INTEGER, "How long it took."),
        ColumnDoc("txn", INTEGER, "The round's transaction."),
        ColumnDoc("detail", TEXT, "What happened, in words."),
    ),
    rows=_rows,
)
