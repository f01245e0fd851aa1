"""The manager's loop over ops that only say and count: docs/policies/scheduling.md."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.maintenance_world import ROOT, MaintenanceWorld
from tilth.base.errors import UnavailableError
from tilth.base.rand import new_rng
from tilth.base.settings import read_settings
from tilth.base.units import GIB
from tilth.catalog import StartMutation
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.kinds import IoUsage, OpKind, OpStats, Prepared, Refused, op_name
from tilth.maintenance.manager.decisions import RELEASE_MEMORY
from tilth.maintenance.manager.manager import StandIns
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.state import NEVER_MS, Failure
from tilth.maintenance.table.watch import TableWatch
from tilth.maintenance.work.op import Op
from tilth.model.mutation import MutationKind
from tilth.model.part import PartEvent
from tilth.model.service import ServiceKind, ServiceState

WAIT_SECONDS = 20


@dataclass(eq=False)
class SayingOp:
    """Says what it is told to say, and remembers what was asked of it."""

    watch: TableWatch
    kind: OpKind = OpKind.MERGE
    service: ServiceKind = ServiceKind.MERGE
    says: OpStats = field(default_factory=lambda: OpStats(is_runnable=True, perf_improvement=1.0))
    due_ms: int = NEVER_MS
    running: int = 0
    wakeups: int = 0
    last_wakeup_ms: int = 0
    has_unknown: bool = False
    is_cancelled: bool = False
    observed: OpStats = field(default_factory=lambda: OpStats.idle("not checked yet"))
    poll_failure: Failure | None = None
    notices: int = 0
    events: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    #: Held while it is cleared.
    gate: threading.Event = field(default_factory=threading.Event)
    prepares: Callable[[], Prepared | Refused] = lambda: Prepared(about="work", work=None)
    performs: Callable[[], str] = lambda: "done"
    #: After one run there is nothing left to do.
    is_single: bool = True

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def table(self) -> str:
        return self.watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self.watch.name)

    def observe(self, event: PartEvent, partition: str) -> None:
        self.events.append(f"{event.event} {partition}")
        self.watch.is_woken = True

    def notice_all(self) -> None:
        self.notices += 1
        self.watch.is_woken = True

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancel_partition(self, partition: str | None) -> int:
        return self.running

    def stats(self) -> OpStats:
        self.wakeups += 1
        return OpStats.idle("cancelled") if self.is_cancelled else self.says

    def prepare(self) -> Prepared | Refused:
        prepared = self.prepares()
        if isinstance(prepared, Prepared) and self.is_single:
            self.says = OpStats(is_runnable=False, about="nothing left")
        return prepared

    def perform(self, prepared: Prepared) -> str:
        assert self.gate.wait(WAIT_SECONDS)
        self.runs.append(prepared.about)
        return self.performs()

    def abandon(self, prepared: Prepared) -> None:
        self.runs.append("abandoned")

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        return ServiceState.IDLE, "nothing", None


class Saying(MaintenanceWorld):
    """A manager whose tables have such ops."""

    def __init__(self, threads: int = 1, **given: str) -> None:
        """`given`: settings of the node, as text."""
        #: Ops by the uuid of their table.
        self.ops: dict[str, SayingOp] = {}
        self.given = {"memory_limit_hard_bytes": "100", "maintenance_manager_num_threads": str(threads), **given}
        self.used = 0
        super().__init__(threads=threads)

    def new_manager(self, *, settings: ManagerSettings | None = None) -> MaintenanceManager:
        settings = settings or read_settings(ManagerSettings, self.given)
        return MaintenanceManager(
            self.clock,
            self.catalog,
            self.dispatcher,
            ROOT,
            settings,
            stand_ins=StandIns(rng=new_rng(7), build=self.build, memory=lambda: self.used),
        )

    def build(self, watch: TableWatch) -> TableOps:
        op = self.ops.setdefault(watch.uuid, SayingOp(watch))
        op.watch = watch
        return TableOps(watch, (op,))  # type: ignore[arg-type]  # what the manager needs of an op

    @property
    def op(self) -> SayingOp:
        """The first table's."""
        if not self.ops:
            self.manager.step()
        return self.ops[self.t]

    def say(self, table: str, stats: OpStats) -> SayingOp:
        """What the table's op will say."""
        op = SayingOp(TableWatch(self.definition(table)), says=stats)
        self.ops[table] = op
        return op


def _note(order: list[int], number: int) -> str:
    order.append(number)
    return "noted"


IDLE = OpStats(is_runnable=False)


def test_prepare_fails_1000_times_and_no_slot_is_lost() -> None:
    """A leaked count is KUDU-2083."""
    world = Saying()
    world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0)).prepares = lambda: Refused("gone")
    for _ in range(1000):
        world.manager.step()
    assert world.manager.numbers().prepare_failed == 1000
    assert world.manager.status().busy == 0
    assert world.manager.choices()[0].reason == "gone"
    world.op.prepares = lambda: Prepared(about="work", work=None)
    assert world.turn()
    assert world.op.runs == ["work"]


@pytest.mark.parametrize("error", [UnavailableError("no disk"), KeyError("a fault")])
def test_a_prepare_that_raises_loses_no_slot(error: Exception) -> None:
    """KUDU-2083"""
    world = Saying()

    def fail() -> Prepared:
        raise error

    world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0)).prepares = fail
    try:
        world.manager.step()
    except KeyError:
        assert isinstance(error, KeyError)
    else:
        assert "no disk" in world.manager.choices()[0].reason
    assert world.manager.status().busy == 0


def test_an_op_that_could_not_be_prepared_waits() -> None:
    """A failed op waits before it is runnable again: docs/policies/scheduling.md#why-so."""
    world = Saying()
    tries: list[int] = []

    def fail() -> Prepared:
        tries.append(world.clock.now_ms())
        raise UnavailableError("no disk")

    world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0)).prepares = fail
    began = world.clock.now_ms()
    for _ in range(200):
        world.manager.step()
        world.clock.advance(0.1)
    assert [at - began for at in tries] == [0, 1000, 3000, 7000, 15_000]


def test_1000_ops_and_4_workers_the_lowest_score_is_last() -> None:
    world = Saying(threads=4, maintenance_manager_history_size="1000")
    tables = [world.t, *(world.table(f"t{number}") for number in range(999))]
    order: list[int] = []
    for number, table in enumerate(tables):
        # The scores differ so much that no two tables take turns.
        op = world.say(table, OpStats(is_runnable=True, perf_improvement=1.2**number))
        op.performs = partial(_note, order, number)
    began = 0
    while began < 1000:
        began += world.manager.step().op_name is not None
        if began % 4 == 0:
            world.settle()
    world.settle()
    assert sorted(order) == list(range(1000))
    assert order[-1] == 0
    assert world.manager.status().busy == 0
    assert len(world.manager.status().completed) == 1000


def test_free_workers_fill_without_waiting_for_a_tick() -> None:
    """A slot counts from the choice on."""
    world = Saying(threads=3)
    ops = [world.say(table, OpStats(is_runnable=True, perf_improvement=1.0)) for table in map(world.table, "tuvw")]
    for op in ops:
        op.gate.clear()
    world.manager.start()
    for _ in range(2000):
        if world.manager.status().busy == 3:
            break
        threading.Event().wait(0.005)
    status = world.manager.status()
    assert (status.busy, len(status.running), status.threads) == (3, 3, 3)
    assert len(status.registered) == 4
    for op in ops:
        op.gate.set()
    for _ in range(2000):
        if sum(len(op.runs) for op in ops) == 4 and world.manager.status().busy == 0:
            break
        threading.Event().wait(0.005)
    world.manager.stop()
    assert [op.runs for op in ops] == [["work"]] * 4
    assert world.manager.status().busy == 0


def test_the_ring_keeps_the_last_runs_newest_first() -> None:
    world = Saying()
    op = world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0))
    op.is_single = False
    names = iter(range(100))
    op.prepares = lambda: Prepared(about=f"run {next(names)}", work=None)
    op.performs = lambda: op.runs[-1]
    for _ in range(10):
        assert world.turn()
    completed = world.manager.status().completed
    assert [run.about for run in completed] == [f"run {number}" for number in range(9, 1, -1)]
    assert all(run.thread_id and run.started_ms and run.ended_ms for run in completed)


def test_a_failed_run_is_reported_and_ends_nothing() -> None:
    world = Saying()

    def fail() -> str:
        raise ZeroDivisionError("a fault")

    world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0)).performs = fail
    assert world.turn()
    [run] = world.manager.runs()
    assert run.error == "ZeroDivisionError: a fault"
    assert world.manager.status().busy == 0
    world.manager.step()


def test_a_dropped_table_is_cancelled_waited_for_and_never_chosen() -> None:
    """To unregister sets cancel and waits until nothing runs."""
    world = Saying(threads=2)
    op = world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0))
    op.is_single = False
    op.gate.clear()
    world.manager.step()
    assert world.running() == 1
    world.catalog.tables.drop(world.t)
    world.manager.wake(world.t)
    assert world.manager.step().op_name is None
    assert op.is_cancelled
    assert world.manager.ops() == []
    # It comes back while the old run is under way: not registered before that has ended.
    made = len(world.ops)
    del world.ops[world.t]
    world.catalog.tables.undrop("default", "t")
    world.manager.wake()
    world.manager.step()
    assert world.manager.ops() == []
    op.gate.set()
    world.settle()
    world.manager.step()
    world.manager.step()
    assert len(world.manager.ops()) == made == 1
    assert world.ops[world.t] is not op
    world.settle()


def test_stop_races_with_a_choice_and_nothing_begins() -> None:
    """KUDU-3268: the table is cancelled after it was chosen, before its run has begun."""
    world = Saying()
    op = world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0))
    inner = world.manager._runs.reserve

    def reserve(chosen: Op) -> object:
        world.manager.stop()
        return inner(chosen)

    world.manager._runs.reserve = reserve  # type: ignore[assignment,method-assign]
    choice = world.manager.step()
    assert (choice.op_name, choice.reason) == (None, "MERGE(default.t) was cancelled")
    assert op.runs == []
    assert world.manager.status().busy == 0


def test_stop_waits_for_what_runs() -> None:
    world = Saying()
    op = world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0))
    op.gate.clear()
    world.manager.start()
    for _ in range(2000):
        if world.running():
            break
        threading.Event().wait(0.005)
    stopping = threading.Thread(target=world.manager.stop)
    stopping.start()
    for _ in range(2000):
        if op.is_cancelled:
            break
        threading.Event().wait(0.005)
    assert stopping.is_alive()
    op.gate.set()
    stopping.join(WAIT_SECONDS)
    assert op.runs == ["work"]


def test_under_pressure_what_frees_memory_goes_first() -> None:
    """With the memory of the process; and with nothing to free the gain decides (KUDU-2929)."""
    world = Saying()
    flush = world.say(world.table("u"), OpStats(is_runnable=True, ram_anchored_bytes=5 * GIB))
    gain = world.say(world.t, OpStats(is_runnable=True, perf_improvement=9.0))
    world.used = 85
    assert world.turn()
    assert (flush.runs, gain.runs) == (["work"], [])
    # Memory that nobody used is given back on another thread, whose line may come before or after this one.
    (choice,) = (row for row in world.manager.choices() if row.op != RELEASE_MEMORY)
    assert choice.reason.startswith("under memory pressure (85.00% used), 0 bytes log retention")
    assert world.turn()
    assert gain.runs == ["work"]
    assert (world.manager.status().memory_used, world.manager.status().memory_limit) == (85, 100)


def test_what_frees_log_goes_first() -> None:
    world = Saying()
    world.say(world.t, OpStats(is_runnable=True, perf_improvement=9.0))
    world.say(world.table("u"), OpStats(is_runnable=True, io=IoUsage.LOW, logs_retained_bytes=7))
    assert world.manager.step().reason == "free 7 bytes of WAL"
    world.settle()


def test_a_choice_shows_the_score_and_who_was_passed_over() -> None:
    world = Saying()
    world.say(world.t, OpStats(is_runnable=True, perf_improvement=2.0))
    for number, name in enumerate("uvwxy"):
        world.say(world.table(name), OpStats(is_runnable=True, perf_improvement=0.1 * number))
    world.turn()
    row = world.manager.choices()[0]
    assert (row.op, row.score, row.runnable) == ("MERGE(default.t)", 2.0, 6)
    assert row.others == "MERGE(default.y) 0.400000, MERGE(default.x) 0.300000, MERGE(default.w) 0.200000"


def test_a_busy_table_goes_first_if_that_is_wanted() -> None:
    """docs/policies/scheduling.md#workload"""
    world = Saying(enable_workload_score_for_perf_improvement_ops="true")
    quiet, busy = (world.say(table, IDLE) for table in (world.t, world.table("u")))
    world.manager.step()
    for _ in range(61):
        world.manager.scanned([busy.watch.uuid])
    world.clock.advance(61)
    for op in (quiet, busy):
        op.says = OpStats(is_runnable=True, perf_improvement=0.5)
        op.notice_all()
    assert world.manager.step().op_name == busy.name
    [row] = [row for row in world.manager.ops() if row.name == busy.name]
    assert (row.stats.perf_improvement, row.stats.workload_score, row.score) == (0.5, 1.0, 1.5)
    quiet.observed = IDLE
    assert {row.name for row in world.manager.ops()} > {row.name for row in world.manager.ops(runnable_only=True)}
    assert quiet.name not in {row.name for row in world.manager.ops(runnable_only=True)}
    world.settle()


def test_an_idle_table_is_not_asked_again_before_it_is_due() -> None:
    """Statistics are cached: what is asked for is news, a due time, a change."""
    world = Saying()
    op = world.say(world.t, IDLE)
    for _ in range(50):
        world.manager.step()
        world.clock.advance(0.25)
    assert op.wakeups == 1
    world.insert("a")
    world.manager.step()
    assert (op.wakeups, op.events) == (2, ["new a"])
    op.due_ms = world.clock.now_ms() + 10_000
    op.notice_all()
    for _ in range(40):
        world.manager.step()
        world.clock.advance(0.25)
    assert op.wakeups == 3
    world.manager.step()
    assert op.wakeups == 4


def test_pending_mutations_reach_the_ops() -> None:
    world = Saying()
    op = world.say(world.t, IDLE)
    world.manager.step()
    assert list(op.watch.mutations) == []
    notices = op.notices
    world.commit(
        StartMutation(table=world.t, from_version=1, kind=MutationKind.DELETE, command="DELETE", predicate="a > 1")
    )
    world.manager.wake(world.t)
    world.manager.step()
    mutation = op.watch.mutations[0]
    assert (mutation.kind, mutation.predicate) == (MutationKind.DELETE, "a > 1")
    assert op.notices > notices
    notices = op.notices
    world.manager.wake()
    world.manager.step()
    assert op.notices == notices, "nothing has changed"
    world.catalog.mutations.kill(world.t, mutation.id, "a test")
    world.manager.wake(world.t)
    world.manager.step()
    assert list(op.watch.mutations) == []
    assert op.notices > notices


def test_a_disabled_manager_starts_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = Saying(enable_maintenance_manager="false")
    op = world.say(world.t, OpStats(is_runnable=True, perf_improvement=1.0))
    with caplog.at_level("WARNING", logger="tilth.maintenance"):
        for _ in range(10):
            world.manager.step()
            world.clock.advance(40)
    assert op.runs == []
    assert sum("maintenance_is_disabled" in record.getMessage() for record in caplog.records) == 2


def test_busy_tables_hide_no_others() -> None:
    """A turn looks for a bounded time and the next goes on where it ended."""
    world = Saying()
    ops = [world.say(world.table(name), IDLE) for name in "tuvwxyz"]

    def slow() -> OpStats:
        world.clock.advance(0.004)
        return OpStats(is_runnable=False)

    for op in ops:
        op.stats = slow  # type: ignore[method-assign]
        op.notice_all()
    seen = set()
    for _ in range(4):
        for op in ops:
            op.watch.is_woken = True
        world.manager.step()
        seen |= {op.name for op in ops if not op.watch.is_woken}
    assert len(seen) == len(ops)
