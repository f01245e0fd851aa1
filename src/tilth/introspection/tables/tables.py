"""Definitions as rows: databases, tables and views, columns, versions, dropped tables.

Covers: `system.databases`, `system.tables`, `system.columns`, `system.dropped_tables`, `system.table_versions`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tilth.base.hybrid import milliseconds
from tilth.catalog import NO_ROWS, TableTotals, TableVersion
from tilth.control.context.definitions import create_statement, default_kind, written_expression
from tilth.control.context.lifetimes import dropped_keep_ms, files_of
from tilth.control.context.services import Services
from tilth.grammar.render import name_text
from tilth.grammar.statements import Name
from tilth.introspection.pushdown import relations, stored_tables
from tilth.introspection.system_table import (
    FLAG,
    INTEGER,
    TABLE_NAME_COLUMNS,
    TEXT,
    TEXTS,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    time_of_hybrid,
    time_of_ms,
)
from tilth.model.computed import shown_expression
from tilth.model.mutation import MutationState
from tilth.model.pushdown import Pushdown
from tilth.model.table import Relation, TableDef, ViewDef, full_name
from tilth.model.types import spark_name
from tilth.query.snapshots.as_of import HISTORY_SETTING, history_seconds, mark_of, readable_from
from tilth.storage import storage_settings


def _rows_of_databases(services: Services, _: Pushdown) -> Iterator[Row]:
    tables = services.catalog.tables
    counts = Counter(each.database for each in tables.all())
    for name in tables.databases():
        yield Row(name=name, tables=counts[name])


DATABASES = SystemTable(
    name="databases",
    doc="One row for each database; `system` itself is not listed.",
    columns=(
        ColumnDoc("name", TEXT, "The database's name."),
        ColumnDoc("tables", INTEGER, "Tables, Kafka tables and views in it."),
    ),
    rows=_rows_of_databases,
)


#: Tables whose facts are read one by one.
_READ_ONE_BY_ONE_MAX = 100


class _Totals:
    """Facts that are read at once for all rows of `system.tables`, where they are wanted."""

    def __init__(self, services: Services, tables: Sequence[TableDef], wanted: Pushdown) -> None:
        self._services = services
        # One read of all is cheaper than one of each of many.
        is_few = bool(wanted.equal) and len(tables) <= _READ_ONE_BY_ONE_MAX
        self._only = [table.uuid for table in tables] if is_few else None

    @cached_property
    def totals(self) -> Mapping[str, TableTotals]:
        return self._services.catalog.parts.totals(self._only)

    @cached_property
    def versions(self) -> Mapping[str, TableVersion]:
        parts = self._services.catalog.parts
        return parts.versions() if self._only is None else {uuid: parts.version(uuid) for uuid in self._only}

    @cached_property
    def pending(self) -> Mapping[str, int]:
        """Number of mutations that are not done, by table."""
        mutations = self._services.catalog.mutations
        if self._only is None:
            return Counter(each.table for each in mutations.all() if each.state is MutationState.PENDING)
        return {uuid: len(mutations.pending(uuid)) for uuid in self._only}


class _StoredTable:
    """Columns of `system.tables` that only a table of rows has; each is computed where it is wanted."""

    def __init__(self, services: Services, table: TableDef, totals: _Totals) -> None:
        self._services = services
        self._table = table
        self._all = totals

    @property
    def rows(self) -> int:
        return self._totals.rows

    @property
    def bytes(self) -> int:
        return self._totals.bytes

    @property
    def parts(self) -> int:
        return self._totals.parts

    @property
    def segments(self) -> int:
        return self._totals.segments

    @property
    def version(self) -> int:
        return self._version.counter

    @property
    def last_commit_ms(self) -> int:
        return milliseconds(self._version.last_commit_ts)

    @property
    def storage_policy(self) -> str:
        return storage_settings(self._table).storage_policy

    @property
    def readable_since_ms(self) -> int:
        mark = mark_of(self._table, self._services.clock)
        return 0 if mark is None else max(milliseconds(mark), self._table.created_ms)

    @property
    def history_setting(self) -> str:
        return f"{HISTORY_SETTING} = {history_seconds(self._table):g}"

    @property
    def mutations_pending(self) -> int:
        return self._all.pending.get(self._table.uuid, 0)

    @property
    def _totals(self) -> TableTotals:
        return self._all.totals.get(self._table.uuid, NO_ROWS)

    @property
    def _version(self) -> TableVersion:
        return self._all.versions.get(self._table.uuid, TableVersion())


class _Definition:
    """Columns of `system.tables` that show the definition."""

    def __init__(self, services: Services, relation: Relation) -> None:
        self._services = services
        self._relation = relation

    @property
    def sort_key(self) -> list[str]:
        return list(self._relation.order_by) if isinstance(self._relation, TableDef) else []

    @property
    def unique_key(self) -> list[str]:
        return list(self._relation.unique_key) if isinstance(self._relation, TableDef) else []

    @property
    def source(self) -> str:
        return self._name_of(self._relation.source) if isinstance(self._relation, ViewDef) else ""

    @property
    def target(self) -> str:
        return self._name_of(self._relation.target) if isinstance(self._relation, ViewDef) else ""

    @property
    def create_statement(self) -> str:
        return create_statement(self._services, self._relation)

    def _name_of(self, uuid: str) -> str:
        found = self._services.catalog.tables.by_id(uuid)
        return full_name(found) if found else ""


def _rows_of_tables(services: Services, wanted: Pushdown) -> Iterator[Row]:
    found = relations(services, wanted, name="name")
    totals = _Totals(services, [each for each in found if isinstance(each, TableDef)], wanted)
    for relation in found:
        stored = _StoredTable(services, relation, totals) if isinstance(relation, TableDef) else None
        # None: what only a table that stores rows has is NULL.
        yield Row(_Definition(services, relation), relation, stored, None)


TABLES = SystemTable(
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
        ColumnDoc("version", INTEGER, "Number of its commits; equal numbers mean equal content."),
        ColumnDoc("last_commit", TIME, "When the last commit was made."),
        ColumnDoc("sort_key", TEXTS, "Columns of ORDER BY."),
        ColumnDoc("unique_key", TEXTS, "Columns of UNIQUE KEY; empty: rows may repeat."),
        ColumnDoc("ttl", TEXT, "When rows expire; NULL: never."),
        ColumnDoc("storage_policy", TEXT, "The storage where its files are; NULL: it has none."),
        ColumnDoc("readable_since", TIME, "Start of the time that AS OF can read; NULL: it keeps no history."),
        ColumnDoc("history_setting", TEXT, "The setting that decides this, and its value in seconds."),
        ColumnDoc("mutations_pending", INTEGER, "Mutations that are not done yet."),
        ColumnDoc("source", TEXT, "Of a view: the Kafka table that it reads."),
        ColumnDoc("target", TEXT, "Of a view: the table that it writes into."),
        ColumnDoc("comment", TEXT, "What its creator said of it."),
        ColumnDoc("created", TIME, "When it was created."),
        ColumnDoc("create_statement", TEXT, "The statement that makes it as it is now."),
    ),
    rows=_rows_of_tables,
)


def _rows_of_columns(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for relation in relations(services, wanted):
        if isinstance(relation, ViewDef):
            continue
        is_table = isinstance(relation, TableDef)
        order_by = relation.order_by if isinstance(relation, TableDef) else ()
        unique_key = relation.unique_key if isinstance(relation, TableDef) else ()
        version = relation.version_column if isinstance(relation, TableDef) else None
        partition_by = {one.column for one in relation.partition_by} if isinstance(relation, TableDef) else set()
        for position, column in enumerate(relation.schema.all_columns, start=1):
            yield Row(
                column,
                database=relation.database,
                table=relation.name,
                position=position,
                type=spark_name(column.type),
                default_kind=default_kind(column),
                default_expression=shown_expression(column, relation.schema) if column.expression else column.default,
                written_default=written_expression(column, relation.schema),
                is_default_computed=bool(column.expression) or column.is_default_computed,
                is_in_sort_key=is_table and column.name in order_by,
                is_in_partition_key=column.name in partition_by,
                is_in_unique_key=column.name in unique_key,
                is_version=column.name == version,
            )


COLUMNS = SystemTable(
    name="columns",
    doc="One row for each column of a table or Kafka table.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("name", TEXT, "The column."),
        ColumnDoc("position", INTEGER, "Its position, from 1."),
        ColumnDoc("type", TEXT, "The type that is stored, in Spark SQL's words."),
        ColumnDoc("declared_type", TEXT, "The type as it was written; values keep what it promises, as UInt8 does."),
        ColumnDoc("nullable", FLAG, "False where NOT NULL was written, and for columns of UNIQUE KEY and the version."),
        ColumnDoc(
            "default_kind",
            TEXT,
            "`DEFAULT`: for rows that do not bring the column; `MATERIALIZED`: computed when a row is written, and "
            "stored; `ALIAS`: computed when it is read. Empty: the column has no expression.",
        ),
        ColumnDoc("default_expression", TEXT, "The expression as kept; NULL: there is none."),
        ColumnDoc("written_default", TEXT, "The expression as it was written, with the names that columns have now."),
        ColumnDoc(
            "is_default_computed", FLAG, "Whether the expression is computed for each row or INSERT; false: a literal."
        ),
        ColumnDoc("is_in_sort_key", FLAG, "Whether ORDER BY names it."),
        ColumnDoc("is_in_partition_key", FLAG, "Whether PARTITION BY names it."),
        ColumnDoc("is_in_unique_key", FLAG, "Whether UNIQUE KEY names it."),
        ColumnDoc("is_version", FLAG, "Whether its value decides which of two rows with one key is the newer."),
        ColumnDoc("id", INTEGER, "Stays when it is renamed, and is never used again; below 0: it is not stored."),
        ColumnDoc("comment", TEXT, "What its creator said of it."),
    ),
    rows=_rows_of_columns,
)


def _rows_of_dropped_tables(services: Services, _: Pushdown) -> Iterator[Row]:
    keep_ms = dropped_keep_ms(services)
    for each in services.catalog.tables.dropped():
        relation = each.relation
        files = files_of(services.catalog, relation.uuid) if isinstance(relation, TableDef) else None
        yield Row(
            relation,
            each,
            kept_until=time_of_ms(each.dropped_ms + keep_ms),
            dropped_at=time_of_ms(each.dropped_ms),
            files=None if files is None else len(files),
            bytes=None if files is None else sum(file.size for file in files),
            undrop=None if each.is_going else f"UNDROP TABLE {name_text(Name(relation.database, relation.name))}",
        )


DROPPED_TABLES = SystemTable(
    name="dropped_tables",
    doc="One row for each dropped table, Kafka table and view of which something is still there.",
    columns=(
        ColumnDoc("database", TEXT, "Its database."),
        ColumnDoc("name", TEXT, "Its name; UNDROP TABLE takes the one of that name that was dropped last."),
        ColumnDoc("uuid", TEXT, "Its identity."),
        ColumnDoc("engine", TEXT, "What kind it is."),
        ColumnDoc("dropped_at", TIME, "When it was dropped."),
        ColumnDoc("kept_until", TIME, "Until when UNDROP TABLE brings it back, by `dropped_table_keep_seconds`."),
        ColumnDoc("is_going", FLAG, "Whether it is being removed, so that it cannot be brought back any more."),
        ColumnDoc("files", INTEGER, "Its files that are still there; NULL where none were stored."),
        ColumnDoc("bytes", INTEGER, "Their size, which is free once they are gone."),
        ColumnDoc("undrop", TEXT, "The statement that brings it back; NULL: nothing does any more."),
    ),
    rows=_rows_of_dropped_tables,
)
#: Limit for each table; the newest are shown.
VERSIONS_SHOWN_MAX = 10_000


def _rows_of_table_versions(services: Services, wanted: Pushdown) -> Iterator[Row]:
    texts = {event.query_id: event.text for event in services.query_log.recent()}
    for table in stored_tables(services, wanted):
        commits = services.catalog.history.commits(table.uuid, VERSIONS_SHOWN_MAX)
        oldest = readable_from([(version, commit.ts) for version, commit in commits], mark_of(table, services.clock))
        ended: int | None = None
        for version, commit in commits:
            is_readable = oldest is not None and version >= oldest
            yield Row(
                table,
                table=table.name,
                version=version,
                committed=time_of_hybrid(commit.ts),
                ended=None if ended is None else time_of_hybrid(ended),
                commit_ts=commit.ts,
                readable=is_readable,
                kind=commit.actor.partition(" ")[0],
                actor=commit.actor,
                txn=commit.txn,
                statement=next((texts[word] for word in commit.actor.split() if word in texts), None),
            )
            ended = commit.ts


TABLE_VERSIONS = SystemTable(
    name="table_versions",
    doc="One row for each commit of a table that is still known, the newest first: what VERSION AS OF takes.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("version", INTEGER, "Counts the table's commits; equal numbers mean equal content."),
        ColumnDoc("committed", TIME, "When it was committed; TIMESTAMP AS OF this time shows it."),
        ColumnDoc("ended", TIME, "When the next one was committed; NULL: it is the present one."),
        ColumnDoc("commit_ts", INTEGER, "The commit's hybrid time."),
        ColumnDoc("readable", FLAG, "Whether it can be read now: `tablet_history_max_age_sec` keeps it."),
        ColumnDoc(
            "kind",
            TEXT,
            "What made it: `insert`, `update`, `delete`, `alter`, `truncate`, `drop`, `undrop`, `consume`, `replay`, "
            "`rebuild`, or a background operation such as `merge`, `flush` or `mutate`.",
        ),
        ColumnDoc("actor", TEXT, "Who wrote, as in `system.transactions`; of statements it has the query's id."),
        ColumnDoc("txn", INTEGER, "Its transaction."),
        ColumnDoc(
            "statement",
            TEXT,
            "The statement, as long as the query log of this server has it; NULL: it has not, or there was none.",
        ),
    ),
    rows=_rows_of_table_versions,
)
