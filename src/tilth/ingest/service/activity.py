"""Activity of consumers: the reason they wait for, the time since when, the rate of reading. Pure: reports in, words
out.

Covers: one consumer's activity, and the words for several together. Does not cover: whether consumers run (state.py).
Always holds: numbers are those that consumers reported and rounds that were committed; no broker is queried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from tilth.base.units import show_count, show_time
from tilth.ingest.kafka.metadata import PartitionEnd
from tilth.model.offset import OffsetRange, TopicPartition

#: Duration from which on the time of a round is reported.
LONG_ROUND_SECONDS = 10.0
#: Rounds that a rate is computed from, and how old the first of them may be.
RATE_ROUNDS_MAX = 32
RATE_MS_MAX = 60_000


class ActivityKind(IntEnum):
    """Activity of a consumer; of several consumers the first of these is shown."""

    #: Its task waits for a worker, or for the Spark of its worker.
    WAITING = 0
    READING = 1
    #: Messages are there, and wait until there are more or until the flush interval is over.
    FLUSH_INTERVAL = 2
    #: The next messages are in a transaction that is not committed yet.
    OPEN_TRANSACTION = 3
    #: It has not polled the broker yet.
    STARTING = 4
    IDLE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """Activity of a consumer at one time."""

    kind: ActivityKind
    since_ms: int
    #: Messages that could be read and are not.
    behind: int = 0
    #: Messages in transactions that are not committed yet.
    uncommitted: int = 0
    #: Messages a second; 0: not known yet.
    rate: float = 0.0
    #: The setting that the last round's size was bounded by; empty: it read all messages.
    bounded_by: str = ""
    #: Time of the last poll for the ends of its topic partitions; 0: not yet.
    polled_ms: int = 0
    #: Elapsed time of its current round; 0: between two rounds.
    round_seconds: float = 0.0
    #: Name of the slow view that the round runs, as `database.view`; empty: none.
    view: str = ""
    #: Elapsed time of that view.
    view_seconds: float = 0.0
    #: Reason why its task does not go on; empty: it does.
    waits_for: str = ""
    #: Seconds for which the oldest unread message has waited at most; 0: there is none; None: not known.
    oldest_unread_age: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time to read the messages behind at this rate; None: not known, or the consumer does not read."""
        return self.behind / self.rate if self.kind is ActivityKind.READING and self.rate else None


@dataclass(slots=True)
class Activity:
    """One consumer since it was started."""

    offsets: dict[TopicPartition, int]
    #: Start time.
    since_ms: int
    _ends: Mapping[TopicPartition, PartitionEnd] = field(default_factory=dict)
    #: Time when it last saw or read a message; 0: never.
    _message_ms: int = 0
    #: Start of the wait of messages that no round reads, and of the wait for an open transaction.
    _waiting_ms: int = 0
    _blocked_ms: int = 0
    _polled_ms: int = 0
    _is_in_round: bool = False
    _bounded_by: str = ""
    #: Beginning, end and messages of rounds that followed each other.
    _rounds: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=RATE_ROUNDS_MAX))
    _began_ms: int = 0
    #: Name of the slow view that its round runs; empty: none.
    _view: str = ""
    #: Start time of that view.
    _view_ms: int = 0
    #: Time by topic partition before which no unread message of it was sent.
    read_up_to: dict[TopicPartition, int] = field(default_factory=dict)

    def successor(self, offsets: dict[TopicPartition, int], *, now_ms: int) -> Activity:
        """Return the activity of the consumer that is started now. Where its offset is another one, as after a reset,
        nothing is known of what it reads next.
        """
        same = {each: at for each, at in self.read_up_to.items() if offsets.get(each) == self.offsets.get(each)}
        return Activity(offsets, now_ms, read_up_to=same)

    def record_ends(self, ends: Mapping[TopicPartition, PartitionEnd], *, now_ms: int) -> None:
        """Record the ends of its topic partitions, which it has polled."""
        self._ends = dict(ends)
        self._polled_ms = now_ms
        self._is_in_round, self._view = False, ""
        behind, uncommitted = self._behind()
        if behind:
            self._message_ms = now_ms
            self._waiting_ms = self._waiting_ms or now_ms
        else:
            self._waiting_ms = 0
            self._rounds.clear()
        self._blocked_ms = (self._blocked_ms or now_ms) if uncommitted and not behind else 0
        for partition, end in ends.items():
            # A message that comes from now on has not waited yet.
            if end.high <= self.offsets.get(partition, -1):
                self.read_up_to[partition] = now_ms

    def record_begin(self, ranges: Iterable[OffsetRange], *, rows_max: int, now_ms: int) -> None:
        """Record that a round begins."""
        messages = sum(each.end - each.start for each in ranges)
        behind, _ = self._behind()
        self._bounded_by = ""
        if messages < behind or messages >= rows_max:
            self._bounded_by = "kafka_max_block_size" if messages >= rows_max else "kafka_max_block_bytes"
        self._is_in_round, self._began_ms, self._waiting_ms, self._view = True, now_ms, 0, ""

    def record_view(self, view: str, *, since_ms: int) -> None:
        """Record that its round is in this slow view; an empty name: that view has ended."""
        self._view, self._view_ms = view, since_ms

    def record_commit(
        self, ranges: Iterable[OffsetRange], *, now_ms: int, newest: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Record that the round was committed; `newest`: times of the last messages that it has read."""
        messages = 0
        for partition, sent_ms in (newest or {}).items():
            # Clocks of producers may be ahead.
            self.read_up_to[partition] = max(self.read_up_to.get(partition, 0), min(sent_ms, now_ms))
        for each in ranges:
            self.offsets[TopicPartition(each.topic, each.partition)] = each.end
            messages += each.end - each.start
        self._rounds.append((self._began_ms, now_ms, messages))
        self._message_ms, self._view = now_ms, ""

    def doing(self, *, now_ms: int, waits_for: str = "") -> Doing:
        """Return the present activity. `waits_for`: the reason why its task is blocked; empty: it is not."""
        seconds = max(0.0, (now_ms - self._began_ms) / 1000) if self._is_in_round else 0.0
        doing = replace(
            self._kind_of_doing(now_ms),
            polled_ms=self._polled_ms,
            round_seconds=seconds,
            view=self._view,
            view_seconds=max(0.0, (now_ms - self._view_ms) / 1000) if self._view else 0.0,
            oldest_unread_age=self._unread_age(now_ms),
        )
        return replace(doing, kind=ActivityKind.WAITING, waits_for=waits_for) if waits_for else doing

    def _kind_of_doing(self, now_ms: int) -> Doing:
        behind, uncommitted = self._behind()
        if self._is_in_round or (behind and self._rounds and self._bounded_by):
            return Doing(
                kind=ActivityKind.READING,
                since_ms=self._began_ms,
                behind=behind,
                uncommitted=uncommitted,
                rate=self._rate(now_ms),
                bounded_by=self._bounded_by,
            )
        if behind:
            return Doing(
                kind=ActivityKind.FLUSH_INTERVAL, since_ms=self._waiting_ms, behind=behind, uncommitted=uncommitted
            )
        if uncommitted:
            return Doing(kind=ActivityKind.OPEN_TRANSACTION, since_ms=self._blocked_ms, uncommitted=uncommitted)
        kind = ActivityKind.IDLE if self._polled_ms else ActivityKind.STARTING
        return Doing(kind=kind, since_ms=self._message_ms or self.since_ms)

    def _unread_age(self, now_ms: int) -> float | None:
        """Return for how long the oldest unread message has waited at most; None: not known."""
        if not self._polled_ms:
            return None
        ends = ((partition, self._ends.get(partition), offset) for partition, offset in self.offsets.items())
        unread = [partition for partition, end, offset in ends if end is not None and end.high > offset]
        known = [self.read_up_to[partition] for partition in unread if partition in self.read_up_to]
        if len(known) < len(unread):
            return None
        return max(0.0, (now_ms - min(known, default=now_ms)) / 1000)

    def _behind(self) -> tuple[int, int]:
        """Messages that can be read, and messages in open transactions."""
        behind = uncommitted = 0
        for partition, offset in self.offsets.items():
            end = self._ends.get(partition)
            if end is not None:
                behind += max(0, end.stable - offset)
                uncommitted += max(0, end.high - max(end.stable, offset))
        return behind, uncommitted

    def _rate(self, now_ms: int) -> float:
        recent = [each for each in self._rounds if now_ms - each[0] <= RATE_MS_MAX] or list(self._rounds)[-1:]
        if not recent:
            return 0.0
        # Up to the end of the last round: the one that is under way has brought nothing yet.
        seconds = (recent[-1][1] - recent[0][0]) / 1000
        return sum(messages for *_, messages in recent) / max(seconds, 0.001)


def describe(doings: Sequence[Doing], *, flush_interval_ms: int) -> str:
    """Describe the activity of consumers in one sentence; empty if there are none."""
    if not doings:
        return ""
    kind = min(each.kind for each in doings)
    same = [each for each in doings if each.kind is kind]
    since_ms = max(each.since_ms for each in same) if kind is ActivityKind.IDLE else min(each.since_ms for each in same)
    behind = sum(each.behind for each in doings)
    uncommitted = sum(each.uncommitted for each in doings)
    match kind:
        case ActivityKind.WAITING:
            return f"waiting for a worker: {same[0].waits_for}"
        case ActivityKind.STARTING:
            return f"starting since {show_time(since_ms)}"
        case ActivityKind.READING:
            return _reading(same, behind)
        case ActivityKind.FLUSH_INTERVAL:
            return f"waiting for the flush interval ({flush_interval_ms / 1000:g} s), {show_count(behind)} messages"
        case ActivityKind.OPEN_TRANSACTION:
            return f"behind an open transaction since {show_time(since_ms)}, {show_count(uncommitted)} messages"
        case ActivityKind.IDLE:
            return f"idle: no message since {show_time(since_ms)}"


def _reading(doings: Sequence[Doing], behind: int) -> str:
    rate = sum(each.rate for each in doings)
    parts = [f"{show_count(round(rate))} messages/s"] if rate else []
    parts.append(f"{show_count(behind)} behind")
    if rate and behind:
        parts.append(f"about {_duration(behind / rate)} left")
    bounds = sorted({each.bounded_by for each in doings if each.bounded_by})
    if bounds:
        parts.append(f"bounded by {' and '.join(bounds)}")
    seconds = max(each.round_seconds for each in doings)
    if seconds >= LONG_ROUND_SECONDS:
        parts.append(f"its round has been under way for {_duration(seconds)}")
    slowest = max(doings, key=lambda each: each.view_seconds)
    if slowest.view and slowest.view_seconds >= LONG_ROUND_SECONDS:
        parts.append(f"view {slowest.view} for {_duration(slowest.view_seconds)} of it")
    return "reading: " + ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
