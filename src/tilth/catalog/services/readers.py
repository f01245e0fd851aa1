"""Reader leases: running queries' holds on snapshots. GC waits for the oldest; a dead reader's lease ends by itself.

Tests: tests/unit/catalog/services/test_leases.py.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import FencedError
from tilth.base.ids import IdSource
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import Plan, change, read_all, unchanged
from tilth.model.lease import ReaderLease


class Readers:
    """`catalog.readers`."""

    def __init__(self, clock: Clock, kv: KeyValue, *, ids: IdSource) -> None:
        self._clock = clock
        self._kv = kv
        self._ids = ids

    def open(
        self,
        table: str,
        snapshot_ts: int,
        holder: str,
        ttl_ms: int,
        *,
        client: str = "",
        is_outside: bool = False,
        name: str = "",
    ) -> ReaderLease:
        """Hold one table; see `open_all`."""
        snapshots = {table: snapshot_ts}
        [lease] = self.open_all(snapshots, holder, ttl_ms, client=client, is_outside=is_outside, name=name)
        return lease

    def open_all(
        self,
        snapshots: Mapping[str, int],
        holder: str,
        ttl_ms: int,
        *,
        client: str = "",
        is_outside: bool = False,
        name: str = "",
    ) -> builtins.list[ReaderLease]:
        """Hold tables, by uuid, each as of a hybrid time, by one commit; return the leases in this order.

        Ended leases of the tables are swept out with it, and former ones of the same name: their reader has lost them.
        """
        now_ms = self._clock.now_ms()
        leases = [
            ReaderLease(
                id=self._ids(),
                table=table,
                snapshot_ts=snapshot_ts,
                holder=holder,
                expires_ms=now_ms + ttl_ms,
                client=client,
                opened_ms=now_ms,
                is_outside=is_outside,
                name=name,
            )
            for table, snapshot_ts in snapshots.items()
        ]

        def plan(view: ReadView) -> Plan[builtins.list[ReaderLease]]:
            ended = [
                _key(each)
                for table in snapshots
                for each in read_all(view, codec.READERS, Space.READER, table)
                if _is_over(each, now_ms) or (name and each.name == name)
            ]
            puts = {_key(lease): codec.READERS.encode(lease) for lease in leases}
            return Plan(result=leases, puts=puts, deletes=ended)

        return change(self._kv, self._clock, plan)

    def renew(self, lease: ReaderLease, ttl_ms: int) -> ReaderLease:
        """Extend the hold. Raises FencedError when it had ended and was swept out: the snapshot may be gone."""
        key = _key(lease)
        renewed = msgspec.structs.replace(lease, expires_ms=self._clock.now_ms() + ttl_ms)

        def plan(view: ReadView) -> Plan[ReaderLease]:
            found = view.get(key)
            if found is None:
                hint = "renew it in time; start the query again"
                raise FencedError("the hold on a snapshot has ended", reader=lease.id, table=lease.table, hint=hint)
            return Plan(
                result=renewed, preconditions=[unchanged(key, found)], puts={key: codec.READERS.encode(renewed)}
            )

        return change(self._kv, self._clock, plan)

    def close(self, lease: ReaderLease) -> None:
        """End the hold; closing it again does nothing."""
        self.close_all([lease])

    def close_all(self, leases: Collection[ReaderLease]) -> None:
        """End several holds by one commit."""
        change(self._kv, self._clock, lambda _: Plan(result=None, deletes=[_key(lease) for lease in leases]))

    def close_left_behind(self, holder: str, others: Collection[str]) -> int:
        """Close the leases of queries that ran in former processes of this holder; return how many.

        `others`: names of servers that may run queries. Their leases are left alone: one that was ended because it
        stood still may go on. Readers outside go on too.
        """
        living = set(others) - {holder}
        left = [each for each in self.list() if each.holder not in living and not each.is_outside]
        self.close_all(left)
        return len(left)

    def find(self, lease_id: str) -> ReaderLease | None:
        return next((each for each in self.list() if each.id == lease_id), None)

    def oldest(self, table: str, now_ms: int, *, is_named: bool = False) -> int | None:
        """Return the oldest snapshot that is held; `is_named`: by a reader of changes. None: there is none."""
        leases = read_all(self._kv, codec.READERS, Space.READER, table)
        held = (each for each in leases if not _is_over(each, now_ms) and bool(each.name) is is_named)
        return min((each.snapshot_ts for each in held), default=None)

    def list(self) -> builtins.list[ReaderLease]:
        """Return the leases of readers by table, also expired ones that were not removed yet."""
        return builtins.list(read_all(self._kv, codec.READERS, Space.READER))


def _key(lease: ReaderLease) -> bytes:
    return pack(Space.READER, lease.table, lease.id)


def _is_over(lease: ReaderLease, now_ms: int) -> bool:
    return lease.expires_ms <= now_ms
