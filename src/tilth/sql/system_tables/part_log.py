"""`system.part_log`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, TableNames

#: The newest ones are shown.
EVENTS_MAX = 100_000


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    for event in services.catalog.part_log.recent(limit=EVENTS_MAX):
        yield Row(event, **names.row(event.table))


TABLE = SystemTable(
    name="part_log",
    doc="One row for each thing that happened to a part.",
    columns=(
        ColumnDoc("at", TIME, "When."),
        ColumnDoc(
            "event",
            TEXT,
            "`new`, `merge`, `flush` (segments became a part), `remove_deleted`, `mutate`, `delete` (rows were deleted "
            "or updated), `flush_deltas`, `minor_delta`, `major_delta`, `hide`, `undrop`, `trash` or `remove`.",
        ),
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("part", TEXT, "The part's name; of a change the first part's."),
        ColumnDoc("rows", INTEGER, "Rows in it; of a change: rows that were deleted."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("sources", INTEGER, "Parts or deltas that it read, or parts whose rows changed."),
        ColumnDoc("duration_ms", INTEGER, "How long a merge took."),
        ColumnDoc("reason", TEXT, "Why a merge chose these parts."),
    ),
    rows=_rows,
)
