"""Placements by order: a table that another server hosts than the one that follows from the names, for a while.

Tests: tests/unit/membership/test_member.py.
"""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, read_all, remove
from tilth.model.server import Placement


class Placements:
    """`catalog.placements`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def put(self, thing: str, server: str, *, until_ms: int) -> None:
        """Let this server host the thing until a time, or until it is released; where it does not live, as ever."""
        value = codec.PLACEMENTS.encode(Placement(thing=thing, server=server, until_ms=until_ms))
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={pack(Space.PLACEMENT, thing): value}))

    def release(self, thing: str) -> None:
        remove(self._kv, self._clock, pack(Space.PLACEMENT, thing))

    def all(self) -> list[Placement]:
        """Return those that are not over."""
        now_ms = self._clock.now_ms()
        return [each for each in read_all(self._kv, codec.PLACEMENTS, Space.PLACEMENT) if now_ms < each.until_ms]
