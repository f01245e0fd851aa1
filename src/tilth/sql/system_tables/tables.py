"""`system.tables`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.hybrid import milliseconds
from tilth.model.table import KafkaDef, Relation, TableDef, ViewDef, full_name
from tilth.sql.definitions import create_statement
from tilth.sql.past import HISTORY_SETTING, history_seconds, mark_of
from tilth.sql.services import Services
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
        yield (
            relation.database,
            relation.name,
            relation.engine.value,
            relation.uuid,
            *_content(services, relation),
            list(relation.order_by) if isinstance(relation, TableDef) else [],
            list(relation.unique_key) if isinstance(relation, TableDef) else [],
            relation.ttl if isinstance(relation, TableDef) else None,
            *_history(services, relation),
            len(services.catalog.mutations.pending(relation.uuid)) if isinstance(relation, TableDef) else None,
            *_view(services, relation),
            relation.comment,
            time_of_ms(relation.created_ms),
            create_statement(services, relation),
        )


def _history(services: Services, relation: Relation) -> tuple[int | None, str | None]:
    """Since when the table can be read, and the setting that decides it."""
    if not isinstance(relation, TableDef):
        return None, None
    setting = f"{HISTORY_SETTING} = {history_seconds(relation):g}"
    mark = mark_of(relation, services.clock)
    return (None if mark is None else time_of_ms(max(milliseconds(mark), relation.created_ms))), setting


def _content(services: Services, relation: Relation) -> tuple[object, ...]:
    if not isinstance(relation, TableDef):
        return None, None, None, None, None, None
    snapshot = services.catalog.parts.snapshot(relation.uuid)
    version = services.catalog.parts.version(relation.uuid)
    segments = sum(part.is_segment for part in snapshot.parts)
    return (
        snapshot.rows,
        snapshot.bytes,
        len(snapshot.parts) - segments,
        segments,
        version.counter,
        time_of_hybrid(version.last_commit_ts),
    )


def _view(services: Services, relation: Relation) -> tuple[str, str]:
    if not isinstance(relation, ViewDef):
        return "", ""
    source, target = (services.catalog.tables.by_id(uuid) for uuid in (relation.source, relation.target))
    assert source is None or isinstance(source, KafkaDef)
    return full_name(source) if source else "", full_name(target) if target else ""


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
