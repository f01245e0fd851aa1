"""`system.query_log`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for event in services.query_log.recent():
        yield Row(event, error_code=event.error_code or None, error=event.error or None)


TABLE = SystemTable(
    name="query_log",
    doc="One row for each of the last statements of this server, oldest first; empty after a restart.",
    columns=(
        ColumnDoc("query_id", TEXT, "The statement's id; the log tells of it under this cause_id."),
        ColumnDoc("kind", TEXT, "`Query`, `CreateTable`, `InsertValues`, ..."),
        ColumnDoc(
            "text", TEXT, "What was sent, without secrets; of more than 4,000 characters the beginning and the end."
        ),
        ColumnDoc("database", TEXT, "The default database."),
        ColumnDoc("started", TIME, "When it came in."),
        ColumnDoc("elapsed_ms", NUMBER, "How long it took."),
        ColumnDoc("rows", INTEGER, "Rows of the answer."),
        ColumnDoc("rows_written", INTEGER, "Rows that it stored."),
        ColumnDoc("result_bytes", INTEGER, "Size of the answer in memory."),
        ColumnDoc("parts_read", INTEGER, "Parts that its tables gave."),
        ColumnDoc("parts_pruned", INTEGER, "Parts that its predicates ruled out."),
        ColumnDoc("error_code", TEXT, "NULL where it went well."),
        ColumnDoc("error", TEXT, "What went wrong."),
    ),
    rows=_rows,
)
