"""`system.dropped_tables`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.table import TableDef
from tilth.sql.context.lifetimes import dropped_keep_ms, files_of
from tilth.sql.context.services import Services
from tilth.sql.grammar import Name, UndropTable, render
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms


def _rows(services: Services) -> Iterator[Row]:
    keep_ms = dropped_keep_ms(services)
    for each in services.catalog.tables.dropped():
        relation = each.relation
        files = files_of(services.catalog, relation.uuid) if isinstance(relation, TableDef) else None
        yield Row(
            relation,
            each,
            kept_until=time_of_ms(each.dropped_ms + keep_ms),
            dropped_at=time_of_ms(each.dropped_ms),
            files=None if files is None else len(files),
            bytes=None if files is None else sum(file.size for file in files),
            undrop=None if each.is_going else render(UndropTable(name=Name(relation.database, relation.name))),
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
        ColumnDoc("files", INTEGER, "Its files that are still there; NULL where none were stored."),
        ColumnDoc("bytes", INTEGER, "Their size, which is free once they are gone."),
        ColumnDoc("undrop", TEXT, "The statement that brings it back; NULL: nothing does any more."),
    ),
    rows=_rows,
)
