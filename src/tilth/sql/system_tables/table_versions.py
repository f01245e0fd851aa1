"""`system.table_versions`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.table import TableDef
from tilth.sql.context.services import Services
from tilth.sql.query.past import mark_of, readable_from
from tilth.sql.system_tables.table import FLAG, INTEGER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_hybrid

#: Of each table the newest ones are shown.
VERSIONS_SHOWN_MAX = 10_000


def _rows(services: Services) -> Iterator[Row]:
    for table in services.catalog.tables.list():
        if not isinstance(table, TableDef):
            continue
        listed = services.catalog.history.listing(table.uuid, VERSIONS_SHOWN_MAX)
        oldest = readable_from(listed, mark_of(table, services.clock))
        ended: int | None = None
        for version, commit_ts in listed:
            is_readable = oldest is not None and version >= oldest
            yield Row(
                table,
                table=table.name,
                version=version,
                committed=time_of_hybrid(commit_ts),
                ended=None if ended is None else time_of_hybrid(ended),
                commit_ts=commit_ts,
                readable=is_readable,
            )
            ended = commit_ts


TABLE = SystemTable(
    name="table_versions",
    doc="One row for each commit of a table that is still known, the newest first: what VERSION AS OF takes.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("version", INTEGER, "Counts the table's commits; equal numbers mean equal content."),
        ColumnDoc("committed", TIME, "When it was committed; TIMESTAMP AS OF this time shows it."),
        ColumnDoc("ended", TIME, "When the next one was committed; NULL: it is the present one."),
        ColumnDoc("commit_ts", INTEGER, "The commit's hybrid time."),
        ColumnDoc("readable", FLAG, "Whether it can be read now: `tablet_history_max_age_sec` keeps it."),
    ),
    rows=_rows,
)
