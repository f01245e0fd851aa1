"""Alarms, as rows.

Covers: `system.alarms`. Does not cover: the alarms (introspection/alarms).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.services import Services
from tilth.introspection.alarms.alarm import Severity
from tilth.introspection.alarms.alarms import evaluate
from tilth.introspection.system_table import TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms
from tilth.model.pushdown import Pushdown


def _rows_of_alarms(services: Services, _: Pushdown) -> Iterator[Row]:
    for alarm, found in evaluate(services):
        for finding in found:
            yield Row(
                alarm,
                finding,
                alarm=alarm.name,
                severity=alarm.severity.value,
                database=finding.database or None,
                table=finding.table or None,
                subject=finding.subject or None,
                since=time_of_ms(finding.since_ms),
            )


ALARMS_TABLE = SystemTable(
    name="alarms",
    doc="One row for each fault that needs a person now, critical ones first; none: all is well. What somebody has "
    "stopped on purpose is not here. docs/operate/alarms.md lists the alarms.",
    is_of_servers=True,
    columns=(
        ColumnDoc("alarm", TEXT, "The alarm."),
        ColumnDoc("severity", TEXT, f"{' or '.join(f'`{each}`' for each in Severity)}."),
        ColumnDoc("database", TEXT, "The database of the table that it concerns; NULL: no table."),
        ColumnDoc("table", TEXT, "The table that it concerns; NULL: no table."),
        ColumnDoc(
            "subject", TEXT, "Part, mutation, topic partition, worker, folder or the like; NULL: nothing smaller."
        ),
        ColumnDoc("sentence", TEXT, "What is wrong, with names and numbers."),
        ColumnDoc("since", TIME, "Since when; NULL: not known."),
        ColumnDoc("todo", TEXT, "What a person does about it."),
        ColumnDoc("page", TEXT, "The page of the documentation about it."),
    ),
    rows=_rows_of_alarms,
)
