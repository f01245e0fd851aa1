"""The transaction of an INSERT: files first, then one commit of rows, changes and labels.

Covers: beginning, writing, committing. Does not cover: reading rows (rows.py), who shares a transaction
(control/insert_batches.py), finding the older rows of unique keys (upserts.py).
Always holds: files, then one commit; the transaction settles what each outcome leaves (catalog/commit/txn_handle.py).

Tests: tests/unit/statements/inserts/test_insert.py, tests/unit/statements/test_open_txns.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from tilth.base.cancel import raise_if_cancelled
from tilth.catalog import (
    HideEverything,
    HidePartition,
    InsertLabel,
    InsertPart,
    Requirement,
    SchemaIs,
    TxnHandle,
    Update,
)
from tilth.control.context.services import Services
from tilth.control.insert_batches import PreparedInsert
from tilth.model.part import WrittenPart
from tilth.model.snapshot import Snapshot
from tilth.model.table import OP_COLUMN, OP_UPSERT, TableDef
from tilth.statements.inserts.upserts import commit_upserts
from tilth.storage import UPSERT_TRIES_MAX, UpsertLookup, layout_of, output_of, upsert_lookup, write_parts, write_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Purpose of a transaction of an INSERT."""

    table: TableDef
    #: The statements that it serves, for people.
    actor: str
    #: Task numbers that the writing may use in the names of files.
    tasks: int
    #: Labels with the rows of their inserts; None: all that are written.
    labels: tuple[tuple[str, int | None], ...] = ()
    #: Copies of each file before the commit; 0: as the table says.
    quorum: int = 0
    #: `True` if tasks write the files, perhaps in several attempts.
    has_tasks: bool = False
    #: Further updates of the commit; called when all is written.
    beside: Callable[[], Sequence[Update]] = tuple
    #: Partitions whose present rows the new ones replace; None: all of the table.
    replaced: frozenset[str] | None = field(default_factory=frozenset)


def store(services: Services, inserts: Sequence[PreparedInsert]) -> None:
    """Write and commit inserts into one table, in their order, in one transaction; raises what refused them all."""
    table, quorum = inserts[0].table, inserts[0].quorum
    rows = _joined([insert.rows for insert in inserts])
    writing = Writing(
        table=table,
        actor=f"insert {inserts[0].query_id}" + (f" and {len(inserts) - 1} more" if len(inserts) > 1 else ""),
        tasks=1,
        labels=tuple((insert.label, insert.rows.num_rows) for insert in inserts if insert.label),
        quorum=quorum,
    )
    layout = layout_of(table, services.root, quorum=quorum)

    def write(txn: TxnHandle) -> Sequence[WrittenPart]:
        if inserts[0].is_large and not table.unique_key:
            # It needs no neighbours to make a part that is worth its file: it is sorted at once.
            return write_parts(layout, rows, txn=txn.id, task=0, attempt=0)
        return write_rows(layout, rows, txn=txn.id, task=0, attempt=0)

    commit_insert(services, writing, write)


def commit_insert(services: Services, writing: Writing, write: Callable[[TxnHandle], Sequence[WrittenPart]]) -> int:
    """Begin a transaction, write, commit; return the number of rows."""
    with begin_insert(services, writing) as txn:
        written = write(txn)
        # From here on it ends with the outcome of its commit.
        raise_if_cancelled()
        return commit_written(services, writing, txn, written)


def begin_insert(services: Services, writing: Writing) -> TxnHandle:
    """Begin a transaction for the files of an INSERT, with task numbers for its upserts behind those of the writing."""
    outputs = [output_of(writing.table, services.root, tasks=output_tasks(writing), quorum=writing.quorum)]
    return services.catalog.transactions.open(writing.actor, outputs=outputs, has_tasks=writing.has_tasks)


def output_tasks(writing: Writing) -> int:
    """Return the number of task numbers that files of the INSERT may have."""
    return writing.tasks + UPSERT_TRIES_MAX * bool(writing.table.unique_key)


def commit_written(services: Services, writing: Writing, txn: TxnHandle, written: Sequence[WrittenPart]) -> int:
    """Commit the files that were written in a transaction of `begin_insert`; return the number of rows."""
    table = writing.table
    updates = [*_hidden(writing), *(InsertPart(table=table.uuid, written=part) for part in written)]
    total = sum(part.rows for part in written)
    for label, rows in writing.labels:
        updates.append(InsertLabel(table=table.uuid, label=label, rows=total if rows is None else rows))
    updates += writing.beside()
    requirements: list[Requirement] = [
        SchemaIs(table=table.uuid, schema_version=table.schema_version),
        services.catalog.throttle.requirement(table),
    ]
    if table.unique_key and written:

        def lookup_of(snapshot: Snapshot, number: int) -> UpsertLookup:
            task, quorum = writing.tasks + number, writing.quorum
            left = _remaining(snapshot, writing.replaced)
            return upsert_lookup(table, written, left, root=services.root, txn=txn.id, task=task, quorum=quorum)

        commit_upserts(services, txn, table, written, updates, requirements, lookup_of)
    else:
        txn.commit(updates, requirements)
    if writing.replaced != frozenset() or not all(part.is_segment for part in written):
        # New parts may be worth a merge at once; segments are waited for until there are many.
        services.maintenance.wake(table.uuid)
    return total


def _hidden(writing: Writing) -> list[Update]:
    """Return the updates that hide what the rows replace; they come first, so that the new parts stay."""
    if writing.replaced is None:
        return [HideEverything(table=writing.table.uuid)]
    return [HidePartition(table=writing.table.uuid, partition=each) for each in sorted(writing.replaced)]


def _remaining(snapshot: Snapshot, replaced: frozenset[str] | None) -> Snapshot:
    """Return the snapshot without the parts that the same commit hides: their rows need no deletes."""
    if replaced == frozenset():
        return snapshot
    parts = () if replaced is None else tuple(each for each in snapshot.parts if each.name.partition not in replaced)
    return msgspec.structs.replace(snapshot, parts=parts)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the rows; where one of the tables has row operations, all get them."""
    has_op = any(OP_COLUMN in table.column_names for table in tables)
    plain = []
    for table in tables:
        columns = dict(zip(table.column_names, table.columns, strict=True))
        if has_op and OP_COLUMN not in columns:
            columns[OP_COLUMN] = pa.chunked_array([pa.repeat(pa.scalar(OP_UPSERT, pa.int8()), table.num_rows)])
        # Columns by name, without what schemas say of NULL: rows that delete may have it everywhere.
        plain.append(pa.table(columns))
    return pa.concat_tables(plain).combine_chunks()
