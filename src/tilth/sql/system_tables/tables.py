"""`system.tables`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.hybrid import milliseconds
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.sql.context.definitions import create_statement
from tilth.sql.context.services import Services
from tilth.sql.query.past import HISTORY_SETTING, history_seconds, mark_of
from tilth.sql.system_tables.table import (
    INTEGER,
    TEXT,
    TEXTS,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_hybrid,
    time_of_ms,
)


def _rows(services: Services) -> Iterator[Row]:
    for relation in services.catalog.tables.list():
        # None: what only a table that stores rows has is NULL.
        yield Row(
            relation,
            None,
            **({"sort_key": [], "unique_key": [], "ttl": None} | _stored(services, relation)),
            **_view(services, relation),
            create_statement=create_statement(services, relation),
        )


def _stored(services: Services, table: Relation) -> dict[str, object]:
    if not isinstance(table, TableDef):
        return {}
    snapshot = services.catalog.parts.snapshot(table.uuid)
    version = services.catalog.parts.version(table.uuid)
    segments = sum(part.is_segment for part in snapshot.parts)
    mark = mark_of(table, services.clock)
    return {
        "rows": snapshot.rows,
        "bytes": snapshot.bytes,
        "parts": len(snapshot.parts) - segments,
        "segments": segments,
        "version": version.counter,
        "last_commit": time_of_hybrid(version.last_commit_ts),
        "sort_key": list(table.order_by),
        "unique_key": list(table.unique_key),
        "ttl": table.ttl,
        "readable_since": None if mark is None else time_of_ms(max(milliseconds(mark), table.created_ms)),
        "history_setting": f"{HISTORY_SETTING} = {history_seconds(table):g}",
        "mutations_pending": len(services.catalog.mutations.pending(table.uuid)),
    }


def _view(services: Services, relation: Relation) -> dict[str, str]:
    if not isinstance(relation, ViewDef):
        return {"source": "", "target": ""}
    source, target = (services.catalog.tables.by_id(uuid) for uuid in (relation.source, relation.target))
    assert source is None or isinstance(source, KafkaDef)
    return {"source": full_name(source) if source else "", "target": full_name(target) if target else ""}


TABLE = SystemTable(
    name="tables",
    doc="One row for each table, Kafka table and materialized view.",
    columns=(
        ColumnDoc("database", TEXT, "The database that it is in."),
        ColumnDoc("name", TEXT, "Its name."),
        ColumnDoc("engine", TEXT, "MergeTree, Kafka or MaterializedView."),
        ColumnDoc("uuid", TEXT, "Names its files; survives a rename."),
        ColumnDoc("rows", INTEGER, "Rows visible now; NULL where no rows are stored."),
        ColumnDoc("bytes", INTEGER, "Size of the files of visible parts and segments."),
        ColumnDoc("parts", INTEGER, "Visible parts."),
        ColumnDoc("segments", INTEGER, "Visible row segments: rows that are not sorted into parts yet."),
        ColumnDoc("version", INTEGER, "Commits so far; equal numbers mean equal content."),
        ColumnDoc("last_commit", TIME, "When the last commit was made."),
        ColumnDoc("sort_key", TEXTS, "Columns of ORDER BY."),
        ColumnDoc("unique_key", TEXTS, "Columns of UNIQUE KEY; empty: rows may repeat."),
        ColumnDoc("ttl", TEXT, "When rows expire; NULL: never."),
        ColumnDoc("readable_since", TIME, "How far back AS OF can read it; NULL: it keeps no history."),
        ColumnDoc("history_setting", TEXT, "The setting that decides this, and its value in seconds."),
        ColumnDoc("mutations_pending", INTEGER, "Mutations that are not done yet."),
        ColumnDoc("source", TEXT, "Of a view: the Kafka table that it reads."),
        ColumnDoc("target", TEXT, "Of a view: the table that it writes into."),
        ColumnDoc("comment", TEXT, "What its creator said of it."),
        ColumnDoc("created", TIME, "When it was created."),
        ColumnDoc("create_statement", TEXT, "The statement that makes it as it is now."),
    ),
    rows=_rows,
)
