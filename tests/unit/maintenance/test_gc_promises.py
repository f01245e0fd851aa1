"""What collecting promises to everybody else: to servers that took the table over, to UNDROP, to reads of the past, to
readers, and that it does not wait for readers that are gone.

Each promise is tested alone: one op is run, or one thing comes between two of its steps.

Modules: maintenance/gc/op.py, maintenance/gc/history_gc.py, maintenance/gc/log_gc.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest

from tests.delta_world import DeltaWorld
from tilth.base.errors import FencedError
from tilth.catalog import HidePartition, RestorePartition, TrashedPart
from tilth.maintenance.gc import history_gc, log_gc
from tilth.maintenance.gc import move as gc_move
from tilth.maintenance.gc import trash as gc_trash
from tilth.maintenance.gc.op import GcOp
from tilth.maintenance.gc.round import GcReport
from tilth.maintenance.kinds import OpKind
from tilth.model.lease import ReaderLease
from tilth.model.part import DataFile, Part
from tilth.model.service import ServiceKind
from tilth.storage import StoreRoot

HISTORY_SECONDS = 3600
GC_KINDS = (OpKind.PART_GC, OpKind.LOG_GC, OpKind.HISTORY_GC)


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were removed."""
    names: list[str] = []

    def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
        names.extend(each.name for each in files)
        return {}

    for module in (gc_trash, history_gc):
        monkeypatch.setattr(module, "remove_data", remove)
    return names


@pytest.fixture
def world(gone: list[str]) -> DeltaWorld:
    world = DeltaWorld()
    for service in (ServiceKind.FLUSH, ServiceKind.GC):
        world.stop(service)
    return world


def run(world: DeltaWorld, kind: OpKind, *, is_forced: bool = False) -> GcReport:
    """One round of one op."""
    [op] = [op for table in world.manager._registry.all() for op in table.ops if op.kind is kind]
    assert isinstance(op, GcOp)
    return op.run_now(is_forced=is_forced)


def ended(world: DeltaWorld, kind: OpKind, *, read: Callable[[], object] = lambda: None) -> None:
    """What the op collects: two parts that were merged, two segments that were flushed, or the changes of two parts
    that were merged with them. Each ended at another time; `read` is called when all are there.
    """
    world.manager.step()
    if kind is OpKind.HISTORY_GC:
        parts = [world.insert()[0], world.insert()[0]]
        for part in parts:
            world.change((part, 1))
    else:
        parts = [world.insert()[0] if kind is OpKind.PART_GC else world.row_segment() for _ in range(2)]
    read()
    for part in parts:
        world.clock.advance(1)
        world.merged(part)
    world.clock.advance(1)
    world.insert()


def stolen(world: DeltaWorld) -> None:
    """Another server takes the table over, and this one does not know."""
    world.manager._table_leases.fence(world.t)
    world.catalog.leases.acquire(f"table/{world.t}", "s2")


# --- a server that has lost the table ---


@pytest.mark.parametrize("kind", GC_KINDS)
def test_a_server_that_has_lost_the_table_moves_and_removes_nothing(
    world: DeltaWorld, gone: list[str], kind: OpKind
) -> None:
    ended(world, kind)
    world.clock.advance(HISTORY_SECONDS + 60)
    before = list(world.catalog.parts.all_entries(world.t)), world.all_deltas()
    stolen(world)
    with pytest.raises(FencedError):
        run(world, kind)
    assert (list(world.catalog.parts.all_entries(world.t)), world.all_deltas()) == before
    assert world.catalog.trash.items(limit=10)[0] == []
    assert gone == []


@pytest.mark.parametrize("kind", [OpKind.PART_GC, OpKind.LOG_GC])
def test_what_lies_in_the_trash_stays_when_the_table_is_lost(
    world: DeltaWorld, gone: list[str], monkeypatch: pytest.MonkeyPatch, kind: OpKind
) -> None:
    """Lost after the move to the trash, before the files go."""
    ended(world, kind)
    world.clock.advance(HISTORY_SECONDS + 60)
    if kind is OpKind.PART_GC:
        run(world, kind)
        world.clock.advance(10 * HISTORY_SECONDS)
        stolen(world)
    else:
        monkeypatch.setattr(log_gc, "hit", lambda name: stolen(world) if name == "log_gc.after_trash" else None)
    with pytest.raises(FencedError):
        run(world, kind)
    assert gone == []
    assert len(world.catalog.trash.items(limit=10)[0]) == 2


def test_a_server_that_loses_the_table_while_files_go_forgets_no_record(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(world, OpKind.HISTORY_GC)
    world.clock.advance(HISTORY_SECONDS + 60)
    before = world.all_deltas()
    monkeypatch.setattr(history_gc, "hit", lambda name: stolen(world) if name == "history_gc.after_remove" else None)
    with pytest.raises(FencedError):
        run(world, OpKind.HISTORY_GC)
    assert world.all_deltas() == before


def test_parts_without_rows_stay_when_the_table_is_lost(world: DeltaWorld) -> None:
    world.manager.step()
    [empty] = world.insert()
    world.change((empty, 10))
    world.clock.advance(HISTORY_SECONDS + 60)
    stolen(world)
    with pytest.raises(FencedError):
        run(world, OpKind.DELETED_PART_GC)
    assert world.names() == [empty.name]
    assert world.catalog.transactions.unfinished() == []


# --- an UNDROP, as long as the trash has the parts ---


def in_trash(world: DeltaWorld) -> Part:
    """A part with four deleted rows that was dropped and lies in the trash."""
    world.manager.step()
    [part] = world.insert()
    world.change((part, 4))
    world.commit(HidePartition(table=world.t, partition="all"))
    world.clock.advance(HISTORY_SECONDS + 60)
    run(world, OpKind.PART_GC)
    assert len(world.catalog.trash.items(limit=10)[0]) == 1
    return part


def test_changes_of_a_part_in_the_trash_stay_with_it(world: DeltaWorld, gone: list[str]) -> None:
    in_trash(world)
    for _ in range(2):
        run(world, OpKind.HISTORY_GC)
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert (world.live_rows(), gone) == (6, [])


def test_changes_of_a_part_that_comes_back_meanwhile_stay_with_it(
    world: DeltaWorld, gone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the trash for the table after HISTORY_GC has not found it in the table."""
    in_trash(world)
    items = world.catalog.trash.items
    undrops: list[Callable[[], object]] = [lambda: world.commit(RestorePartition(table=world.t, partition="all"))]

    def raced(
        table: str | None = None, *, after: bytes | None = None, limit: int
    ) -> tuple[list[TrashedPart], bytes | None]:
        while undrops:
            undrops.pop()()
        return items(table, after=after, limit=limit)

    monkeypatch.setattr(world.catalog.trash, "items", raced)
    run(world, OpKind.HISTORY_GC)
    assert undrops == []
    assert (world.live_rows(), gone) == (6, [])


def test_what_comes_back_before_its_file_is_claimed_keeps_it(
    world: DeltaWorld, gone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is dropped again, so that it lies in the trash once more: the new drop can be undone as well."""
    part = in_trash(world)
    world.clock.advance(10 * HISTORY_SECONDS)
    mark_for_removal = world.catalog.trash.mark_for_removal

    def raced(*args: object, **kwargs: object) -> list[TrashedPart]:
        world.commit(RestorePartition(table=world.t, partition="all"))
        world.commit(HidePartition(table=world.t, partition="all"))
        world.collect()
        return mark_for_removal(*args, **kwargs)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(world.catalog.trash, "mark_for_removal", raced)
    run(world, OpKind.PART_GC)
    assert gone == []
    world.commit(RestorePartition(table=world.t, partition="all"))
    assert world.names() == [part.name]


# --- reads of the past ---


@pytest.mark.parametrize(
    ("kind", "module", "place"),
    [
        (OpKind.PART_GC, gc_move, "gc.before_trash"),
        (OpKind.LOG_GC, log_gc, "log_gc.before_trash"),
        (OpKind.HISTORY_GC, history_gc, "history_gc.before_remove"),
    ],
)
def test_versions_are_forgotten_before_the_first_of_their_files_goes(
    world: DeltaWorld, monkeypatch: pytest.MonkeyPatch, kind: OpKind, module: ModuleType, place: str
) -> None:
    """A command that gives the past up: VERSION AS OF finds a version with all its files, or says that it is gone."""
    ended(world, kind)
    # The last commit that ended something; nobody can name what was there before it.
    last = world.catalog.parts.version(world.t).counter - 1
    known: list[list[int]] = []

    def hit(name: str) -> None:
        if name == place:
            known.append([version for version, _ in world.catalog.history.listing(world.t, 100)])

    monkeypatch.setattr(module, "hit", hit)
    run(world, kind, is_forced=True)
    assert known[0] == [last + 1, last]


# --- readers that are gone ---


@pytest.mark.parametrize("kind", GC_KINDS)
def test_a_reader_whose_lease_has_run_out_holds_nothing(world: DeltaWorld, gone: list[str], kind: OpKind) -> None:
    """It died without closing its lease, and no other reader came to sweep it out."""
    died: list[ReaderLease] = []

    def read() -> None:
        died.append(world.catalog.readers.open(world.t, world.catalog.parts.snapshot(world.t).ts, "died", 5_000))

    ended(world, kind, read=read)
    # The longest time for which any reader may hold up collecting as a whole.
    world.clock.advance(HISTORY_SECONDS + 60)
    report = run(world, kind)
    assert (report.moved, report.removed) == {
        OpKind.PART_GC: (2, 0),
        OpKind.LOG_GC: (2, 2),
        OpKind.HISTORY_GC: (0, 2),
    }[kind]
    if kind is OpKind.PART_GC:
        world.clock.advance(3 * HISTORY_SECONDS)
        assert run(world, kind).removed == 2
    assert len(gone) == 2
    assert world.catalog.readers.list() == died
