"""The maintenance manager of a server: one thread polls, chooses and starts; as many run as the settings allow.

Covers: the loop (docs/policies/scheduling.md#the-loop), the decision log, status, the entries of commands,
the cleaner's turns. Does not cover: the choice (scheduler.py), which tables there are (registry.py), what runs
(runs.py), the ops (the folders of their kinds).
Always holds: no failure of an op ends the loop; a choice and a refusal both leave their reason; whatever is remembered
here can be lost.
See also: table/watch.py for what is remembered of a table, cleaner/ for what did not land.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.memory import MemoryReading
from tilth.base.rand import Rng, new_rng
from tilth.catalog import Catalog, TableLeases
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.maintenance.copies.op import ScrubRow
from tilth.maintenance.counters import MaintenanceCounters
from tilth.maintenance.damage.book import DamageBook
from tilth.maintenance.damage.checks import TaskChecks
from tilth.maintenance.flush.commands import FlushReport
from tilth.maintenance.gc.explain_gc import GcRow
from tilth.maintenance.gc.round import GcReport
from tilth.maintenance.kinds import Choice, ChoiceRule, OpKind, Prepared, Refused
from tilth.maintenance.manager.decisions import DecisionLog
from tilth.maintenance.manager.news import News
from tilth.maintenance.manager.optimize import OptimizeReport, optimize_table
from tilth.maintenance.manager.poller import Poller, poll_failed
from tilth.maintenance.manager.ranking import Ranking
from tilth.maintenance.manager.refreshes import Refreshes
from tilth.maintenance.manager.registry import Registry
from tilth.maintenance.manager.runs import Runs, Slot
from tilth.maintenance.manager.scheduler import choose, passed_over
from tilth.maintenance.manager.status import op_row, service_stats
from tilth.maintenance.manager.table_ops import TableOps, ops_of
from tilth.maintenance.memory.meter import MemoryMeter, ProcessMemory, limit_of
from tilth.maintenance.memory.relief import MemoryRelief
from tilth.maintenance.merge.explain_merge import MergeCandidateRow
from tilth.maintenance.mutate.commands import MutationProgress
from tilth.maintenance.settings import ManagerSettings
from tilth.maintenance.stats import ChoiceRow, MaintenanceNumbers, ManagerStatus, OpRow, OpRun
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.collection_holds import CollectionHolds
from tilth.maintenance.work.context import ServerContext, TableContext
from tilth.maintenance.work.first_reads import FirstReads
from tilth.maintenance.work.noted_copies import NotedCopies
from tilth.maintenance.work.op import Op
from tilth.maintenance.work.procedure import NewRebaser, rebaser_of
from tilth.maintenance.work.slots import RewriteSlots
from tilth.model.server import hosts_all
from tilth.model.service import ServiceState, ServiceStats
from tilth.storage import Roots, release_unused
from tilth.warehouse import WRITE_WAREHOUSE, Dispatcher

#: Maximum time of a step of a turn; what remains is done in the next turn.
STEP_SECONDS_MAX = 0.02
CLEAN_PERIOD_MS = 5_000
STOP_SECONDS_MAX = 30.0
#: Log interval while it is disabled.
DISABLED_LOG_SECONDS = 300.0

_log = Log("maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIns:
    """Sources and makers that a test gives instead of the real ones."""

    rng: Rng = field(default_factory=new_rng)
    #: Makes the ops of a table; None: the real ones.
    build: Callable[[TableWatch], TableOps] | None = None
    #: Returns the bytes of memory in use; None: those that the system reports.
    memory: Callable[[], int] | None = None
    #: Makes what rebases changes of parts that are made anew.
    new_rebaser: NewRebaser = rebaser_of
    #: Time between an abort and the first removal of its files.
    grace_ms: int = GRACE_MS


class MaintenanceManager:
    """The manager that keeps the tables of this server in shape; `start` it once, `stop` it at the end."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: Roots,
        settings: ManagerSettings,
        *,
        hosts: Callable[[str], bool] = hosts_all,
        stand_ins: StandIns | None = None,
    ) -> None:
        """`root`: the folder below which the tables' folders are; `hosts(uuid)`: whether a table is this server's."""
        stand_ins = stand_ins or StandIns()
        self._clock = clock
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._settings = settings
        self._hosts = hosts
        self._rng = stand_ins.rng
        self._awake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        #: The tables by uuid, and those to be polled because something has happened to them.
        self._tables: dict[str, TableOps] = {}
        self._woken: deque[str] = deque()
        #: End of the present step of a turn; time that the last turn took for what it did not bring to an end.
        self._step_until = self._behind_seconds = 0.0
        #: State of the manager's thread alone: last choice by table, and times of its other tasks.
        self._served: dict[str, int] = {}
        self._turns = 0
        self._known_workers = 0
        self._cleaned_at = -CLEAN_PERIOD_MS / 1000
        self._logged_disabled: float | None = None
        self._table_leases = TableLeases(catalog.leases, server=lambda: catalog.server)
        self._counters = MaintenanceCounters(clock)
        self._decisions = DecisionLog(clock)
        #: Files of tables that cannot be read.
        self.damage = DamageBook(clock, catalog, root, TaskChecks(catalog, dispatcher))
        self._cleaner = Cleaner(
            clock,
            catalog,
            root,
            dropped_kept_ms=int(settings.dropped_table_keep * 1000),
            grace_ms=stand_ins.grace_ms,
            failover_grace_ms=int(settings.failover_grace * 1000),
            hosts=hosts,
        )
        self._memory = self._new_meter(stand_ins.memory)
        self._relief = MemoryRelief(
            clock,
            [release_unused],
            read=self._memory.read,
            pressure_percent=settings.scheduler.memory_pressure_percentage,
            log=self._decisions.relieved,
        )
        self._runs = Runs(clock, history_size=settings.history_size, ended=self._run_ended)
        self._rewrite_slots = RewriteSlots(clock, slots=self._rewrites_max, running=self._runs.rewrites)
        self._context = self._new_context(root, stand_ins.new_rebaser)
        self._registry = self._new_registry(stand_ins.build or self._build)
        self._poller = Poller(clock, settings.workload, settings.scheduler, self._tables.get, self._woken)
        self._refreshes = Refreshes(clock, self._registry, leave=self._leave, ended=self._follow_workers)
        self._news = News(catalog, self._registry, self._poller, self._rewrite_slots, unknown=self._unknown)

    def start(self) -> None:
        """Clean up after an earlier run on this catalog, then begin to work."""
        left = self._cleaner.start()
        if left:
            _log.info("transactions_of_earlier_run_cleaned", count=left)
        self._thread = threading.Thread(target=self._loop, name="tilth-maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        # All are cancelled before any is waited for.
        for table in self._registry.all():
            table.cancel()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)
        if not self._runs.wait_until_idle(STOP_SECONDS_MAX):
            _log.warning("maintenance_runs_left", count=self._runs.count)
        self._table_leases.release_all()

    def wake(self, table_uuid: str | None = None) -> None:
        """Poll the table now instead of a little later: it, a switch, a setting or a mutation has changed."""
        self._refreshes.changed(table_uuid)
        self._awake.set()

    def add_memory_relief(self, act: Callable[[], None]) -> None:
        """Call `act` too where memory is under pressure: it gives back what nobody uses."""
        self._relief.add(act)

    def wait_refreshed(self) -> None:
        """Wait until the switches have been read anew, so that nothing more is begun by the former ones. Raises
        UnavailableError.
        """
        if self._thread is None:
            return
        self._refreshes.wait(self._awake.set)

    def scanned(self, table_uuids: Iterable[str]) -> None:
        """Count that a query begins to read these tables: the more are read, the more it is worth to merge them."""
        for uuid in table_uuids:
            table = self._tables.get(uuid)
            if table is not None:
                with table.watch.lock:
                    table.watch.workload.add(scans=1)

    def step(self) -> Choice:
        """Do one turn of the loop: news, registration, at most one start. The thread calls it; tests may.

        What takes longer than a step's time goes on in the next turn, which follows soon.
        """
        now_ms = self._clock.now_ms()
        self._behind_seconds = 0.0
        self._in_time(partial(self._refreshes.step, self._is_over))
        # Events of tables that are not registered yet would be lost to their statistics.
        if self._refreshes.has_passed:
            self._in_time(partial(self._news.report, now_ms, self._is_over))
        self._in_time(self._see_off)
        # The monotonic clock measures the period: a wall clock that jumped ahead and back would stop cleaning for long.
        now = self._clock.monotonic()
        if now - self._cleaned_at >= CLEAN_PERIOD_MS / 1000:
            self._cleaned_at = now
            self._cleaner.tick()
            self.damage.recheck(now_ms)
        return self._start_one()

    @property
    def has_read_tables(self) -> bool:
        """True once all tables have been read since the start."""
        return self._refreshes.has_passed

    def freeze_objects(self) -> None:
        """Let collections of garbage leave out what stays: the loop does so after each turn."""
        self._registry.objects.freeze()

    # --- status ---

    def stats(self, *, table: str | None = None) -> list[ServiceStats]:
        """Return a row for each service of every table, or of the table with this uuid."""
        return self._stats(self._registry.all() if table is None else self._registry.known(table))

    def failing(self) -> list[ServiceStats]:
        """Return the rows of `stats` of the services that fail; fast where few do, however many tables there are."""
        tables = self._registry.all()
        found = self._stats(
            table for table in tables if table.watch.damaged.has_any() or any(op.has_failed for op in table.ops)
        )
        return [each for each in found if each.state == ServiceState.FAILED]

    def switched(self) -> list[ServiceStats]:
        """Return the rows of `stats` of the tables of which a user has switched a service, or those of all tables; fast
        where nobody has.
        """
        return self._stats(table for table in self._registry.all() if table.watch.has_switches)

    def numbers(self) -> MaintenanceNumbers:
        waiting: dict[OpKind, int] = {}
        for table in self._registry.all():
            for op in table.ops:
                size = op.observed.logs_retained_bytes if op.kind is OpKind.FLUSH else op.observed.data_retained_bytes
                waiting[op.kind] = waiting.get(op.kind, 0) + size
        return self._counters.numbers(waiting)

    def ops(self, *, table: str | None = None, runnable_only: bool = False) -> list[OpRow]:
        """Return every registered op, or those of the table with this uuid, as they were weighed last; only the
        manager's own thread weighs them. `runnable_only`: without those that could not run.
        """
        tables = self._registry.all() if table is None else self._registry.known(table)
        ops = (op for each in tables for op in each.ops if not runnable_only or op.observed.is_runnable)
        return [op_row(op, self._settings.scheduler) for op in ops]

    def runs(self) -> list[OpRun]:
        return self._runs.listing()

    def choices(self) -> list[ChoiceRow]:
        return self._decisions.rows()

    def memory(self) -> MemoryReading:
        """Memory in use, as of at most 50 ms ago, and the limits at which writers are slowed and refused."""
        return self._memory.use()

    def status(self) -> ManagerStatus:
        runs = self._runs.listing()
        memory = self._memory.last
        return ManagerStatus(
            is_enabled=self._settings.is_enabled,
            threads=self._settings.workers,
            busy=self._runs.count,
            memory_used=memory.used,
            memory_limit=memory.hard,
            registered=tuple(self.ops()),
            running=tuple(run for run in runs if not run.ended_ms),
            completed=tuple(run for run in runs if run.ended_ms),
        )

    def _stats(self, tables: Iterable[TableOps]) -> list[ServiceStats]:
        now_ms, server = self._clock.now_ms(), self._catalog.server
        return [service_stats(each.watch, ops, now_ms, server=server) for each in tables for ops in each.by_service()]

    def mutations(self, table_uuid: str | None = None) -> list[MutationProgress]:
        """Return the progress of the pending mutations of the table, or of all; those of one table oldest first."""
        one = None if table_uuid is None else self._tables.get(table_uuid)
        found = self._registry.all() if table_uuid is None else [one] if one is not None else []
        tables = [table for table in found if table.watch.mutations]
        return [progress for table in tables for progress in table.command().mutations.progress()]

    # --- doors of commands ---

    def explain_merge(self, table_uuid: str, policy: str | None = None) -> list[MergeCandidateRow]:
        """Return what would be merged now and what not, with reasons; by another policy, if one is named.

        Raises TableNotFoundError.
        """
        return self._registry.get(table_uuid).command().merges.explain(policy)

    def explain_gc(self, table_uuid: str) -> list[GcRow]:
        """Return what is retained and what goes, and what holds it. Raises TableNotFoundError."""
        return self._registry.get(table_uuid).command().garbage.explain()

    def flush_now(self, table_uuid: str, partition: str | None = None) -> FlushReport:
        """Make parts of all row segments that are visible now, of the partition or of all; return when it is done.

        Raises TableNotFoundError, what a flush failed with, and UnavailableError where other work holds segments.
        """
        return self._registry.get(table_uuid).command().flushes.flush_now(partition)

    def optimize(self, table_uuid: str, partition: str | None = None, final: bool = False) -> OptimizeReport:
        """Flush and merge what the partition has, or all have, within the limits; return when it is done.

        Raises TableNotFoundError, NotFoundError for a partition without parts, and what a merge failed with.
        """
        table = self._registry.get(table_uuid)
        return optimize_table(self._context, table, partition, is_final=final)

    def gc_now(self, table_uuid: str, partition: str | None = None, *, is_forced: bool = False) -> GcReport:
        """Both phases of collecting for the table, or one partition, at once. Raises TableNotFoundError.

        `is_forced` takes the lifetimes for 0; readers with a lease and running transactions are still waited for.
        """
        return self._registry.get(table_uuid).command().garbage.run_now(partition, is_forced=is_forced)

    def scrub_now(self, table_uuid: str) -> list[ScrubRow]:
        """Compare all copies of the table's files with their checksums, make wrong ones anew; a row for each replica.

        Raises TableNotFoundError, and what a task failed with.
        """
        return self._registry.get(table_uuid).command().copies.scrub_now()

    def cancel_partition(self, table_uuid: str, partition: str | None) -> int:
        """Cancel what this server runs in the partition, or anywhere in the table; return how many runs. It is
        called after a commit that hid the parts, so it refuses nothing: what another server runs there cannot commit.
        """
        found = self._tables.get(table_uuid)
        return 0 if found is None else sum(op.cancel_partition(partition) for op in found.ops)

    # --- the loop ---

    def _loop(self) -> None:
        interval = self._settings.polling_ms / 1000
        while not self._stopping.is_set():
            # Cleared first: what happens during the turn leads to another one.
            self._awake.clear()
            has_started = False
            try:
                has_started = self.step().op_name is not None
                self.freeze_objects()
            # The outermost loop: whatever happens, tables are polled again.
            except BaseException as error:
                _log.error("maintenance_turn_failed", error=error)
            if not has_started:
                # Half of the time is left to others while there is much to do.
                self._clock.wait(self._awake, min(interval, self._behind_seconds or interval))

    def _in_time(self, work: Callable[[], bool]) -> None:
        """Do a step's work, which checks `_is_over`; it returns whether some of it is left for the next turn."""
        began = self._clock.monotonic()
        self._step_until = began + STEP_SECONDS_MAX
        if work():
            self._behind_seconds += self._clock.monotonic() - began

    def _is_over(self) -> bool:
        return self._clock.monotonic() >= self._step_until

    def _unknown(self, uuid: str) -> None:
        if self._hosts(uuid):
            self.wake(uuid)

    def _follow_workers(self) -> None:
        """Poll all tables where workers have gone: what was few parts for all of them may be many for the others."""
        before, self._known_workers = self._known_workers, self._workers()
        if self._known_workers < before:
            for table in self._registry.all():
                table.watch.is_woken = True

    def _leave(self, table: TableOps) -> None:
        """Cancel the table's ops; the table is released when they have ended."""
        self._poller.forget(table)
        self._registry.leave(table)

    def _see_off(self) -> bool:
        """Release the tables that have left and of which nothing runs any more."""
        for table in self._registry.leaving():
            uuid = table.watch.uuid
            if self._runs.has_any(uuid) or any(op.running for op in table.ops):
                continue
            self._served.pop(table.watch.name, None)
            self._table_leases.release(uuid)
            self._registry.forget(uuid)
            # It may have come back meanwhile, by UNDROP.
            self.wake(uuid)
            if self._is_over():
                return True
        return False

    def _start_one(self) -> Choice:
        started = self._clock.monotonic()
        free = self._free_slots()
        rankings: list[Ranking] = []
        if free > 0:
            self._poller.poll()
            self._behind_seconds += self._poller.behind_seconds
            rankings = self._poller.rankings(with_rewrites=self._rewrite_slots.is_free())
        memory = self._memory.use()
        self._relief.relieve(memory)
        choice = choose(
            rankings,
            free_workers=free,
            memory=memory,
            settings=self._settings.scheduler,
            rng=self._rng,
            last_served=self._served,
        )
        with self._counters.adding() as numbers:
            numbers.choices += 1
            numbers.choosing_microseconds += (self._clock.monotonic() - started) * 1e6
        if choice.op_name is None:
            self._decisions.idle(choice)
            return choice
        op = self._poller.found(choice.op_name)
        slot = self._runs.reserve(op)
        if slot is None:
            # It was cancelled while it was chosen.
            self._decisions.idle(choice)
            return Choice(op_name=None, rule=ChoiceRule.NOTHING_TO_GAIN, reason=f"{op.name} was cancelled")
        prepared = self._prepare(op, slot)
        op.watch.is_woken = True
        if isinstance(prepared, Refused):
            with self._counters.adding() as numbers:
                numbers.prepare_failed += 1
            self._decisions.refused(op.name, op.table, prepared.reason)
            return choice
        self._turns += 1
        self._served[op.table] = self._turns
        self._decisions.chose(
            choice,
            op.table,
            about=prepared.about,
            runnable=sum(map(len, rankings)),
            others=passed_over(rankings, choice),
        )
        self._runs.begin(slot, prepared)
        return choice

    def _free_slots(self) -> int:
        if self._stopping.is_set():
            return 0
        if self._settings.is_enabled:
            return self._settings.workers - self._runs.count
        now = self._clock.monotonic()
        if self._logged_disabled is None or now - self._logged_disabled >= DISABLED_LOG_SECONDS:
            self._logged_disabled = now
            _log.warning("maintenance_is_disabled", setting="enable_maintenance_manager")
        return 0

    def _prepare(self, op: Op, slot: Slot) -> Prepared | Refused:
        """Prepare the run of a slot, which is released unless there is something to run."""
        prepared: Prepared | Refused | None = None
        try:
            prepared = op.prepare()
        except TilthError as error:
            return Refused(f"not prepared: {poll_failed(op, error, self._clock.now_ms()).reason}")
        finally:
            if not isinstance(prepared, Prepared):
                self._runs.release(slot)
        op.poll_failure = None
        return prepared

    def _run_ended(self, slot: Slot) -> None:
        if slot.op.kind is OpKind.MUTATE:
            # The entry may be done, and the next one's turn.
            self._refreshes.changed(slot.op.watch.uuid)
        self._awake.set()

    # --- what the ops are given ---

    def _new_meter(self, read: Callable[[], int] | None) -> MemoryMeter:
        return MemoryMeter(
            self._clock,
            hard_limit=limit_of(self._settings.memory_limit_hard),
            soft_percentage=self._settings.scheduler.memory_limit_soft_percentage,
            warn_percentage=self._settings.memory_limit_warn_percentage,
            read=read or ProcessMemory(self._clock),
        )

    def _new_context(self, root: Roots, new_rebaser: NewRebaser) -> ServerContext:
        return ServerContext(
            clock=self._clock,
            catalog=self._catalog,
            dispatcher=self._dispatcher,
            root=root,
            rng=self._rng,
            settings=self._settings,
            table_leases=self._table_leases,
            counters=self._counters,
            rewrite_slots=self._rewrite_slots,
            holds=CollectionHolds(self._clock, self._catalog),
            noted_copies=NotedCopies(self._clock, self._catalog),
            first_reads=FirstReads(self._catalog),
            new_rebaser=new_rebaser,
            refused=self._decisions.refused,
            table_count=self._tables.__len__,
            workers=self._workers,
            used_percent=self._used_under_pressure,
        )

    def _new_registry(self, build: Callable[[TableWatch], TableOps]) -> Registry:
        return Registry(
            self._catalog,
            self._tables,
            build,
            decisions=self._decisions,
            woken=self._woken,
            first_reads=self._context.first_reads,
            hosts=self._hosts,
        )

    def _build(self, watch: TableWatch) -> TableOps:
        watch.damaged.follow(self.damage, watch.uuid)
        return ops_of(TableContext(self._context, watch))

    def _used_under_pressure(self) -> float:
        """Percent of the memory in use, if that is under pressure, else 0."""
        used = self._memory.last.percent
        return used if used >= self._settings.scheduler.memory_pressure_percentage else 0.0

    def _rewrites_max(self) -> int:
        """Return how many rewrites run at once; one waits for a worker where there is none."""
        return max(1, self._dispatcher.yielding_slots(WRITE_WAREHOUSE))

    def _workers(self) -> int:
        return max(1, sum(each.workers for each in self._dispatcher.warehouses() if each.name == WRITE_WAREHOUSE))
