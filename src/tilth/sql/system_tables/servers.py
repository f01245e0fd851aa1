"""`system.servers`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.pressure import describe_pressure
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    uptime = (services.clock.now_ms() - services.started_ms) / 1000
    memory = services.memory.read()
    yield Row(
        services,
        name=services.server,
        uptime_seconds=uptime,
        memory_bytes=memory.used,
        memory_limit_bytes=memory.hard,
        memory_pressure=describe_pressure(memory) or None,
        memory_rejections=services.memory.rejections,
    )


TABLE = SystemTable(
    name="servers",
    doc="One row for each server of this catalog.",
    columns=(
        ColumnDoc("name", TEXT, "The server."),
        ColumnDoc("started", TIME, "When it was started."),
        ColumnDoc("uptime_seconds", NUMBER, "For how long it has been up."),
        ColumnDoc("memory_bytes", INTEGER, "Memory that it uses: its process and all below it, Spark's among them."),
        ColumnDoc("memory_limit_bytes", INTEGER, "`memory_limit_hard_bytes`; NULL: there is no limit."),
        ColumnDoc("memory_pressure", TEXT, "Why writes are slowed or refused for want of memory; NULL: they are not."),
        ColumnDoc("memory_rejections", INTEGER, "Writes that were refused for that reason since the start."),
    ),
    rows=_rows,
)
