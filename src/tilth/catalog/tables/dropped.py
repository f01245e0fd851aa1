"""Dropped relations: kept for UNDROP, then forgotten.

there -> dropped (nobody can read or write it, all its keys and files stay) -> there again
                 \\-> going (its files are removed, then its keys) -> forgotten

Tests: tests/unit/catalog/tables/test_tables.py.
"""

from __future__ import annotations

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog.errors import TableInUseError, TableNotFoundError
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, text_span
from tilth.catalog.records.nouns import DroppedTable
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, read_all, remove_range, unchanged
from tilth.catalog.tables.former import end_of_reading, forget_target, keep_ledger
from tilth.catalog.tables.names import added_relation, relation_of, removed_relation, views_on
from tilth.model.table import KafkaDef, Relation, TableDef, full_name

#: Key spaces that belong to one relation, besides its definition.
_SPACES_OF_ONE = (
    Space.SECRET,
    Space.ENTRY,
    Space.PARTITION,
    Space.TRASH,
    Space.DELTA,
    Space.ENDED_DELTA,
    Space.VERSION_COMMIT,
    Space.LABEL,
    Space.LOADED_FILE,
    Space.PIPE,
    Space.FAILED_FILE,
    Space.STREAM,
    Space.MUTATION,
    Space.OFFSET,
    Space.LEDGER,
    Space.GAP,
    Space.READER,
    Space.SWITCH,
    Space.VERSION,
    Space.COPY,
    Space.LACKING,
)

#: Names of leases and of saved state that belong to one relation, with what follows its uuid. A uuid is never used
#: again, so that no epoch can come back either.
_NAMES_OF_ONE = (
    (Space.LEASE, "table/{uuid}"),
    (Space.LEASE, "consumer/{uuid}/"),
    (Space.STATE, "maintenance/trash/{uuid}"),
    (Space.STATE, "maintenance/scrub/{uuid}"),
    (Space.STATE, "loaded-files/{uuid}"),
    (Space.STATE, "ingest/{uuid}/"),
)

_log = Log("catalog")


def drop(kv: KeyValue, clock: Clock, uuid: str) -> None:
    """Raises TableNotFoundError, TableInUseError."""
    key, dropped_key = pack(Space.RELATION, uuid), pack(Space.DROPPED, uuid)
    dropped_ms = clock.now_ms()

    def plan(view: ReadView) -> Plan[None]:
        relation = relation_of(view, uuid)
        _check_unused(view, relation)
        record = DroppedTable(relation=relation, dropped_ms=dropped_ms)
        puts, preconditions = end_of_reading(view, uuid) if isinstance(relation, KafkaDef) else ({}, [])
        return Plan(
            result=None,
            preconditions=[unchanged(key, view.get(key)), *preconditions],
            puts={dropped_key: codec.DROPPED.encode(record), **puts},
            deletes=removed_relation(relation),
        )

    change(kv, clock, plan)
    _log.info("table_dropped", cause_id=uuid)


def undrop(kv: KeyValue, clock: Clock, database: str, name: str) -> Relation:
    """Raises TableNotFoundError, TableExistsError, DatabaseNotFoundError."""

    def plan(view: ReadView) -> Plan[Relation]:
        candidates = [
            each
            for each in read_all(view, codec.DROPPED, Space.DROPPED)
            if (each.relation.database, each.relation.name) == (database, name) and not each.is_going
        ]
        if not candidates:
            raise TableNotFoundError("there is no dropped table of that name", table=f"{database}.{name}")
        relation = max(candidates, key=lambda each: each.dropped_ms).relation
        dropped_key = pack(Space.DROPPED, relation.uuid)
        puts, preconditions = added_relation(view, relation)
        return Plan(
            result=relation,
            preconditions=[*preconditions, unchanged(dropped_key, view.get(dropped_key))],
            puts=puts,
            deletes=[dropped_key],
        )

    return change(kv, clock, plan)


def forget(kv: KeyValue, clock: Clock, uuid: str) -> None:
    """Raises TableNotFoundError when it is not dropped. Can be called again after it broke off."""
    key = pack(Space.DROPPED, uuid)

    def mark_going(view: ReadView) -> Plan[Relation]:
        found, record = view.get(key), read(view, key, codec.DROPPED)
        if record is None:
            raise TableNotFoundError("not a dropped table", uuid=uuid, hint="DROP it first")
        going = msgspec.structs.replace(record, is_going=True)
        pinned = [unchanged(key, found)]
        return Plan(result=record.relation, preconditions=pinned, puts={key: codec.DROPPED.encode(going)})

    relation = change(kv, clock, mark_going)
    kept: set[Space] = set()
    if isinstance(relation, KafkaDef) and keep_ledger(kv, clock, relation):
        kept.add(Space.LEDGER)
    if isinstance(relation, TableDef):
        forget_target(kv, clock, uuid)
    removed = sum(remove_range(kv, clock, space, uuid) for space in _SPACES_OF_ONE if space not in kept)

    def remove_rest(view: ReadView) -> Plan[None]:
        named = [
            each
            for space, name in _NAMES_OF_ONE
            for each, _ in view.scan(*text_span(space, name.format(uuid=uuid)), limit=REMOVE_BATCH)
        ]
        return Plan(result=None, deletes=[key, *named])

    change(kv, clock, remove_rest)
    _log.info("table_forgotten", cause_id=uuid, keys=removed)


def _check_unused(view: ReadView, relation: Relation) -> None:
    if isinstance(relation, KafkaDef):
        views = views_on(view, Space.VIEW_OF, relation.uuid)
    elif isinstance(relation, TableDef):
        views = views_on(view, Space.VIEW_INTO, relation.uuid)
    else:
        return
    if views:
        names = ", ".join(full_name(each) for each in views)
        raise TableInUseError(table=full_name(relation), views=names, hint="drop these views first")
