"""The ops that could run, in the orders by which the scheduler chooses. Pure.

Covers: one order for each rule of choice, ops that come, change and go. Does not cover: the rules (scheduler.py), when
an op is polled (poller.py).
Always holds: an order is one of values and then of names, as if all ops had been sorted; to add an op, to remove it and
to find the first of an order takes about as long for ten thousand ops as for ten.

Tests: tests/unit/maintenance/manager/test_scheduler.py, tests/property/test_choice.py.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeAlias

from tilth.maintenance.kinds import IoUsage, OpStats, OpView
from tilth.maintenance.settings import SchedulerSettings

#: Values, the greatest first because they are negated, and the name of the op.
_Key: TypeAlias = tuple[float, float, bytes]


class Order(IntEnum):
    """Orders of ops, each with the most of something first; ops without it are in none but SCORE."""

    #: Bytes of log that ops of low IO keep.
    LOG = 0
    #: Bytes of log, then of memory, of ops that free memory.
    MEMORY = 1
    #: Bytes of log, then of memory, of all ops.
    RETAINED = 2
    #: Bytes on the store.
    DATA = 3
    #: Adjusted score, of every op.
    SCORE = 4


class Ranking:
    """Ops that could run."""

    def __init__(self, settings: SchedulerSettings, ops: Iterable[OpView] = ()) -> None:
        self._settings = settings
        self._ops: dict[bytes, tuple[OpView, Sequence[_Key | None]]] = {}
        self._orders: tuple[list[_Key], ...] = tuple([] for _ in Order)
        for op in ops:
            self.put(op)

    def __len__(self) -> int:
        return len(self._ops)

    def put(self, op: OpView) -> None:
        """Add the op, or replace the one with its name; one that is not runnable is removed."""
        if not op.stats.is_runnable:
            self.drop(op.name)
            return
        name = op.name.encode()
        keys = _keys(name, op.stats, self._settings)
        known = self._ops.get(name)
        if known is None or known[1] != keys:
            self.drop(op.name)
            for order, key in zip(self._orders, keys, strict=True):
                if key is not None:
                    insort(order, key)
        self._ops[name] = op, keys

    def drop(self, name: str) -> None:
        """Remove the op, if it is there."""
        known = self._ops.pop(name.encode(), None)
        if known is None:
            return
        for order, key in zip(self._orders, known[1], strict=True):
            if key is not None:
                del order[bisect_left(order, key)]

    def keys(self, order: Order) -> Sequence[_Key]:
        """Return the keys of the order; not to be changed."""
        return self._orders[order]

    def op(self, key: _Key) -> OpView:
        return self._ops[key[2]][0]


def first(rankings: Iterable[Ranking], order: Order) -> OpView | None:
    """Return the first op of the order in all of these rankings."""
    found = [(keys[0], each) for each in rankings if (keys := each.keys(order))]
    if not found:
        return None
    key, ranking = min(found, key=_key)
    return ranking.op(key)


def by_score(rankings: Iterable[Ranking]) -> Iterator[tuple[float, OpView]]:
    """Yield each op with its adjusted score, the best first."""
    for key, ranking in heapq.merge(*map(_scored, rankings), key=_key):
        yield -key[0], ranking.op(key)


def adjusted_score(stats: OpStats, settings: SchedulerSettings) -> float:
    """Return the gain with workload and priority; 0 stays 0."""
    if stats.perf_improvement == 0:
        return 0.0
    steps = max(-settings.max_priority_range, min(stats.priority, settings.max_priority_range))
    gain = stats.perf_improvement + stats.workload_score
    return float(gain * settings.maintenance_op_multiplier**steps)


def _scored(ranking: Ranking) -> Iterator[tuple[_Key, Ranking]]:
    return ((key, ranking) for key in ranking.keys(Order.SCORE))


def _key(found: tuple[_Key, Ranking]) -> _Key:
    return found[0]


def _keys(name: bytes, stats: OpStats, settings: SchedulerSettings) -> Sequence[_Key | None]:
    """Return the op's keys by order."""
    logs, memory, data = stats.logs_retained_bytes, stats.ram_anchored_bytes, stats.data_retained_bytes
    retained = (-logs, -memory, name)
    return (
        (-logs, 0, name) if logs > 0 and stats.io is IoUsage.LOW else None,
        retained if memory and (logs, memory) > (0, 0) else None,
        retained if (logs, memory) > (0, 0) else None,
        (-data, 0, name) if data > 0 else None,
        (-adjusted_score(stats, settings), 0, name),
    )
