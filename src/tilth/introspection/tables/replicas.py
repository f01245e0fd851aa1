"""Replicas of storages, as rows.

Covers: `system.replicas`. Does not cover: storages and what lies where (servers.py, tables.py).

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.control.context.services import Services
from tilth.introspection.system_table import FLAG, INTEGER, NUMBER, TEXT, TIME, ColumnDoc, Row, SystemTable, time_of_ms
from tilth.model.copy_note import CopyNote
from tilth.model.pushdown import Pushdown
from tilth.model.table import TableDef
from tilth.storage import StoreRoot, health_of, storage_settings

#: Notes of a table that are counted; more are a replica that is filled anew.
_COUNTED_MAX = 100_000


def _rows_of_replicas(services: Services, _: Pushdown) -> Iterator[Row]:
    for table in services.catalog.tables.all():
        if isinstance(table, TableDef):
            root = services.root.of(table.uuid)
            if root.replicas:
                yield from _rows_of_table(services, table, root)


def _rows_of_table(services: Services, table: TableDef, root: StoreRoot) -> Iterator[Row]:
    settings = storage_settings(table)
    notes = services.catalog.copies.of(table.uuid, limit=_COUNTED_MAX)
    troubles = [health_of(each).trouble for each in root.replicas]
    now_ms = services.clock.now_ms()
    for number, (replica, trouble) in enumerate(zip(root.replicas, troubles, strict=True)):
        queue = [note for note in notes if note.replica == number]
        oldest_ms = min((note.since_ms for note in queue), default=now_ms)
        failed = max(queue, key=lambda note: note.failed_ms, default=None)
        yield Row(
            table,
            table=table.name,
            storage=settings.storage_policy,
            replica_num=number,
            replica_path=replica.uri,
            state=_state(trouble, queue),
            reason=trouble or next((note.reason for note in queue), None),
            is_readonly=troubles.count("") < (settings.insert_quorum or root.quorum),
            queue_size=len(queue),
            queue_bytes=sum(note.bytes for note in queue),
            queue_oldest_time=time_of_ms(oldest_ms) if queue else None,
            absolute_delay=(now_ms - oldest_ms) / 1000,
            quorum=settings.insert_quorum or root.quorum,
            total_replicas=len(root.replicas),
            active_replicas=troubles.count(""),
            last_queue_update_exception=(failed and failed.error) or None,
            last_queue_update_exception_time=time_of_ms(failed.failed_ms) if failed and failed.failed_ms else None,
        )


def _state(trouble: str, queue: list[CopyNote]) -> str:
    if trouble:
        return "away"
    if any(note.file is None for note in queue):
        return "restoring"
    return "behind" if queue else "ok"


REPLICAS = SystemTable(
    name="replicas",
    doc="One row for each table in a storage with replicas, and each of them; its names are those of ClickHouse.",
    columns=(
        ColumnDoc("database", TEXT, "The database."),
        ColumnDoc("table", TEXT, "The table."),
        ColumnDoc("storage", TEXT, "Its storage."),
        ColumnDoc("replica_num", INTEGER, "The replica, from 0, in the order of CREATE STORAGE."),
        ColumnDoc("replica_path", TEXT, "Where it is, without options."),
        ColumnDoc(
            "state",
            TEXT,
            "`ok`, `behind` (it lacks copies), `restoring` (it had lost its files), or `away`: it does not answer this "
            "server, or is not what it was.",
        ),
        ColumnDoc("reason", TEXT, "Why it is so; NULL: it is ok."),
        ColumnDoc("is_readonly", FLAG, "Whether nothing can be written, for fewer replicas answer than the quorum."),
        ColumnDoc("queue_size", INTEGER, "Copies that it lacks."),
        ColumnDoc("queue_bytes", INTEGER, "Bytes of those copies whose size is known."),
        ColumnDoc("queue_oldest_time", TIME, "Since when it has lacked the oldest of them; NULL: it lacks none."),
        ColumnDoc("absolute_delay", NUMBER, "For how many seconds it has lacked that one; 0: it lacks none."),
        ColumnDoc("quorum", INTEGER, "Copies of a file that are safe before a commit names it."),
        ColumnDoc("total_replicas", INTEGER, "Replicas of the storage."),
        ColumnDoc("active_replicas", INTEGER, "Those of them that answer this server."),
        ColumnDoc("last_queue_update_exception", TEXT, "Why a copy could not be made lately; NULL: none has failed."),
        ColumnDoc("last_queue_update_exception_time", TIME, "When that was."),
    ),
    rows=_rows_of_replicas,
)
