"""`system.databases`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for name in services.catalog.tables.databases():
        yield Row(name=name, tables=len(services.catalog.tables.list(name)))


TABLE = SystemTable(
    name="databases",
    doc="One row for each database; `system` itself is not listed.",
    columns=(
        ColumnDoc("name", TEXT, "The database's name."),
        ColumnDoc("tables", INTEGER, "Tables, Kafka tables and views in it."),
    ),
    rows=_rows,
)
