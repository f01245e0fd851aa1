"""`system.warehouses`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for one in services.dispatcher.warehouses():
        yield Row(one)


TABLE = SystemTable(
    name="warehouses",
    doc="One row for each warehouse: workers that share one kind of work.",
    columns=(
        ColumnDoc("name", TEXT, "The warehouse."),
        ColumnDoc("workers", INTEGER, "Its workers."),
        ColumnDoc("slots", INTEGER, "Tasks that may run at once."),
        ColumnDoc("running", INTEGER, "Tasks that run."),
        ColumnDoc("waiting", INTEGER, "Tasks that wait for a slot."),
        ColumnDoc("resident", INTEGER, "Tasks that stay until they are stopped; they take no slot."),
    ),
    rows=_rows,
)
