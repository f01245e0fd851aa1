"""Parts, deltas and other files of tables, and their history, as rows.

Covers: `system.parts`, `system.cnch_parts`, `system.segments`, `system.partitions`, `system.deltas`, `system.marks`,
`system.part_log`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from tilth.base.hybrid import milliseconds
from tilth.catalog import InsertPressure
from tilth.control.context.services import Services
from tilth.introspection.pushdown import stored_tables
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
    TableNames,
    time_of_hybrid,
)
from tilth.maintenance import CURE, DamagedFile
from tilth.model.delta import Delta, by_file, deleted_rows
from tilth.model.part import DropRange, Part
from tilth.model.pushdown import Pushdown
from tilth.model.table import TableDef

#: Description of the last column here and in `system.segments`.
DAMAGED_DOC = "Why it cannot be read, and what to do; NULL: nothing is known to be wrong with its files."


def _rows_of_parts(services: Services, wanted: Pushdown) -> Iterator[Row]:
    parts = services.catalog.parts
    for table in stored_tables(services, wanted):
        for partition in parts.partitions(table.uuid):
            active = {part.name for part in parts.visible(table.uuid, partition)}
            changes = by_file(parts.deltas(table.uuid, partition))
            damaged = services.damage.parts_of(table.uuid)
            for entry in parts.entries(table.uuid, partition):
                if isinstance(entry, Part) and not entry.is_segment:
                    yield _row_of_part(
                        table,
                        entry,
                        changes.get(entry.file.name, ()),
                        damaged,
                        first_insert=time_of_hybrid(entry.min_row_ts),
                        last_insert=time_of_hybrid(entry.max_row_ts),
                        ranges=_ranges(entry),
                        active=entry.name in active,
                    )


def _row_of_part(
    table: TableDef, part: Part, deltas: Sequence[Delta], damaged: Mapping[str, DamagedFile], **more: object
) -> Row:
    deleted = deleted_rows(part.file.name, deltas)
    return Row(
        part,
        part.name,
        database=table.database,
        table=table.name,
        name=str(part.name),
        rows=part.rows - deleted,
        deleted_rows=deleted,
        deltas=len(deltas),
        file=part.file.name,
        txn=part.name.mutation,
        committed=time_of_hybrid(part.commit_ts),
        damaged=damage_of(damaged, part),
        **more,
    )


def damage_of(damaged: Mapping[str, DamagedFile], part: Part) -> str | None:
    """Return why the part cannot be read and what to do, if it stands in the book of damaged files."""
    found = damaged.get(str(part.name))
    return None if found is None else f"{found.reason}: {CURE}"


def _ranges(part: Part) -> str:
    return msgspec.json.encode({name: [known.low, known.high] for name, known in part.ranges.items()}).decode()


PARTS = SystemTable(
    name="parts",
    doc="One row for each part that the catalog holds: those that readers see, and those that wait to be collected. "
    "Rows that are not sorted into parts yet are in `system.segments`.",
    columns=(
        *TABLE_NAME_COLUMNS,
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
            "Whether it replaces one part with the same rows, as a mutation makes it.",
        ),
        ColumnDoc(
            "cut",
            INTEGER,
            "The transaction of the merge that made it as one of several key ranges, which count and are merged as one "
            "part; 0: it is whole.",
        ),
        ColumnDoc("ranges", TEXT, "Smallest and largest values by column, as JSON; queries leave parts out by them."),
        ColumnDoc("active", FLAG, "Whether readers see it now."),
        ColumnDoc("damaged", TEXT, DAMAGED_DOC),
    ),
    rows=_rows_of_parts,
)
#: Columns, each with the one of `system.parts` that it shows.
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


def _rows_of_cnch_parts(services: Services, wanted: Pushdown) -> Iterator[Row]:
    of_parts = Pushdown(equal={shows: wanted.equal[name] for name, shows, _, _ in _SHOWS if name in wanted.equal})
    for row in PARTS.rows(services, of_parts):
        shown = row.named(PARTS.columns)
        yield Row(**{name: shown[shows] for name, shows, _, _ in _SHOWS})


CNCH_PARTS = SystemTable(
    name="cnch_parts",
    doc="`system.parts` with columns named as in ByConity. There are no marks and no counts of columns: parts are "
    "Parquet files.",
    columns=tuple(ColumnDoc(name, kind, doc) for name, _, kind, doc in _SHOWS),
    rows=_rows_of_cnch_parts,
)


def _rows_of_segments(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table in stored_tables(services, wanted):
        snapshot = services.catalog.parts.snapshot(table.uuid, keep=lambda part: part.is_segment)
        changes = by_file(snapshot.deltas)
        damaged = services.damage.parts_of(table.uuid)
        for part in snapshot.parts:
            yield _row_of_part(table, part, changes.get(part.file.name, ()), damaged)


SEGMENTS = SystemTable(
    name="segments",
    doc="One row for each row segment that readers see: rows that are committed and not sorted into a part yet.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("partition", TEXT, "The partition's id."),
        ColumnDoc("name", TEXT, "`partition_min_max_level_transaction`, as of a part."),
        ColumnDoc("rows", INTEGER, "Rows of it that readers see."),
        ColumnDoc("deleted_rows", INTEGER, "Rows in its file that are deleted."),
        ColumnDoc("deltas", INTEGER, "Deltas that change it."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("file", TEXT, "The file's name in the table's data folder."),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("committed", TIME, "When it became visible."),
        ColumnDoc("schema_version", INTEGER, "The version of the table's columns that its file has."),
        ColumnDoc("damaged", TEXT, DAMAGED_DOC),
    ),
    rows=_rows_of_segments,
)


class _Partition:
    """Columns of `system.partitions`, each computed where it is wanted."""

    def __init__(self, services: Services, table: TableDef, partition: str, pressure: _Pressure) -> None:
        self._parts = services.catalog.parts
        self._table = table
        self._pressure = pressure
        self.partition = partition

    @property
    def partition_values(self) -> str | None:
        return msgspec.json.encode(self._visible[0].values).decode() if self._visible else None

    @property
    def parts(self) -> int:
        return len(self._visible) - self.segments

    @property
    def segments(self) -> int:
        return sum(part.is_segment for part in self._visible)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self._visible) - self.deleted_rows

    @cached_property
    def deleted_rows(self) -> int:
        return sum(deleted_rows(part.file.name, self._changes) for part in self._visible) if self._changes else 0

    @property
    def deltas(self) -> int:
        return len(self._changes)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self._visible)

    @property
    def max_level(self) -> int | None:
        return max((part.name.level for part in self._visible), default=None)

    @property
    def last_insert_ms(self) -> int:
        return milliseconds(max((part.max_row_ts for part in self._visible), default=0))

    @property
    def insert_pressure(self) -> str | None:
        found = self._pressure.found.get(self.partition)
        return None if found is None else found.text

    @cached_property
    def _visible(self) -> list[Part]:
        return self._parts.visible(self._table.uuid, self.partition)

    @cached_property
    def _changes(self) -> list[Delta]:
        files = {part.file.name for part in self._visible}
        deltas = self._parts.deltas(self._table.uuid, self.partition)
        return [delta for delta in deltas if any(target.file in files for target in delta.targets)]


class _Pressure:
    """Reasons for which INSERTs into a table wait or are refused, judged once for all its partitions."""

    def __init__(self, services: Services, table: TableDef) -> None:
        self._throttle = services.catalog.throttle
        self._table = table

    @cached_property
    def found(self) -> Mapping[str, InsertPressure]:
        return self._throttle.judge(self._table)


def _rows_of_partitions(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table in stored_tables(services, wanted):
        if "insert_pressure" in wanted.not_null and services.catalog.throttle.is_calm(table):
            continue
        pressure = _Pressure(services, table)
        for partition in services.catalog.parts.partitions(table.uuid):
            record = _Partition(services, table, partition, pressure)
            yield Row(record, database=table.database, table=table.name)


PARTITIONS = SystemTable(
    name="partitions",
    doc="One row for each partition of a table.",
    columns=(
        *TABLE_NAME_COLUMNS,
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
    rows=_rows_of_partitions,
)


def _rows_of_deltas(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table in stored_tables(services, wanted):
        shown = {part.file.name for part in services.catalog.parts.snapshot(table.uuid).parts}
        for delta in services.catalog.parts.deltas(table.uuid, is_all=True):
            is_active = not delta.end_ts and any(target.file in shown for target in delta.targets)
            names = {column.id: column.name for column in table.schema.columns}
            yield Row(
                delta,
                database=table.database,
                table=table.name,
                file=delta.file.name,
                parts=len(delta.targets),
                deleted_rows=sum(target.deleted for target in delta.targets),
                updated_rows=sum(target.updated for target in delta.targets),
                columns=[names[column] for column in delta.columns if column in names],
                targets=[target.file for target in delta.targets],
                changed=time_of_hybrid(delta.change_ts),
                committed=time_of_hybrid(delta.commit_ts),
                ended=time_of_hybrid(delta.end_ts),
                active=is_active,
            )


DELTAS = SystemTable(
    name="deltas",
    doc="One row for each delta that the catalog holds: a file that changes rows of parts without rewriting them.",
    columns=(
        *TABLE_NAME_COLUMNS,
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
    rows=_rows_of_deltas,
)


def _rows_of_marks(services: Services, wanted: Pushdown) -> Iterator[Row]:
    for table in stored_tables(services, wanted):
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


MARKS = SystemTable(
    name="marks",
    doc="One row for each record that hides parts: a mark hides one, a drop range all up to its block.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("partition", TEXT, "The partition's id."),
        ColumnDoc("name", TEXT, "Like a part's; a mark covers the blocks of the part that it hides."),
        ColumnDoc("kind", TEXT, "`mark` or `drop_range`."),
        ColumnDoc("txn", INTEGER, "The transaction that made it."),
        ColumnDoc("committed", TIME, "Since when it hides."),
    ),
    rows=_rows_of_marks,
)
#: The newest ones are shown.
EVENTS_MAX = 100_000


def _rows_of_part_log(services: Services, wanted: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    database, table = (wanted.equal.get(each) for each in ("database", "table"))
    for event in services.catalog.part_log.recent(limit=EVENTS_MAX):
        named = names.row(event.table)
        if database in (None, named["database"]) and table in (None, named["table"]):
            yield Row(event, **named)


PART_LOG = SystemTable(
    name="part_log",
    doc="One row for each thing that happened to a part.",
    columns=(
        ColumnDoc("at", TIME, "When."),
        ColumnDoc(
            "event",
            TEXT,
            "`new`, `merge`, `flush` (segments became a part), `remove_deleted`, `mutate`, `delete` (rows were deleted "
            "or updated), `flush_deltas`, `minor_delta`, `major_delta`, `hide`, `undrop`, `trash` or `remove`.",
        ),
        *TABLE_NAME_COLUMNS,
        ColumnDoc("part", TEXT, "The part's name; of a change the first part's."),
        ColumnDoc("rows", INTEGER, "Rows in it; of a change: rows that were deleted."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("sources", INTEGER, "Parts or deltas that it read, or parts whose rows changed."),
        ColumnDoc("duration_ms", INTEGER, "How long a merge took."),
        ColumnDoc("reason", TEXT, "Why a merge chose these parts."),
    ),
    rows=_rows_of_part_log,
)
