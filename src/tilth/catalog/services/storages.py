"""Storages that users have made.

Covers: their definitions. Does not cover: `default`, which is the node's own place, whether a place can be reached
(tilth.storage).
"""

from __future__ import annotations

from collections.abc import Iterable

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, copy_key, pack
from tilth.catalog.records.small_commit import Plan, change, put_new, read_all, remove, unchanged
from tilth.model.copy_note import CopyNote
from tilth.model.storage import Storage


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

    def replace(self, storage: Storage, before: Storage, notes: Iterable[CopyNote]) -> bool:
        """Store another definition in the place of this one, and with it what its replicas lack; False where that is
        not the definition any more.
        """
        key, value = pack(Space.STORAGE, storage.name), codec.STORAGES.encode(storage)
        lacking = {copy_key(each): codec.COPIES.encode(each) for each in notes}

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            known = None if found is None else codec.STORAGES.decode(key, found.value)
            if known == storage:
                # Ours, where the answer to the first attempt was lost.
                return Plan(result=True)
            if known != before:
                return Plan(result=False)
            return Plan(result=True, preconditions=[unchanged(key, found)], puts={key: value, **lacking})

        return change(self._kv, self._clock, plan)

    def drop(self, name: str) -> None:
        """Forget the definition; does nothing where there is none."""
        remove(self._kv, self._clock, pack(Space.STORAGE, name))
