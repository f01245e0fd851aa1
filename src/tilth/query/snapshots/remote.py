"""The calls of queries from another process: both ends of them.

Covers: `QueryCalls` over a channel, and the handlers of a server. Does not cover: sending (tilth.warehouse), what the
calls mean (protocol.py). Always holds: a call that is sent again acts once.

Tests: tests/integration/warehouse/test_worker_processes.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tilth.base.units import GIB
from tilth.query.snapshots.predicates import Predicate
from tilth.query.snapshots.protocol import AsOf, QueryCalls, Resolved, Source
from tilth.storage import Folder
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.workers import Handler, handler

#: Maximum of what a server says of the tables of a query: a part takes about 1 KiB, and system tables come whole. As
#: much as the body of a call.
SNAPSHOTS_BYTES_MAX = 1 * GIB


class ResolveCall(msgspec.Struct, frozen=True, kw_only=True):
    query_id: str
    names: list[tuple[str, ...]]
    as_of: tuple[AsOf | None, ...] = ()


class PinCall(msgspec.Struct, frozen=True, kw_only=True):
    query_id: str
    predicates: list[Predicate]


class ResultCall(msgspec.Struct, frozen=True, kw_only=True):
    query_id: str


class RemoteQueryCalls:
    """The server of a query that runs in another process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def resolve(self, query_id: str, names: list[tuple[str, ...]], as_of: Sequence[AsOf | None] = ()) -> list[Resolved]:
        call = ResolveCall(query_id=query_id, names=names, as_of=tuple(as_of))
        return self._channel.call("query/resolve", call, list[Resolved], bytes_max=SNAPSHOTS_BYTES_MAX)

    def pin(self, query_id: str, predicates: list[Predicate]) -> list[Source]:
        call = PinCall(query_id=query_id, predicates=predicates)
        return self._channel.call("query/pin", call, list[Source], bytes_max=SNAPSHOTS_BYTES_MAX)

    def open_result(self, query_id: str) -> Folder:
        return self._channel.call("query/result", ResultCall(query_id=query_id), Folder)


def query_handlers(calls: QueryCalls) -> dict[str, Handler]:
    """Return the handlers of these calls, by their names."""
    return {
        "query/resolve": handler(ResolveCall, lambda call: calls.resolve(call.query_id, call.names, call.as_of)),
        "query/pin": handler(PinCall, lambda call: calls.pin(call.query_id, call.predicates)),
        "query/result": handler(ResultCall, lambda call: calls.open_result(call.query_id)),
    }
