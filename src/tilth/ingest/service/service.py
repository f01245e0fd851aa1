"""One Kafka table on the server: its consumers, started and stopped by the definition and the user's switch.

Covers: the thread of one CONSUME service: polling, starting, stopping, replacing; moving offsets.
Does not cover: what to do when (state.py), the consumers' rounds (consumers.py), stored offsets (offsets/positions.py).
Always holds: the state machine is used by one thread at a time; nothing starts while offsets are moved.
See also: docs/policies/consumers.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

import msgspec

from tilth.base.errors import RetryError, TilthError, UnavailableError, as_exception
from tilth.base.logs import Log
from tilth.base.retry import Retry, retry_rule
from tilth.catalog import LeaseHeldError, SchemaChangedError
from tilth.ingest.consumer.calls import (
    BeginGranted,
    BeginRound,
    EndsReport,
    RoundCommitted,
    RoundDone,
    SnapshotTables,
    TableSnapshots,
    ViewReport,
)
from tilth.ingest.errors import (
    BrokerUnavailableError,
    GroupInUseError,
    LeaderChangedError,
    OffsetGapError,
    UnknownTopicError,
)
from tilth.ingest.kafka.broker import BrokerClient
from tilth.ingest.offsets.positions import Positions
from tilth.ingest.offsets.reset import OffsetReset
from tilth.ingest.service.activity import Doing, describe
from tilth.ingest.service.consumers import ConsumerEnded, Consumers
from tilth.ingest.service.context import ConsumeContext
from tilth.ingest.service.definitions import Definitions, broker_config, kafka_definition, read_definitions
from tilth.ingest.service.memory_wait import MemoryWait
from tilth.ingest.service.reporter import Reporter, error_text
from tilth.ingest.service.seen_ends import SeenEnds
from tilth.ingest.service.state import (
    HELD_RETRY_MS,
    Consumer,
    ConsumerState,
    EndKind,
    Instruction,
    ServiceLifecycle,
    StartConsumer,
    StopConsumer,
    TableObservation,
    missing_in,
)
from tilth.ingest.service.stats import ConsumerStats, EventLog, StreamState
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import TopicPartition
from tilth.model.service import (
    ServiceKind,
    ServiceState,
    ServiceStats,
    Switch,
    SwitchState,
    effective_switch,
)
from tilth.model.table import KafkaDef, full_name
from tilth.warehouse import TaskCancelledError

_log = Log("ingest")

#: Poll interval while something is wrong.
TROUBLE_SECONDS = 1.0
#: A cancelled consumer has this long to end before a caller gives up waiting for it.
STOP_SECONDS_MAX = 30.0
_WAIT_SECONDS_MIN = 0.01
#: Later than any time.
_NEVER_MS = 1 << 62


class KafkaService:
    """The CONSUME service of one Kafka table."""

    def __init__(self, context: ConsumeContext, events: EventLog, kafka: KafkaDef) -> None:
        self._context = context
        clock, catalog = context.clock, context.catalog
        self._clock = clock
        self._catalog = catalog
        self._kafka = kafka
        self._interval_seconds = context.settings.manager_interval
        self._certificates_folder = context.settings.certificates_folder
        self._reporter = Reporter(clock, events, kafka)
        self._positions = Positions(clock, catalog, kafka.uuid, note=self._reporter.note)
        self._consumers = Consumers(context, self._reporter, kafka)
        #: Guards the state machine; whoever waits for consumers to end waits on the condition.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: Numbers of the last poll that was begun, and of the last whose observation was applied.
        self._polls_begun = self._polls_applied = 0
        self._lifecycle = ServiceLifecycle()
        self._definitions: Definitions | None = None
        self._broker: BrokerClient | None = None
        self._broker_config: KafkaConfig | None = None
        self._ends: deque[ConsumerEnded] = deque()
        self._ends_seen = SeenEnds(clock, interval_seconds=self._interval_seconds)
        #: Topic partitions where a consumer did not find its offset, since the last poll.
        self._reported_gaps: set[TopicPartition] = set()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._memory = MemoryWait(clock, context.memory, self._stopping)
        self._is_poll_due = True
        #: Expiry time of a switch, when the next poll is due.
        self._switch_over_ms = _NEVER_MS
        #: Time of the next poll if the last one failed because of another server's lease or changes; _NEVER_MS: it did
        #: not.
        self._poll_again_ms = _NEVER_MS
        #: Number of callers that keep consumers stopped: offsets are being moved.
        self._holds = 0
        self._wakeups = 0
        self._last_wakeup_ms = 0
        self._next_wakeup_ms = 0
        self._thread = threading.Thread(target=self._run, name=f"tilth-consume-{kafka.name}", daemon=True)

    # --- for the manager ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join(2 * STOP_SECONDS_MAX)

    def wake(self, *, is_changed: bool = False) -> None:
        if is_changed:
            with self._lock:
                self._lifecycle.definition_changed()
        self._is_poll_due = True
        self._wake.set()

    def wait_switched_off(self) -> None:
        """Poll at once, and wait until the service has seen its switch and no consumer runs.

        Raises UnavailableError if one does not end.
        """
        with self._lock:
            # A poll under way may have read the former switch, and start consumers that had ended for a restart.
            wanted = self._polls_begun + 1
        self.wake()
        self._wait_for(lambda: self._is_stopped() and (self._polls_applied >= wanted or self._stopping.is_set()))

    def _wait_for(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            is_over = self._changed.wait_for(is_so, STOP_SECONDS_MAX)
        if not is_over:
            raise UnavailableError("a consumer does not end", table=full_name(self._kafka), seconds=STOP_SECONDS_MAX)

    def restart(self) -> None:
        """End all consumers and let them be dispatched anew."""
        with self._consumers_stopped():
            return

    def move(self, reset: OffsetReset) -> dict[TopicPartition, int]:
        """Move the offsets while no consumer runs; those that ran run again afterwards, whatever came of it."""
        kafka = kafka_definition(self._catalog, self._kafka.uuid)
        config = broker_config(self._catalog, kafka, self._certificates_folder)
        with self._consumers_stopped():
            broker = BrokerClient(config)
            try:
                return self._positions.move(kafka, config, broker, reset, broker.topics())
            finally:
                broker.close()

    def stats(self) -> ServiceStats:
        """The row of `system.bg_threads`."""
        switch = effective_switch(self._switches(), ServiceKind.CONSUME, now_ms=self._clock.now_ms())
        failures = self._reporter.failures(list(self._lifecycle.consumers))
        stream = self.stream()
        with self._lock:
            return ServiceStats(
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                service=ServiceKind.CONSUME,
                switch=switch.state,
                because=switch.because,
                until_ms=switch.until_ms,
                asked_by=switch.query_id,
                asked_from=switch.client,
                state=stream.state.value,
                reason=stream.reason,
                wakeups=self._wakeups,
                last_wakeup_ms=self._last_wakeup_ms,
                running_tasks=stream.running,
                failures=failures.count,
                last_exception=failures.last,
                last_exception_ms=failures.last_ms,
                server=self._context.server,
                next_wakeup_ms=self._next_wakeup_ms,
                next_attempt_ms=self._next_attempt_ms(),
            )

    def stream(self) -> StreamState:
        """State and activities, from memory: no read of the catalog."""
        failures = self._reporter.failures(list(self._lifecycle.consumers))
        with self._lock:
            dispatched = [i for i, each in self._lifecycle.consumers.items() if each.state is ConsumerState.RUNNING]
        doings = tuple(self._consumers.doing(index) for index in dispatched)
        reason = self._reason(doings)
        with self._lock:
            return StreamState(
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                lifecycle=self._lifecycle.state,
                reason=reason,
                missing=self._lifecycle.missing,
                failures=failures.count,
                doings=doings,
            )

    def consumers(self) -> list[ConsumerStats]:
        """The rows of `system.kafka_tables`."""
        stored, gaps = self._catalog.offsets.stored(self._kafka.uuid), self._positions.open_gaps()
        with self._lock:
            known = list(map(replace, self._lifecycle.consumers.values()))
            next_attempt_ms = self._next_attempt_ms()
        if not known:
            # No consumer has been made: it was stopped since the start, or the topic was never found.
            topics = () if self._definitions is None else self._definitions.config.topics
            partitions = sorted(stored) or [TopicPartition(topic, 0) for topic in topics]
            known = [Consumer(index=0, partitions=tuple(partitions))]
        return [
            self._consumers.stats(
                each.index,
                [self._ends_seen.stats(partition, stored.get(partition)) for partition in each.partitions],
                state=each.state,
                reason=self._reason_of(each.index, each.state, gaps.intersection(each.partitions)),
                next_attempt_ms=next_attempt_ms if each.state is ConsumerState.FAILED else 0,
            )
            for each in known
        ]

    def _next_attempt_ms(self) -> int:
        """Return the time of the next attempt after a failure; 0: no attempt is due."""
        if self._lifecycle.state is not ServiceState.FAILED:
            return 0
        # A broker that does not answer gets a request at each poll.
        retry_ms = self._next_wakeup_ms if self._lifecycle.is_without_broker else self._lifecycle.next_retry_ms()
        return retry_ms or 0

    def _reason(self, doings: Sequence[Doing]) -> str:
        """Describe why the service is in its state, what its consumers wait for, and what else a user should know."""
        with self._lock:
            reason = self._lifecycle.reason
        doing = self._described(doings) if self._lifecycle.state is ServiceState.RUNNING else ""
        broken = self._consumers.broken()
        going_on = f"{reason}, {doing}" if doing else reason
        parts = (going_on, self._consumers.slowed(), self._memory.reason, self._consumers.refusing(), broken)
        return "; ".join(filter(None, (*parts, self._reporter.recent_note())))

    def _reason_of(self, index: int, state: ConsumerState, gaps: Collection[TopicPartition]) -> str:
        """Return the reason why one consumer waits, or the activity of one that runs."""
        if state is ConsumerState.RUNNING:
            doing = self._described([self._consumers.doing(index)])
            return "; ".join(filter(None, (doing, self._consumers.broken([index]))))
        if gaps:
            return missing_in(min(gaps))
        with self._lock:
            # A failed consumer shows its own reason: that of the service may come from another consumer.
            own = self._lifecycle.consumers.get(index)
            return (own.why if own is not None else "") or self._lifecycle.reason

    def _described(self, doings: Sequence[Doing]) -> str:
        seen = self._definitions
        interval_ms = 0 if seen is None else seen.config.flush_interval_ms
        return describe(doings, flush_interval_ms=interval_ms)

    # --- for the consumers -------------------------------------------------------------------------------------------

    def begin(self, call: BeginRound) -> BeginGranted:
        """Wait while memory is at its limit, and let the round wait a little where it comes near.

        Raises MemoryPressureError if that lasts.
        """
        wait_ms = self._memory.wait(self._kafka)
        granted = self._consumers.begin(call)
        return msgspec.structs.replace(granted, wait_ms=max(granted.wait_ms, wait_ms))

    def snapshot_tables(self, call: SnapshotTables) -> TableSnapshots:
        return self._consumers.snapshot_tables(call)

    def commit(self, call: RoundDone) -> RoundCommitted:
        committed = self._consumers.commit(call)
        with self._lock:
            self._lifecycle.record_commit(call.consumer)
        return committed

    def report_view(self, call: ViewReport) -> None:
        self._consumers.report_view(call)

    def report_ends(self, call: EndsReport) -> None:
        self._consumers.report_ends(call)
        # The consumer is between two rounds and waits for no memory.
        self._memory.reason = ""
        self._ends_seen.record({each.topic_partition: each.end for each in call.ends})

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        polled_at = self._clock.monotonic() - self._interval_seconds
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._process_ends()
                is_over = self._clock.monotonic() - polled_at >= self._pause_seconds()
                is_due = self._clock.now_ms() >= min(self._switch_over_ms, self._poll_again_ms)
                if (self._is_poll_due or is_over or is_due) and not self._holds:
                    self._is_poll_due = False
                    polled_at = self._clock.monotonic()
                    with self._lock:
                        self._lifecycle.begin_poll()
                        self._polls_begun = number = self._polls_begun + 1
                    self._apply(self._poll(), number)
                    if self._lifecycle.state is ServiceState.STOPPED:
                        # After the switch is obeyed: a broker that does not answer keeps nobody waiting.
                        self._poll_ends()
                else:
                    self._tick()
            # The outermost loop of a service: it goes on whatever happened.
            except BaseException as error:
                self._handle_poll_error(as_exception(error))
            seconds = self._wait_seconds(polled_at)
            self._next_wakeup_ms = self._clock.now_ms() + round(seconds * 1000)
            self._clock.wait(self._wake, seconds)
        self._end()

    def _handle_poll_error(self, error: Exception) -> None:
        if isinstance(error, TilthError) and retry_rule(error.kind) in (Retry.STOP, Retry.CHOOSE_ANEW):
            # Offsets, gaps or subscriptions have been changed by others since they were read, which is no failure.
            _log.info("poll_again", table=full_name(self._kafka), reason=error)
            self._poll_again_ms = self._clock.now_ms() + HELD_RETRY_MS
            return
        self._reporter.record_failure(error)
        self._clock.wait(self._stopping, TROUBLE_SECONDS)

    def _apply(self, observation: TableObservation, number: int) -> None:
        with self._changed:
            if self._holds:
                # A caller began to move offsets during the poll: the observation is stale.
                self._is_poll_due = True
                return
            self._polls_applied = number
            self._wakeups += 1
            self._last_wakeup_ms = self._clock.now_ms()
            instructions = self._lifecycle.observe(observation, now_ms=self._last_wakeup_ms)
            self._changed.notify_all()
        self._perform(instructions)

    def _tick(self) -> None:
        with self._lock:
            instructions = [] if self._holds else self._lifecycle.tick(now_ms=self._clock.now_ms())
        self._perform(instructions)

    def _end(self) -> None:
        with self._lock:
            instructions = self._lifecycle.stop_all("the node is stopping")
        self._perform(instructions)
        deadline = self._clock.monotonic() + STOP_SECONDS_MAX
        while not self._lifecycle.is_quiet() and self._clock.monotonic() < deadline:
            self._clock.wait(self._wake, TROUBLE_SECONDS)
            self._wake.clear()
            self._process_ends()
        with self._changed:
            # There are no more polls to wait for.
            self._changed.notify_all()
        self._consumers.release()
        self._release_offsets()
        self._close_broker()

    def _release_offsets(self) -> None:
        try:
            self._positions.release()
        except TilthError as error:
            # Another server can acquire the lease once this one has ended.
            self._reporter.record_failure(error)

    def _pause_seconds(self) -> float:
        is_well = self._lifecycle.state in (ServiceState.RUNNING, ServiceState.STOPPED)
        return self._interval_seconds if is_well else min(TROUBLE_SECONDS, self._interval_seconds)

    def _wait_seconds(self, polled_at: float) -> float:
        seconds = polled_at + self._pause_seconds() - self._clock.monotonic()
        with self._lock:
            retry_ms = self._lifecycle.next_retry_ms()
        next_ms = min(self._switch_over_ms, self._poll_again_ms, _NEVER_MS if retry_ms is None else retry_ms)
        seconds = min(seconds, (next_ms - self._clock.now_ms()) / 1000)
        return max(_WAIT_SECONDS_MIN, seconds)

    def _poll(self) -> TableObservation:
        """Read the catalog and poll the broker."""
        switches, now_ms = self._switches(), self._clock.now_ms()
        self._poll_again_ms = _NEVER_MS
        self._switch_over_ms = min((each.until_ms for each in switches if each.until_ms > now_ms), default=_NEVER_MS)
        switch = effective_switch(switches, ServiceKind.CONSUME, now_ms=now_ms)
        if switch.state is not SwitchState.RUNNING:
            self._close_broker()
            return TableObservation(is_wanted=False, because=switch.because)
        try:
            ids, uuid, folder = self._context.ids, self._kafka.uuid, self._certificates_folder
            seen = read_definitions(self._clock, self._catalog, ids, uuid, certificates_folder=folder)
        except TilthError as error:
            self._close_broker()
            return TableObservation(is_wanted=True, missing=str(error))
        self._definitions, self._kafka = seen, seen.kafka
        reported_gaps, self._reported_gaps = self._reported_gaps, set()
        try:
            broker = self._broker_for(seen.config)
            topics = broker.topics()
            # All at once, before any consumer starts: the first offsets of a topic are found for all its partitions.
            self._positions.settle(seen.kafka, seen.config, broker, topics)
            ends = self._positions.check(seen.kafka, seen.config, broker, topics, reported_gaps=reported_gaps)
        except TilthError as error:
            # The reported gaps were not checked: the next poll of the broker checks them.
            self._reported_gaps |= reported_gaps
            return self._failed_observation(error, now_ms)
        self._reporter.record_success()
        self._ends_seen.replace(ends, topics.ids)
        return TableObservation(
            is_wanted=True,
            definition=seen.fingerprint(),
            consumers=seen.config.consumers,
            partitions=topics.partitions,
            gaps=self._positions.open_gaps(),
        )

    def _poll_ends(self) -> None:
        """Poll the ends of the topics while consumption is stopped, so that the lag is known nevertheless."""
        try:
            kafka = kafka_definition(self._catalog, self._kafka.uuid)
            config = broker_config(self._catalog, kafka, self._certificates_folder)
            stored = self._catalog.offsets.stored(self._kafka.uuid)
            if partitions := [partition for partition in stored if partition.topic in config.topics]:
                self._ends_seen.record(self._broker_for(config).ends(partitions))
        except TilthError as error:
            # Operators may have stopped the broker too: the lag becomes unknown, and nothing has failed.
            _log.debug("ends_not_seen", table=full_name(self._kafka), reason=error)
            self._close_broker()

    def _failed_observation(self, error: TilthError, now_ms: int) -> TableObservation:
        """Return the observation after a poll that failed because of the broker or of another host of the table; raise
        any other error.
        """
        if isinstance(error, BrokerUnavailableError | UnknownTopicError):
            # One answer that names no broker, as brokers give while they start, leaves librdkafka 2.16 without any for
            # good (confluentinc/librdkafka#5301). The next poll has a new client.
            self._close_broker()
            self._reporter.record_failure(error)
            return TableObservation(is_wanted=True, trouble=str(error))
        if not isinstance(error, GroupInUseError | LeaseHeldError):
            raise error
        if isinstance(error, LeaseHeldError):
            self._poll_again_ms = now_ms + HELD_RETRY_MS
        return TableObservation(is_wanted=True, missing=error_text(error))

    def _switches(self) -> list[Switch]:
        """Return the switches of this table and of all tables."""
        return self._catalog.services.of_table(self._kafka.uuid, ServiceKind.CONSUME)

    def _broker_for(self, config: KafkaConfig) -> BrokerClient:
        if self._broker is None or self._broker_config != config:
            self._close_broker()
            self._broker, self._broker_config = BrokerClient(config), config
        return self._broker

    def _close_broker(self) -> None:
        """Close the client, which is not used for a while: its threads would go on trying to reach brokers."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    # --- consumers' lives --------------------------------------------------------------------------------------------

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartConsumer():
                    self._start_consumer(instruction)
                case StopConsumer(index=index, reason=reason):
                    self._consumers.cancel(index, reason)
                case _:
                    assert_never(instruction)

    def _start_consumer(self, start: StartConsumer) -> None:
        seen = self._definitions
        assert seen is not None, "nothing starts before a poll"
        try:
            positions = self._positions.of(start.partitions)
            if len(positions) < len(start.partitions):
                raise RetryError("offsets of a topic partition are not known yet", table=full_name(self._kafka))
            self._consumers.dispatch(start.index, seen, positions, when_ended=self._enqueue_end)
        except TilthError as error:
            self._enqueue_end(ConsumerEnded(start.index, error))
            return
        # A defect here must not leave a consumer that counts as running and does not run.
        except BaseException as error:
            self._enqueue_end(ConsumerEnded(start.index, TilthError(f"a defect of Tilth: {error!r}")))
            raise
        with self._lock:
            is_wanted = self._lifecycle.consumers[start.index].state is ConsumerState.RUNNING
        if not is_wanted:
            self._consumers.cancel(start.index, "cancelled while it was dispatched")

    def _enqueue_end(self, ended: ConsumerEnded) -> None:
        self._ends.append(ended)
        self._wake.set()

    def _process_ends(self) -> None:
        while self._ends:
            ended = self._ends.popleft()
            kind = _end_kind(ended.error)
            self._settle(ended)
            is_failure = ended.error is not None and kind not in (EndKind.REQUESTED, EndKind.ALTERED, EndKind.HELD)
            self._consumers.record_end(ended, is_failure=is_failure)
            if ended.error is not None and is_failure:
                self._reporter.record_failure(ended.error, consumer=ended.index)
            if isinstance(ended.error, OffsetGapError):
                self._reported_gaps.add(_partition_in(ended.error))
            if kind in (EndKind.STALE, EndKind.ALTERED) or isinstance(ended.error, OffsetGapError):
                # The consumer's order is out of date: the next poll reads the definitions and the topic again.
                self._is_poll_due = True
            with self._changed:
                self._lifecycle.record_end(ended.index, kind, error_text(ended.error), now_ms=self._clock.now_ms())
                self._changed.notify_all()

    def _settle(self, ended: ConsumerEnded) -> None:
        try:
            self._consumers.settle(ended.index, str(ended.error or "its consumer ended"))
        except TilthError as error:
            # The end of the consumer must be noted all the same; the next dispatch settles the round.
            self._reporter.record_failure(error, consumer=ended.index)

    @contextmanager
    def _consumers_stopped(self) -> Iterator[None]:
        """Stop all consumers; inside of the context none runs and none starts."""
        with self._lock:
            self._holds += 1
            instructions = self._lifecycle.stop_all("offsets are being moved, or consumers restarted")
        try:
            self._perform(instructions)
            self._wake.set()
            self._wait_for(self._is_stopped)
            yield
        finally:
            with self._lock:
                self._holds -= 1
            self.wake()

    def _is_stopped(self) -> bool:
        return self._lifecycle.state is ServiceState.STOPPED and self._lifecycle.is_quiet()


def _partition_in(error: OffsetGapError) -> TopicPartition:
    return TopicPartition(error.facts["topic"], int(error.facts["partition"]))


def _end_kind(error: TilthError | None) -> EndKind:
    match error:
        case None | TaskCancelledError():
            return EndKind.REQUESTED
        case BrokerUnavailableError() | UnknownTopicError():
            return EndKind.BROKER
        case OffsetGapError():
            return EndKind.FAILURE
        case SchemaChangedError():
            return EndKind.ALTERED
        case LeaderChangedError():
            return EndKind.STALE
        case LeaseHeldError():
            return EndKind.HELD
        case _ if retry_rule(error.kind) in (Retry.STOP, Retry.CHOOSE_ANEW):
            return EndKind.STALE
        case _:
            return EndKind.FAILURE
