"""`system.audit_log`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms

#: All lines that the catalog keeps.
_LINES_MAX = 10_000


def _rows(services: Services) -> Iterator[Row]:
    for event in services.catalog.audit.recent(_LINES_MAX):
        yield Row(
            event,
            time=time_of_ms(event.at_ms),
            table=event.table or None,
            seconds=event.duration_ms / 1000 if event.duration_ms else None,
            because=event.because or None,
        )


TABLE = SystemTable(
    name="audit_log",
    doc="One row for each word to the background services and each change of a table, newest first; the newest 10,000, "
    "kept over restarts.",
    columns=(
        ColumnDoc("time", TIME, "When it was said."),
        ColumnDoc("verb", TEXT, "The statement without names, as in `SYSTEM STOP MERGES`."),
        ColumnDoc("table", TEXT, "`database.table`; NULL: no single one."),
        ColumnDoc("statement", TEXT, "As it was written, without secrets; its first 1,000 characters."),
        ColumnDoc("seconds", NUMBER, "How long it holds; NULL: until it is changed."),
        ColumnDoc("because", TEXT, "The reason, in the user's words."),
        ColumnDoc("query_id", TEXT, "The query, as in `system.query_log`."),
        ColumnDoc("outcome", TEXT, "`done`, what came of it, or the error that refused it."),
    ),
    rows=_rows,
)
