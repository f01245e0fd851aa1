"""One Kafka table on the server: its consumers, kept as the definition and the user's switch want them.

Covers: the thread of one CONSUME service: looking around, dispatching, replacing; beginning and committing rounds.
Does not cover: what to do when (state.py), offsets outside of rounds (positions.py), the consumers themselves
(task.py).
Always holds: only the consumer that was dispatched last for its index commits; offsets move in the same transaction as
the rows. See also: POLICIES.md 10.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, FencedError, TilthError, UnavailableError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.catalog import (
    AddLedger,
    AdvanceOffsets,
    Catalog,
    InsertPart,
    SchemaIs,
    TxnFinishedError,
    TxnNotFoundError,
    Update,
)
from tilth.ingest.calls import (
    ENCODER,
    BeginGranted,
    BeginRound,
    ConsumeOrder,
    Heard,
    Position,
    RoundCommitted,
    RoundDone,
    ViewOrder,
)
from tilth.ingest.dead import DEAD_LETTER_SCHEMA, dead_letter_table
from tilth.ingest.errors import BrokerUnavailableError, OffsetGapError, UnknownTopicError
from tilth.ingest.kafka import BrokerClient
from tilth.ingest.positions import Positions
from tilth.ingest.reset import OffsetReset
from tilth.ingest.rounds import RoundFacts
from tilth.ingest.settings import ErrorMode, KafkaConfig, read_config
from tilth.ingest.state import ConsumerState, EndKind, Instruction, Look, ServiceHeart, ServiceState, Start, Stop
from tilth.ingest.stats import ConsumeEvent, ConsumeEventKind, ConsumerStats, EventLog, PartitionStats
from tilth.model.lease import Fence
from tilth.model.offset import LedgerEntry, OffsetRange, TopicPartition
from tilth.model.service import ServiceKind, ServiceStats, SwitchState
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.task import TaskKind
from tilth.model.txn import TxnOutput
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher, Handle, TaskCancelledError

#: How often the world is looked at while something is wrong.
TROUBLE_SECONDS = 1.0
#: A cancelled consumer has this long to end before a caller gives up waiting for it.
STOP_SECONDS_MAX = 30.0
#: The lease is an epoch, not a right that runs out; the time only tells who is alive.
LEASE_MS = 24 * 3600 * 1000
#: Equal errors are logged once in so long.
REPEAT_MS = 60_000

_log = Log("ingest")


@dataclass(slots=True, kw_only=True)
class _Running:
    """What the server knows of one consumer's index."""

    fence: Fence = field(default_factory=lambda: Fence("", 0))
    handle: Handle | None = None
    #: Of the round that it has begun and not committed; 0: none.
    txn: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    rounds: int = 0
    messages: int = 0
    rows: int = 0
    dead: int = 0
    bytes: int = 0
    last_commit_ms: int = 0
    last_exception: str = ""
    last_exception_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Ended:
    index: int
    task: str
    error: TilthError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """What consumers are ordered with."""

    kafka: KafkaDef
    config: KafkaConfig
    views: tuple[ViewOrder, ...]
    dead_letters: TableDef | None


class KafkaService:
    """The CONSUME service of one Kafka table."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        ids: IdSource,
        events: EventLog,
        kafka: KafkaDef,
        *,
        root: str,
        server: str,
        interval_seconds: float,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._ids = ids
        self._events = events
        self._kafka = kafka
        self._root = root
        self._server = server
        self._interval_seconds = interval_seconds
        self._positions = Positions(clock, catalog, kafka.uuid)
        #: Guards the heart, the running consumers and the counters.
        self._lock = threading.RLock()
        self._heart = ServiceHeart()
        self._running: dict[int, _Running] = {}
        self._world: _World | None = None
        self._broker: BrokerClient | None = None
        self._broker_config: KafkaConfig | None = None
        self._waiting: deque[_Ended] = deque()
        self._wake = threading.Event()
        self._is_look_due = True
        #: While offsets are moved nothing is started.
        self._is_held = False
        self._stopping = threading.Event()
        self._quiet = threading.Condition(self._lock)
        self._wakeups = 0
        self._last_wakeup_ms = 0
        self._failures = 0
        self._last_exception = ""
        self._last_exception_ms = 0
        self._last_logged_ms = 0
        self._because = ""
        self._thread = threading.Thread(target=self._run, name=f"tilth-consume-{kafka.name}", daemon=True)

    # --- for the manager ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the consumers and the thread."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(STOP_SECONDS_MAX)

    def wake(self) -> None:
        """Looks around at once."""
        self._is_look_due = True
        self._wake.set()

    def wait_stopped(self) -> None:
        """Waits until the service has seen the switch and no consumer runs. Raises UnavailableError if one does
        not end.
        """
        with self._quiet:
            is_over = self._quiet.wait_for(self._is_stopped, STOP_SECONDS_MAX)
        if not is_over:
            raise UnavailableError("a consumer does not end", table=full_name(self._kafka), seconds=STOP_SECONDS_MAX)

    def restart(self) -> None:
        """Ends all consumers and lets them be dispatched anew."""
        with self._held():
            pass

    def move(self, reset: OffsetReset) -> dict[TopicPartition, int]:
        """Moves the offsets while no consumer runs; those that ran run again afterwards, whatever came of it."""
        kafka = self._definition()
        config = read_config(kafka)
        with self._held():
            broker = self._broker_for(config)
            counts = broker.partitions()
            places = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
            return self._positions.move(kafka, config, broker, reset, places)

    def stats(self) -> ServiceStats:
        """The row of `system.bg_threads`."""
        switch = self._catalog.services.switch(self._kafka.uuid, ServiceKind.CONSUME)
        with self._lock:
            running = sum(each.state is ConsumerState.RUNNING for each in self._heart.consumers.values())
            return ServiceStats(
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                service=ServiceKind.CONSUME,
                switch=SwitchState.RUNNING if switch is None else switch.state,
                because="" if switch is None else switch.because,
                state=self._heart.state.value,
                reason=self._heart.reason,
                wakeups=self._wakeups,
                last_wakeup_ms=self._last_wakeup_ms,
                running_tasks=running,
                failures=self._failures,
                last_exception=self._last_exception,
                last_exception_ms=self._last_exception_ms,
                server=self._server,
            )

    def consumers(self) -> list[ConsumerStats]:
        """The rows of `system.kafka_tables`."""
        stored = self._catalog.offsets.of(self._kafka.uuid)
        with self._lock:
            return [
                self._consumer_stats(each.index, each.places, each.state, stored)
                for each in self._heart.consumers.values()
            ]

    # --- for the consumers -------------------------------------------------------------------------------------------

    def begin(self, call: BeginRound) -> BeginGranted:
        """Raises FencedError when the consumer is not the one that was dispatched last."""
        with self._lock:
            running = self._current(call.consumer, call.fence)
        txn = self._catalog.transactions.begin(
            f"consume {full_name(self._kafka)} {call.consumer}",
            outputs=[TxnOutput(table=table, tasks=call.tasks) for table in call.tables],
            fences=[call.fence],
        )
        with self._lock:
            running.txn = txn.id
        offsets = sum(each.end - each.start for each in call.ranges)
        self._tell(ConsumeEventKind.POLL, call.consumer, txn=txn.id, messages=offsets)
        return BeginGranted(txn=txn.id)

    def commit(self, call: RoundDone) -> RoundCommitted:
        """Rows, offsets and the ledger's line in one transaction."""
        with self._lock:
            self._current(call.consumer, call.fence)
        facts = call.facts
        requirements = [SchemaIs(table=each.table, schema_version=each.version) for each in call.schemas]
        committed = self._catalog.transactions.commit_or_raise(call.txn, self._updates(call), requirements)
        with self._lock:
            running = self._current(call.consumer, call.fence)
            running.txn = 0
            running.rounds += 1
            running.messages += facts.messages
            running.rows += facts.rows
            running.dead += facts.dead
            running.bytes += facts.bytes
            running.last_commit_ms = self._clock.now_ms()
            self._heart.committed(call.consumer)
        self._tell_round(call)
        return RoundCommitted(commit_ts=committed.commit_ts)

    def heard(self, call: Heard) -> None:
        with self._lock:
            running = self._current(call.consumer, call.fence)
            running.ends = {each.place: each.offset for each in call.ends}

    def _current(self, index: int, fence: Fence) -> _Running:
        running = self._running.get(index)
        if running is None or running.fence != fence:
            now = "none" if running is None else running.fence.epoch
            raise FencedError(table=full_name(self._kafka), consumer=index, epoch=fence.epoch, now_epoch=now)
        return running

    def _updates(self, call: RoundDone) -> list[Update]:
        facts = call.facts
        stored: dict[str, int] = {}
        for written in facts.parts:
            stored[written.table] = stored.get(written.table, 0) + written.part.rows
        ranges = tuple(
            OffsetRange(topic=each.topic, partition=each.partition, start=each.start, end=each.end)
            for each in facts.ranges
        )
        entry = LedgerEntry(
            txn=call.txn, kafka_table=self._kafka.uuid, consumer=call.consumer, ranges=facts.ranges, stored=stored
        )
        return [
            *(InsertPart(table=written.table, written=written.part) for written in facts.parts),
            AdvanceOffsets(kafka_table=self._kafka.uuid, ranges=ranges),
            AddLedger(entry=entry),
        ]

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        looked = self._clock.monotonic() - self._interval_seconds
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._take_ends()
                is_over = self._clock.monotonic() - looked >= self._pause_seconds()
                if (self._is_look_due or is_over) and not self._is_held:
                    self._is_look_due = False
                    looked = self._clock.monotonic()
                    self._perform(self._heart_looked(self._look()))
                else:
                    with self._lock:
                        instructions = self._heart.tick(now_ms=self._clock.now_ms()) if not self._is_held else []
                    self._perform(instructions)
            # The outermost loop of a service: it goes on whatever happened.
            except Exception as error:
                self._failed(error)
                self._clock.wait(self._stopping, TROUBLE_SECONDS)
            self._clock.wait(self._wake, self._wait_seconds(looked))
        self._end()

    def _end(self) -> None:
        with self._lock:
            instructions = self._heart.stop_all("the node is stopping")
        self._perform(instructions)
        deadline = self._clock.monotonic() + STOP_SECONDS_MAX
        while self._clock.monotonic() < deadline:
            self._take_ends()
            with self._lock:
                if self._heart.is_quiet():
                    break
            self._wake.clear()
            self._clock.wait(self._wake, 0.1)
        if self._broker is not None:
            self._broker.close()

    def _pause_seconds(self) -> float:
        with self._lock:
            is_well = self._heart.state in (ServiceState.RUNNING, ServiceState.STOPPED)
        return self._interval_seconds if is_well else min(TROUBLE_SECONDS, self._interval_seconds)

    def _wait_seconds(self, looked: float) -> float:
        until_look = looked + self._pause_seconds() - self._clock.monotonic()
        with self._lock:
            retry_ms = self._heart.next_retry_ms()
        if retry_ms is not None:
            until_look = min(until_look, (retry_ms - self._clock.now_ms()) / 1000)
        return max(0.01, until_look)

    def _heart_looked(self, look: Look) -> list[Instruction]:
        with self._lock:
            self._wakeups += 1
            self._last_wakeup_ms = self._clock.now_ms()
            instructions = self._heart.looked(look, now_ms=self._last_wakeup_ms)
            self._quiet.notify_all()
            return instructions

    def _look(self) -> Look:
        """Asks the catalog and the broker."""
        switch = self._catalog.services.switch(self._kafka.uuid, ServiceKind.CONSUME)
        if switch is not None and switch.state is not SwitchState.RUNNING:
            is_over = switch.until_ms and switch.until_ms <= self._clock.now_ms()
            if not is_over:
                return Look(is_wanted=False, because=switch.because)
        try:
            world = self._see_world()
        except TilthError as error:
            return Look(is_wanted=True, missing=str(error))
        if not world.views:
            return Look(is_wanted=True, missing=f"no materialized view reads from {full_name(world.kafka)}")
        self._world = world
        try:
            broker = self._broker_for(world.config)
            counts = broker.partitions()
            places = [TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)]
            gaps = self._positions.check(world.kafka, world.config, broker, places)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._failed(error)
            return Look(is_wanted=True, trouble=str(error))
        return Look(
            is_wanted=True,
            definition=_fingerprint(world),
            consumers=world.config.consumers,
            partitions=counts,
            gaps=gaps,
        )

    def _see_world(self) -> _World:
        """The definitions as they are now. Raises a TilthError that says what is missing."""
        kafka = self._definition()
        config = read_config(kafka)
        orders = []
        for view in self._catalog.tables.views_of(kafka.uuid):
            target = self._catalog.tables.by_id(view.target)
            if not isinstance(target, TableDef):
                raise UnavailableError("the target of a view is gone", view=full_name(view), target=view.target)
            orders.append(ViewOrder(view=view, target=target))
        dead = self._dead_letters(kafka, config) if config.error_mode is ErrorMode.DEAD_LETTER and orders else None
        views = tuple(sorted(orders, key=lambda each: each.view.uuid))
        return _World(kafka=kafka, config=config, views=views, dead_letters=dead)

    def _definition(self) -> KafkaDef:
        kafka = self._catalog.tables.by_id(self._kafka.uuid)
        if not isinstance(kafka, KafkaDef):
            raise UnavailableError("the Kafka table is gone", table=full_name(self._kafka))
        self._kafka = kafka
        return kafka

    def _dead_letters(self, kafka: KafkaDef, config: KafkaConfig) -> TableDef:
        """The dead-letter table, made when it is missing."""
        wanted = dead_letter_table(kafka, config, uuid=self._ids(), now_ms=self._clock.now_ms())
        found = self._catalog.tables.create(wanted, if_not_exists=True)
        fits = isinstance(found, TableDef) and found.schema == DEAD_LETTER_SCHEMA
        if not fits or not isinstance(found, TableDef):
            hint = "rename it, or set kafka_dead_letter_table"
            raise UnavailableError("this table cannot take dead letters", table=full_name(found), hint=hint)
        return found

    def _broker_for(self, config: KafkaConfig) -> BrokerClient:
        if self._broker is None or self._broker_config != config:
            if self._broker is not None:
                self._broker.close()
            self._broker, self._broker_config = BrokerClient(config), config
        return self._broker

    # --- consumers' lives --------------------------------------------------------------------------------------------

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Start():
                    self._start_consumer(instruction)
                case Stop(index=index, reason=reason):
                    _log.info("consumer_stopping", table=full_name(self._kafka), consumer=index, reason=reason)
                    handle = self._running[index].handle
                    assert handle is not None
                    handle.cancel()
                case _:
                    assert_never(instruction)

    def _start_consumer(self, start: Start) -> None:
        try:
            handle = self._dispatch(start)
        except TilthError as error:
            self._waiting.append(_Ended(start.index, "", error))
            self._wake.set()
            return
        watcher = threading.Thread(
            target=self._watch, args=(start.index, handle), name=f"tilth-watch-{self._kafka.name}", daemon=True
        )
        watcher.start()

    def _dispatch(self, start: Start) -> Handle:
        """Under a new identity, from the stored offsets."""
        world = self._world
        assert world is not None
        running = self._running.setdefault(start.index, _Running())
        self._settle_txn(running, "its consumer was replaced")
        offsets = self._positions.settle(world.kafka, world.config, self._broker_for(world.config), start.places)
        lease = self._catalog.leases.take(f"consumer/{self._kafka.uuid}/{start.index}", self._server, LEASE_MS)
        order = ConsumeOrder(
            kafka=world.kafka,
            views=world.views,
            dead_letters=world.dead_letters,
            consumer=start.index,
            fence=lease.fence,
            positions=tuple(Position(place, offset) for place, offset in offsets.items()),
            root=self._root,
        )
        spec = self._dispatcher.new_spec(
            TaskKind.CONSUME, warehouse=WRITE_WAREHOUSE, table=full_name(world.kafka), payload=ENCODER.encode(order)
        )
        with self._lock:
            running.fence = lease.fence
        handle = self._dispatcher.submit(spec)
        with self._lock:
            running.handle = handle
        _log.info(
            "consumer_started",
            cause_id=spec.id,
            table=full_name(self._kafka),
            consumer=start.index,
            epoch=lease.epoch,
            partitions=len(start.places),
        )
        return handle

    def _watch(self, index: int, handle: Handle) -> None:
        error: TilthError | None = None
        try:
            handle.wait()
        except TilthError as raised:
            error = raised
        self._waiting.append(_Ended(index, handle.id, error))
        self._wake.set()

    def _take_ends(self) -> None:
        while self._waiting:
            ended = self._waiting.popleft()
            kind = _end_kind(ended.error)
            running = self._running.setdefault(ended.index, _Running())
            self._settle_txn(running, str(ended.error or "its consumer ended"))
            if ended.error is not None and kind is not EndKind.ASKED:
                running.last_exception, running.last_exception_ms = str(ended.error), self._clock.now_ms()
                self._failed(ended.error, consumer=ended.index)
            if kind is EndKind.STALE or isinstance(ended.error, OffsetGapError):
                self._is_look_due = True
            with self._quiet:
                running.handle = None
                reason = str(ended.error or "")
                instructions = self._heart.ended(ended.index, kind, reason, now_ms=self._clock.now_ms())
                self._quiet.notify_all()
            if self._is_held or (self._is_look_due and instructions):
                # What is about to start must be started from what is true now.
                instructions = self._postponed(instructions)
            self._perform(instructions)

    def _postponed(self, instructions: list[Instruction]) -> list[Instruction]:
        with self._lock:
            for instruction in instructions:
                if isinstance(instruction, Start):
                    self._heart.consumers[instruction.index].state = ConsumerState.STOPPED
        return [instruction for instruction in instructions if isinstance(instruction, Stop)]

    def _settle_txn(self, running: _Running, reason: str) -> None:
        """A round that did not commit never will; its files are then removed by the cleaner."""
        txn, running.txn = running.txn, 0
        if not txn:
            return
        try:
            self._catalog.transactions.abort(txn, reason[:500])
        except (TxnFinishedError, TxnNotFoundError) as error:
            # It did commit, or is cleaned up already: either way it is settled.
            _log.debug("round_settled", cause_id=str(txn), why=error)

    def _held(self) -> _Hold:
        return _Hold(self)

    def _hold(self) -> None:
        self._is_held = True
        with self._lock:
            instructions = self._heart.stop_all("offsets are being moved, or consumers restarted")
        self._perform(instructions)
        self.wait_stopped()

    def _is_stopped(self) -> bool:
        return self._heart.state is ServiceState.STOPPED and self._heart.is_quiet()

    def _release(self) -> None:
        self._is_held = False
        self.wake()

    # --- telling -----------------------------------------------------------------------------------------------------

    def _failed(self, error: Exception, *, consumer: int = -1) -> None:
        now = self._clock.now_ms()
        text = str(error)
        with self._lock:
            self._failures += 1
            is_new = text != self._last_exception or now - self._last_logged_ms > REPEAT_MS
            self._last_exception, self._last_exception_ms = text, now
            if is_new:
                self._last_logged_ms = now
        if is_new:
            known = error if not isinstance(error, TilthError) else None
            _log.warning("consume_failed", table=full_name(self._kafka), consumer=consumer, reason=text)
            if known is not None:
                _log.error("consume_defect", table=full_name(self._kafka), error=known)
            self._tell(ConsumeEventKind.EXCEPTION, consumer, told=text)

    def _tell_round(self, call: RoundDone) -> None:
        facts: RoundFacts = call.facts
        duration = int(call.seconds * 1000)
        if facts.dead or facts.broken:
            self._tell(
                ConsumeEventKind.PARSE_ERROR, call.consumer, txn=call.txn, messages=facts.dead, told=facts.broken
            )
        self._tell(
            ConsumeEventKind.WRITE,
            call.consumer,
            txn=call.txn,
            messages=facts.messages,
            rows=sum(written.part.rows for written in facts.parts),
            bytes=sum(written.part.file.size for written in facts.parts),
            duration_ms=duration,
        )
        self._tell(
            ConsumeEventKind.COMMIT,
            call.consumer,
            txn=call.txn,
            messages=facts.messages,
            rows=facts.rows,
            bytes=facts.bytes,
            duration_ms=duration,
        )

    def _tell(
        self,
        kind: ConsumeEventKind,
        consumer: int,
        *,
        txn: int = 0,
        messages: int = 0,
        rows: int = 0,
        bytes: int = 0,
        duration_ms: int = 0,
        told: str = "",
    ) -> None:
        self._events.add(
            ConsumeEvent(
                kind=kind,
                at_ms=self._clock.now_ms(),
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                consumer=consumer,
                txn=txn,
                messages=messages,
                rows=rows,
                bytes=bytes,
                duration_ms=duration_ms,
                told=told,
            )
        )

    def _consumer_stats(
        self, index: int, places: Iterable[TopicPartition], state: ConsumerState, stored: dict[TopicPartition, int]
    ) -> ConsumerStats:
        running = self._running.get(index) or _Running()
        return ConsumerStats(
            database=self._kafka.database,
            table=self._kafka.name,
            uuid=self._kafka.uuid,
            consumer=index,
            state=state.value,
            task="" if running.handle is None else running.handle.id,
            partitions=tuple(
                PartitionStats(place=place, offset=stored.get(place, -1), end=running.ends.get(place, -1))
                for place in places
            ),
            rounds=running.rounds,
            messages=running.messages,
            rows=running.rows,
            dead=running.dead,
            bytes=running.bytes,
            last_commit_ms=running.last_commit_ms,
            last_exception=running.last_exception,
            last_exception_ms=running.last_exception_ms,
        )


class _Hold:
    """While it lasts no consumer runs; a context manager."""

    def __init__(self, service: KafkaService) -> None:
        self._service = service

    def __enter__(self) -> None:
        try:
            self._service._hold()
        except BaseException:
            self._service._release()
            raise

    def __exit__(self, *_: object) -> None:
        self._service._release()


def _end_kind(error: TilthError | None) -> EndKind:
    match error:
        case None | TaskCancelledError():
            return EndKind.ASKED
        case BrokerUnavailableError() | UnknownTopicError():
            return EndKind.BROKER
        case OffsetGapError():
            return EndKind.FAILURE
        case _ if error.kind in (ErrorKind.FENCED, ErrorKind.CONFLICT):
            return EndKind.STALE
        case _:
            return EndKind.FAILURE


def _fingerprint(world: _World) -> str:
    """Equal as long as everything is that consumers are ordered with."""
    parts: list[object] = [world.kafka, world.dead_letters, *world.views]
    return hashlib.sha256(b"".join(ENCODER.encode(part) for part in parts)).hexdigest()
