"""State of background services between runs: switches, and small values of their own.

Covers: the two repositories. Does not cover: who obeys a switch (the services themselves), what the values mean.
Always holds: a switch is what the user wants, whatever runs; no switch means running.

Tests: tests/unit/catalog/services/test_leases.py, tests/unit/maintenance/test_switches.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span_among
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.model.service import ALL_TABLES, ServiceKind, Switch

#: Key of the location to which the catalog was moved; servers refuse a catalog that has one.
MOVED = "catalog/moved"


class ServiceSwitches:
    """`catalog.services`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def switch(self, table: str, service: ServiceKind) -> Switch | None:
        """None: never switched, so running."""
        return read(self._kv, pack(Space.SWITCH, table, service.value), codec.SWITCHES)

    def of_table(self, table: str, service: ServiceKind) -> list[Switch]:
        """Return the switches of a service for the table and for all tables."""
        found = (self.switch(each, service) for each in (table, ALL_TABLES))
        return [switch for switch in found if switch is not None]

    def among(self, first: str, last: str) -> list[Switch]:
        """Return the switches of these two tables and of those between them: one read."""
        found = self._kv.scan(*span_among(Space.SWITCH, first, last))
        return [codec.SWITCHES.decode(key, each.value) for key, each in found]

    def set(self, switch: Switch) -> None:
        """Store the switch; it is durable when the call returns, and only then may services be notified."""
        key = pack(Space.SWITCH, switch.table, switch.service.value)
        value = codec.SWITCHES.encode(switch)
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={key: value}))

    def all(self) -> list[Switch]:
        return list(read_all(self._kv, codec.SWITCHES, Space.SWITCH))


class SavedState:
    """`catalog.state`: cursors, marks, counters. The bytes belong to who put them."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def get(self, name: str) -> bytes | None:
        return read(self._kv, pack(Space.STATE, name), codec.BLOBS)

    def put(self, name: str, value: bytes) -> None:
        key, data = pack(Space.STATE, name), codec.BLOBS.encode(value)
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={key: data}))

    def change(self, name: str, step: Callable[[bytes | None], bytes]) -> None:
        """Put what `step` returns for the stored value; repeated after a concurrent change."""
        key = pack(Space.STATE, name)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            old = None if found is None else codec.BLOBS.decode(key, found.value)
            new = step(old)
            if new == old:
                return Plan(result=None)
            return Plan(result=None, preconditions=[unchanged(key, found)], puts={key: codec.BLOBS.encode(new)})

        change(self._kv, self._clock, plan)
