"""`system.trash`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.services import Services
from tilth.sql.system_tables.table import (
    INTEGER,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    TableNames,
    time_of_hybrid,
    time_of_ms,
)

_BATCH = 1000


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    cursor: bytes | None = None
    while True:
        items, cursor = services.catalog.trash.items(after=cursor, limit=_BATCH)
        for trashed in items:
            part = trashed.item.part
            yield (
                *names.of(trashed.table),
                str(part.name),
                part.file.name,
                part.rows,
                part.bytes,
                time_of_hybrid(trashed.item.end_ts),
                time_of_ms(trashed.item.moved_ms),
            )
        if cursor is None or not items:
            break


TABLE = SystemTable(
    name="trash",
    doc="One row for each part that has left its table while its file is still there.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("part", TEXT, "The part's name."),
        ColumnDoc("file", TEXT, "Its file."),
        ColumnDoc("rows", INTEGER, "Rows in it."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("ended", TIME, "Since when readers do not see it; NULL where its transaction never finished."),
        ColumnDoc("moved", TIME, "When it came here."),
    ),
    rows=_rows,
)
