"""`system.trash`"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.model.part import TrashItem
from tilth.model.table import TableDef
from tilth.sql.context.lifetimes import trash_lifetime_ms
from tilth.sql.context.services import Services
from tilth.sql.system_tables.table import (
    FLAG,
    INTEGER,
    TEXT,
    TIME,
    ColumnDoc,
    Row,
    SystemTable,
    TableNames,
    time_of_hybrid,
    time_of_ms,
)

_BATCH = 1000


def _rows(services: Services) -> Iterator[Row]:
    names = TableNames(services)
    lifetimes = _lifetimes_ms(services)
    cursor: bytes | None = None
    while True:
        items, cursor = services.catalog.trash.items(after=cursor, limit=_BATCH)
        for trashed in items:
            part = trashed.item.part
            yield Row(
                trashed,
                **names.row(trashed.table),
                part=str(part.name),
                file=part.file.name,
                rows=part.rows,
                bytes=part.bytes,
                ended=time_of_hybrid(trashed.item.end_ts),
                moved=time_of_ms(trashed.item.moved_ms),
                is_dropped=trashed.item.is_dropped and not trashed.item.is_going,
                removable_at=_removable_at(trashed.item, lifetimes.get(trashed.table, 0)),
                reason=_reason(trashed.item),
            )
        if cursor is None or not items:
            break


def _lifetimes_ms(services: Services) -> dict[str, int]:
    """How long the trash of each table keeps its items, by uuid."""
    relations = [*services.catalog.tables.list(), *(each.relation for each in services.catalog.tables.dropped())]
    return {each.uuid: trash_lifetime_ms(each) for each in relations if isinstance(each, TableDef)}


def _removable_at(item: TrashItem, lifetime_ms: int) -> int | None:
    ended = time_of_hybrid(item.end_ts)
    return None if ended is None else ended + lifetime_ms * 1000


def _reason(item: TrashItem) -> str:
    if item.is_going:
        return "its file is being removed"
    if item.is_dropped:
        return "dropped with its partition; UNDROP PARTITION can bring it back"
    return "replaced by a merge or a mutation"


TABLE = SystemTable(
    name="trash",
    doc="One row for each part that has left its table while its file is still there.",
    columns=(
        ColumnDoc("database", TEXT, "The table's database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("part", TEXT, "The part's name."),
        ColumnDoc("file", TEXT, "Its file."),
        ColumnDoc("rows", INTEGER, "Rows in it."),
        ColumnDoc("bytes", INTEGER, "Size of its file."),
        ColumnDoc("ended", TIME, "Since when readers do not see it; NULL where its transaction never finished."),
        ColumnDoc("moved", TIME, "When it came here."),
        ColumnDoc("is_dropped", FLAG, "Whether UNDROP PARTITION can bring it back."),
        ColumnDoc(
            "removable_at",
            TIME,
            "When its file may go: the end and `ttl_for_trash_items`. A reader may keep it for longer, see EXPLAIN GC.",
        ),
        ColumnDoc("reason", TEXT, "Why it is here."),
    ),
    rows=_rows,
)
