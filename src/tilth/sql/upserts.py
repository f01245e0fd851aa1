"""Rows that come into a table with a unique key: in the same commit the older rows of their keys go.

Covers: which parts are looked through, where, and doing it again when they changed meanwhile. Does not cover: which
rows go (storage/upsert.py), writing the rows (insert_commit.py).
Always holds: what is committed was found against all rows with these keys: no rows have come into the keys' scope
since, and no part that loses rows has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tilth.base.errors import ConflictError
from tilth.base.logs import Log
from tilth.catalog import (
    AddDelta,
    NoRowsSince,
    PartsChangedError,
    PartsGoneError,
    Requirement,
    TooManyConflictsError,
    Update,
)
from tilth.model.delta import WrittenDelta, seen_of
from tilth.model.part import WrittenPart
from tilth.model.table import TableDef, full_name
from tilth.model.task import TaskKind
from tilth.sql.protocol import ResolveResult, ResolveTask
from tilth.sql.services import Services
from tilth.storage import UpsertRequest, key_scope, resolve_all, upsert_requests
from tilth.warehouse import QUERY_WAREHOUSE

#: Whoever else commits to the same parts all the time may be faster so often before the insert gives up.
TRIES_MAX = 20
#: Up to so many bytes of files are looked through right here: a Spark job takes a tenth of a second before it begins.
HERE_BYTES_MAX = 16 << 20

_log = Log("sql")


def commit_upserts(
    services: Services,
    table: TableDef,
    txn: int,
    written: Sequence[WrittenPart],
    updates: Sequence[Update],
    requirements: Sequence[Requirement],
    *,
    first_task: int,
) -> tuple[WrittenDelta, ...]:
    """Commits the updates, and with them that the older rows of the written ones' keys go; returns the changes.

    May use `TRIES_MAX` task numbers from `first_task` on. Raises TooManyConflictsError, and what refused the commit.
    """
    why: ConflictError | None = None
    for number in range(TRIES_MAX):
        found = _find(services, table, txn, written, task=first_task + number)
        try:
            services.catalog.transactions.commit_or_raise(
                txn, [*updates, *found.updates], [*requirements, found.requirement]
            )
        except (PartsChangedError, PartsGoneError) as error:
            _log.info("upsert_again", cause_id=str(txn), table=full_name(table), tries=number + 1, reason=error)
            why = error
            continue
        return found.changes
    raise TooManyConflictsError(
        table=full_name(table), txn=txn, tries=TRIES_MAX, hint="others write to the same rows all the time: try again"
    ) from why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was found at one try."""

    changes: tuple[WrittenDelta, ...]
    updates: tuple[AddDelta, ...]
    requirement: NoRowsSince


def _find(services: Services, table: TableDef, txn: int, written: Sequence[WrittenPart], *, task: int) -> _Found:
    """Looks for the rows of these keys that are there now; writes what must change."""
    scope = key_scope(table, written)
    snapshot = services.catalog.parts.snapshot(table.uuid, partitions=scope)
    requests = upsert_requests(table, written, snapshot, root=services.root, txn=txn, task=task)
    changes = _resolved(services, table, txn, requests)
    seen = seen_of(source for request in requests for source in request.existing)
    return _Found(
        changes=changes,
        updates=tuple(AddDelta(table=table.uuid, written=change, seen=seen) for change in changes),
        requirement=NoRowsSince(table=table.uuid, ts=snapshot.ts, partitions=scope),
    )


def _resolved(
    services: Services, table: TableDef, txn: int, requests: Sequence[UpsertRequest]
) -> tuple[WrittenDelta, ...]:
    """Right here where there is little to read, else on a worker."""
    size = sum(source.bytes for request in requests for source in (*request.fresh, *request.existing))
    if size <= HERE_BYTES_MAX:
        return resolve_all(requests, attempt=0)
    spec = services.dispatcher.new_spec(
        TaskKind.INSERT,
        warehouse=QUERY_WAREHOUSE,
        table=full_name(table),
        payload=msgspec.msgpack.encode(ResolveTask(requests=tuple(requests))),
        txn=txn,
        input_bytes=size,
    )
    result = services.dispatcher.run(spec)
    return msgspec.msgpack.decode(result.payload, type=ResolveResult).changes
