"""`system.segments`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.delta import by_file, deleted_rows
from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.system_tables.parts import DAMAGED_DOC, damage_of
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        snapshot = services.catalog.parts.snapshot(table.uuid, keep=lambda part: part.is_segment)
        changes = by_file(snapshot.deltas)
        damaged = services.damage.parts_of(table.uuid)
        for part in snapshot.parts:
            deltas = changes.get(part.file.name, ())
            deleted = deleted_rows(part.file.name, deltas)
            yield Row(
                part,
                part.name,
                database=table.database,
                table=table.name,
                name=str(part.name),
                rows=part.rows - deleted,
                deleted_rows=deleted,
                deltas=len(deltas),
                file=part.file.name,
                txn=part.name.mutation,
                committed=time_of_hybrid(part.commit_ts),
                damaged=damage_of(damaged, part),
            )


TABLE = SystemTable(
    name="segments",
    doc="One row for each row segment that readers see: rows that are committed and not sorted into a part yet.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("partition", TEXT, "The partition's id."),
        ColumnDoc("name", TEXT, "`partition_min_max_level_transaction`, as of a part."),
        ColumnDoc("rows", INTEGER, "Rows of it that readers see."),
        ColumnDoc("deleted_rows", INTEGER, "Rows in its file that are deleted."),
        ColumnDoc("deltas", INTEGER, "Deltas that change it."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("file", TEXT, "The file's name in the table's data folder."),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("committed", TIME, "When it became visible."),
        ColumnDoc("schema_version", INTEGER, "The version of the table's columns that its file has."),
        ColumnDoc("damaged", TEXT, DAMAGED_DOC),
    ),
    rows=_rows,
)
