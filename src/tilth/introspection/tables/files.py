"""Files of users that were loaded, as rows.

Covers: `system.loaded_files`, `system.skipped_rows`. Does not cover: files of tables (parts.py).

Tests: tests/unit/introspection/test_registry.py, tests/unit/statements/files/test_copy_into.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.services import Services
from tilth.introspection.pushdown import stored_tables
from tilth.introspection.system_table import (
    INTEGER,
    TABLE_NAME_COLUMNS,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_hybrid,
    time_of_ms,
)
from tilth.model.loaded_file import LoadedFile
from tilth.model.pushdown import Pushdown
from tilth.model.table import TableDef


def _loaded(services: Services, wanted: Pushdown) -> Iterator[tuple[TableDef, LoadedFile]]:
    for table in stored_tables(services, wanted):
        for each in services.catalog.loaded_files.all(table.uuid):
            yield table, each


def _rows_of_loaded_files(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table, each in _loaded(services, wanted):
        yield Row(
            each,
            database=table.database,
            table=table.name,
            bytes=each.size,
            modified=time_of_ms(each.modified_ms),
            skipped_rows=len(each.skipped),
            loaded=time_of_hybrid(each.commit_ts),
        )


def _rows_of_skipped_rows(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table, each in _loaded(services, wanted):
        for skipped in each.skipped:
            yield Row(
                skipped,
                each,
                database=table.database,
                table=table.name,
                raw=skipped.raw.decode(errors="backslashreplace"),
                loaded=time_of_hybrid(each.commit_ts),
            )


LOADED_FILES = SystemTable(
    name="loaded_files",
    doc="One row for each table and each file that COPY INTO has loaded into it, for 180 days.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("file", TEXT, "The file's address."),
        ColumnDoc("bytes", INTEGER, "Its size when it was loaded."),
        ColumnDoc("tag", TEXT, "Its ETag then; empty: its store has none."),
        ColumnDoc("modified", TIME, "When it had changed last, by the clock of its store."),
        ColumnDoc("rows", INTEGER, "Its rows that were stored."),
        ColumnDoc("skipped_rows", INTEGER, "Its rows that could not be stored, as `system.skipped_rows` lists them."),
        ColumnDoc("loaded", TIME, "When its rows were committed."),
        ColumnDoc("txn", INTEGER, "The transaction; files of one statement have the same."),
        ColumnDoc("query_id", TEXT, "The statement."),
    ),
    rows=_rows_of_loaded_files,
)
SKIPPED_ROWS = SystemTable(
    name="skipped_rows",
    doc="One row for each row of a file that COPY INTO .. OPTIONS (ON_ERROR = 'skip') could not store.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("file", TEXT, "The file's address."),
        ColumnDoc("block_start", INTEGER, "Byte at which the block of the file begins in which lines are counted."),
        ColumnDoc("line", INTEGER, "The line in that block, from 1."),
        ColumnDoc("reason", TEXT, "Why it could not be stored."),
        ColumnDoc("raw", TEXT, "The beginning of the line."),
        ColumnDoc("loaded", TIME, "When the file's other rows were committed."),
        ColumnDoc("query_id", TEXT, "The statement."),
    ),
    rows=_rows_of_skipped_rows,
)
