"""Reports of a CONSUME service: failures counted, events retained, lines logged without repeating themselves.

Tests: tests/unit/ingest/service/test_service.py.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, replace

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.ingest.consumer.calls import RoundDone
from tilth.ingest.service.stats import ConsumeEvent, ConsumeEventKind, EventLog, RoundPhases
from tilth.model.table import KafkaDef, full_name

#: Interval within which equal errors are logged once.
REPEAT_MS = 60_000
#: Consumer index of events that concern no consumer.
SERVICE = -1
#: Time for which a note about offsets stays in the service's reason.
NOTE_MS = 60_000

_log = Log("ingest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Number of failures, and the last one."""

    count: int = 0
    last: str = ""
    last_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCounts:
    """Counts of a round, or of a step of it, for a line of `system.kafka_log`."""

    messages: int = 0
    rows: int = 0
    bytes: int = 0
    duration_ms: int = 0
    phases: RoundPhases | None = None


_NOTHING = RoundCounts()


class Reporter:
    """Reporter of one Kafka table. Any thread may call it."""

    def __init__(self, clock: Clock, events: EventLog, kafka: KafkaDef) -> None:
        self._clock = clock
        self._events = events
        self._kafka = kafka
        self._lock = threading.Lock()
        #: Consecutive failures by consumer, SERVICE for the service itself.
        self._counts: dict[int, int] = {}
        self._last = ""
        self._last_ms = 0
        self._logged_ms = 0
        self._note = ""
        self._note_ms = 0

    def failures(self, consumers: Collection[int]) -> Failures:
        """Count the failures of these consumers and of the service since each last succeeded; return also the last one
        of all.
        """
        with self._lock:
            count = sum(self._counts.get(index, 0) for index in (SERVICE, *consumers))
            return Failures(count=count, last=self._last, last_ms=self._last_ms)

    def record_success(self, consumer: int = SERVICE) -> None:
        """Record that a consumer has committed a round, or that the service has seen its topics."""
        with self._lock:
            self._counts.pop(consumer, None)

    def note(self, text: str) -> None:
        """Record a change of offsets as an event, and for a while as part of the service's reason."""
        with self._lock:
            self._note, self._note_ms = text, self._clock.now_ms()
        self.event(ConsumeEventKind.OFFSETS, SERVICE, detail=text)

    def recent_note(self) -> str:
        """The last note, while it is new."""
        with self._lock:
            return self._note if self._clock.now_ms() - self._note_ms < NOTE_MS else ""

    def record_failure(self, error: Exception, *, consumer: int = SERVICE) -> None:
        """Count the failure; a new one, or one that was not logged for a while, is logged and added as an event."""
        now, text = self._clock.now_ms(), error_text(error)
        with self._lock:
            is_logged = text != self._last or now - self._logged_ms > REPEAT_MS
            self._counts[consumer] = self._counts.get(consumer, 0) + 1
            self._last, self._last_ms = text, now
            if not is_logged:
                return
            self._logged_ms = now
        if isinstance(error, TilthError):
            _log.warning("consume_failed", table=full_name(self._kafka), consumer=consumer, reason=text)
        else:
            # Nobody foresaw it: a defect, whose traceback matters.
            _log.error("consume_failed", table=full_name(self._kafka), consumer=consumer, error=error)
        self.event(ConsumeEventKind.EXCEPTION, consumer, detail=text)

    def record_commit(self, call: RoundDone, *, commit_seconds: float) -> None:
        """Record the commit of a round; `commit_seconds`: how long the catalog took for it."""
        self.record_success(call.consumer)
        facts, duration = call.facts, int(call.seconds * 1000)
        if facts.broken:
            count = facts.dead + facts.refused
            self.event(
                ConsumeEventKind.PARSE_ERROR, call.consumer, call.txn, RoundCounts(messages=count), detail=facts.broken
            )
        written = RoundCounts(
            messages=facts.messages,
            rows=sum(each.part.rows for each in facts.parts),
            bytes=sum(each.part.file.size for each in facts.parts),
            duration_ms=duration,
        )
        self.event(ConsumeEventKind.WRITE, call.consumer, call.txn, written)
        phases = RoundPhases(
            fetch_ms=round(facts.fetch_seconds * 1000),
            decode_ms=round(facts.decode_seconds * 1000),
            write_ms=round(facts.write_seconds * 1000),
            commit_ms=round(commit_seconds * 1000),
        )
        counts = replace(written, rows=facts.rows, bytes=facts.bytes, phases=phases)
        self.event(ConsumeEventKind.COMMIT, call.consumer, call.txn, counts)

    def event(
        self,
        kind: ConsumeEventKind,
        consumer: int,
        txn: int = 0,
        counts: RoundCounts = _NOTHING,
        *,
        detail: str = "",
    ) -> None:
        """A line of `system.kafka_log`."""
        self._events.add(
            ConsumeEvent(
                kind=kind,
                at_ms=self._clock.now_ms(),
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                consumer=consumer,
                txn=txn,
                messages=counts.messages,
                rows=counts.rows,
                bytes=counts.bytes,
                duration_ms=counts.duration_ms,
                phases=counts.phases,
                detail=detail,
            )
        )


def error_text(error: BaseException | None) -> str:
    """An error for people, with the code that the documentation explains."""
    if error is None:
        return ""
    return f"{error.code}: {error}" if isinstance(error, TilthError) else str(error)
