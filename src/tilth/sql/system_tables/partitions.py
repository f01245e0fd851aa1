"""`system.partitions`"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tilth.base.settings import BadSettingError
from tilth.model.delta import deleted_rows
from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid


def _rows(services: Services) -> Iterator[Row]:
    parts = services.catalog.parts
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        pressure = _pressure(services, table)
        for partition in parts.partitions(table.uuid):
            visible = parts.visible(table.uuid, partition)
            files = {part.file.name for part in visible}
            changes = [
                delta
                for delta in parts.deltas(table.uuid, partition)
                if any(target.file in files for target in delta.targets)
            ]
            deleted = sum(deleted_rows(part.file.name, changes) for part in visible) if changes else 0
            segments = sum(part.is_segment for part in visible)
            yield Row(
                database=table.database,
                table=table.name,
                partition=partition,
                partition_values=msgspec.json.encode(visible[0].values).decode() if visible else None,
                parts=len(visible) - segments,
                segments=segments,
                rows=sum(part.rows for part in visible) - deleted,
                deleted_rows=deleted,
                deltas=len(changes),
                bytes=sum(part.bytes for part in visible),
                max_level=max((part.name.level for part in visible), default=None),
                last_insert=time_of_hybrid(max((part.max_row_ts for part in visible), default=0)),
                insert_pressure=pressure.get(partition),
            )


def _pressure(services: Services, table: TableDef) -> dict[str, str]:
    try:
        return services.catalog.throttle.judge(table)
    except BadSettingError:
        # One that an older version allowed; the INSERT says so.
        return {}


TABLE = SystemTable(
    name="partitions",
    doc="One row for each partition of a table.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("partition", TEXT, "The partition's id; ALTER TABLE .. DROP PARTITION ID takes it."),
        ColumnDoc("partition_values", TEXT, "The values of PARTITION BY, as JSON; NULL where nothing is visible."),
        ColumnDoc("parts", INTEGER, "Visible parts."),
        ColumnDoc("segments", INTEGER, "Visible row segments."),
        ColumnDoc("rows", INTEGER, "Rows that readers see in both."),
        ColumnDoc("deleted_rows", INTEGER, "Rows in their files that deltas delete."),
        ColumnDoc("deltas", INTEGER, "Deltas that change them."),
        ColumnDoc("bytes", INTEGER, "Size of the files of parts and segments."),
        ColumnDoc("max_level", INTEGER, "The largest number of merges that a row has been through."),
        ColumnDoc("last_insert", TIME, "When its newest rows were committed."),
        ColumnDoc("insert_pressure", TEXT, "Why INSERTs wait or are refused, with the setting; NULL: they are not."),
    ),
    rows=_rows,
)
