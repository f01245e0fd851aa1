"""Warehouses and drained workers.

Covers: their definitions by users. Does not cover: which workers are connected (tilth.warehouse), what settings mean.
Always holds: `default` and `write` exist, defined or not.

Tests: tests/unit/statements/definitions/test_warehouses.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, put_new, read_all, remove, unchanged
from tilth.model.warehouse import Drain, Warehouse


class Warehouses:
    """`catalog.warehouses`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def all(self) -> list[Warehouse]:
        """Return those that have a definition, by name."""
        return list(read_all(self._kv, codec.WAREHOUSES, Space.WAREHOUSE))

    def find(self, name: str) -> Warehouse | None:
        return next((each for each in self.all() if each.name == name), None)

    def create(self, warehouse: Warehouse) -> bool:
        """Store a new definition; False where there is one of this name."""
        return put_new(self._kv, self._clock, pack(Space.WAREHOUSE, warehouse.name), codec.WAREHOUSES.encode(warehouse))

    def change(self, name: str, step: Callable[[Warehouse | None], Warehouse]) -> None:
        """Replace the definition by what `step` returns for the stored one; repeated after a concurrent change."""
        key = pack(Space.WAREHOUSE, name)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            new = step(None if found is None else codec.WAREHOUSES.decode(key, found.value))
            return Plan(result=None, preconditions=[unchanged(key, found)], puts={key: codec.WAREHOUSES.encode(new)})

        change(self._kv, self._clock, plan)

    def drop(self, name: str) -> None:
        """Forget the definition; does nothing where there is none."""
        remove(self._kv, self._clock, pack(Space.WAREHOUSE, name))

    def drains(self) -> list[Drain]:
        """Return the workers that must get no tasks."""
        return list(read_all(self._kv, codec.DRAINS, Space.DRAIN))

    def drain(self, drain: Drain) -> None:
        """Record that the worker gets no tasks; it is durable when the call returns."""
        key, value = pack(Space.DRAIN, drain.worker), codec.DRAINS.encode(drain)
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={key: value}))

    def resume(self, worker: str) -> None:
        """Forget it."""
        key = pack(Space.DRAIN, worker)
        change(self._kv, self._clock, lambda view: Plan(result=None, deletes=[key] if view.get(key) else []))
