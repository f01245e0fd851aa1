"""The life of one Kafka table's consumers. Pure: events in, instructions out.

                  polled (wanted, whole)             ended
    STOPPED  ---------------------------> RUNNING  --------> FAILED --(back-off over)--> RUNNING
       ^                                     |
       |       ended                         | polled (unwanted, changed, dependency missing, gap)
       +------------------- STOPPING <-------+

STOPPED: nothing runs, nothing failed. RUNNING: a task was dispatched. STOPPING: it was cancelled. FAILED: it ended
by itself and waits to be replaced. Written by: this module, from events of the manager's thread.

Covers: when consumers start and stop, what each reads, back-off, the state shown to users. Does not cover: brokers,
tasks, the catalog (manager.py). Always holds: a consumer is started only when all those of the definition before have
ended, so that no partition has two. See also:
docs/policies/consumers.md#when-consumers-start-and-stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tilth.base.retry import INGEST_BACKOFF_BASE_MS, INGEST_BACKOFF_DOUBLINGS_MAX, backoff_ms
from tilth.base.units import show_time
from tilth.ingest.policy.assignment import assign, consumer_count
from tilth.model.offset import TopicPartition
from tilth.model.service import ServiceState

#: Interval between two attempts to acquire a lease that another server is about to release.
HELD_RETRY_MS = 100


class ConsumerState(StrEnum):
    STOPPED = "stopped"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


class EndKind(StrEnum):
    """Reason why a consumer ended."""

    #: It was cancelled, or moves to another worker.
    REQUESTED = "requested"
    #: The state in the catalog has changed: it is fenced, offsets were moved, something is gone. Replaced soon.
    STALE = "stale"
    #: A table that it writes into has other columns now: replaced at once, and nothing went wrong.
    ALTERED = "altered"
    #: Another server has not released it yet; tried again at once, and nothing went wrong.
    HELD = "held"
    #: The broker does not answer; replaced when it does.
    BROKER = "broker"
    #: Anything else; replaced with growing delay.
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableObservation:
    """Observation of the table by the manager."""

    #: The user's switch.
    is_wanted: bool
    because: str = ""
    #: Reason why consumers cannot run yet: no view, a target is gone; empty if they can.
    missing: str = ""
    #: Equal as long as settings, views and targets are.
    definition: str = ""
    #: Number of consumers by the settings.
    consumers: int = 1
    #: Number of partitions by topic; empty when the broker did not answer.
    partitions: Mapping[str, int] = field(default_factory=dict)
    #: Reason why the broker did not answer; empty if it did.
    trouble: str = ""
    #: Partitions where messages are missing and nobody has decided yet.
    gaps: frozenset[TopicPartition] = frozenset()


_POLLING = "reading its definitions and its topic"


@dataclass(frozen=True, slots=True)
class StartConsumer:
    """Dispatch consumer `index` for these partitions."""

    index: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StopConsumer:
    """Cancel consumer `index`."""

    index: int
    reason: str


Instruction = StartConsumer | StopConsumer


@dataclass(slots=True, kw_only=True)
class Consumer:
    """One consumer, as the state machine sees it."""

    index: int
    partitions: tuple[TopicPartition, ...]
    state: ConsumerState = ConsumerState.STOPPED
    #: Failures since the last committed round.
    failures: int = 0
    retry_at_ms: int = 0
    #: Reason of its last end, until it is started again.
    why: str = ""
    last_end: EndKind = EndKind.REQUESTED


class ServiceLifecycle:
    """The consumers of one Kafka table. One thread at a time."""

    def __init__(self) -> None:
        self.consumers: dict[int, Consumer] = {}
        self.state = ServiceState.WAITING
        self.reason = "not polled yet"
        self._observation = TableObservation(is_wanted=False)
        #: True if a definition has changed since the last poll began.
        self._is_changed = False
        #: Start of the broker's outage; 0: it answers.
        self._no_broker_ms = 0
        #: Definition of what runs or is about to.
        self._definition = ""
        self._partitions: dict[str, int] = {}

    def begin_poll(self) -> None:
        self._is_changed = False

    def observe(self, observation: TableObservation, *, now_ms: int) -> list[Instruction]:
        """Apply an observation of the manager."""
        had_trouble = bool(self._observation.trouble)
        self._observation = observation
        if not observation.is_wanted:
            return self._rest(ServiceState.STOPPED, observation.because or "stopped by SYSTEM STOP CONSUME")
        if observation.missing:
            return self._rest(ServiceState.WAITING, _POLLING if self._is_changed else observation.missing)
        if observation.trouble:
            # Running consumers notice it by themselves, or the broker is back before they do.
            self._wait_for_broker(observation.trouble, now_ms=now_ms)
            return []
        self._no_broker_ms = 0
        if had_trouble:
            for consumer in self.consumers.values():
                if consumer.last_end is EndKind.BROKER:
                    consumer.retry_at_ms = now_ms
        changed = observation.definition != self._definition or dict(observation.partitions) != self._partitions
        if changed and self._is_active():
            reason = "partitions changed" if observation.definition == self._definition else "definition changed"
            return self._rest(ServiceState.WAITING, reason)
        if changed or not self.consumers:
            self._assign(observation)
        stops = [
            self._stop(c, "messages are missing")
            for c in self._running()
            if observation.gaps.intersection(c.partitions)
        ]
        return [*stops, *self.tick(now_ms=now_ms)]

    def record_end(self, index: int, kind: EndKind, reason: str, *, now_ms: int) -> None:
        """Record that a consumer's task has ended; `tick` or the next observation replaces it."""
        consumer = self.consumers[index]
        was_stopping = consumer.state is ConsumerState.STOPPING
        consumer.why = "" if was_stopping else reason
        consumer.last_end = EndKind.REQUESTED if was_stopping else kind
        consumer.state = ConsumerState.STOPPED
        if not was_stopping and kind is EndKind.REQUESTED:
            consumer.retry_at_ms = now_ms
            self.state, self.reason = ServiceState.WAITING, "a consumer moves to another worker"
        elif not was_stopping and kind is EndKind.ALTERED:
            consumer.retry_at_ms = now_ms
            self.state, self.reason = ServiceState.WAITING, reason
        elif not was_stopping and kind is EndKind.HELD:
            consumer.state, consumer.retry_at_ms = ConsumerState.FAILED, now_ms + HELD_RETRY_MS
            self.state, self.reason = ServiceState.WAITING, reason
        elif not was_stopping:
            consumer.state = ConsumerState.FAILED
            consumer.retry_at_ms = now_ms + next_backoff_ms(consumer.failures)
            if kind in (EndKind.BROKER, EndKind.FAILURE):
                consumer.failures += 1
            if kind is EndKind.BROKER:
                self._wait_for_broker(reason, now_ms=now_ms)
                consumer.why = self.reason
            else:
                self.state, self.reason = ServiceState.FAILED, reason

    def record_commit(self, index: int) -> None:
        """Record that a consumer's round was committed."""
        self.consumers[index].failures = 0

    def tick(self, *, now_ms: int) -> list[Instruction]:
        """Start what is due."""
        observation = self._observation
        if not observation.is_wanted or observation.missing or observation.trouble:
            return []
        if observation.definition != self._definition or dict(observation.partitions) != self._partitions:
            if self._is_active():
                return []
            self._assign(observation)
        starts: list[Instruction] = []
        for consumer in self.consumers.values():
            is_off = consumer.state in (ConsumerState.STOPPED, ConsumerState.FAILED)
            if is_off and consumer.retry_at_ms <= now_ms and not observation.gaps.intersection(consumer.partitions):
                consumer.state, consumer.why = ConsumerState.RUNNING, ""
                starts.append(StartConsumer(consumer.index, consumer.partitions))
        self._update_status(observation)
        return starts

    def next_retry_ms(self) -> int | None:
        """Return when `tick` should be called at the latest; None: nothing waits for a time."""
        observation = self._observation
        if not observation.is_wanted or observation.missing or observation.trouble:
            return None
        failed = [c for c in self.consumers.values() if c.state is ConsumerState.FAILED]
        return min((c.retry_at_ms for c in failed if not observation.gaps.intersection(c.partitions)), default=None)

    @property
    def missing(self) -> str:
        """Return why consumers could not run at the last poll; empty: they could, or nobody wants them to."""
        return self._observation.missing

    @property
    def is_without_broker(self) -> bool:
        """True if no broker answered the last poll."""
        return bool(self._observation.trouble)

    def is_quiet(self) -> bool:
        """True when no consumer runs or is about to end."""
        return not self._is_active()

    def stop_all(self, reason: str) -> list[Instruction]:
        """Stop all consumers, for the node's end and while offsets are moved: nothing starts before the next poll."""
        self._observation = TableObservation(is_wanted=False, because=reason)
        return self._rest(ServiceState.STOPPED, reason)

    def definition_changed(self) -> None:
        """Drop what was missing at the last poll from the reason, until a later poll finds it missing again."""
        self._is_changed = True
        if self._observation.missing:
            self.reason = _POLLING

    def _wait_for_broker(self, why: str, *, now_ms: int) -> None:
        self._no_broker_ms = self._no_broker_ms or now_ms
        self.state = ServiceState.FAILED
        self.reason = f"waiting for the broker since {show_time(self._no_broker_ms)}: {why}"

    def _rest(self, state: ServiceState, reason: str) -> list[Instruction]:
        self.state, self.reason = state, reason
        for consumer in self.consumers.values():
            if consumer.state is ConsumerState.FAILED:
                consumer.state = ConsumerState.STOPPED
            consumer.failures, consumer.retry_at_ms, consumer.why = 0, 0, ""
        # Consumers that are stopping are stopped once more: the first order may have come before their task was sent.
        return [self._stop(consumer, reason) for consumer in self.consumers.values() if _is_active(consumer)]

    def _assign(self, observation: TableObservation) -> None:
        count = consumer_count(wanted=observation.consumers, partitions=observation.partitions)
        shares = assign(consumers=count, partitions=observation.partitions)
        self.consumers = {
            index: Consumer(index=index, partitions=partitions) for index, partitions in enumerate(shares)
        }
        self._definition, self._partitions = observation.definition, dict(observation.partitions)

    def _stop(self, consumer: Consumer, reason: str) -> StopConsumer:
        consumer.state = ConsumerState.STOPPING
        return StopConsumer(consumer.index, reason)

    def _running(self) -> list[Consumer]:
        return [consumer for consumer in self.consumers.values() if consumer.state is ConsumerState.RUNNING]

    def _is_active(self) -> bool:
        return any(map(_is_active, self.consumers.values()))

    def _update_status(self, observation: TableObservation) -> None:
        failed = [c for c in self.consumers.values() if c.state is ConsumerState.FAILED]
        if observation.gaps:
            self.state, self.reason = ServiceState.FAILED, missing_in(min(observation.gaps))
        elif failed:
            # The reason comes from a consumer that is still down: those of the others no longer apply.
            held = all(each.last_end is EndKind.HELD for each in failed)
            first = min(failed, key=lambda each: (each.last_end is EndKind.HELD, each.index))
            self.state, self.reason = ServiceState.WAITING if held else ServiceState.FAILED, first.why
        else:
            count = len(self._running())
            self.state, self.reason = ServiceState.RUNNING, f"{count} consumer{'s' if count != 1 else ''}"


def missing_in(partition: TopicPartition) -> str:
    """Describe why a topic partition with a gap is not read."""
    return f"messages are missing in {partition.topic}/{partition.partition}; SYSTEM RESET CONSUME OFFSET decides"


def _is_active(consumer: Consumer) -> bool:
    return consumer.state in (ConsumerState.RUNNING, ConsumerState.STOPPING)


def next_backoff_ms(failures: int) -> int:
    """Return how long a consumer waits that failed for the (n+1)-th time in a row."""
    return backoff_ms(failures, base_ms=INGEST_BACKOFF_BASE_MS, doublings_max=INGEST_BACKOFF_DOUBLINGS_MAX)
