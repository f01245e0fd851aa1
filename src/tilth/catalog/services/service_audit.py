"""Audit log: the verbs that users gave to the services, and their outcomes.

Covers: one line for each verb, the newest kept. Does not cover: who may run which verb, and who writes the lines (sql).
Always holds: a line that was recorded survives a restart; lines are in the order in which they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records.codec import Codec
from tilth.catalog.records.hybrid_clock import HybridClock
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, rewrite_range
from tilth.model.service import AuditEvent

#: Lines that are kept.
KEPT_MAX = 10_000
#: Lines that a program writes between two trims of the log.
_TRIM_EVERY = 100
STATEMENT_LENGTH_MAX = 1_000

EVENTS = Codec(msgspec.msgpack.Decoder(AuditEvent))


class AuditLog:
    """`catalog.audit`."""

    def __init__(self, clock: Clock, hybrid: HybridClock, kv: KeyValue) -> None:
        self._clock = clock
        self._hybrid = hybrid
        self._kv = kv
        self._recorded = 0

    def record(self, event: AuditEvent) -> None:
        """Durable when it returns. A long statement is cut."""
        kept = msgspec.structs.replace(event, statement=event.statement[:STATEMENT_LENGTH_MAX])
        key = pack(Space.AUDIT, event.at_ms, self._hybrid.new_id(), 0)
        value = EVENTS.encode(kept)
        change(self._kv, self._clock, lambda _: Plan(result=None, puts={key: value}))
        if self._recorded % _TRIM_EVERY == 0:
            self.trim()
        self._recorded += 1

    def recent(self, limit: int) -> list[AuditEvent]:
        with self._kv.view() as view:
            return [EVENTS.decode(key, value) for key, value in _newest_first(view, limit)]

    def rewrite(self, rewritten: Callable[[AuditEvent], AuditEvent], *, since_ms: int, before_ms: int) -> int:
        """Replace each line of this time by what the function returns; return how many lines changed."""

        def rewrite(key: bytes, value: bytes) -> bytes | None:
            event = EVENTS.decode(key, value)
            new = rewritten(event)
            return None if new == event else EVENTS.encode(new)

        start, end = pack(Space.AUDIT, since_ms), pack(Space.AUDIT, before_ms)
        return rewrite_range(self._kv, self._clock, start, end, rewrite)

    def trim(self, keep: int = KEPT_MAX) -> int:
        """Remove the oldest lines beyond those retained; return how many."""

        def plan(view: ReadView) -> Plan[int]:
            keys = [key for key, _ in islice(_newest_first(view, keep + REMOVE_BATCH), keep, None)]
            return Plan(result=len(keys), deletes=keys)

        removed = 0
        while batch := change(self._kv, self._clock, plan):
            removed += batch
        return removed


def _newest_first(view: ReadView, limit: int) -> Iterator[tuple[bytes, bytes]]:
    start, end = span(Space.AUDIT)
    for key, found in view.scan(start, end, limit=limit, reverse=True):
        yield key, found.value
