"""`system.parts`"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tilth.maintenance import CURE, DamagedFile
from tilth.model.delta import by_file, deleted_rows
from tilth.model.part import Part
from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid

#: Of the last column here and of `system.segments`.
DAMAGED_DOC = "Why it cannot be read, and what to do; NULL: nothing is known to be wrong with its files."


def _rows(services: Services) -> Iterator[Row]:
    parts = services.catalog.parts
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        for partition in parts.partitions(table.uuid):
            active = {part.name for part in parts.visible(table.uuid, partition)}
            changes = by_file(parts.deltas(table.uuid, partition))
            damaged = services.damage.parts_of(table.uuid)
            for entry in parts.entries(table.uuid, partition):
                if isinstance(entry, Part) and not entry.is_segment:
                    deltas = changes.get(entry.file.name, ())
                    deleted = deleted_rows(entry.file.name, deltas)
                    yield Row(
                        entry,
                        entry.name,
                        database=table.database,
                        table=table.name,
                        name=str(entry.name),
                        rows=entry.rows - deleted,
                        deleted_rows=deleted,
                        deltas=len(deltas),
                        file=entry.file.name,
                        txn=entry.name.mutation,
                        committed=time_of_hybrid(entry.commit_ts),
                        first_insert=time_of_hybrid(entry.min_row_ts),
                        last_insert=time_of_hybrid(entry.max_row_ts),
                        ranges=_ranges(entry),
                        active=entry.name in active,
                        damaged=damage_of(damaged, entry),
                    )


def damage_of(damaged: Mapping[str, DamagedFile], part: Part) -> str | None:
    """Why the part cannot be read and what to do, if it stands in the book of damaged files."""
    found = damaged.get(str(part.name))
    return None if found is None else f"{found.reason}: {CURE}"


def _ranges(part: Part) -> str:
    return msgspec.json.encode({name: [known.low, known.high] for name, known in part.ranges.items()}).decode()


TABLE = SystemTable(
    name="parts",
    doc="One row for each part that the catalog holds: those that readers see, and those that wait to be collected. "
    "Rows that are not sorted into parts yet are in `system.segments`.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("partition", TEXT, "The partition's id."),
        ColumnDoc("name", TEXT, "`partition_min_max_level_transaction`."),
        ColumnDoc("level", INTEGER, "0 for an insert; one more than its sources' for a merge."),
        ColumnDoc("rows", INTEGER, "Rows in it, without those that deltas delete."),
        ColumnDoc("deleted_rows", INTEGER, "Rows in its file that deltas delete; its next merge leaves them out."),
        ColumnDoc("deltas", INTEGER, "Deltas that change it, see `system.deltas`."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("file", TEXT, "The file's name in the table's data folder."),
        ColumnDoc("min_block", INTEGER, "The oldest insert in it."),
        ColumnDoc("max_block", INTEGER, "The newest insert in it."),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("committed", TIME, "When it became visible."),
        ColumnDoc("first_insert", TIME, "When the oldest of its rows was committed."),
        ColumnDoc("last_insert", TIME, "When the newest of its rows was committed."),
        ColumnDoc("schema_version", INTEGER, "The version of the table's columns that its file has."),
        ColumnDoc("mutation_ts", INTEGER, "The commit of the newest UPDATE or DELETE that it contains; 0: none."),
        ColumnDoc(
            "is_rewritten",
            FLAG,
            "Whether it stands in the place of one part with the same rows, as a mutation makes it.",
        ),
        ColumnDoc("ranges", TEXT, "Smallest and largest values by column, as JSON; queries leave parts out by them."),
        ColumnDoc("active", FLAG, "Whether readers see it now."),
        ColumnDoc("damaged", TEXT, DAMAGED_DOC),
    ),
    rows=_rows,
)
