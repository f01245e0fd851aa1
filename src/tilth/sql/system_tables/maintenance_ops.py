"""`system.maintenance_ops`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, NUMBER, TEXT, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for op in services.maintenance.ops():
        yield Row(op, damaged=op.damaged or None)


TABLE = SystemTable(
    name="maintenance_ops",
    doc="One row for each operation that the maintenance manager may choose, with what it would gain.",
    columns=(
        ColumnDoc("name", TEXT, "As in `MERGE(db.t)`."),
        ColumnDoc("kind", TEXT, "What it does."),
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("is_runnable", FLAG, "Whether it could run now."),
        ColumnDoc("running", INTEGER, "Runs under way."),
        ColumnDoc("score", NUMBER, "What is compared with other ops: the gain with workload and priority."),
        ColumnDoc("perf_improvement", NUMBER, "What readers would gain; 0 is nothing."),
        ColumnDoc("workload_score", NUMBER, "How busy the table is, as far as that counts."),
        ColumnDoc("priority", INTEGER, "The table's `maintenance_priority`."),
        ColumnDoc("data_retained_bytes", INTEGER, "Bytes on the store that it would free."),
        ColumnDoc("logs_retained_bytes", INTEGER, "Bytes of log kept alive until it runs."),
        ColumnDoc("ram_anchored_bytes", INTEGER, "Bytes of memory that it would free."),
        ColumnDoc("about", TEXT, "What it would do, or why it cannot."),
        ColumnDoc("damaged", TEXT, "Parts that it leaves out because they cannot be read, and what to do; NULL: none."),
    ),
    rows=_rows,
)
