"""Storages that users have made.

Covers: their definitions. Does not cover: `default`, which is the node's own place, whether a place can be reached
(tilth.storage).
"""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import put_new, read_all, remove
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

    def drop(self, name: str) -> None:
        """Forget the definition; does nothing where there is none."""
        remove(self._kv, self._clock, pack(Space.STORAGE, name))
