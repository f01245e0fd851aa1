"""`system.deltas`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.delta import Delta
from tilth.model.table import Schema, TableDef
from tilth.sql.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TEXTS, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        shown = {part.file.name for part in services.catalog.parts.snapshot(table.uuid).parts}
        for delta in services.catalog.parts.deltas(table.uuid, is_all=True):
            is_active = not delta.end_ts and any(target.file in shown for target in delta.targets)
            yield table.database, table.name, *_delta(delta, table.schema), is_active


def _delta(delta: Delta, schema: Schema) -> Row:
    names = {column.id: column.name for column in schema.columns}
    return (
        delta.partition,
        delta.kind.value,
        delta.file.name,
        delta.bytes,
        len(delta.targets),
        sum(target.deleted for target in delta.targets),
        sum(target.updated for target in delta.targets),
        [names[column] for column in delta.columns if column in names],
        [target.file for target in delta.targets],
        delta.txn,
        time_of_hybrid(delta.change_ts),
        time_of_hybrid(delta.commit_ts),
        time_of_hybrid(delta.end_ts),
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
