"""`system.leases`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    now_ms = services.clock.now_ms()
    for lease in services.catalog.leases.list():
        yield Row(lease, is_valid=lease.expires_ms > now_ms)


TABLE = SystemTable(
    name="leases",
    doc="One row for each right to act.",
    columns=(
        ColumnDoc("name", TEXT, "`server/ID`, `table/UUID`, `consumer/UUID/INDEX`."),
        ColumnDoc("holder", TEXT, "Who has it."),
        ColumnDoc("epoch", INTEGER, "Raised by each taking over; commits of an older holder are refused."),
        ColumnDoc("expires", TIME, "When it ends unless it is renewed."),
        ColumnDoc("is_valid", FLAG, "Whether it holds now."),
    ),
    rows=_rows,
)
