"""Statistics of the room: streams, consumers, and the log of what they did. Frozen snapshots and a ring.

Tests: tests/unit/introspection/test_registry.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from tilth.base.metrics import counter
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.ingest.service.activity import ActivityKind, Doing
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceState


class ConsumeEventKind(IntEnum):
    """The events of `system.kafka_log`; the numbers up to 7 are ByConity's."""

    EMPTY = 0
    POLL = 1
    PARSE_ERROR = 2
    WRITE = 3
    EXCEPTION = 4
    EMPTY_MESSAGE = 5
    FILTER = 6
    COMMIT = 7
    #: Offsets that no round moved: taken over from a group, missing, there again.
    OFFSETS = 8


#: Labels of the metrics of one consumer.
CONSUMER = ("database", "table", "consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPhases:
    """Milliseconds of a committed round, for what its longest task spent on each; the rest is Spark's and waiting."""

    fetch_ms: int
    decode_ms: int
    write_ms: int
    commit_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEvent:
    """A line of `system.kafka_log`."""

    kind: ConsumeEventKind
    at_ms: int
    database: str
    table: str
    uuid: str
    #: -1: the service itself.
    consumer: int
    txn: int = 0
    messages: int = 0
    rows: int = 0
    bytes: int = 0
    duration_ms: int = 0
    phases: RoundPhases | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionStats:
    """One partition of a consumer: where it stands and where the topic ends."""

    topic_partition: TopicPartition
    #: The next one to read; -1: nothing stored yet.
    offset: int
    #: Last known end; None: never seen.
    end: PartitionEnd | None
    #: Seconds since the end was seen; None: never.
    end_age: float | None = 0.0
    #: `True` if the end was seen recently enough to count as the current one.
    is_end_known: bool = True
    #: `True` if the offset belongs to an earlier topic of the same name: nothing of this one has been read.
    is_of_other_topic: bool = False

    @property
    def lag(self) -> int | None:
        """Messages that were not read, those of open transactions and those behind a gap among them; None: not known,
        because the end was not seen lately, or no offset is stored.
        """
        if self.end is None or self.offset < 0 or not self.is_end_known:
            return None
        return max(0, self.end.high - (0 if self.is_of_other_topic else self.offset))

    @property
    def uncommitted(self) -> int | None:
        """Messages of the lag that are in transactions which are still open; None: not known."""
        return None if self.end is None or not self.is_end_known else self.end.high - self.end.stable


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """A row of `system.kafka_tables`."""

    database: str
    table: str
    uuid: str
    consumer: int
    state: str
    #: The task that runs it; empty if none does.
    task: str
    partitions: tuple[TopicPartitionStats, ...]
    rounds: int = counter("tilth_ingest_rounds_total", "Rounds that were committed.", labels=CONSUMER)
    messages: int = counter("tilth_ingest_messages_total", "Messages that were read and committed.", labels=CONSUMER)
    rows: int = counter("tilth_ingest_rows_total", "Rows that were stored.", labels=CONSUMER)
    bytes: int = counter("tilth_ingest_bytes_total", "Bytes of the messages.", labels=CONSUMER)
    dead: int = counter("tilth_ingest_dead_letters_total", "Messages that could not be decoded.", labels=CONSUMER)
    refused: int = counter(
        "tilth_ingest_refused_total", "Messages that a view could not take, once for each such view.", labels=CONSUMER
    )
    last_commit_ms: int
    last_exception: str
    last_exception_ms: int
    #: Reason why its rounds wait before they write, as in `1,200 parts in partition 20240101`; empty: they do not.
    slowed: str = ""
    #: Reason and start of a wait, or the read rate.
    reason: str = ""
    #: Present activity; None: it does not run.
    doing: Doing | None = None
    #: Duration of its last round, and in it of each view that computes, without reading the messages.
    round_seconds: float = 0.0
    view_seconds: Mapping[str, float] = field(default_factory=dict)
    #: Kernels or Spark, by view; see RoundDone.
    view_choices: Mapping[str, str] = field(default_factory=dict)
    #: Its last message that was broken or refused, with the reason; empty: there was none.
    last_broken: str = ""
    #: Time of its next start after a failure; 0: none is pending.
    next_attempt_ms: int = 0

    @property
    def slowest_view(self) -> tuple[str, float] | None:
        """The slowest computed view, and its share of its round's time; None: there is none.

        It is a view of the present round if that view has run longer than the whole last round, else one of the last
        round.
        """
        now = self.doing
        if now is not None and now.view and now.view_seconds > self.round_seconds:
            return now.view, min(1.0, now.view_seconds / max(now.round_seconds, now.view_seconds))
        if not self.view_seconds or not self.round_seconds:
            return None
        view = max(self.view_seconds, key=lambda name: self.view_seconds[name])
        return view, min(1.0, self.view_seconds[view] / self.round_seconds)

    @property
    def lag(self) -> int | None:
        """Messages that were not read in all its topic partitions; None: not known of one of them."""
        return _total([each.lag for each in self.partitions])

    @property
    def uncommitted(self) -> int | None:
        return _total([each.uncommitted for each in self.partitions])

    @property
    def lag_age(self) -> float | None:
        """Seconds since the ends of all its topic partitions were seen; None: one was never seen."""
        ages = [each.end_age for each in self.partitions]
        known = [age for age in ages if age is not None]
        return max(known, default=0.0) if len(known) == len(ages) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """State of the CONSUME service of a Kafka table and the activity of its consumers, from memory alone."""

    database: str
    table: str
    uuid: str
    #: State by the events of its consumers.
    lifecycle: ServiceState
    #: Reason for its state.
    reason: str
    #: Reason why consumers cannot run at all: no view, a setting, the group of another table; empty: they can.
    missing: str = ""
    #: Failures in a row.
    failures: int = 0
    #: Activities of the consumers that were dispatched.
    doings: tuple[Doing, ...] = ()

    @property
    def running(self) -> int:
        """Consumers that run: those that wait for a worker, or for its Spark, do not."""
        return sum(each.kind is not ActivityKind.WAITING for each in self.doings)

    @property
    def state(self) -> ServiceState:
        """The state for people: a service whose consumers all wait for a worker waits."""
        is_waiting = self.lifecycle is ServiceState.RUNNING and self.doings and not self.running
        return ServiceState.WAITING if is_waiting else self.lifecycle


def partition_skew(partitions: Iterable[TopicPartitionStats]) -> float | None:
    """Messages that the fullest topic partition ever had over the mean of all: 1 is even.

    None: the end of one was never seen, or there is no message.
    """
    ends = [each.end for each in partitions]
    highs = [end.high for end in ends if end is not None]
    if len(highs) < len(ends) or not any(highs):
        return None
    return max(highs) * len(highs) / sum(highs)


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class EventLog:
    """The last events of all Kafka tables."""

    def __init__(self, *, events_max: int) -> None:
        self._events: deque[ConsumeEvent] = deque(maxlen=events_max)
        self._lock = threading.Lock()

    def add(self, event: ConsumeEvent) -> None:
        with self._lock:
            self._events.append(event)

    def events(self) -> list[ConsumeEvent]:
        """Oldest first."""
        with self._lock:
            return list(self._events)
