"""The maintenance manager of a server: one thread looks, chooses and starts; as many work as the settings allow.

Covers: the loop of POLICIES.md 5.4, registration of tables, the record of choices, commands, the cleaner's turns. Does
not cover: the choice (scheduler.py), the ops (ops), what is worth doing (policy).
Always holds: no failure of an op ends the loop; a choice and a refusal both leave their reason; whatever is remembered
here can be lost.
See also: watch.py for what is remembered of a table, cleaner.py for what did not land.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.errors import NotFoundError, TilthError
from tilth.base.logs import Log
from tilth.base.rand import Rng
from tilth.catalog import Catalog, TableNotFoundError
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.feed import PartFeed
from tilth.maintenance.knobs import ManagerSettings
from tilth.maintenance.looks import Looks
from tilth.maintenance.op import Choice, NotPrepared, OpKind, OpStats, OpView, Prepared
from tilth.maintenance.ops.merge import MergeOp
from tilth.maintenance.ops.part_gc import PartGcOp
from tilth.maintenance.owner import Owner
from tilth.maintenance.policy import Effort
from tilth.maintenance.scheduler import MemoryUse, choose
from tilth.maintenance.state import ServiceState
from tilth.maintenance.stats import (
    ChoiceRow,
    GcReport,
    MaintenanceNumbers,
    MergeCandidateRow,
    OpRow,
    OpRun,
    OptimizeReport,
)
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.service import ServiceKind, ServiceStats, SwitchState
from tilth.model.table import TableDef
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher

#: Between two looks at the list of tables and the switches, when nobody wakes the manager.
REFRESH_MS = 30_000
#: How long one turn looks at tables before it chooses; the others come in the next turn.
LOOK_SECONDS_MAX = 0.5
#: What an op that waits for its turn says of itself is asked anew after this, or when something has changed.
LOOK_AGAIN_MS = 1_000
CLEAN_PERIOD_MS = 5_000
CHOICES_MAX = 1_000
STOP_SECONDS_MAX = 30.0
#: OPTIMIZE of many partitions; the warehouse's slots bound it further.
OPTIMIZE_THREADS = 4
OPTIMIZE_WAIT_MS = 600_000


_log = Log("maintenance")


@dataclass(frozen=True, slots=True)
class _Table:
    """What is registered of one table."""

    watch: TableWatch
    merge: MergeOp
    gc: PartGcOp

    @property
    def ops(self) -> tuple[MergeOp, PartGcOp]:
        return self.merge, self.gc


@dataclass(slots=True, kw_only=True)
class _Run:
    op: MergeOp | PartGcOp
    about: str
    started_ms: int
    thread: threading.Thread | None = None


class MaintenanceManager:
    """Keeps the tables of this server in shape; `start` it once, `stop` it at the end."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        settings: ManagerSettings,
        rng: Rng,
        server: str,
        *,
        live_txns: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        """`root`: the folder below which the tables' folders are; `live_txns`: those that other services of this server
        work on, beside those of tasks.
        """
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._root = root
        self._settings = settings
        self._rng = rng
        self._server = server
        self._others_live_txns = live_txns
        self._owner = Owner(clock, catalog, server)
        self._tally = Tally(clock)
        self._looks = Looks(clock)
        self._feed = PartFeed(catalog)
        self._cleaner = Cleaner(
            clock,
            catalog,
            root,
            live_txns=self._live_txns,
            dropped_kept_ms=int(settings.dropped_table_keep * 1000),
        )
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        #: Runs under way, by a number of their own.
        self._runs: dict[int, _Run] = {}
        self._run_numbers = 0
        self._ended: deque[OpRun] = deque(maxlen=max(1, settings.history_size))
        self._choices: deque[ChoiceRow] = deque(maxlen=CHOICES_MAX)
        self._last_refusal = ""
        #: Of the manager's thread alone: the ops that could run, by table.
        self._runnable: dict[str, list[tuple[_Table, MergeOp | PartGcOp, OpStats]]] = {}
        self._served: dict[str, int] = {}
        self._turns = 0
        self._refreshed_ms = 0
        self._cleaned_ms = 0
        self._must_refresh = True
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Cleans up after an earlier run on this catalog, then begins to work."""
        left = self._cleaner.start()
        if left:
            _log.info("transactions_of_earlier_run_cleaned", count=left)
        self._thread = threading.Thread(target=self._loop, name="tilth-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Asks running work to end, waits for it, gives the tables back."""
        self._stopping.set()
        self._awake.set()
        with self._lock:
            tables = list(self._tables.values())
            threads = [run.thread for run in self._runs.values()]
        for table in tables:
            for op in table.ops:
                op.cancel()
        for thread in [self._thread, *threads]:
            if thread is not None:
                thread.join(STOP_SECONDS_MAX)
        self._owner.release_all()

    def wake(self, table_uuid: str | None = None) -> None:
        """Something has changed, a table, a switch, a setting: looked at now instead of a little later."""
        self._must_refresh = True
        if table_uuid is not None:
            with self._lock:
                table = self._tables.get(table_uuid)
            if table is not None:
                table.merge.notice()
        self._awake.set()

    def step(self) -> Choice:
        """One turn of the loop: news, registration, at most one start. The thread calls it; tests may."""
        now_ms = self._clock.now_ms()
        if self._must_refresh or now_ms - self._refreshed_ms >= REFRESH_MS:
            self._must_refresh = False
            self._refreshed_ms = now_ms
            self._refresh()
        self._take_news(now_ms)
        if now_ms - self._cleaned_ms >= CLEAN_PERIOD_MS:
            self._cleaned_ms = now_ms
            self._cleaner.tick()
        return self._start_one()

    def stats(self) -> list[ServiceStats]:
        """A row for the MERGE and the GC service of every table."""
        now_ms = self._clock.now_ms()
        rows: list[ServiceStats] = []
        for table in self._registered():
            rows.append(self._service(table, ServiceKind.MERGE, table.merge, now_ms))
            rows.append(self._service(table, ServiceKind.GC, table.gc, now_ms))
        return rows

    def numbers(self) -> MaintenanceNumbers:
        """What was done since the start."""
        return self._tally.numbers()

    def ops(self) -> list[OpRow]:
        """Every registered op as it was weighed last; to weigh is the business of the manager's thread alone."""
        rows: list[OpRow] = []
        for table in self._registered():
            for op in table.ops:
                stats = self._looks.said(op)
                rows.append(
                    OpRow(
                        name=op.name,
                        kind=op.kind,
                        database=table.watch.definition.database,
                        table=table.watch.definition.name,
                        uuid=table.watch.uuid,
                        is_runnable=stats.is_runnable,
                        running=op.running,
                        logs_retained_bytes=stats.logs_retained_bytes,
                        ram_anchored_bytes=stats.ram_anchored_bytes,
                        data_retained_bytes=stats.data_retained_bytes,
                        perf_improvement=stats.perf_improvement,
                        about=stats.about,
                    )
                )
        return rows

    def runs(self) -> list[OpRun]:
        """Runs under way, then the last that ended, newest first."""
        with self._lock:
            live = [
                OpRun(name=run.op.name, about=run.about, started_ms=run.started_ms, ended_ms=0, error="")
                for run in reversed(self._runs.values())
            ]
            return live + list(reversed(self._ended))

    def choices(self) -> list[ChoiceRow]:
        """The last thousand choices and refusals, newest first."""
        with self._lock:
            return list(reversed(self._choices))

    def explain_merge(self, table_uuid: str) -> list[MergeCandidateRow]:
        """What would be merged now and what not, with reasons. Raises TableNotFoundError."""
        return self._table(table_uuid).merge.explain()

    def optimize(self, table_uuid: str, partition: str | None = None, final: bool = False) -> OptimizeReport:
        """Merges the parts of the partition, or of all, as far as the limits allow; returns when it is done.

        Raises TableNotFoundError, NotFoundError for a partition without parts, and what a merge failed with.
        """
        table = self._table(table_uuid)
        started = self._clock.monotonic()
        known = self._catalog.parts.partitions(table_uuid)
        if partition is not None and partition not in known:
            raise NotFoundError("no such partition", table=table.watch.name, partition=partition)
        partitions = known if partition is None else [partition]
        effort = Effort.FINAL if final else Effort.AGGRESSIVE
        deadline_ms = self._clock.now_ms() + OPTIMIZE_WAIT_MS
        before = self._count_parts(table_uuid, partitions)
        merges: list[tuple[int, int, int]] = []
        if partitions:
            with ThreadPoolExecutor(
                min(OPTIMIZE_THREADS, len(partitions)), thread_name_prefix="tilth-optimize"
            ) as pool:
                for done in pool.map(
                    lambda name: table.merge.optimize(name, effort, deadline_ms=deadline_ms), partitions
                ):
                    merges += done
        return OptimizeReport(
            partitions=len(partitions),
            merges=len(merges),
            parts_before=before,
            parts_after=self._count_parts(table_uuid, partitions),
            rows_merged=sum(rows for _, rows, _ in merges),
            bytes_read=sum(size for _, _, size in merges),
            seconds=self._clock.monotonic() - started,
        )

    def gc_now(self, table_uuid: str, *, is_forced: bool = False) -> GcReport:
        """Both phases of collecting for the whole table, at once. Raises TableNotFoundError.

        `is_forced` takes the lifetimes for 0; readers with a lease and running transactions are still waited for.
        """
        return self._table(table_uuid).gc.run_now(is_forced=is_forced)

    # --- the loop ---

    def _loop(self) -> None:
        interval = self._settings.polling_interval
        while not self._stopping.is_set():
            # Cleared first: what happens during the turn leads to another one.
            self._awake.clear()
            has_started = False
            try:
                has_started = self.step().op_name is not None
            # The outermost loop: whatever happens, tables are looked at again.
            except Exception as error:
                _log.error("maintenance_turn_failed", error=error)
            if not has_started:
                self._clock.wait(self._awake, interval)

    def _refresh(self) -> None:
        """Registers new tables, forgets dropped ones, reads settings and switches."""
        relations = self._catalog.tables.list()
        switches = self._catalog.services.all()
        there = {relation.uuid: relation for relation in relations if isinstance(relation, TableDef)}
        with self._lock:
            gone = [self._tables.pop(uuid) for uuid in list(self._tables) if uuid not in there]
        for table in gone:
            self._runnable.pop(table.watch.uuid, None)
            for op in table.ops:
                op.cancel()
                self._looks.forget(op)
            self._owner.release(table.watch.uuid)
        for uuid, definition in there.items():
            self._register(uuid, definition)
        by_table: dict[str, list[int]] = {}
        for number, switch in enumerate(switches):
            by_table.setdefault(switch.table, []).append(number)
        for table in self._registered():
            table.watch.set_switches(switches[number] for number in by_table.get(table.watch.uuid, []))

    def _register(self, uuid: str, definition: TableDef) -> None:
        with self._lock:
            known = self._tables.get(uuid)
        try:
            if known is None:
                table = self._new_table(definition)
                with self._lock:
                    self._tables[uuid] = table
            elif known.watch.definition != definition:
                known.watch.redefine(definition)
                known.merge.notice()
                known.gc.notice_all()
        except TilthError as error:
            # A setting that an older version allowed, for one: this table waits, the others do not.
            self._record("", f"{definition.database}.{definition.name}", "refused", str(error))

    def _new_table(self, definition: TableDef) -> _Table:
        watch = TableWatch(definition)

        def told(partition: str, reason: str) -> None:
            self._record(f"{OpKind.MERGE}({watch.name})", watch.name, "refused", f"{partition}: {reason}")

        merge = MergeOp(
            self._clock,
            self._catalog,
            self._dispatcher,
            self._root,
            self._rng,
            watch=watch,
            owner=self._owner,
            cleaner=self._cleaner,
            workers=self._workers,
            told=told,
            tally=self._tally,
        )
        gc = PartGcOp(
            self._clock, self._catalog, self._root, self._rng, watch=watch, owner=self._owner, tally=self._tally
        )
        return _Table(watch, merge, gc)

    def _take_news(self, now_ms: int) -> None:
        events, is_all = self._feed.news(now_ms)
        for event in events:
            table = self._tables.get(event.table)
            if table is None:
                # A table that nobody told of, or one that was dropped.
                self._must_refresh = True
                continue
            partition = table.watch.observe(event)
            if event.event in ("new", "merge", "hide"):
                table.merge.notice()
            if event.event in ("merge", "hide"):
                table.gc.notice(partition, event.at_ms)
        if not is_all:
            for table in self._registered():
                table.merge.notice()
                table.gc.notice_all()

    def _start_one(self) -> Choice:
        with self._lock:
            free = self._settings.workers - len(self._runs)
        started = self._clock.monotonic()
        ops: dict[str, tuple[_Table, MergeOp | PartGcOp]] = {}
        views: list[OpView] = []
        if free > 0 and self._settings.is_enabled and not self._stopping.is_set():
            self._look()
            for table, op, stats in itertools.chain.from_iterable(self._runnable.values()):
                ops[op.name] = (table, op)
                views.append(OpView(name=op.name, table=table.watch.name, stats=stats))
        choice = choose(
            views,
            free_workers=free,
            memory=MemoryUse(),
            settings=self._settings.scheduler,
            rng=self._rng,
            last_served=self._served,
        )
        self._tally.chose(self._clock.monotonic() - started)
        if choice.op_name is None:
            self._refused(choice)
            return choice
        table, op = ops[choice.op_name]
        prepared = self._prepare(op)
        table.watch.is_woken = True
        if isinstance(prepared, NotPrepared):
            self._tally.prepare_failed()
            self._record(op.name, table.watch.name, "refused", prepared.reason)
            return choice
        self._turns += 1
        self._served[table.watch.name] = self._turns
        self._last_refusal = ""
        self._record(op.name, table.watch.name, choice.rule, f"{choice.reason}; {prepared.about}")
        self._begin(op, prepared)
        return choice

    def _prepare(self, op: MergeOp | PartGcOp) -> Prepared | NotPrepared:
        try:
            prepared = op.prepare()
        except TilthError as error:
            return NotPrepared(f"not prepared: {self._looks.failed(op, error).reason}")
        self._looks.recovered(op)
        return prepared

    def _look(self) -> None:
        """Brings up to date which ops could run. Tables where nothing is due cost a comparison."""
        now_ms = self._clock.now_ms()
        deadline = self._clock.monotonic() + LOOK_SECONDS_MAX
        for table in self._registered():
            watch = table.watch
            if not watch.is_woken and watch.due_ms > now_ms:
                continue
            if self._clock.monotonic() > deadline:
                break
            # Lowered first: what is noticed from here on leads to another look.
            watch.is_woken = False
            asked = [(table, op, self._looks.ask(op)) for op in table.ops]
            runnable = [each for each in asked if each[2].is_runnable]
            if runnable:
                self._runnable[watch.uuid] = runnable
                watch.due_ms = now_ms + LOOK_AGAIN_MS
            else:
                self._runnable.pop(watch.uuid, None)
                watch.due_ms = min(self._due_ms(table, op, now_ms) for op in table.ops)

    def _due_ms(self, table: _Table, op: MergeOp | PartGcOp, now_ms: int) -> int:
        failure = self._looks.failure(op)
        if failure is not None:
            return failure.until_ms
        service = ServiceKind.MERGE if op.kind is OpKind.MERGE else ServiceKind.GC
        if table.watch.is_on(service, now_ms):
            return op.due_ms
        switch = table.watch.switch(service)
        return FAR_MS if switch is None or switch.until_ms == 0 else switch.until_ms

    def _begin(self, op: MergeOp | PartGcOp, prepared: Prepared) -> None:
        run = _Run(op=op, about=prepared.about, started_ms=self._clock.now_ms())
        with self._lock:
            self._run_numbers += 1
            number = self._run_numbers
            self._runs[number] = run
        run.thread = threading.Thread(
            target=self._work, args=(number, run, prepared), name=f"tilth-{op.kind.lower()}-{number}", daemon=True
        )
        try:
            run.thread.start()
        except RuntimeError:
            # The system gives no more threads: what was taken can be chosen again.
            with self._lock:
                del self._runs[number]
            op.abandon(prepared)
            raise

    def _work(self, number: int, run: _Run, prepared: Prepared) -> None:
        told, failure = run.about, ""
        try:
            told = run.op.perform(prepared)
        except TilthError as error:
            failure = str(error)
        # The outermost loop of a run: no failure ends the process, each one is told.
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            _log.error("maintenance_run_failed", op=run.op.name, error=error)
        ended = OpRun(
            name=run.op.name, about=told, started_ms=run.started_ms, ended_ms=self._clock.now_ms(), error=failure
        )
        with self._lock:
            del self._runs[number]
            self._ended.append(ended)
        _log.info("maintenance_run", op=run.op.name, about=told, ms=ended.ended_ms - ended.started_ms, error=failure)
        self._awake.set()

    # --- what is told ---

    def _refused(self, choice: Choice) -> None:
        """Nothing was chosen: told once, until the reason is another."""
        if choice.reason != self._last_refusal:
            self._last_refusal = choice.reason
            self._record("", "", choice.rule, choice.reason)

    def _record(self, op: str, table: str, rule: str, reason: str) -> None:
        row = ChoiceRow(at_ms=self._clock.now_ms(), op=op, table=table, rule=rule, reason=reason)
        with self._lock:
            self._choices.append(row)

    def _service(
        self,
        table: _Table,
        service: ServiceKind,
        op: MergeOp | PartGcOp,
        now_ms: int,
    ) -> ServiceStats:
        state, reason, failure = op.state(now_ms)
        unseen = self._looks.failure(op)
        if unseen is not None and state is not ServiceState.STOPPED:
            wait = max(0, unseen.until_ms - now_ms) / 1000
            state, failure = ServiceState.FAILED, unseen
            reason = f"{unseen.reason}; failed {unseen.count} times, next try in {wait:.0f} s"
        switch = table.watch.switch(service)
        return ServiceStats(
            database=table.watch.definition.database,
            table=table.watch.definition.name,
            uuid=table.watch.uuid,
            service=service,
            switch=SwitchState.RUNNING if switch is None else switch.state,
            because="" if switch is None else switch.because,
            state=state.value,
            reason=reason,
            wakeups=op.wakeups,
            last_wakeup_ms=op.last_wakeup_ms,
            running_tasks=op.running,
            failures=0 if failure is None else failure.count,
            last_exception="" if failure is None else failure.reason,
            last_exception_ms=0 if failure is None else failure.at_ms,
            server=self._server,
        )

    # --- small things ---

    def _table(self, uuid: str) -> _Table:
        """Raises TableNotFoundError."""
        with self._lock:
            table = self._tables.get(uuid)
        if table is None:
            self._refresh()
            with self._lock:
                table = self._tables.get(uuid)
        if table is None:
            raise TableNotFoundError("no such table of rows", uuid=uuid)
        return table

    def _registered(self) -> list[_Table]:
        with self._lock:
            return list(self._tables.values())

    def _live_txns(self) -> set[int]:
        live = {task.txn for task in self._dispatcher.tasks() if task.ended_ms == 0}
        for table in self._registered():
            live |= table.merge.live_txns
        return live.union(self._others_live_txns())

    def _workers(self) -> int:
        return max(1, sum(each.workers for each in self._dispatcher.warehouses() if each.name == WRITE_WAREHOUSE))

    def _count_parts(self, uuid: str, partitions: list[str]) -> int:
        return sum(len(self._catalog.parts.visible(uuid, partition)) for partition in partitions)
