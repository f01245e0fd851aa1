"""The commit of each version of a table. Written by each commit (commit/commit.py), one key a version."""

from __future__ import annotations

from bisect import bisect_right

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span, unpack
from tilth.catalog.records.nouns import VersionCommit
from tilth.catalog.records.small_commit import read, remove_range


class History:
    """`catalog.history`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def time_of(self, table: str, version: int) -> int | None:
        """The hybrid time of the commit that made a version; None where it is forgotten or not made yet."""
        if version < 0:
            return None
        return _time_of(self._kv, table, version)

    def commits(self, table: str, limit: int) -> list[tuple[int, VersionCommit]]:
        """Return versions with their commits, the newest first."""
        start, end = span(Space.VERSION_COMMIT, table)
        return [
            (_version_of(key), codec.VERSION_COMMITS.decode(key, found.value))
            for key, found in self._kv.scan(start, end, limit=limit, reverse=True)
        ]

    def listing(self, table: str, limit: int) -> list[tuple[int, int]]:
        """Return versions with the hybrid times of their commits, the newest first."""
        return [(version, commit.ts) for version, commit in self.commits(table, limit)]

    def oldest(self, table: str) -> int | None:
        start, end = span(Space.VERSION_COMMIT, table)
        return next((_version_of(key) for key, _ in self._kv.scan(start, end, limit=1)), None)

    def version_at(self, table: str, ts: int) -> int | None:
        """The version that was the present one at a hybrid time; None where it is forgotten, or there was none yet.

        Versions are numbered without holes and their times rise, so few are read, however many there are.
        """
        start, end = span(Space.VERSION_COMMIT, table)
        with self._kv.view() as view:
            first = next((_version_of(key) for key, _ in view.scan(start, end, limit=1)), None)
            last = next((_version_of(key) for key, _ in view.scan(start, end, limit=1, reverse=True)), None)
            if first is None or last is None:
                return None
            after = bisect_right(
                range(first, last + 1),
                ts,
                key=lambda version: _time_of(view, table, version) or 0,
            )
        return first + after - 1 if after else None

    def trim(self, table: str, before_ts: int) -> int:
        """Forget versions that were over at a hybrid time: the one of that time stays. Return how many."""
        kept = self.version_at(table, before_ts)
        if kept is None:
            return 0
        end = pack(Space.VERSION_COMMIT, table, kept)
        return remove_range(self._kv, self._clock, Space.VERSION_COMMIT, table, end=end)


def _time_of(view: ReadView, table: str, version: int) -> int | None:
    commit = read(view, pack(Space.VERSION_COMMIT, table, version), codec.VERSION_COMMITS)
    return None if commit is None else commit.ts


def _version_of(key: bytes) -> int:
    return int(unpack(key, "si")[1])
