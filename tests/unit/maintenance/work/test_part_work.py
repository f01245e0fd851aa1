"""The shell that all work shares, asked of every kind: the switch, lost answers, reserved parts, what is woken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.delta_world import DeltaWorld
from tilth.base.errors import UnavailableError
from tilth.catalog import (
    CommitOutcome,
    ReplaceDeltas,
    ReplaceParts,
    Requirement,
    RewritePart,
    Unknown,
    Update,
)
from tilth.maintenance.kinds import OpKind, Prepared
from tilth.maintenance.manager.runs import Slot
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.work.part_work import PartWorkOp
from tilth.model.service import ServiceKind, SwitchState
from tilth.model.txn import LeftoverNote

KINDS = (
    OpKind.MERGE,
    OpKind.MUTATE,
    OpKind.FLUSH,
    OpKind.FLUSH_DELTAS,
    OpKind.MINOR_DELTA,
    OpKind.MAJOR_DELTA,
)
#: Event of each kind in the part log.
EVENTS = {
    OpKind.MERGE: "merge",
    OpKind.MUTATE: "mutate",
    OpKind.FLUSH: "flush",
    OpKind.FLUSH_DELTAS: "flush_deltas",
    OpKind.MINOR_DELTA: "minor_delta",
    OpKind.MAJOR_DELTA: "major_delta",
}


def prepare(world: DeltaWorld, kind: OpKind) -> None:
    """What this kind has something to do with, as soon as two minutes are over."""
    match kind:
        case OpKind.MERGE:
            world.switch(ServiceKind.MERGE, SwitchState.RUNNING)
            for _ in range(10):
                world.insert()
        case OpKind.MUTATE:
            world.insert()
            world.alter_delete("a is odd")
        case OpKind.FLUSH:
            world.row_segment()
        case OpKind.FLUSH_DELTAS:
            [part] = world.insert(rows=1000)
            world.change((part, 1))
        case OpKind.MINOR_DELTA:
            [part] = world.insert(rows=1000)
            world.change((part, 1))
            world.work(121)
            world.change((part, 1))
        case OpKind.MAJOR_DELTA:
            [part] = world.insert(rows=3)
            world.change((part, 1), columns=(1,))


def kind_of(update: Update) -> str:
    match update:
        case ReplaceParts(event=event) | ReplaceDeltas(event=event):
            return event
        case RewritePart():
            return "mutate"
        case _:
            return ""


@contextmanager
def losing(world: DeltaWorld, kind: OpKind, *, has_landed: bool = True) -> Iterator[Callable[[], int]]:
    """Every answer to a commit of this kind is lost, the first of which may have landed; how many were lost."""
    real = world.catalog.transactions.commit
    lost = 0

    def lossy(
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        nonlocal lost
        if not any(kind_of(update) == EVENTS[kind] for update in updates):
            return real(txn_id, updates, requirements, leftovers)
        lost += 1
        if has_landed and lost == 1:
            real(txn_id, updates, requirements, leftovers)
        return Unknown("the answer was lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.catalog.transactions, "commit", lossy)
        yield lambda: lost


def table_of(world: DeltaWorld) -> TableOps:
    return world.manager._registry.get(world.t)


def op_of(world: DeltaWorld, kind: OpKind) -> PartWorkOp[object, object]:  # type: ignore[type-var]  # of any kind
    [op] = [op for op in table_of(world).ops if op.kind is kind]
    assert isinstance(op, PartWorkOp)
    return op


def reserved(world: DeltaWorld) -> frozenset[str]:
    return table_of(world).watch.reserved.now()


def work_a_little(world: DeltaWorld) -> None:
    """The work may not end while answers are lost."""
    for _ in range(10):
        world.turn()


@pytest.mark.parametrize("has_landed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_knows_is_found_out_also_while_the_service_is_stopped(kind: OpKind, has_landed: bool) -> None:
    world = DeltaWorld()
    prepare(world, kind)
    with losing(world, kind, has_landed=has_landed) as lost:
        world.clock.advance(121)
        work_a_little(world)
        op = op_of(world, kind)
        assert (lost() > 0, op.has_unknown, bool(world.catalog.transactions.live()), op.running) == (
            True,
            True,
            True,
            0,
        )
        assert reserved(world)
        world.stop(op.kind.traits.service)
        work_a_little(world)
        assert reserved(world)
    # It is asked for by itself, and nothing else begins.
    world.work(1)
    assert not op.has_unknown
    assert not world.catalog.transactions.live()
    assert world.service(op.kind.traits.service).state == "stopped"
    # MUTATE may still reserve parts of its own until it is stopped, too.
    world.stop(ServiceKind.MUTATE)
    world.work(1)
    assert not reserved(world)
    assert world.events().count(EVENTS[kind]) == 1
    assert world.catalog.transactions.unfinished() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_service_reserves_nothing_and_begins_nothing(kind: OpKind) -> None:
    world = DeltaWorld()
    prepare(world, kind)
    before = world.events().count(EVENTS[kind])
    world.manager.step()
    world.settle()
    world.stop(op_of(world, kind).kind.traits.service)
    world.work(300)
    assert reserved(world) == frozenset()
    assert world.service(op_of(world, kind).kind.traits.service).state == "stopped"
    world.switch(op_of(world, kind).kind.traits.service, SwitchState.RUNNING)
    world.work(121)
    assert world.events().count(EVENTS[kind]) > before


@pytest.mark.parametrize("kind", KINDS)
def test_who_hears_of_an_end_finds_the_parts_free_and_the_run_gone(kind: OpKind) -> None:
    world = DeltaWorld()
    prepare(world, kind)
    world.worker.is_holding = True
    world.clock.advance(121)
    op, watch = op_of(world, kind), table_of(world).watch
    for _ in range(10):
        world.turn()
        if not op.running:
            world.worker.let_go()
            world.settle()
            world.worker.is_holding = True
    assert op.running == 1
    assert reserved(world)
    watch.is_woken = False
    seen: list[tuple[int, frozenset[str]]] = []
    watch.woken = lambda _: seen.append((op.running, reserved(world)))
    world.worker.let_go()
    world.settle()
    assert seen[0] == (0, frozenset())


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_will_not_happen_leaves_its_parts_and_is_chosen_again(
    kind: OpKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = DeltaWorld()
    prepare(world, kind)
    op = op_of(world, kind)
    runs = world.manager._runs
    real = runs.begin
    abandoned: list[Prepared] = []

    def refuse(slot: Slot, prepared: Prepared) -> None:
        """The system gives no more threads."""
        if slot.op.kind is not kind or abandoned:
            real(slot, prepared)
            return
        abandoned.append(prepared)
        runs.release(slot)
        op.abandon(prepared)
        assert (op.running, reserved(world)) == (0, frozenset())
        assert table_of(world).watch.is_woken

    monkeypatch.setattr(runs, "begin", refuse)
    world.work(121)
    assert len(abandoned) == 1
    world.work(1)
    assert EVENTS[kind] in world.events()


def test_a_failure_is_over_when_it_is_known_late_that_the_next_try_landed() -> None:
    world = DeltaWorld()
    world.row_segment()
    world.worker.errors = [UnavailableError("no disk")]
    world.work(121)
    assert world.service(ServiceKind.FLUSH).failures == 1

    def insert(_: object) -> None:
        """Something of the partition is left, so that nothing else ends the failure."""
        world.worker.on_merge = lambda _: None
        world.row_segment()

    world.worker.on_merge = insert
    world.clock.advance(2)
    with losing(world, OpKind.FLUSH) as lost:
        work_a_little(world)
        assert lost()
        assert world.service(ServiceKind.FLUSH).failures == 1
    world.work(1)
    assert not op_of(world, OpKind.FLUSH).has_unknown
    assert world.service(ServiceKind.FLUSH).failures == 0


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (OpKind.FLUSH, "enable_flush_memrowset"),
        (OpKind.FLUSH_DELTAS, "enable_flush_deltamemstores"),
        (OpKind.MINOR_DELTA, "enable_minor_delta_compaction"),
        (OpKind.MAJOR_DELTA, "enable_major_delta_compaction"),
    ],
)
def test_what_the_node_switches_off_never_looks(kind: OpKind, setting: str) -> None:
    world = DeltaWorld(None, **{setting: "false"})
    prepare(world, kind)
    world.work(300)
    op = op_of(world, kind)
    assert (op.due_ms, op.wakeups) == (NEVER_MS, 0)
    assert op.state(world.clock.now_ms())[:2] == ("stopped", f"{setting} is off")
    assert EVENTS[kind] not in world.events()


def test_a_service_is_stopped_where_all_its_ops_are() -> None:
    world = DeltaWorld(enable_minor_delta_compaction="false")
    world.insert()
    world.work(1)
    told = world.service(ServiceKind.DELTA)
    assert told.state == "idle"
    assert "MINOR_DELTA: enable_minor_delta_compaction is off" in told.reason
    world.stop(ServiceKind.DELTA)
    world.work(1)
    assert world.service(ServiceKind.DELTA).state == "stopped"
    off = DeltaWorld(enable_flush_memrowset="false")
    off.work(1)
    assert (off.service(ServiceKind.FLUSH).state, off.service(ServiceKind.FLUSH).reason) == (
        "stopped",
        "enable_flush_memrowset is off",
    )
