"""When each version of a table was committed. Written by each commit (commit.py), one key a version."""

from __future__ import annotations

from tilth.base.clock import Clock
from tilth.catalog import codec
from tilth.catalog.change import read, remove_range
from tilth.catalog.keys import Space, pack, span, unpack
from tilth.catalog.kv import KeyValue


class History:
    """`catalog.history`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def time_of(self, table: str, version: int) -> int | None:
        """The hybrid time of the commit that made a version; None where it is forgotten or not made yet."""
        if version < 0:
            return None
        return read(self._kv, pack(Space.VERSION_TIME, table, version), codec.INTEGERS)

    def listing(self, table: str, limit: int) -> list[tuple[int, int]]:
        """The newest versions with their times, newest first."""
        start, end = span(Space.VERSION_TIME, table)
        return [
            (int(unpack(key, "si")[1]), codec.INTEGERS.decode(key, found.value))
            for key, found in self._kv.scan(start, end, limit=limit, reverse=True)
        ]

    def trim(self, table: str, before_ts: int) -> int:
        """Forgets versions that were over at a hybrid time: the one of that time stays. Returns how many."""
        start, end = span(Space.VERSION_TIME, table)
        with self._kv.view() as view:
            for key, found in view.scan(start, end, reverse=True):
                if codec.INTEGERS.decode(key, found.value) <= before_ts:
                    kept = key
                    break
            else:
                return 0
        return remove_range(self._kv, self._clock, Space.VERSION_TIME, table, end=kept)
