"""`system.bg_threads`"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tilth.model.service import ServiceKind, ServiceStats
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms

#: Only files are moved and removed: that goes on without Spark.
_WITHOUT_SPARK = frozenset({ServiceKind.GC})


def _rows(services: Services) -> Iterator[Row]:
    found = [*services.consume.stats(), *services.maintenance.stats()]
    workers = services.dispatcher.workers()
    trouble = "; ".join(each.reason for each in workers if each.reason)
    if trouble and all(each.reason for each in workers):
        found = [_waiting(one, trouble) for one in found]
    for one in sorted(found, key=lambda one: (one.database, one.table, one.service)):
        yield Row(
            one,
            because=one.because or None,
            asked_by=one.asked_by or None,
            last_exception=one.last_exception or None,
            last_exception_time=time_of_ms(one.last_exception_ms),
        )


def _waiting(one: ServiceStats, trouble: str) -> ServiceStats:
    """The row of a service while no worker can run its tasks."""
    if one.service in _WITHOUT_SPARK or one.state == "stopped":
        return one
    return msgspec.structs.replace(one, state="waiting", reason="; ".join(filter(None, (trouble, one.reason))))


TABLE = SystemTable(
    name="bg_threads",
    doc="One row for each background service of each table: its switch, what it does, what went wrong last.",
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
        ColumnDoc(
            "next_wakeup",
            TIME,
            "When it looks next at the latest; NULL: when something happens, or when somebody starts it.",
        ),
        ColumnDoc("running_tasks", INTEGER, "Its tasks on workers now."),
        ColumnDoc("failures", INTEGER, "Failures in a row."),
        ColumnDoc("last_exception", TEXT, "What went wrong last."),
        ColumnDoc("last_exception_time", TIME, "When."),
        ColumnDoc("next_attempt", TIME, "When what failed is tried again; NULL: nothing waits for that."),
        ColumnDoc("server", TEXT, "The server that runs it."),
        ColumnDoc("uuid", TEXT, "The table's uuid."),
    ),
    rows=_rows,
)
