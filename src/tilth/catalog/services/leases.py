"""Leases: the right to act for something, and the epoch that fences older holders (rules/state.py).

Always holds: no epoch of a lease is assigned twice, even after a failover that has lost the end of the log
(kv/incarnation.py); no lease is acquired while another server that lives holds it (servers.py); holding leases costs
nothing, because a server's heartbeat covers all of them.
"""

from __future__ import annotations

import builtins

from tilth.base.clock import Clock
from tilth.catalog.errors import LeaseHeldError
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.living import live_server, pin_life
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.rules import state
from tilth.model.lease import Fence, Lease


class Leases:
    """`catalog.leases`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def acquire(self, name: str, holder: str) -> Lease:
        """Acquire the lease under a new epoch: the former holder's commits are refused from here on.

        Raises LeaseHeldError while another server that lives holds it (that one releases leases that it does not need
        any more), and RetryError (SERVER_ENDED) where `holder` itself was ended.
        """
        key = pack(Space.LEASE, name)

        def plan(view: ReadView) -> Plan[Lease]:
            found = view.get(key)
            old = None if found is None else codec.LEASES.decode(key, found.value)
            if old is not None and old.holder != holder:
                living = live_server(view, old.holder)
                if living is not None:
                    raise LeaseHeldError(lease=name, holder=old.holder, url=living.url or "none")
            new = state.acquired(old, name=name, holder=holder, floor=self._kv.incarnation.epoch_floor)
            return Plan(
                result=new,
                preconditions=[unchanged(key, found), *pin_life(view, holder)],
                puts={key: codec.LEASES.encode(new)},
            )

        return change(self._kv, self._clock, plan)

    def release(self, fence: Fence) -> None:
        """Release the lease; do nothing when it is somebody else's by now."""

        key = pack(Space.LEASE, fence.name)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            old = None if found is None else codec.LEASES.decode(key, found.value)
            if old is None or not state.is_held(old, fence):
                return Plan(result=None)
            released = codec.LEASES.encode(state.released(old))
            return Plan(result=None, preconditions=[unchanged(key, found)], puts={key: released})

        change(self._kv, self._clock, plan)

    def check(self, fence: Fence) -> None:
        """Raises FencedError when somebody else has the lease by now."""
        state.check_fence(self.get(fence.name), fence)

    def get(self, name: str) -> Lease | None:
        """Return the lease as it was written last; its holder may be gone. A released one has no holder."""
        return read(self._kv, pack(Space.LEASE, name), codec.LEASES)

    def list(self) -> builtins.list[Lease]:
        leases = read_all(self._kv, codec.LEASES, Space.LEASE)
        return [lease for lease in leases if lease.holder != state.NOBODY]
