"""Rows that change while their parts are merged, rewritten or flushed: neither side aborts, no change is lost.

The commit is watched: before it is asked for, somebody else deletes rows of the parts that the work has read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tests.maintenance_world import MaintenanceWorld, aborted
from tilth.base.errors import UnavailableError
from tilth.catalog import AddDelta, CommitOutcome, ReplaceParts, Requirement, RewritePart, Unknown, Update
from tilth.catalog.commit.commit_locks import LOCK_SECONDS, TRIES_UNLOCKED
from tilth.maintenance.table.sources import newer
from tilth.maintenance.work.procedure import Input
from tilth.maintenance.work.rebases import REBASES_MAX
from tilth.model.delta import Delta, DeltaKind, PartSource, Target
from tilth.model.part import DataFile, Part, PartName
from tilth.model.service import ServiceKind, Switch, SwitchState
from tilth.model.table import Schema
from tilth.model.txn import LeftoverNote


@pytest.fixture
def world() -> MaintenanceWorld:
    return MaintenanceWorld()


class Watched:
    """Does something before each of the first commits of work; writes down what they ask for."""

    def __init__(
        self, world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, *before: Callable[[], CommitOutcome | None]
    ) -> None:
        self.asked: list[list[Update]] = []
        self._before = list(before)
        self._real = world.catalog.transactions.commit
        monkeypatch.setattr(world.catalog.transactions, "commit", self._commit)

    def _commit(
        self,
        txn_id: int,
        updates: Sequence[Update],
        requirements: Sequence[Requirement] = (),
        leftovers: LeftoverNote | None = None,
    ) -> CommitOutcome:
        if any(isinstance(update, ReplaceParts | RewritePart) for update in updates):
            self.asked.append(list(updates))
            if self._before:
                found = self._before.pop(0)()
                if found is not None:
                    return found
        return self._real(txn_id, updates, requirements, leftovers)

    @property
    def deltas(self) -> list[int]:
        """How many changes each commit brought."""
        return [sum(isinstance(update, AddDelta) for update in updates) for updates in self.asked]


def filled(world: MaintenanceWorld, parts: int = 10) -> list[Part]:
    """Parts that a merge takes at once, each with the rows 0, 1 and 2."""
    return [part for _ in range(parts) for part in world.insert("a", rows=3)]


def erasing(world: MaintenanceWorld, *places: tuple[Part, int]) -> Callable[[], None]:
    return lambda: world.erase(*places)


def test_a_merge_brings_changes_over_round_by_round(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(world)
    world.erase((parts[0], 0), (parts[1], 1))
    watched = Watched(
        world,
        monkeypatch,
        erasing(world, (parts[0], 1), (parts[2], 0)),
        erasing(world, (parts[3], 2)),
    )
    world.work()
    assert world.visible_count() == 1
    assert watched.deltas == [0, 1, 2]
    assert len(world.rows()) == 30 - 5
    assert world.worker.rebases == 2
    [run] = [run for run in world.manager.runs() if run.name.startswith("MERGE")]
    assert (run.error, run.about) == (
        "",
        "10 parts of a in 0 ms, 2 deleted rows left out; 3 rows had changed meanwhile, brought over in 2 rounds",
    )
    assert world.service(ServiceKind.MERGE).failures == 0
    # The changes of the sources have ended with them; what came over is of the new part.
    assert {target.file for delta in world.catalog.parts.deltas(world.t) for target in delta.targets} == set(
        world.files()
    )
    # They are folded like any others.
    filled(world)
    world.work(2)
    world.manager.optimize(world.t, final=True)
    assert (world.visible_count(), len(world.rows())) == (1, 60 - 5)


def test_changes_of_rows_that_are_left_out_bring_no_delta(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = filled(world)
    for part in parts:
        world.erase((part, 0), (part, 1))
    watched = Watched(world, monkeypatch, lambda: world.erase(*((part, 2) for part in parts)))
    world.work()
    assert (watched.deltas, world.rows()) == ([0, 1], [])
    # Nothing is there to bring them onto where the merge left no row.
    [part] = world.insert("b", rows=1)
    world.erase((part, 0))
    world.manager.optimize(world.t, "b", final=True)
    assert world.visible_count() == 1


def test_a_lone_part_folds_its_changes(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    [part] = world.insert("a", rows=4)
    world.erase((part, 1))
    watched = Watched(world, monkeypatch, erasing(world, (part, 2)))
    assert world.manager.optimize(world.t, "a", final=True).merges == 2
    assert watched.deltas == [0, 1, 0]
    assert (world.rows(), world.catalog.parts.deltas(world.t)) == ([0, 3], [])
    # In the background so, once it is old.
    [other] = world.insert("b", rows=4)
    world.erase((other, 0))
    world.work(2)
    world.work(5 * 3600)
    assert world.rows() == [0, 1, 2, 3, 3]
    assert world.catalog.parts.deltas(world.t) == []


@pytest.mark.parametrize("predicate", ["a is odd", "true"])
def test_a_rewrite_brings_changes_over(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, predicate: str
) -> None:
    one, two = world.insert("a", "b", rows=4)
    world.erase((one, 0))
    watched = Watched(world, monkeypatch, erasing(world, (one, 2), (one, 3)), erasing(world, (two, 1)))
    world.alter_delete(predicate)
    world.work(2)
    assert world.rows() == ([0, 2] if predicate == "a is odd" else [])
    # New changes of a part with no row left, or of a row that goes anyway, need no rebase.
    assert watched.deltas == ([0, 1, 1] if predicate == "a is odd" else [0, 0, 0])
    assert world.catalog.mutations.pending(world.t) == []


def test_an_update_sees_what_was_deleted_before(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    [part] = world.insert("a", rows=4)
    world.erase((part, 0))
    Watched(world, monkeypatch, erasing(world, (part, 3)))
    world.update("a + 1", "a is odd")
    world.work(2)
    assert world.rows() == [2, 2]


def test_a_part_that_stays_keeps_its_changes(world: MaintenanceWorld) -> None:
    [part] = world.insert("a", rows=4)

    def change(_: object) -> None:
        world.worker.on_mutate = lambda _: None
        world.erase((part, 0))

    world.worker.on_mutate = change
    world.alter_delete("false")
    world.work(2)
    assert world.rows() == [1, 2, 3]
    assert world.catalog.mutations.pending(world.t) == []


def test_who_is_always_late_gives_up_and_begins_again(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part for _ in range(10) for part in world.insert("a", rows=20)]

    def erase(place: int) -> None:
        # Every commit lock that it acquires has expired before it commits.
        world.clock.advance(LOCK_SECONDS)
        world.erase((parts[0], place))

    watched = Watched(world, monkeypatch, *(partial(erase, place) for place in range(REBASES_MAX + 1)))
    world.turn()
    assert world.visible_count() == 10
    assert watched.deltas == list(range(REBASES_MAX + 1))
    assert world.service(ServiceKind.MERGE).failures == 0
    world.work(2)
    assert (world.visible_count(), len(world.rows())) == (1, 200 - REBASES_MAX - 1)


def test_who_was_late_often_is_let_through(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part for _ in range(10) for part in world.insert("a", rows=20)]
    waiting: list[threading.Thread] = []

    def insert() -> None:
        thread = threading.Thread(target=world.insert, args=("b",), kwargs={"rows": 1})
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        waiting.append(thread)

    rows = [erasing(world, (parts[0], place)) for place in range(TRIES_UNLOCKED)]
    watched = Watched(world, monkeypatch, *rows, insert)
    world.turn()
    waiting[0].join(10)
    assert not waiting[0].is_alive()
    assert watched.deltas == list(range(TRIES_UNLOCKED + 1))
    assert len(world.rows()) == 200 - TRIES_UNLOCKED + 1


@pytest.mark.parametrize("has_landed", [True, False])
def test_after_an_unknown_outcome_the_same_is_asked_for(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch, has_landed: bool
) -> None:
    parts = filled(world)
    real = world.catalog.transactions.commit

    def lost() -> CommitOutcome:
        if has_landed:
            [txn] = world.catalog.transactions.unfinished()
            real(txn.id, watched.asked[-1])
        return Unknown("the answer was lost")

    watched = Watched(world, monkeypatch, erasing(world, (parts[0], 1)), lost)
    world.turn()
    assert world.service(ServiceKind.MERGE).failures == 0
    assert watched.deltas == [0, 1]
    world.work(2)
    assert (world.visible_count(), len(world.rows())) == (1, 29)
    assert watched.asked[2] == watched.asked[1]
    assert (world.worker.merges, world.worker.rebases) == (1, 1)


def test_what_comes_while_an_outcome_is_unknown_is_brought_over_too(
    world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = filled(world)
    watched = Watched(world, monkeypatch, lambda: Unknown("the answer was lost"), erasing(world, (parts[4], 0)))
    world.turn()
    assert world.visible_count() == 10
    world.work(2)
    assert (world.visible_count(), len(world.rows())) == (1, 29)
    assert (watched.deltas, world.worker.merges) == ([0, 0, 1], 1)


def test_a_rebase_that_fails_gives_the_work_up(world: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(world)

    def fail(_: Input) -> None:
        world.worker.on_rebase = lambda _: None
        raise UnavailableError("the disk is away")

    world.worker.on_rebase = fail
    Watched(world, monkeypatch, erasing(world, (parts[4], 0)))
    world.turn()
    service = world.service(ServiceKind.MERGE)
    assert (service.state, service.failures, "the disk is away" in service.reason) == ("failed", 1, True)
    assert world.visible_count() == 10
    world.work(70)
    assert (world.visible_count(), len(world.rows())) == (1, 29)
    assert aborted(world) == ["merge default.t"]


def test_merges_weigh_changes(world: MaintenanceWorld) -> None:
    world.catalog.services.set(
        Switch(table=world.t, service=ServiceKind.MERGE, state=SwitchState.STOPPED, since_ms=0, because="a test")
    )
    one, two = world.insert("a", "a", rows=3)
    world.erase((one, 0), (two, 0), (two, 1))
    world.work()
    # 50 bytes of changes, by rows.
    assert sum(row.bytes for row in world.manager.explain_merge(world.t)) == 600 + 16 + 33


def test_only_what_is_newer_is_brought_over() -> None:
    def delta(ts: int, *files: str) -> Delta:
        return Delta(
            kind=DeltaKind.CHANGES,
            partition="a",
            file=DataFile(name=f"d{ts}", size=1, checksum=0),
            targets=tuple(Target(file=file, deleted=1) for file in files),
            change_ts=ts,
            commit_ts=ts,
        )

    def source(file: str) -> PartSource:
        return PartSource(
            name=PartName("a", 1, 1, 0, 1),
            file=DataFile(name=file, size=1, checksum=0),
            rows=1,
            is_segment=False,
            schema=Schema(columns=()),
        )

    deltas = [delta(5, "x"), delta(9, "y", "x", "z"), delta(7, "x")]
    found = newer([source("x"), source("y"), source("w")], {"x": 5}, deltas)
    assert [[each.change_ts for each in one.deltas] for one in found] == [[7, 9], [9], []]
    # Each source gets its own target only, although the delta changes many parts.
    assert found[1].deltas[0].targets == (Target(file="y", deleted=1),)
