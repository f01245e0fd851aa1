"""Storages that users have made.

Covers: their definitions. Does not cover: `default`, which is the node's own place, whether a place can be reached
(tilth.storage).
"""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog.kv import Absent, AtVersion, KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, read_all
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
        key, value = pack(Space.STORAGE, storage.name), codec.STORAGES.encode(storage)

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            if found is not None:
                # Ours, where the answer to the first attempt was lost.
                return Plan(result=found.value == value)
            return Plan(result=True, preconditions=[Absent(key)], puts={key: value})

        return change(self._kv, self._clock, plan)

    def drop(self, name: str) -> None:
        """Forget the definition; does nothing where there is none."""
        key = pack(Space.STORAGE, name)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            if found is None:
                return Plan(result=None)
            return Plan(result=None, preconditions=[AtVersion(key, found.version)], deletes=[key])

        change(self._kv, self._clock, plan)
