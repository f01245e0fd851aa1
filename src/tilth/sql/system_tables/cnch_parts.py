"""`system.cnch_parts`: `system.parts` under the names that ByConity gives its columns."""

from __future__ import annotations

from collections.abc import Iterator

from tilth.sql.context.services import Services
from tilth.sql.system_tables import parts
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable

#: Of each column the one of `system.parts` that it shows.
_SHOWS = (
    ("database", "database", TEXT, "The table's database."),
    ("table", "table", TEXT, "The table."),
    ("partition", "partition", TEXT, "The partition's id."),
    ("partition_id", "partition", TEXT, "The partition's id."),
    ("name", "name", TEXT, "As in `system.parts`."),
    ("bytes_on_disk", "bytes", INTEGER, "Size of its file."),
    ("rows_count", "rows", INTEGER, "Rows in it, without those that deltas delete."),
    ("delete_rows", "deleted_rows", INTEGER, "Rows in its file that deltas delete."),
    ("level", "level", INTEGER, "0 for an insert; one more than its sources' for a merge."),
    ("commit_time", "committed", TIME, "When it became visible."),
    ("visible", "active", FLAG, "Whether readers see it now."),
    ("active", "active", FLAG, "Whether readers see it now."),
)


def _rows(services: Services) -> Iterator[Row]:
    for row in parts.TABLE.rows(services):
        shown = row.named(parts.TABLE.columns)
        yield Row(**{name: shown[of_parts] for name, of_parts, _, _ in _SHOWS})


TABLE = SystemTable(
    name="cnch_parts",
    doc="`system.parts` with columns named as in ByConity. There are no marks and no counts of columns: parts are "
    "Parquet files.",
    columns=tuple(ColumnDoc(name, kind, doc) for name, _, kind, doc in _SHOWS),
    rows=_rows,
)
