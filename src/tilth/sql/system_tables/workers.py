"""`system.workers`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TEXTS, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for worker in services.dispatcher.workers():
        yield Row(worker, warehouses=list(worker.warehouses))


TABLE = SystemTable(
    name="workers",
    doc="One row for each worker.",
    columns=(
        ColumnDoc("name", TEXT, "The worker."),
        ColumnDoc("warehouses", TEXTS, "The warehouses that it serves."),
        ColumnDoc("state", TEXT, "`alive`, `silent` (no answer to the last heartbeat) or `without spark`."),
        ColumnDoc("reason", TEXT, "Why it is not alive, and since when."),
        ColumnDoc("last_answer", TIME, "When it last answered a heartbeat."),
        ColumnDoc("running", INTEGER, "Tasks that take a slot."),
        ColumnDoc("resident", INTEGER, "Tasks that stay until they are stopped."),
        ColumnDoc("memory_bytes", INTEGER, "What its tasks may hold together."),
    ),
    rows=_rows,
)
