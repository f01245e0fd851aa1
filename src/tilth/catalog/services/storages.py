"""Storages that users have made.

Covers: their definitions. Does not cover: `default`, which is the node's own storage, whether a location can be reached
(tilth.storage).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilth.base.clock import Clock
from tilth.catalog.errors import ReplicaNeededError
from tilth.catalog.kv import KeyValue, Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, copy_key, lacking_key, pack, span
from tilth.catalog.records.small_commit import Plan, change, put_new, read_all, unchanged
from tilth.catalog.tables.names import tables_in_storage
from tilth.model.copy_note import CopyNote
from tilth.model.storage import Storage
from tilth.model.table import Relation


class Storages:
    """`catalog.storages`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def all(self) -> list[Storage]:
        """Return them by name."""
        return list(read_all(self._kv, codec.STORAGES, Space.STORAGE))

    def create(self, storage: Storage) -> bool:
        """Store a new definition; False where there is one of this name."""
        return put_new(self._kv, self._clock, pack(Space.STORAGE, storage.name), codec.STORAGES.encode(storage))

    def replace(
        self, storage: Storage, before: Storage, notes: Sequence[CopyNote], others: Mapping[str, Sequence[int]]
    ) -> bool:
        """Replace a definition, and write the notes of what its new replicas lack; return False where the stored
        definition is another one by now, or the storage has another table.

        `others` has for each table of the storage the replicas that stay; one of them must have all files of the table
        when the change is applied. Raises ReplicaNeededError where none has.
        """
        key, value = pack(Space.STORAGE, storage.name), codec.STORAGES.encode(storage)
        lacking = {copy_key(each): codec.COPIES.encode(each) for each in notes}
        lacking |= {lacking_key(each.table, each.replica): codec.INTEGERS.encode(each.since_ms) for each in notes}

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            known = None if found is None else codec.STORAGES.decode(key, found.value)
            if known == storage:
                # It is ours where the answer to the first attempt was lost.
                return Plan(result=True)
            if known != before or any(each.uuid not in others for each in tables_in_storage(view, storage.name)):
                return Plan(result=False)
            whole = [_pinned_whole(view, storage.name, table, replicas) for table, replicas in others.items()]
            return Plan(result=True, preconditions=[unchanged(key, found), *whole], puts={key: value, **lacking})

        return change(self._kv, self._clock, plan)

    def drop(self, name: str) -> list[Relation]:
        """Remove the definition if the storage has no table; return its tables."""
        key = pack(Space.STORAGE, name)

        def plan(view: ReadView) -> Plan[list[Relation]]:
            found = view.get(key)
            # The creation of a table in the storage writes this key.
            users = [] if found is None else tables_in_storage(view, name)
            deletes = [] if users or found is None else [key]
            return Plan(result=users, preconditions=[unchanged(key, found)], deletes=deletes)

        return change(self._kv, self._clock, plan)


def _pinned_whole(view: ReadView, storage: str, table: str, replicas: Sequence[int]) -> Precondition:
    """Return the precondition that one of the replicas, the first without a missing file of the table, stays so."""
    for replica in replicas:
        key = lacking_key(table, replica)
        # The key that each new note writes is read before the notes: a view may show commits that come meanwhile.
        pinned = unchanged(key, view.get(key))
        if next(iter(view.scan(*span(Space.COPY, table, replica), limit=1)), None) is None:
            return pinned
    hint = "wait until another replica lacks nothing: SELECT * FROM system.replicas"
    raise ReplicaNeededError(storage=storage, table=table, hint=hint)
