"""Leases, readers, transactions under way and records that wait for removal, as rows.

Covers: `system.transactions`, `system.lost_transactions`, `system.leases`, `system.readers`, `system.streams`,
`system.trash`.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.lifetimes import trash_lifetime_ms
from tilth.control.context.services import Services
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
    time_of_ms,
)
from tilth.model.part import TrashItem
from tilth.model.pushdown import Pushdown
from tilth.model.table import TableDef, full_name
from tilth.model.txn import Txn

#: The newest ones are shown.
TRANSACTIONS_MAX = 10_000


def _rows_of_transactions(services: Services, _: Pushdown) -> Iterator[Row]:
    transactions = services.catalog.transactions
    found: dict[int, Txn] = {txn.id: txn for txn in transactions.unfinished()}
    found |= {txn.id: txn for txn in transactions.recent(TRANSACTIONS_MAX)}
    for txn in sorted(found.values(), key=lambda txn: -txn.id):
        yield Row(
            txn,
            begun=time_of_hybrid(txn.id),
            committed=time_of_hybrid(txn.commit_ts),
            tables=[output.table for output in txn.outputs],
            fences=[f"{fence.name}@{fence.epoch}" for fence in txn.fences],
        )


TRANSACTIONS = SystemTable(
    name="transactions",
    doc="One row for each transaction that is not finished, and for the last finished ones, newest first.",
    columns=(
        ColumnDoc("id", INTEGER, "The transaction; its files' names begin with it."),
        ColumnDoc("actor", TEXT, "Who writes."),
        ColumnDoc("state", TEXT, "`running`, `finished` or `aborted`."),
        ColumnDoc("begun", TIME, "When it began."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("tables", TEXTS, "Uuids of the tables into which it may write."),
        ColumnDoc("fences", TEXTS, "The rights to act that its commit has to hold, with their epochs."),
        ColumnDoc("server", TEXT, "The server that runs it."),
        ColumnDoc("reason", TEXT, "Why it was aborted."),
    ),
    rows=_rows_of_transactions,
)


def _rows_of_lost_transactions(services: Services, _: Pushdown) -> Iterator[Row]:
    names = {each.uuid: full_name(each) for each in services.catalog.tables.all()}
    for lost in services.catalog.transactions.lost.all():
        yield Row(
            lost,
            id=lost.txn.id,
            actor=lost.txn.actor,
            begun=time_of_hybrid(lost.txn.id),
            committed=time_of_hybrid(lost.commit_ts),
            tables=[names.get(uuid, uuid) for uuid in lost.tables],
            files=list(lost.files),
            found=time_of_ms(lost.found_ms),
            history_before=lost.before,
            history_now=lost.now,
        )


LOST_TRANSACTIONS = SystemTable(
    name="lost_transactions",
    doc="One row for each transaction that was answered as committed and that the catalog's database has lost, as by "
    "a failover to a standby without the end of the log. A server finds those that it had committed itself.",
    columns=(
        ColumnDoc("id", INTEGER, "The transaction; its files' names begin with it."),
        ColumnDoc("actor", TEXT, "Who wrote."),
        ColumnDoc("begun", TIME, "When it began."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("tables", TEXTS, "The tables that it changed; a uuid where the table is lost, too."),
        ColumnDoc(
            "files",
            TEXTS,
            "Files that its commit had added. Nothing removes them for 30 days from when the loss was found.",
        ),
        ColumnDoc("server", TEXT, "The server's process that had committed it."),
        ColumnDoc("found", TIME, "When that server found that it is missing."),
        ColumnDoc("history_before", TEXT, "The history of the database that had it: number, system and timeline."),
        ColumnDoc("history_now", TEXT, "The history that lacks it."),
    ),
    rows=_rows_of_lost_transactions,
)


def _rows_of_leases(services: Services, _: Pushdown) -> Iterator[Row]:
    living = {each.id for each in services.catalog.servers.live()}
    for lease in services.catalog.leases.list():
        yield Row(lease, is_valid=lease.holder in living)


LEASES = SystemTable(
    name="leases",
    doc="One row for each right to act.",
    columns=(
        ColumnDoc("name", TEXT, "`table/UUID`, `consumer/UUID/INDEX`."),
        ColumnDoc("holder", TEXT, "The process of a server that has it."),
        ColumnDoc("epoch", INTEGER, "Raised by each taking over; commits of an older holder are refused."),
        ColumnDoc("is_valid", FLAG, "Whether its holder lives: nobody else can take it then."),
    ),
    rows=_rows_of_leases,
)


def _rows_of_readers(services: Services, _: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    for lease in services.catalog.readers.list():
        yield Row(
            lease,
            **names.row(lease.table),
            snapshot=time_of_hybrid(lease.snapshot_ts),
            client=lease.client or None,
            name=lease.name or None,
            expires=time_of_ms(lease.expires_ms),
        )


READERS = SystemTable(
    name="readers",
    doc="One row for each snapshot that a query, or a reader with a Spark session of its own, holds; garbage "
    "collection waits for it.",
    columns=(
        ColumnDoc("id", TEXT, "The reader lease."),
        *TABLE_NAME_COLUMNS,
        ColumnDoc("snapshot_ts", INTEGER, "The snapshot's hybrid time."),
        ColumnDoc("snapshot", TIME, "The same as a time."),
        ColumnDoc("holder", TEXT, "The server that opened it."),
        ColumnDoc("client", TEXT, "Who reads, as `address:port (name)`; NULL: not known."),
        ColumnDoc("opened", TIME, "Since when."),
        ColumnDoc("name", TEXT, "Name of a reader that follows the table's changes; NULL: it reads one snapshot."),
        ColumnDoc("expires", TIME, "When it ends, unless it is renewed."),
    ),
    rows=_rows_of_readers,
)


def _rows_of_streams(services: Services, _: Pushdown) -> Iterator[Row]:
    names = TableNames(services)
    for uuid, record in services.catalog.streams.all():
        yield Row(record, **names.row(uuid), committed=time_of_hybrid(record.commit_ts))


STREAMS = SystemTable(
    name="streams",
    doc="One row for each stream that writes into a table from a Spark of its own: its last batch, which is kept as "
    "long as the table.",
    columns=(
        *TABLE_NAME_COLUMNS,
        ColumnDoc("stream", TEXT, "Its name, the option `stream`; without one, the id of its query."),
        ColumnDoc("query", TEXT, "The id of the query that sent the batch, which its checkpoint has."),
        ColumnDoc("batch", INTEGER, "The number of the batch; this one and those before it are not stored again."),
        ColumnDoc("rows", INTEGER, "Rows of the batch."),
        ColumnDoc("committed", TIME, "When it was committed."),
        ColumnDoc("txn", INTEGER, "Its transaction."),
    ),
    rows=_rows_of_streams,
)
_BATCH = 1000


def _rows_of_trash(services: Services, _: Pushdown) -> Iterator[Row]:
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
    """Milliseconds for which the trash of each table keeps its items, by uuid."""
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


TRASH = SystemTable(
    name="trash",
    doc="One row for each part that has left its table while its file is still there.",
    columns=(
        *TABLE_NAME_COLUMNS,
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
    rows=_rows_of_trash,
)
