"""`system.dropped_tables`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.kept import dropped_keep_ms
from tilth.sql.services import Services
from tilth.sql.system_tables.table import FLAG, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms


def _rows(services: Services) -> Iterator[Row]:
    keep_ms = dropped_keep_ms(services)
    for each in services.catalog.tables.dropped():
        relation = each.relation
        yield (
            relation.database,
            relation.name,
            relation.uuid,
            relation.engine.value,
            time_of_ms(each.dropped_ms),
            time_of_ms(each.dropped_ms + keep_ms),
            each.is_going,
        )


TABLE = SystemTable(
    name="dropped_tables",
    doc="One row for each dropped table, Kafka table and view of which something is still there.",
    columns=(
        ColumnDoc("database", TEXT, "Its database."),
        ColumnDoc("name", TEXT, "Its name; UNDROP TABLE takes the one of that name that was dropped last."),
        ColumnDoc("uuid", TEXT, "Its identity."),
        ColumnDoc("engine", TEXT, "What kind it is."),
        ColumnDoc("dropped_at", TIME, "When it was dropped."),
        ColumnDoc("kept_until", TIME, "Until when UNDROP TABLE brings it back, by `dropped_table_keep_seconds`."),
        ColumnDoc("is_going", FLAG, "Whether it is being removed, so that it cannot be brought back any more."),
    ),
    rows=_rows,
)
