"""Calls of consumers in another process: the sending and the receiving end.

Covers: `ConsumerCalls` over a channel, and the handlers of a server. Does not cover: sending (tilth.warehouse), what
the calls mean (calls.py). Always holds: a call that is sent again acts once, for it carries the id of its first
sending; a round whose commit was not answered is settled by the server before its consumer's next one.

Tests: tests/integration/warehouse/test_worker_processes.py.
"""

from __future__ import annotations

from tilth.ingest.consumer.calls import (
    BeginGranted,
    BeginRound,
    ConsumerCalls,
    EndsReport,
    RoundCommitted,
    RoundDone,
    SnapshotTables,
    TableSnapshots,
    ViewReport,
)
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.wire import Done
from tilth.warehouse.remote.workers import Handler, handler


class RemoteConsumerCalls:
    """The server, as a consumer in another process calls it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def begin(self, call: BeginRound) -> BeginGranted:
        return self._channel.call("consumer/begin", call, BeginGranted)

    def snapshot_tables(self, call: SnapshotTables) -> TableSnapshots:
        return self._channel.call("consumer/snapshots", call, TableSnapshots)

    def report_view(self, call: ViewReport) -> None:
        self._channel.call("consumer/view", call, Done)

    def commit(self, call: RoundDone) -> RoundCommitted:
        return self._channel.call("consumer/commit", call, RoundCommitted)

    def report_ends(self, call: EndsReport) -> None:
        self._channel.call("consumer/ends", call, Done)


def consumer_handlers(calls: ConsumerCalls) -> dict[str, Handler]:
    """Return the handlers of these calls, by their names."""

    def report_ends(call: EndsReport) -> Done:
        calls.report_ends(call)
        return Done()

    def report_view(call: ViewReport) -> Done:
        calls.report_view(call)
        return Done()

    return {
        "consumer/begin": handler(BeginRound, calls.begin),
        "consumer/snapshots": handler(SnapshotTables, calls.snapshot_tables),
        "consumer/commit": handler(RoundDone, calls.commit),
        "consumer/view": handler(ViewReport, report_view),
        "consumer/ends": handler(EndsReport, report_ends),
    }
