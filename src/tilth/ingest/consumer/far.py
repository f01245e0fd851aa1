"""The calls of consumers from another process: both ends of them.

Covers: `ConsumerCalls` over a channel, and the handlers of a server. Does not cover: sending (tilth.warehouse), what
the calls mean (calls.py). Always holds: a call that is sent again acts once, for it carries the id of its first
sending; a round whose commit was not answered is settled by the server before its consumer's next one.
"""

from __future__ import annotations

from tilth.ingest.consumer.calls import (
    BeginGranted,
    BeginRound,
    ConsumerCalls,
    Heard,
    LookAtTables,
    RoundCommitted,
    RoundDone,
    TablesNow,
    ViewRuns,
)
from tilth.warehouse.remote.channel import Channel
from tilth.warehouse.remote.wire import Done
from tilth.warehouse.remote.workers import Handler, handler


class FarConsumerCalls:
    """The server of a consumer that runs in another process."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def begin(self, call: BeginRound) -> BeginGranted:
        return self._channel.call("consumer/begin", call, BeginGranted)

    def look(self, call: LookAtTables) -> TablesNow:
        return self._channel.call("consumer/look", call, TablesNow)

    def view_runs(self, call: ViewRuns) -> None:
        self._channel.call("consumer/view", call, Done)

    def commit(self, call: RoundDone) -> RoundCommitted:
        return self._channel.call("consumer/commit", call, RoundCommitted)

    def heard(self, call: Heard) -> None:
        self._channel.call("consumer/heard", call, Done)


def consumer_handlers(calls: ConsumerCalls) -> dict[str, Handler]:
    """Return the handlers of these calls, by their names."""

    def heard(call: Heard) -> Done:
        calls.heard(call)
        return Done()

    def view_runs(call: ViewRuns) -> Done:
        calls.view_runs(call)
        return Done()

    return {
        "consumer/begin": handler(BeginRound, calls.begin),
        "consumer/look": handler(LookAtTables, calls.look),
        "consumer/commit": handler(RoundDone, calls.commit),
        "consumer/view": handler(ViewRuns, view_runs),
        "consumer/heard": handler(Heard, heard),
    }
