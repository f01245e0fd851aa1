"""`system.marks`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.part import DropRange, Part
from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        for entry in services.catalog.parts.all_entries(table.uuid):
            if not isinstance(entry, Part):
                kind = "drop_range" if isinstance(entry, DropRange) else "mark"
                name = entry.name
                committed = time_of_hybrid(entry.commit_ts)
                yield Row(
                    table,
                    table=table.name,
                    partition=name.partition,
                    name=str(name),
                    kind=kind,
                    txn=name.mutation,
                    committed=committed,
                )


TABLE = SystemTable(
    name="marks",
    doc="One row for each record that hides parts: a mark hides one, a drop range all up to its block.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("partition", TEXT, "The partition's id."),
        ColumnDoc("name", TEXT, "Like a part's; a mark covers the blocks of the part that it hides."),
        ColumnDoc("kind", TEXT, "`mark` or `drop_range`."),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("committed", TIME, "Since when it hides."),
    ),
    rows=_rows,
)
