"""The resident consumer: round after round, until it is cancelled, retires or fails.

Covers: the worker's side of CONSUME. Does not cover: dispatch and commits (service/manager.py), the Spark jobs
(rounds/spark.py).
Always holds: its offsets are those of its last committed round; every error ends it, but for a failing view and for
replaced replicas, and a new one starts from the offsets in the catalog. See also: docs/policies/consumers.md#rounds.

Tests: tests/integration/ingest/test_ingest_rounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import msgspec

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import InvalidInputError
from tilth.base.failpoints import hit
from tilth.base.logs import Log, hide_in_lines
from tilth.catalog import StorageChangedError, TooManyConflictsError, rebase
from tilth.ingest.consumer.calls import (
    ORDER_DECODER,
    BeginRound,
    ConsumeOrder,
    ConsumerCalls,
    EndsReport,
    RoundDone,
    SnapshotTables,
    ViewReport,
    WrittenSchema,
)
from tilth.ingest.consumer.position import ConsumerPosition
from tilth.ingest.consumer.view_watch import ViewWatch
from tilth.ingest.errors import KernelUnfitError, UnreadRangesError, ViewError, ViewFailedError
from tilth.ingest.kafka.broker import BrokerClient
from tilth.ingest.kafka.fetch import fetch
from tilth.ingest.kafka.metadata import PartitionEnd, ReportedEnd
from tilth.ingest.kafka.open_client import OpenClient
from tilth.ingest.policy.evaluation import KERNELS, CompiledViews, FailingViews
from tilth.ingest.policy.ranges import backlog, is_small, message_budget, split_ranges, task_count
from tilth.ingest.rounds.round import DeadLetters, Fetch, RoundFacts, RoundJob, TableChanges, tasks_reserved
from tilth.ingest.rounds.spark import run_round
from tilth.ingest.rounds.upserts import Lookups, lookups_of, resolve, scopes_of
from tilth.ingest.settings import ROUND_TASKS_MAX, ErrorMode, KafkaConfig, read_config
from tilth.ingest.views.plans import SqlPlan, ViewPlan
from tilth.ingest.views.views import check_view, constant_defaults
from tilth.model.offset import OffsetRange, TopicPartition
from tilth.model.table import TableDef, full_name
from tilth.storage import UPSERT_HERE_BYTES_MAX, UPSERT_TRIES_MAX, Roots, TableLayout, layout_of
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_task, traced_jobs

#: Assumed size of a message before any was read.
FIRST_MESSAGE_BYTES = 1024.0
#: Maximum number of consecutive rounds that are repeated because replicas were replaced meanwhile; then the consumer
#: fails, and another one is started.
REFUSALS_MAX = 10
_POLLS_OF_INTERVAL = 5
_POLL_SECONDS_MIN = 0.02

_log = Log("ingest")


def consume_runner(clock: Clock, calls: ConsumerCalls) -> Runner:
    """Return the runner of tasks of the kind CONSUME."""

    def run(context: TaskContext) -> TaskResult:
        order = ORDER_DECODER.decode(context.spec.payload)
        ResidentConsumer(clock, calls, context, order).run()
        return TaskResult()

    return run


class ResidentConsumer:
    """One consumer; lives for one task."""

    def __init__(
        self,
        clock: Clock,
        calls: ConsumerCalls,
        context: TaskContext,
        order: ConsumeOrder,
        *,
        connect: Callable[[KafkaConfig], BrokerClient] = BrokerClient,
        fetch: Fetch = fetch,
        fetch_inline: Fetch | None = None,
    ) -> None:
        """`connect` opens a client of the brokers; `fetch` reads the messages, in Spark's tasks; `fetch_inline` on this
        thread, None: by a client that stays open.
        """
        self._clock = clock
        self._calls = calls
        self._context = context
        self._order = order
        self._connect = connect
        self._fetch = fetch
        self._client = OpenClient(clock, lambda: context.raise_if_cancelled())
        self._fetch_inline = fetch_inline or self._client.fetch
        self._failing = FailingViews()
        self._compiled = CompiledViews({})
        self._config = read_config(order.kafka, order.secrets.settings)
        # A worker process of its own hides the secrets in its log lines, too.
        hide_in_lines(self._config.secrets)
        self._position = ConsumerPosition(
            full_name(order.kafka), {each.topic_partition: each.stored for each in order.positions}
        )
        self._message_bytes = FIRST_MESSAGE_BYTES
        #: Rounds in a row that were refused because replicas were replaced meanwhile.
        self._refusals = 0
        #: Time since which messages wait; None: none wait.
        self._waiting_since: float | None = None
        #: `True` if the last round was full and left messages, which have waited long enough.
        self._is_behind = False

    def run(self) -> None:
        """Run rounds until the task is cancelled, or has to retire between two rounds; raises when it cannot go on."""
        plans = self._plan_views()
        self._compiled = CompiledViews({p.view: p.no_kernel for p in plans if isinstance(p, SqlPlan)})
        for view, choice in self._compiled.choices(()).items():
            _log.info("view_planned", table=self._config.table, view=view, choice=choice)
        defaults = constant_defaults(self._context.session, self._order.kafka)
        broker = self._connect(self._config)
        try:
            while not (self._context.is_cancelled() or self._context.retiring.is_set()):
                self._client.close_idle()
                polled_at = self._clock.monotonic()
                with self._waiting("requesting the ends of its topic partitions from the broker"):
                    ends = broker.ends(self._position.offsets)
                ranges = self._due(ends)
                if ranges:
                    try:
                        with self._traced():
                            self._round(broker, ranges, plans, defaults)
                    except ViewFailedError as error:
                        self._note_failed(error, ranges)
                        continue
                    except KernelUnfitError as error:
                        self._note_unfit(error)
                        continue
                    except StorageChangedError as error:
                        self._note_refused(error)
                        continue
                    with self._waiting("committing its offsets to the broker"):
                        broker.commit(self._position.offsets)
                    # Messages that the round left have arrived since this poll, unless it was full (`_is_behind`).
                    self._waiting_since = polled_at
                else:
                    self._clock.wait(self._context.cancelled, self._wait_seconds())
        finally:
            self._client.close()
            broker.close()

    def _plan_views(self) -> tuple[ViewPlan, ...]:
        return tuple(
            check_view(
                self._context.session,
                self._order.kafka,
                each.target,
                each.view.select,
                view=full_name(each.view),
                target_columns=each.view.target_columns,
            )
            for each in self._order.views
        )

    def _due(self, ends: Mapping[TopicPartition, PartitionEnd]) -> tuple[OffsetRange, ...]:
        """Return the ranges of the next round; empty: none is due."""
        self._position.check_ends(ends)
        self._report_ends(ends)
        stable = {partition: end.stable for partition, end in ends.items()}
        waiting = backlog(positions=self._position.offsets, ends=stable)
        if waiting == 0:
            self._waiting_since, self._is_behind = None, False
            return ()
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        budget = self._failing.bounded(
            message_budget(
                rows_max=self._config.block_rows, bytes_max=self._config.block_bytes, message_bytes=self._message_bytes
            )
        )
        is_old = (now - self._waiting_since) * 1000 >= self._config.flush_interval_ms
        if waiting < budget and not is_old and not self._is_behind:
            return ()
        self._is_behind = waiting > budget
        return self._position.plan(ends, messages_max=budget)

    def _round(
        self,
        broker: BrokerClient,
        ranges: tuple[OffsetRange, ...],
        plans: tuple[ViewPlan, ...],
        defaults: dict[str, object],
    ) -> None:
        started = self._clock.monotonic()
        order = self._order
        parallelism = self._context.fit()
        tasks_max = self._config.round_tasks_max or min(ROUND_TASKS_MAX, parallelism.tasks)
        splits = split_ranges(ranges, tasks=task_count(ranges, tasks_max=tasks_max))
        tables = self._tables()
        # Each search for the rows to replace has a task number of its own, behind those of the round's jobs.
        tasks = tasks_reserved(len(splits), plans)
        call = BeginRound(
            kafka_table=order.kafka.uuid,
            consumer=order.consumer,
            fence=order.fence,
            tasks=tasks + UPSERT_TRIES_MAX * any(table.unique_key for table in tables.values()),
            tables=tuple(tables),
            ranges=ranges,
        )
        with self._waiting("beginning a round"):
            granted = self._calls.begin(call)
        if granted.wait_ms:
            self._clock.wait(self._context.cancelled, granted.wait_ms / 1000)
            self._context.raise_if_cancelled()
        choices = self._compiled.choices(self._failing.evaluations)
        layouts = {uuid: layout_of(table, granted.root) for uuid, table in tables.items()}
        job = self._job(granted.txn, splits, plans, layouts, defaults, choices)
        if is_small(ranges, message_bytes=self._message_bytes):
            job = replace(job, fetch_inline=self._fetch_inline)
        hit("round.before_files")
        facts = self._run(job)
        hit("round.after_files")
        self._check_read(ranges, facts)
        read = {TopicPartition(each.topic, each.partition) for each in ranges}
        with self._waiting("checking with the broker that the topic is the same"):
            ids, ends = broker.ids_and_ends(read)
        self._position.check_same(ranges, ids=ids, ends=ends)
        self._check_broken(facts)
        # A cancelled consumer commits nothing more: a statement may wait for its end to move the offsets.
        self._context.raise_if_cancelled()
        done = RoundDone(
            kafka_table=order.kafka.uuid,
            consumer=order.consumer,
            fence=order.fence,
            txn=granted.txn,
            facts=facts,
            schemas=tuple(WrittenSchema(table=uuid, version=t.schema_version) for uuid, t in tables.items()),
            seconds=self._clock.monotonic() - started,
            may_have_retried=self._context.tries_tasks_again,
            view_choices=choices,
        )
        self._commit(done, tables, granted.root, first_task=tasks)
        hit("round.after_commit")
        self._refusals = 0
        self._failing.record_commit(refusing=facts.refusing)
        self._compiled.record_commit()
        self._position.advance(ranges)
        if self._is_behind:
            # The client is still busy with what it requested beyond the round; a new one begins at once.
            self._client.close()
        if facts.messages:
            self._message_bytes = facts.bytes / facts.messages

    def _job(
        self,
        txn: int,
        splits: tuple[tuple[OffsetRange, ...], ...],
        plans: tuple[ViewPlan, ...],
        layouts: dict[str, TableLayout],
        defaults: dict[str, object],
        choices: Mapping[str, str],
    ) -> RoundJob:
        order, dead = self._order, self._order.dead_letters
        return RoundJob(
            config=self._config,
            schema=order.kafka.schema,
            name=order.kafka.name,
            defaults=defaults,
            plans=plans,
            layouts=layouts,
            dead_letters=None if dead is None else DeadLetters(table=dead.uuid, layout=layouts[dead.uuid]),
            txn=txn,
            splits=splits,
            failing=self._failing.evaluations,
            compiled=frozenset(view for view, choice in choices.items() if choice == KERNELS),
            fetch=self._fetch,
        )

    def _run(self, job: RoundJob) -> RoundFacts:
        views = ViewWatch(self._clock, self._report_view)
        try:
            check = self._context.raise_if_cancelled
            session = self._context.session
            with (
                tracing.part("read and write") as span,
                traced_jobs(session, f"round {self._config.table}"),
            ):
                facts = run_round(session, job, check_cancelled=check, view_begins=views.begin, waiting=self._waiting)
                span.set(
                    tilth__messages=facts.messages,
                    tilth__rows=facts.rows,
                    tilth__bytes=facts.bytes,
                    tilth__fetch_seconds=facts.fetch_seconds,
                    tilth__decode_seconds=facts.decode_seconds,
                    tilth__write_seconds=facts.write_seconds,
                )
            return facts
        finally:
            views.end()

    def _commit(self, done: RoundDone, tables: Mapping[str, TableDef], root: Roots, *, first_task: int) -> None:
        """Commit the round. In tables with unique keys, its rows replace older ones, which are looked up again as often
        as other writers change the same tables meanwhile.
        """
        scopes = scopes_of(tables.values(), done.facts.parts)
        if not scopes:
            self._commit_round(done)
            return
        order = self._order

        def attempt(number: int) -> None:
            self._context.raise_if_cancelled()
            request = SnapshotTables(
                kafka_table=order.kafka.uuid,
                consumer=order.consumer,
                fence=order.fence,
                txn=done.txn,
                scopes=scopes,
                number=number,
            )
            with self._waiting("requesting the parts that its rows may replace"):
                snapshots = self._calls.snapshot_tables(request).snapshots
            lookups = lookups_of(
                tables,
                done.facts.parts,
                zip(scopes, snapshots, strict=True),
                root=root,
                txn=done.txn,
                task=first_task + number,
            )
            changes = self._resolve(lookups)
            self._commit_round(msgspec.structs.replace(done, changes=changes))

        hint = "others write to the same rows all the time; the round is tried again by itself"
        busy = TooManyConflictsError(table=self._config.table, txn=done.txn, tries=UPSERT_TRIES_MAX, hint=hint)
        rebase(done.txn, attempt, tries=UPSERT_TRIES_MAX, busy=busy)

    def _commit_round(self, done: RoundDone) -> None:
        with self._waiting("committing a round"), tracing.part("commit of the round"):
            hit("round.before_commit")
            self._calls.commit(done)

    def _resolve(self, lookups: Lookups) -> tuple[TableChanges, ...]:
        """Find the rows to replace: on this thread if there is little to read, else in a Spark task."""
        if sum(each.bytes for each in lookups.values()) <= UPSERT_HERE_BYTES_MAX:
            with self._waiting("finding the rows that its rows replace"):
                return resolve(lookups, attempt=0)
        return run_in_task(self._context.session, partial(resolve, lookups), tuple[TableChanges, ...])

    def _traced(self) -> AbstractContextManager[tracing.Span]:
        """The span of a round."""
        return tracing.span("round", tilth__table=self._config.table, tilth__consumer=self._order.consumer)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Report to the worker what this thread waits for besides Spark."""
        self._context.waits_for(what)
        try:
            yield
        finally:
            self._context.waits_for("")

    def _tables(self) -> dict[str, TableDef]:
        """Return the tables that rounds write to, by uuid."""
        tables = {each.target.uuid: each.target for each in self._order.views}
        dead = self._order.dead_letters
        return tables if dead is None else tables | {dead.uuid: dead}

    def _note_failed(self, error: ViewFailedError, ranges: tuple[OffsetRange, ...]) -> None:
        """Note that a view failed: the same offsets are read again and evaluated in another way. Raises ViewError if
        there is no other way.

        The round's transaction is aborted when the next one begins, so that no file of it is ever named.
        """
        messages = sum(each.end - each.start for each in ranges)
        for view, why in error.facts.items():
            _log.info("view_failed", table=self._config.table, view=view, messages=messages, reason=why)
            if not self._failing.record_failure(view, messages=messages):
                hint = "DROP VIEW it, and create it again with a SELECT that can be computed; offsets are kept"
                raise ViewError("the view fails, and no message is to blame", view=view, why=why, hint=hint) from error

    def _note_unfit(self, error: KernelUnfitError) -> None:
        """Note that a view's kernels are unfit: the same offsets are read again, and Spark computes it."""
        view, why = str(error.facts["view"]), str(error.facts["why"])
        rounds = self._compiled.record_unfit(view, why)
        _log.info("kernel_unfit", table=self._config.table, view=view, rounds=rounds, reason=why)

    def _note_refused(self, error: StorageChangedError) -> None:
        """Count a round whose replicas were replaced; its offsets are read again and written to the present replicas.
        Raises the error when `REFUSALS_MAX` rounds in a row were refused.

        The round's transaction is aborted when the next one begins, so that no file of it is ever named.
        """
        self._refusals += 1
        _log.info("round_again", table=self._config.table, tries=self._refusals, reason=error)
        if self._refusals >= REFUSALS_MAX:
            raise error

    def _check_read(self, ranges: tuple[OffsetRange, ...], facts: RoundFacts) -> None:
        """Check that the round has read all of the ranges that are committed as read, and nothing else."""
        wanted = {(each.topic, each.partition, each.start, each.end) for each in ranges}
        if {(each.topic, each.partition, each.start, each.end) for each in facts.ranges} != wanted:
            views = ", ".join(full_name(each.view) for each in self._order.views)
            raise UnreadRangesError(table=self._config.table, views=views)

    def _check_broken(self, facts: RoundFacts) -> None:
        count = facts.dead + facts.refused
        if self._config.error_mode is ErrorMode.THROW and count > self._config.skip_broken:
            raise InvalidInputError.coded(
                "BROKEN_MESSAGE",
                "a message cannot be decoded, or a view cannot take it",
                table=self._config.table,
                broken=count,
                allowed=self._config.skip_broken,
                first=facts.broken,
                hint="set kafka_handle_error_mode = 'dead_letter', or raise kafka_skip_broken_messages",
            )

    def _report_ends(self, ends: Mapping[TopicPartition, PartitionEnd]) -> None:
        reported = tuple(ReportedEnd(topic_partition=partition, end=end) for partition, end in ends.items())
        order = self._order
        call = EndsReport(kafka_table=order.kafka.uuid, consumer=order.consumer, fence=order.fence, ends=reported)
        with self._waiting("reporting the ends of its topic partitions"):
            self._calls.report_ends(call)

    def _report_view(self, view: str, seconds: float) -> None:
        order = self._order
        call = ViewReport(
            kafka_table=order.kafka.uuid, consumer=order.consumer, fence=order.fence, view=view, seconds=seconds
        )
        self._calls.report_view(call)

    def _wait_seconds(self) -> float:
        """Return the seconds to the next poll: a fraction of the flush interval, less if a round is due before."""
        interval = self._config.flush_interval_ms / 1000
        wanted = max(_POLL_SECONDS_MIN, min(self._config.poll_interval_ms / 1000, interval / _POLLS_OF_INTERVAL))
        if self._waiting_since is None:
            return wanted
        return max(0.0, min(wanted, self._waiting_since + interval - self._clock.monotonic()))
