"""State of background services between runs: switches, and small values of their own.

Covers: the two repositories. Does not cover: who obeys a switch (the services themselves), what the values mean.
Always holds: a switch says what the user wants, whatever runs; no switch means running.
"""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, read, read_all
from tilth.model.service import ServiceKind, Switch


class ServiceSwitches:
    """`catalog.services`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def switch(self, table: str, service: ServiceKind) -> Switch | None:
        """None: never switched, so running."""
        return read(self._kv, pack(Space.SWITCH, table, service.value), codec.SWITCHES)

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
