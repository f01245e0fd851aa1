"""`system.bg_threads`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms


def _rows(services: Services) -> Iterator[Row]:
    found = [*services.consume.stats(), *services.maintenance.stats()]
    for one in sorted(found, key=lambda one: (one.database, one.table, one.service)):
        yield (
            one.database,
            one.table,
            one.service.value,
            one.switch.value,
            one.because or None,
            time_of_ms(one.until_ms),
            one.asked_by or None,
            one.state,
            one.reason,
            one.wakeups,
            time_of_ms(one.last_wakeup_ms),
            one.running_tasks,
            one.failures,
            one.last_exception or None,
            time_of_ms(one.last_exception_ms),
            one.server,
            one.uuid,
        )


TABLE = SystemTable(
    name="bg_threads",
    doc="One row for each background service of each table: what it is told, what it does, what went wrong last.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("service", TEXT, "`consume`, `flush`, `merge`, `mutate`, `delta` or `gc`."),
        ColumnDoc("switch", TEXT, "What the user wants: `running` or `stopped`; SYSTEM START and STOP set it."),
        ColumnDoc("because", TEXT, "Why it was switched, in the user's words."),
        ColumnDoc("until", TIME, "When the switch is over by itself; NULL: never."),
        ColumnDoc("asked_by", TEXT, "The query that switched it, as in `system.audit_log`; NULL: nobody did."),
        ColumnDoc("state", TEXT, "What it does: `running`, `idle`, `waiting`, `stopped`, `failed`."),
        ColumnDoc("reason", TEXT, "Why it is in this state."),
        ColumnDoc("wakeups", INTEGER, "How often it has looked for work."),
        ColumnDoc("last_wakeup", TIME, "When it last did."),
        ColumnDoc("running_tasks", INTEGER, "Its tasks on workers now."),
        ColumnDoc("failures", INTEGER, "Failures in a row."),
        ColumnDoc("last_exception", TEXT, "What went wrong last."),
        ColumnDoc("last_exception_time", TIME, "When."),
        ColumnDoc("server", TEXT, "The server that runs it."),
        ColumnDoc("uuid", TEXT, "The table's uuid."),
    ),
    rows=_rows,
)
