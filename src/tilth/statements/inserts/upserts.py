"""Rows that come into a table with a unique key: in the same commit the older rows of their keys go.

Covers: which parts are searched, and the repetition when they changed meanwhile. Does not cover: which
rows go (storage/upsert/upsert.py), writing the rows (commit.py).
Always holds: what is committed was found against all rows with these keys: no rows have come into the keys' scope
since, and no part that loses rows has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tilth.catalog import AddDelta, NoRowsSince, Requirement, TooManyConflictsError, TxnHandle, Update, rebase
from tilth.control.context.services import Services
from tilth.model.delta import WrittenDelta
from tilth.model.part import WrittenPart
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.query.snapshots.protocol import ResolveResult, ResolveTask
from tilth.storage import UPSERT_HERE_BYTES_MAX, UPSERT_TRIES_MAX, UpsertLookup, key_scope, resolve_all
from tilth.warehouse import QUERY_WAREHOUSE


def commit_upserts(
    services: Services,
    txn: TxnHandle,
    table: TableDef,
    written: Sequence[WrittenPart],
    updates: Sequence[Update],
    requirements: Sequence[Requirement],
    lookup_of: Callable[[Snapshot, int], UpsertLookup],
) -> None:
    """Commit the updates, and with them that the older rows of the written ones' keys go.

    `lookup_of` returns the lookup in a snapshot, for each of up to `UPSERT_TRIES_MAX` tries. Raises
    TooManyConflictsError, and what refused the commit.
    """

    def attempt(number: int) -> None:
        txn.begin_try(number, [table.uuid])
        scope = key_scope(table, written)
        snapshot = services.catalog.parts.snapshot(table.uuid, partitions=scope)
        lookup = lookup_of(snapshot, number)
        changes = _resolve(services, table, txn, lookup)
        txn.commit(
            [*updates, *(AddDelta(table=table.uuid, written=change, seen=lookup.seen) for change in changes)],
            [*requirements, NoRowsSince(table=table.uuid, ts=lookup.ts, partitions=scope)],
        )

    hint = "others write to the same rows all the time: try again"
    busy = TooManyConflictsError(table=full_name(table), txn=txn.id, tries=UPSERT_TRIES_MAX, hint=hint)
    rebase(txn.id, attempt, tries=UPSERT_TRIES_MAX, busy=busy)


def _resolve(services: Services, table: TableDef, txn: TxnHandle, lookup: UpsertLookup) -> tuple[WrittenDelta, ...]:
    """Resolve here where there is little to read, else on a worker."""
    if lookup.bytes <= UPSERT_HERE_BYTES_MAX:
        return resolve_all(lookup.requests, attempt=0)
    spec = services.dispatcher.new_spec(
        TaskKind.INSERT,
        warehouse=QUERY_WAREHOUSE,
        table=full_name(table),
        payload=msgspec.msgpack.encode(ResolveTask(requests=lookup.requests)),
        txn=txn.id,
        input_bytes=lookup.bytes,
    )
    txn.tasks_began()
    result = services.dispatcher.run(spec)
    txn.tasks_ended(may_have_retried=result.may_have_retried)
    return msgspec.msgpack.decode(result.payload, type=ResolveResult).changes
