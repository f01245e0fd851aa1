"""Leases: the right to act for something until a time, and the epoch that fences older holders (rules/state.py)."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TypeVar

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.rules import state
from tilth.model.lease import Fence, Lease

_L = TypeVar("_L", bound=Lease | None)


class Leases:
    """`catalog.leases`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def take(self, name: str, holder: str, ttl_ms: int) -> Lease:
        """Take the lease under a new epoch, whoever holds it: the former holder's commits are refused from here on."""
        now_ms = self._clock.now_ms()
        return self._change(name, lambda old: state.taken(old, name=name, holder=holder, now_ms=now_ms, ttl_ms=ttl_ms))

    def renew(self, lease: Lease, ttl_ms: int) -> Lease:
        """Extend the lease under its epoch. Raises FencedError when somebody has taken it."""
        now_ms = self._clock.now_ms()
        return self._change(lease.name, lambda old: state.renewed(old, held=lease, now_ms=now_ms, ttl_ms=ttl_ms))

    def release(self, lease: Lease) -> None:
        """Release the lease; do nothing when it is somebody else's by now."""

        def give_back(old: Lease | None) -> Lease | None:
            return state.released(lease) if state.is_held(old, lease.fence) else old

        self._change(lease.name, give_back)

    def check(self, fence: Fence) -> None:
        """Raises FencedError when somebody else has the lease by now."""
        state.check_fence(self.get(fence.name), fence)

    def get(self, name: str) -> Lease | None:
        """Return the lease as it was written last; it may have ended. A released one has no holder."""
        return read(self._kv, pack(Space.LEASE, name), codec.LEASES)

    def list(self) -> builtins.list[Lease]:
        leases = read_all(self._kv, codec.LEASES, Space.LEASE)
        return [lease for lease in leases if lease.holder != state.NOBODY]

    def _change(self, name: str, step: Callable[[Lease | None], _L]) -> _L:
        key = pack(Space.LEASE, name)

        def plan(view: ReadView) -> Plan[_L]:
            found = view.get(key)
            old = None if found is None else codec.LEASES.decode(key, found.value)
            new = step(old)
            if new is None or new == old:
                return Plan(result=new)
            return Plan(result=new, preconditions=[unchanged(key, found)], puts={key: codec.LEASES.encode(new)})

        return change(self._kv, self._clock, plan)
