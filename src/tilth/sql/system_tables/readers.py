"""`system.readers`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, TableNames, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    for lease in services.catalog.readers.list():
        yield Row(
            lease, **names.row(lease.table), snapshot=time_of_hybrid(lease.snapshot_ts), client=lease.client or None
        )


TABLE = SystemTable(
    name="readers",
    doc="One row for each snapshot that a query, or a reader with a Spark session of its own, holds; garbage "
    "collection waits for it.",
    columns=(
        ColumnDoc("id", TEXT, "The reader lease."),
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("snapshot_ts", INTEGER, "The snapshot's hybrid time."),
        ColumnDoc("snapshot", TIME, "The same as a time."),
        ColumnDoc("holder", TEXT, "The server that opened it."),
        ColumnDoc("client", TEXT, "Who reads, as `address:port (name)`; NULL: not known."),
        ColumnDoc("opened", TIME, "Since when; NULL: not known."),
        ColumnDoc("expires", TIME, "When it ends unless it is renewed."),
    ),
    rows=_rows,
)
