"""`system.maintenance_choices`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable


def _rows(services: Services) -> Iterator[Row]:
    for choice in services.maintenance.choices():
        yield Row(choice, op=choice.op or None, table=choice.table or None, others=choice.others or None)


TABLE = SystemTable(
    name="maintenance_choices",
    doc="One row for each of the last decisions of the maintenance manager, with its reason.",
    columns=(
        ColumnDoc("at", TIME, "When."),
        ColumnDoc("op", TEXT, "The op that was chosen, as `MERGE(db.t)`; NULL where none was."),
        ColumnDoc("table", TEXT, "Its table, as `database.table`."),
        ColumnDoc("rule", TEXT, "The rule that decided, or `refused`."),
        ColumnDoc("reason", TEXT, "Why, in words and numbers."),
        ColumnDoc("score", NUMBER, "The score of the op that was chosen; 0 where another rule than the gain decided."),
        ColumnDoc("runnable", INTEGER, "Ops that could have run."),
        ColumnDoc("others", TEXT, "The best of those that were passed over, with their scores."),
    ),
    rows=_rows,
)
