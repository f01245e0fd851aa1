"""`system.deltas`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TEXTS, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        shown = {part.file.name for part in services.catalog.parts.snapshot(table.uuid).parts}
        for delta in services.catalog.parts.deltas(table.uuid, is_all=True):
            is_active = not delta.end_ts and any(target.file in shown for target in delta.targets)
            names = {column.id: column.name for column in table.schema.columns}
            yield Row(
                delta,
                database=table.database,
                table=table.name,
                file=delta.file.name,
                parts=len(delta.targets),
                deleted_rows=sum(target.deleted for target in delta.targets),
                updated_rows=sum(target.updated for target in delta.targets),
                columns=[names[column] for column in delta.columns if column in names],
                targets=[target.file for target in delta.targets],
                changed=time_of_hybrid(delta.change_ts),
                committed=time_of_hybrid(delta.commit_ts),
                ended=time_of_hybrid(delta.end_ts),
                active=is_active,
            )


TABLE = SystemTable(
    name="deltas",
    doc="One row for each delta that the catalog holds: a file that changes rows of parts without rewriting them.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("partition", TEXT, "The id of the partition whose parts it changes."),
        ColumnDoc(
            "kind",
            TEXT,
            "`changes`: deletes and new values as statements and upserts write them; of one part each `delete`, "
            "`update` (some rows) and `column` (all rows of some columns).",
        ),
        ColumnDoc("file", TEXT, "Its file's name in the table's data folder."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("parts", INTEGER, "Parts and segments that it changes."),
        ColumnDoc("deleted_rows", INTEGER, "Rows that it deletes."),
        ColumnDoc("updated_rows", INTEGER, "Rows that it gives new values."),
        ColumnDoc("columns", TEXTS, "The columns that it has new values of, those that were dropped left out."),
        ColumnDoc(
            "targets", TEXTS, "The files of the parts that it changes; `file` of system.parts and system.segments."
        ),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("changed", TIME, "When the newest change in it was committed."),
        ColumnDoc("committed", TIME, "Since when readers see it."),
        ColumnDoc("ended", TIME, "Since when they see another one instead; NULL: they still see it."),
        ColumnDoc("active", FLAG, "Whether it changes something that readers see now."),
    ),
    rows=_rows,
)
