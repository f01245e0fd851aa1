"""The consumers of one Kafka table as the server knows them: dispatched, fenced, their rounds begun and committed.

Covers: identities, orders, the server's side of a consumer's calls, counters. Does not cover: when consumers start and
stop (state.py), what they do (consumer/task.py).
Always holds: only the identity that was handed out last for an index begins and commits; a round that was begun either
commits or is aborted before its index is handed out again. See also:
docs/policies/consumers.md#when-consumers-start-and-stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tilth.base.errors import FencedError, TilthError
from tilth.base.logs import Log
from tilth.base.units import show_count
from tilth.catalog import (
    AddDelta,
    AddLedger,
    AdvanceOffsets,
    InsertDelay,
    InsertPart,
    NoRowsSince,
    Requirement,
    SchemaChangedError,
    SchemaIs,
    TxnHandle,
    TxnNotFoundError,
    Update,
)
from tilth.ingest.consumer.calls import (
    ENCODER,
    BeginGranted,
    BeginRound,
    ConsumeOrder,
    EndsReport,
    Position,
    RoundCommitted,
    RoundDone,
    SnapshotTables,
    TableSnapshots,
    ViewReport,
)
from tilth.ingest.rounds.round import RoundFacts
from tilth.ingest.service.activity import Activity, ActivityKind, Doing
from tilth.ingest.service.context import ConsumeContext
from tilth.ingest.service.definitions import Definitions
from tilth.ingest.service.reporter import Reporter, RoundCounts, error_text
from tilth.ingest.service.state import ConsumerState
from tilth.ingest.service.stats import ConsumeEventKind, ConsumerStats, TopicPartitionStats
from tilth.model.lease import Fence
from tilth.model.offset import LedgerEntry, OffsetRange, StoredOffset, TopicPartition
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.task import Cost, TaskKind
from tilth.model.txn import TxnOutput
from tilth.storage import TableRoots, output_of
from tilth.warehouse import Handle

#: State shown for a consumer that was dispatched and has no worker, or whose worker has no Spark.
WAITING = "waiting"

_log = Log("ingest")


@dataclass(slots=True, kw_only=True)
class _Known:
    """State of one consumer index on the server."""

    fence: Fence = field(default_factory=lambda: Fence("", 0))
    #: Id of the process of this server that dispatched it.
    server: str = ""
    handle: Handle | None = None
    #: Latest round that it began; None: none yet.
    txn: TxnHandle | None = None
    #: Ranges of that round.
    ranges: tuple[OffsetRange, ...] = ()
    #: The Kafka table as the consumer knows it; None: it was never dispatched.
    kafka: KafkaDef | None = None
    rows_max: int = 0
    activity: Activity = field(default_factory=lambda: Activity({}, 0))
    rounds: int = 0
    messages: int = 0
    rows: int = 0
    dead: int = 0
    refused: int = 0
    bytes: int = 0
    #: Input bytes of its last round.
    round_bytes: int = 0
    last_commit_ms: int = 0
    last_exception: str = ""
    last_exception_ms: int = 0
    #: Partitions that its last round wrote to, or tried to, by table.
    partitions: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Reason why its rounds wait before they write; empty: they do not.
    slowed: str = ""
    #: Refusals by views in its last round; empty: none.
    refusing: str = ""
    #: Duration of each view in its last round; see RoundFacts.
    view_seconds: Mapping[str, float] = field(default_factory=dict)
    #: Kernels or Spark, by view; see RoundDone.
    view_choices: Mapping[str, str] = field(default_factory=dict)
    round_seconds: float = 0.0
    #: The last message that was broken or refused, in words.
    last_broken: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerEnded:
    """A consumer's task is over; without an error when it was cancelled."""

    index: int
    error: TilthError | None


class Consumers:
    """Consumers of one Kafka table. Calls of consumers come on their own threads."""

    def __init__(self, context: ConsumeContext, reporter: Reporter, kafka: KafkaDef) -> None:
        self._context = context
        self._clock = context.clock
        self._catalog = context.catalog
        self._dispatcher = context.dispatcher
        self._reporter = reporter
        self._kafka = kafka
        self._lock = threading.Lock()
        self._known: dict[int, _Known] = {}

    # --- for the service ---------------------------------------------------------------------------------------------

    def dispatch(
        self,
        index: int,
        definitions: Definitions,
        positions: Mapping[TopicPartition, StoredOffset],
        *,
        when_ended: Callable[[ConsumerEnded], None],
    ) -> None:
        """Send a consumer under a new identity; `when_ended` is called from another thread when its task is over."""
        known = self._of(index)
        self.settle(index, "its consumer was replaced")
        server = self._catalog.server
        lease = self._catalog.leases.acquire(f"consumer/{self._kafka.uuid}/{index}", server)
        order = ConsumeOrder(
            kafka=definitions.kafka,
            views=definitions.views,
            dead_letters=definitions.dead_letters,
            consumer=index,
            fence=lease.fence,
            positions=tuple(Position(partition, stored) for partition, stored in positions.items()),
            secrets=definitions.secrets,
        )
        name = full_name(definitions.kafka)
        payload = ENCODER.encode(order)
        config = definitions.config
        spec = self._dispatcher.new_spec(TaskKind.CONSUME, warehouse=config.warehouse, table=name, payload=payload)
        spec = msgspec.structs.replace(spec, mode=config.schedule, key=f"{self._kafka.uuid}/{index}")
        with self._lock:
            known.server = server
            known.fence, known.kafka, known.rows_max = lease.fence, definitions.kafka, definitions.config.block_rows
            offsets = {partition: stored.offset for partition, stored in positions.items()}
            known.activity = known.activity.successor(offsets, now_ms=self._clock.now_ms())
        handle = self._dispatcher.submit(spec)
        with self._lock:
            known.handle = handle
        _log.info(
            "consumer_started",
            cause_id=spec.id,
            table=name,
            consumer=index,
            server=lease.holder,
            epoch=lease.epoch,
            partitions=len(positions),
        )
        thread = threading.Thread(
            target=_watch, args=(index, handle, when_ended), name=f"tilth-watch-{spec.id[:8]}", daemon=True
        )
        thread.start()

    def cancel(self, index: int, reason: str) -> None:
        handle = self._of(index).handle
        if handle is not None:
            _log.info("consumer_stopping", cause_id=handle.id, table=handle.spec.table, consumer=index, reason=reason)
            handle.cancel()

    def settle(self, index: int, reason: str) -> None:
        """Abort a round that did not commit; its files are then removed by the cleaner.

        Raises the catalog's errors; the round is then settled by a later call.
        """
        txn = self._of(index).txn
        if txn is not None:
            txn.settle(reason)

    def release(self) -> None:
        """Release the leases of consumers that do not run: this server does not host the table any more."""
        with self._lock:
            fences = [known.fence for known in self._known.values() if known.handle is None and known.fence is not None]
        for fence in fences:
            try:
                self._catalog.leases.release(fence)
            except TilthError as error:
                # Another server can acquire it once this server has ended.
                _log.warning("consumer_not_released", cause_id=fence.name, reason=error)

    def record_end(self, ended: ConsumerEnded, *, is_failure: bool) -> None:
        known = self._of(ended.index)
        with self._lock:
            known.handle = None
            if is_failure:
                known.last_exception, known.last_exception_ms = error_text(ended.error), self._clock.now_ms()

    def doing(self, index: int) -> Doing:
        """Return the activity of a consumer that runs."""
        known = self._of(index)
        waits_for = self._obstacle(known)
        with self._lock:
            return known.activity.doing(now_ms=self._clock.now_ms(), waits_for=waits_for)

    def _obstacle(self, known: _Known) -> str:
        """Return the reason why the consumer's task does not go on; empty: it does.

        Callers do not hold `_lock`: the dispatcher's lock is acquired before it.
        """
        handle = known.handle
        return "" if handle is None else handle.obstacle()

    def broken(self, indexes: Collection[int] | None = None) -> str:
        """Describe how many messages became dead letters since the server started; empty: none."""
        with self._lock:
            every = [known for index, known in self._known.items() if indexes is None or index in indexes]
            dead, messages = sum(known.dead for known in every), sum(known.messages for known in every)
            last = next((known.last_broken for known in every if known.last_broken), "")
        if not dead:
            return ""
        text = f"broken messages, now dead letters: {show_count(dead)}"
        return f"{text}, all that were read; the last: {last}" if dead == messages else text

    def stats(
        self,
        index: int,
        partitions: Iterable[TopicPartitionStats],
        *,
        state: ConsumerState,
        reason: str = "",
        next_attempt_ms: int = 0,
    ) -> ConsumerStats:
        known = self._of(index)
        is_running = state is ConsumerState.RUNNING
        doing = self.doing(index) if is_running else None
        is_waiting = doing is not None and doing.kind is ActivityKind.WAITING
        with self._lock:
            return ConsumerStats(
                database=self._kafka.database,
                table=self._kafka.name,
                uuid=self._kafka.uuid,
                consumer=index,
                state=WAITING if is_waiting else state.value,
                task="" if known.handle is None else known.handle.id,
                partitions=tuple(partitions),
                rounds=known.rounds,
                messages=known.messages,
                rows=known.rows,
                dead=known.dead,
                refused=known.refused,
                bytes=known.bytes,
                last_commit_ms=known.last_commit_ms,
                last_exception=known.last_exception,
                last_exception_ms=known.last_exception_ms,
                slowed=known.slowed,
                reason=reason,
                doing=doing,
                round_seconds=known.round_seconds,
                view_seconds=known.view_seconds,
                view_choices=known.view_choices,
                last_broken=known.last_broken,
                next_attempt_ms=next_attempt_ms,
            )

    def slowed(self) -> str:
        """Describe why rounds wait before they write; empty: none does."""
        with self._lock:
            return next((known.slowed for known in self._known.values() if known.slowed), "")

    def refusing(self) -> str:
        """Describe what views have refused lately; empty: nothing."""
        with self._lock:
            return next((known.refusing for known in self._known.values() if known.refusing), "")

    # --- for the consumers -------------------------------------------------------------------------------------------

    def begin(self, call: BeginRound) -> BeginGranted:
        """Raises FencedError when the consumer is not the one that was dispatched last, and SchemaChangedError when the
        Kafka table has other columns by now: from the ALTER on no message is read by the old ones.
        """
        current = self._current(call.consumer, call.fence)
        if current.server != self._catalog.server:
            # Its offsets may come from commits that the catalog has lost, and its lease belongs to a former process.
            raise FencedError("the server has joined anew", table=full_name(self._kafka), consumer=call.consumer)
        self._check_columns(current)
        self.settle(call.consumer, "its round is done again in another way")
        found = {uuid: self._catalog.tables.by_id(uuid) for uuid in call.tables}
        tables = {uuid: table if isinstance(table, TableDef) else None for uuid, table in found.items()}
        txn = self._catalog.transactions.open(
            f"consume {full_name(self._kafka)} {call.consumer}",
            outputs=[
                TxnOutput(table=uuid, tasks=call.tasks)
                if table is None
                else output_of(table, self._context.root, tasks=call.tasks)
                for uuid, table in tables.items()
            ],
            fences=[call.fence],
        )
        known = self._of(call.consumer)
        with self._lock:
            is_current = known.fence == call.fence
            if is_current:
                known.txn, known.ranges = txn, call.ranges
                known.activity.record_begin(call.ranges, rows_max=known.rows_max, now_ms=self._clock.now_ms())
        if not is_current:
            # Replaced while the transaction was made: nobody else would settle it.
            txn.settle("its consumer was replaced")
            self._current(call.consumer, call.fence)
        self._dispatcher.round_began(known.handle.id if known.handle else "", input_bytes=known.round_bytes)
        offsets = sum(each.end - each.start for each in call.ranges)
        self._reporter.event(ConsumeEventKind.POLL, call.consumer, txn.id, RoundCounts(messages=offsets))
        root = TableRoots({table: self._context.root.of(table) for table in call.tables})
        return BeginGranted(txn=txn.id, root=root, wait_ms=self._slow(known, tables))

    def _slow(self, known: _Known, tables: Mapping[str, TableDef | None]) -> float:
        """Return how long the round waits, by the partitions that the last one wrote to: the partitions of the next
        rows are not known before they are read. Writes that are over the limit are refused by the commit.
        """
        worst: InsertDelay | None = None
        for uuid, table in tables.items():
            partitions = known.partitions.get(uuid)
            if not partitions or table is None:
                continue
            delay = self._catalog.throttle.round_delay(table, partitions)
            if delay is not None and (worst is None or delay.milliseconds > worst.milliseconds):
                worst = delay
        with self._lock:
            known.slowed = "" if worst is None else f"slowed: {worst.reason}"
        return 0.0 if worst is None else worst.milliseconds

    def snapshot_tables(self, call: SnapshotTables) -> TableSnapshots:
        """Return snapshots of tables. Their files stay on the disk until the round is over, because its transaction is
        open.
        """
        known = self._current(call.consumer, call.fence)
        if known.txn is not None:
            known.txn.begin_try(call.number, (each.table for each in call.scopes))
        snapshots = (self._catalog.parts.snapshot(each.table, partitions=each.partitions) for each in call.scopes)
        return TableSnapshots(snapshots=tuple(snapshots))

    def commit(self, call: RoundDone) -> RoundCommitted:
        """Commit rows, the changes of rows that they replace, offsets and the ledger's line in one transaction."""
        known = self._current(call.consumer, call.fence)
        txn = known.txn
        if txn is None or txn.id != call.txn:
            raise TxnNotFoundError(txn=call.txn, hint="the consumer has begun another round since")
        requirements = self._requirements(call)
        with self._lock:
            known.partitions = _partitions(call)
            task = "" if known.handle is None else known.handle.id
            updates = self._updates(call, known.ranges)
        self._dispatcher.committing(task)
        txn.tasks_ended(may_have_retried=call.may_have_retried)
        began = self._clock.monotonic()
        committed = txn.commit(updates, requirements)
        commit_seconds = self._clock.monotonic() - began
        facts = call.facts
        with self._lock:
            known.rounds += 1
            known.messages += facts.messages
            known.rows += facts.rows
            known.dead += facts.dead
            known.refused += facts.refused
            known.refusing = _refusing(facts)
            known.bytes += facts.bytes
            known.round_bytes = facts.bytes
            known.round_seconds, known.view_seconds = call.seconds, facts.view_seconds
            known.view_choices = call.view_choices
            known.last_broken = facts.broken or known.last_broken
            known.last_commit_ms = self._clock.now_ms()
            newest = {TopicPartition(each.topic, each.partition): each.sent_ms for each in facts.newest}
            known.activity.record_commit(known.ranges, now_ms=known.last_commit_ms, newest=newest)
        self._dispatcher.round_ended(task, Cost(input_bytes=facts.bytes, seconds=call.seconds))
        self._reporter.record_commit(call, commit_seconds=commit_seconds)
        return RoundCommitted(commit_ts=committed.commit_ts)

    def report_view(self, call: ViewReport) -> None:
        known = self._current(call.consumer, call.fence)
        with self._lock:
            known.activity.record_view(call.view, since_ms=self._clock.now_ms() - round(call.seconds * 1000))

    def report_ends(self, call: EndsReport) -> None:
        known = self._current(call.consumer, call.fence)
        with self._lock:
            ends = {each.topic_partition: each.end for each in call.ends}
            known.activity.record_ends(ends, now_ms=self._clock.now_ms())
            has_all = known.activity.doing(now_ms=self._clock.now_ms()).kind is ActivityKind.IDLE
            task = "" if known.handle is None else known.handle.id
            if has_all:
                # The consumer has read everything: no round of it waits.
                known.slowed = ""
        # Between rounds, whatever became of the last one.
        self._dispatcher.round_ended(task)
        if has_all:
            # It reached the broker and has read everything: no commit of a round would record the success.
            self._reporter.record_success(call.consumer)

    def _requirements(self, call: RoundDone) -> list[Requirement]:
        """Require that the columns are those that were written, and that the partitions may have another part."""
        requirements: list[Requirement] = []
        written = {each.table for each in call.facts.parts}
        for each in call.schemas:
            requirements.append(SchemaIs(table=each.table, schema_version=each.version))
            table = self._catalog.tables.by_id(each.table)
            if each.table in written and isinstance(table, TableDef):
                requirements.append(self._catalog.throttle.requirement(table))
        for change in call.changes:
            scope = change.scope
            requirements.append(NoRowsSince(table=scope.table, ts=change.ts, partitions=scope.partitions))
        return requirements

    def _updates(self, call: RoundDone, begun: Iterable[OffsetRange]) -> list[Update]:
        """`begun`: the ranges that the round was begun with."""
        facts = call.facts
        stored: dict[str, int] = {}
        for written in facts.parts:
            stored[written.table] = stored.get(written.table, 0) + written.part.rows
        known = {each.topic_partition: each for each in begun}
        ranges = tuple(
            msgspec.structs.replace(known[TopicPartition(each.topic, each.partition)], start=each.start, end=each.end)
            for each in facts.ranges
        )
        entry = LedgerEntry(
            txn=call.txn,
            kafka_table=self._kafka.uuid,
            consumer=call.consumer,
            ranges=facts.ranges,
            stored=stored,
            targets=tuple(each.table for each in call.schemas),
        )
        return [
            *(InsertPart(table=written.table, written=written.part) for written in facts.parts),
            *(
                AddDelta(table=change.scope.table, written=delta, seen=change.seen)
                for change in call.changes
                for delta in change.deltas
            ),
            AdvanceOffsets(kafka_table=self._kafka.uuid, ranges=ranges),
            AddLedger(entry=entry),
        ]

    def _check_columns(self, known: _Known) -> None:
        now = self._catalog.tables.by_id(self._kafka.uuid)
        if isinstance(now, KafkaDef) and known.kafka is not None and now.schema != known.kafka.schema:
            hint = "a consumer that knows them takes over by itself"
            raise SchemaChangedError("the Kafka table's columns have changed", table=full_name(now), hint=hint)

    def _current(self, index: int, fence: Fence) -> _Known:
        known = self._of(index)
        if known.fence != fence:
            raise FencedError(
                table=full_name(self._kafka), consumer=index, epoch=fence.epoch, now_epoch=known.fence.epoch
            )
        return known

    def _of(self, index: int) -> _Known:
        with self._lock:
            return self._known.setdefault(index, _Known())


def _partitions(call: RoundDone) -> dict[str, frozenset[str]]:
    """Return by table the partitions that the round wrote to."""
    found: dict[str, set[str]] = {}
    for each in call.facts.parts:
        found.setdefault(each.table, set()).add(each.part.partition)
    return {table: frozenset(partitions) for table, partitions in found.items()}


def _refusing(facts: RoundFacts) -> str:
    views = ", ".join(facts.refusing)
    return f"messages of the last round that a view cannot take: {facts.refused}, by {views}" if facts.refused else ""


def _watch(index: int, handle: Handle, when_ended: Callable[[ConsumerEnded], None]) -> None:
    error: TilthError | None = None
    try:
        handle.wait()
    except TilthError as raised:
        error = raised
    when_ended(ConsumerEnded(index, error))
