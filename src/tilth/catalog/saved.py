"""Small values that background work keeps between runs: cursors, marks, counters. The bytes belong to who put them."""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog import codec
from tilth.catalog.change import Plan, change, read
from tilth.catalog.keys import Space, pack
from tilth.catalog.kv import KeyValue


class SavedState:
    """`catalog.state`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def get(self, name: str) -> bytes | None:
        return read(self._kv, pack(Space.STATE, name), codec.BLOBS)

    def put(self, name: str, value: bytes) -> None:
        key, data = pack(Space.STATE, name), codec.BLOBS.encode(value)
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={key: data}))
