"""Collecting over random histories: what may still be read is there, and what was hidden never comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog_world import World
from tests.long import examples
from tests.maintenance_world import ROOT, MergeWorker
from tilth.base.hybrid import pack
from tilth.base.rand import new_rng
from tilth.catalog import (
    HidePartition,
    NothingToUndropError,
    RestorePartition,
    RewritePart,
    StartMutation,
    Update,
)
from tilth.maintenance import MaintenanceManager, ManagerSettings
from tilth.maintenance.gc import trash as gc_trash
from tilth.maintenance.gc.part_gc import PartGc
from tilth.maintenance.kinds import Prepared
from tilth.maintenance.manager.manager import StandIns
from tilth.model.history import ancient_mark
from tilth.model.lease import ReaderLease
from tilth.model.mutation import MutationKind
from tilth.model.part import DataFile, Part, PartName
from tilth.model.txn import Txn
from tilth.storage import StoreRoot
from tilth.warehouse import Dispatcher

HISTORY_SECONDS = 3600.0
#: Much longer than any history that is tried.
LEASE_MS = 10**12

_PARTITION = st.sampled_from(["a", "b"])
#: Steps; those that make something to collect, and time for it, come more often.
_STEP = st.one_of(
    st.tuples(st.just("insert"), _PARTITION, st.integers(1, 3)),
    st.tuples(st.sampled_from(["merge", "mutate"]), _PARTITION, st.integers(1, 4)),
    st.tuples(st.sampled_from(["merge", "drop"]), _PARTITION, st.integers(2, 4)),
    st.tuples(st.just("wait"), _PARTITION, st.sampled_from([1, 1801, 3601, 7300, 10_900])),
    st.tuples(st.sampled_from(["round", "gc", "gc", "force"]), _PARTITION, st.just(0)),
    st.tuples(st.sampled_from(["open", "undrop", "open", "close", "begin", "end"]), _PARTITION, st.just(0)),
)


class GcWorld(World):
    """What was readable when, to be compared with what is."""

    def __init__(self) -> None:
        super().__init__()
        dispatcher = Dispatcher(self.clock, self.new_id, {"write": [MergeWorker()]}, slots={"write": 8})
        settings = ManagerSettings()
        manager = MaintenanceManager(
            self.clock, self.catalog, dispatcher, ROOT, settings, stand_ins=StandIns(rng=new_rng(3))
        )
        garbage = manager._registry.get(self.t).command().garbage
        self.op = garbage._parts
        assert isinstance(self.op.routine, PartGc)
        self.moves = self.op.routine._moves
        self.gone: set[str] = set()
        self.past: dict[int, list[Part]] = {}
        self.held: list[tuple[ReaderLease, list[Part]]] = []
        self.txns: list[Txn] = []
        self.forced_ts = 0

    def step(self, what: str, partition: str, number: int) -> None:
        match what:
            case "insert":
                self.insert(*[partition] * number)
            case "merge":
                parts = [part for part in self.shown() if part.name.partition == partition][:number]
                if len({part.mutation_ts for part in parts}) == 1 and len(parts) > 1:
                    self.merge(parts)
            case "mutate":
                self._mutate(partition, number)
            case "drop":
                self.commit(HidePartition(table=self.t, partition=partition))
            case "undrop":
                self._undrop(partition)
            case "open":
                ts = self.catalog.parts.version(self.t).last_commit_ts
                self.held.append((self.catalog.readers.open(self.t, ts, "q", LEASE_MS), self.shown()))
            case "close" if self.held:
                self.catalog.readers.close(self.held.pop(0)[0])
            case "begin":
                self.txns.append(self.catalog.transactions.begin("long"))
            case "end" if self.txns:
                self.catalog.transactions.abort(self.txns.pop(0).id, "over")
            case "wait":
                self.clock.advance(number)
            case "round" | "gc" | "force":
                self._collect(what)
        self.past[self.catalog.parts.version(self.t).last_commit_ts] = self.shown()

    def shown(self) -> list[Part]:
        return list(self.catalog.parts.snapshot(self.t).parts)

    def check(self) -> None:
        """Whatever may still be read is read as it was, from files that are there."""
        mark = ancient_mark(pack(self.clock.now_ms()), HISTORY_SECONDS)
        assert mark is not None
        needed = [*self.shown()]
        for _, parts in self.held:
            needed += parts
        for ts, before in self.past.items():
            if ts >= max(mark, self.forced_ts):
                assert list(self.catalog.parts.snapshot(self.t, at=ts).parts) == before
                needed += before
        assert not {part.file.name for part in needed} & self.gone
        trashed = {item.item.part.file.name for item in self.catalog.trash.items(self.t, limit=10_000)[0]}
        assert not trashed & self.gone

    def _mutate(self, partition: str, number: int) -> None:
        """An UPDATE, of which so many parts are rewritten, the first to nothing."""
        pending = self.catalog.mutations.pending(self.t)
        if not pending:
            start = StartMutation(table=self.t, from_version=1, kind=MutationKind.UPDATE, command="u", predicate="true")
            self.commit(start)
            pending = self.catalog.mutations.pending(self.t)
        waiting = [part for part in self.shown() if part.mutation_ts < pending[0].commit_ts]
        updates: list[Update] = [
            RewritePart(
                table=self.t,
                source=part.name,
                written=None if index == 2 else self.written(part.name.partition),
                mutation=pending[0].id,
            )
            for index, part in enumerate(part for part in waiting[:number] if part.name.partition == partition)
        ]
        if updates:
            self.commit(*updates)
        self.catalog.mutations.finish(self.t, pending[0].id)

    def _undrop(self, partition: str) -> None:
        before = self.names()
        try:
            self.commit(RestorePartition(table=self.t, partition=partition))
        except NothingToUndropError:
            return
        # Since it was dropped, the past reads as if it had not been.
        back: set[PartName] = set(self.names()) - set(before)
        for ts in list(self.past):
            seen = {part.name for part in self.past[ts]}
            if not back <= seen:
                del self.past[ts]

    def _collect(self, how: str) -> None:
        before = self.names()
        with self._removing():
            if how == "round":
                # Both phases are due, however short the last round is ago.
                self.op.notice_all()
                self.moves._pause_until_ms = 0
                self.op.perform(Prepared(about="", work=None))
            else:
                self.op.run_now(is_forced=how == "force")
        if how == "force":
            # Only what is read with a lease is kept.
            self.forced_ts = self.catalog.clock.now()
        assert self.names() == before

    @contextmanager
    def _removing(self) -> Iterator[None]:
        def remove(root: StoreRoot, table: str, files: Sequence[DataFile], *, deleters: int) -> dict[str, OSError]:
            self.gone.update(each.name for each in files)
            return {}

        with patch.object(gc_trash, "remove_data", remove):
            yield


@settings(max_examples=examples(60))
@given(steps=st.lists(_STEP, min_size=25, max_size=50))
def test_nothing_that_may_be_read_is_collected(steps: list[tuple[str, str, int]]) -> None:
    world = GcWorld()
    for what, partition, number in steps:
        world.step(what, partition, number)
        world.op.notice_all()
        world.check()


@settings(max_examples=examples(20))
@given(steps=st.lists(_STEP, min_size=15, max_size=30))
def test_in_the_end_only_what_is_visible_is_left(steps: list[tuple[str, str, int]]) -> None:
    world = GcWorld()
    for what, partition, number in steps:
        world.step(what, partition, number)
    for lease, _ in world.held:
        world.catalog.readers.close(lease)
    for txn in world.txns:
        world.catalog.transactions.abort(txn.id, "over")
    files = sorted(world.files())
    for _ in range(4):
        world.step("wait", "a", 10_900)
        world.step("gc", "a", 0)
    assert sorted(part.name for part in world.shown()) == world.names()
    assert sorted(world.files()) == files
    left = list(world.catalog.parts.all_entries(world.t))
    assert [entry.name for entry in left if isinstance(entry, Part)] == world.names()
    # Marks and ranges that hide nothing are gone; only a rewrite needs none.
    assert len(left) == len(world.names())
    assert not world.catalog.trash.items(world.t, limit=1)[0]
