"""`system.servers`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.services import Services
from tilth.sql.system_tables.table import NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms


def _rows(services: Services) -> Iterator[Row]:
    uptime = (services.clock.now_ms() - services.started_ms) / 1000
    yield services.server, time_of_ms(services.started_ms), uptime


TABLE = SystemTable(
    name="servers",
    doc="One row for each server of this catalog.",
    columns=(
        ColumnDoc("name", TEXT, "The server."),
        ColumnDoc("started", TIME, "When it was started."),
        ColumnDoc("uptime_seconds", NUMBER, "For how long it has been up."),
    ),
    rows=_rows,
)
