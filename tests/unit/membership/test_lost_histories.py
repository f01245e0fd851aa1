"""A store that has lost the end of its history: a server that knows more than the store forgets it, joins anew, and
records which of its transactions are missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.membership.test_member import THINGS, Cluster
from tilth.base.errors import FencedError, TilthError
from tilth.base.rand import new_rng
from tilth.catalog import Catalog, InsertPart, TxnAbortedError
from tilth.catalog.kv import Incarnation, Unknown
from tilth.catalog.kv.incarnation import FoundHistory, HistoryVerdict, KnownHistory, judge, next_number
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.maintenance.settings import ManagerSettings
from tilth.membership import Member
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import Column, Schema, TableDef
from tilth.model.txn import TxnOutput, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import local_root
from tilth.testing import Fault, FaultyKV, LaggingStandbyKV

TABLE = "0" * 31 + "1"


class World(Cluster):
    """Two servers over a store with a standby."""

    def __init__(self) -> None:
        self.store = LaggingStandbyKV()
        super().__init__(self.store)
        self.members: dict[str, Member] = {}
        self.catalogs: dict[str, Catalog] = {}
        for name in "ab":
            member, catalog = self.process(name)
            member.join()
            member.ready()
            self.members[name], self.catalogs[name] = member, catalog
        schema = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))
        self.catalogs["a"].tables.create(TableDef(uuid=TABLE, database="default", name="t", schema=schema))
        self.run(1, *self.members.values())
        self.store.replicate()

    def insert(self, name: str) -> int:
        transactions = self.catalogs[name].transactions
        with transactions.open("insert", outputs=[TxnOutput(table=TABLE, tasks=1)]) as work:
            work.commit([part_of(work.id)])
        return work.id

    def fail_over(self, seconds: float = 2.0) -> None:
        self.store.fail_over(opened_ms=self.clock.now_ms())
        self.run(seconds, *self.members.values())

    def files(self, name: str) -> set[str]:
        return {each.file.name for each in self.catalogs[name].parts.snapshot(TABLE).parts}


def part_of(txn: int) -> InsertPart:
    file = DataFile(name=f"{txn}-0.0-0.parquet", size=1, checksum=1)
    return InsertPart(table=TABLE, written=WrittenPart(partition="p", values=("p",), rows=1, file=file, ranges={}))


def test_no_server_shows_what_the_store_has_lost() -> None:
    world = World()
    kept = world.insert("a")
    world.store.replicate()
    lost = [world.insert("a") for _ in range(5)]
    assert world.files("a") == {f"{each}-0.0-0.parquet" for each in (kept, *lost)}
    world.store.fail_over()
    for _ in range(20):
        later = world.insert("b")
        assert world.files("a") == world.files("b")
        assert f"{later}-0.0-0.parquet" in world.files("a")
        assert not world.files("a") & {f"{each}-0.0-0.parquet" for each in lost}


def test_servers_join_anew_under_epochs_that_none_had_before() -> None:
    world = World()
    before = {name: catalog.server for name, catalog in world.catalogs.items()}
    world.fail_over()
    for name, catalog in world.catalogs.items():
        record = catalog.servers.get(name)
        assert record is not None
        assert record.lives
        assert record.id == catalog.server != before[name]
        assert record.epoch > world.store.incarnation.epoch_floor
    assert all(world.members["a"].hosts(thing) != world.members["b"].hosts(thing) for thing in THINGS)
    assert {"a", "b"} <= set(world.changes)
    # Servers join anew once only.
    now = {name: catalog.server for name, catalog in world.catalogs.items()}
    world.run(3, *world.members.values())
    assert now == {name: catalog.server for name, catalog in world.catalogs.items()}


def test_a_holder_of_an_epoch_that_was_lost_is_fenced_by_the_next_holder_of_the_lease() -> None:
    world = World()
    a, b = world.catalogs["a"], world.catalogs["b"]
    zombie = a.leases.acquire(f"table/{TABLE}", a.server)
    work = a.transactions.open("merge", fences=[zombie.fence])
    world.store.fail_over()
    # `a` stands still, and the store has lost the record of its lease.
    world.run(4, world.members["b"])
    taken = b.leases.acquire(f"table/{TABLE}", b.server)
    assert taken.epoch > zombie.epoch
    with pytest.raises(FencedError):
        a.leases.check(zombie.fence)
    with pytest.raises(TilthError):
        a.transactions.begin("merge", fences=[zombie.fence])
    with pytest.raises(TilthError):
        work.commit([part_of(work.id)])
    assert not world.files("b")


def test_what_was_lost_is_recorded_with_its_files_and_nothing_removes_them() -> None:
    world = World()
    begun_before = world.catalogs["a"].transactions.open("insert", outputs=[TxnOutput(table=TABLE, tasks=1)])
    world.store.replicate()
    lost = [world.insert("a"), world.insert("b"), begun_before.id]
    begun_before.commit([part_of(begun_before.id)])
    under_way = world.catalogs["a"].transactions.open("insert", outputs=[TxnOutput(table=TABLE, tasks=1)])
    assert len(world.files("b")) == 3
    world.fail_over()
    a = world.catalogs["a"].transactions
    recorded = {each.txn.id: each for each in a.lost.all()}
    assert recorded.keys() == set(lost)
    assert a.lost.count == 2
    for txn, each in recorded.items():
        assert each.files == (f"{txn}-0.0-0.parquet",)
        assert each.tables == (TABLE,)
        assert each.commit_ts > txn
        assert each.before.startswith("1 ")
        assert each.now.startswith("2 ")
        # The lost transaction is not aborted, so that its files are not removed.
        assert a.resolve(txn) is None
    # A transaction that could not commit any more is aborted, and its files are removed by name.
    assert a.resolve(under_way.id) is TxnState.ABORTED
    with pytest.raises(TxnAbortedError, match="lost with the end"):
        under_way.commit([part_of(under_way.id)])
    later = world.insert("a")
    assert later > max(*lost, under_way.id)


def test_a_process_waits_for_what_others_may_know_and_not_for_itself(tmp_path: Path) -> None:
    """The files of what it has begun before the failover go after the usual grace: it knows all of its commits."""
    world = World()
    (tmp_path / TABLE / "data").mkdir(parents=True)
    catalog = world.catalogs["a"]
    outputs = [TxnOutput(table=TABLE, tasks=1)]
    own = catalog.transactions.open("merge", outputs=outputs)
    own.tasks_began()
    begun = catalog.transactions.begin("insert", outputs=outputs)
    others = world.catalogs["b"].transactions.begin("insert", outputs=outputs)
    world.store.replicate()
    files = [tmp_path / TABLE / "data" / f"{each}-0.0-0.parquet" for each in (own.id, begun.id, others.id)]
    for each in files:
        each.touch()
    cleaner = Cleaner(world.clock, catalog, local_root(tmp_path), dropped_kept_ms=1)
    world.store.fail_over(opened_ms=world.clock.now_ms())
    # The process of `b` is gone for good.
    for _ in range(4):
        world.run(1, world.members["a"])
    assert catalog.server.startswith("a#")
    with pytest.raises(ValueError, match="cancelled"), own:
        raise ValueError("the task was cancelled")
    for seconds, left in ((1.0, files), (GRACE_MS / 1000, files[2:]), (ManagerSettings().failover_grace, [])):
        world.run(seconds, world.members["a"])
        cleaner.tick()
        cleaner.tick()
        assert [each for each in files if each.exists()] == left


def test_what_was_trimmed_before_a_failover_is_not_lost() -> None:
    """Another server has trimmed the record, while this one still remembers the transaction."""
    world = World()
    earlier = [world.insert("a") for _ in range(3)]
    world.run(1, *world.members.values())
    assert world.catalogs["b"].transactions.trim_finished(earlier[-1] + 1) >= 3
    world.store.replicate()
    lost = world.insert("a")
    world.fail_over()
    assert [each.txn.id for each in world.catalogs["a"].transactions.lost.all()] == [lost]


def test_a_loss_is_known_for_a_time_that_begins_when_it_was_found() -> None:
    world = World()
    world.store.replicate()
    lost = [world.insert("a"), world.insert("b")]
    found_ms = world.clock.now_ms()
    world.fail_over()
    records = world.catalogs["b"].transactions.lost
    assert records.trim(found_ms) == 0
    assert {each.txn.id for each in records.all()} == set(lost)
    assert records.trim(world.clock.now_ms() + 1) == 2
    assert records.all() == []


def test_a_sweep_leaves_what_a_lost_commit_had_named() -> None:
    world = World()
    world.store.replicate()
    lost = world.insert("a")
    world.fail_over()
    tombstones = world.catalogs["b"].transactions.tombstones
    assert tombstones.protected_files(lost, ()) == frozenset([f"{lost}-0.0-0.parquet"])
    assert tombstones.protected_files(lost, ("x",)) == frozenset([f"{lost}-0.0-0.parquet", "x"])


def test_a_commit_that_is_read_after_a_lost_answer_is_confirmed_before_it_counts() -> None:
    world = World()
    faulty = FaultyKV(world.store, new_rng(1))
    catalog = Catalog(faulty, world.clock, "c", lambda: "0" * 32, is_checking=True)
    txn = catalog.transactions.begin("insert")
    faulty.plan_commits(Fault.ANSWER_LOST)
    world.store.is_unconfirmed = True
    outcome = catalog.transactions.commit(txn.id, [part_of(txn.id)])
    assert isinstance(outcome, Unknown)
    assert world.store.confirmed
    world.store.is_unconfirmed = False
    assert not isinstance(catalog.transactions.commit(txn.id, [part_of(txn.id)]), Unknown)


FIRST = Incarnation(number=1, token="x", system=7, timeline=1)
SECOND = Incarnation(number=2, token="y", system=7, timeline=2)
OTHER_SECOND = Incarnation(number=2, token="z", system=7, timeline=2)


@pytest.mark.parametrize(
    ("known", "version", "found", "verdict"),
    [
        (None, 0, FoundHistory(stored=None, system=7, timeline=1, version=0), HistoryVerdict.OPEN),
        (None, 0, FoundHistory(stored=FIRST, system=7, timeline=1, version=9), HistoryVerdict.FOLLOW),
        (None, 0, FoundHistory(stored=FIRST, system=7, timeline=2, version=9), HistoryVerdict.OPEN),
        (None, 0, FoundHistory(stored=FIRST, system=8, timeline=1, version=9), HistoryVerdict.OPEN),
        (FIRST, 9, FoundHistory(stored=FIRST, system=7, timeline=1, version=9), HistoryVerdict.FOLLOW),
        # A database that was restored to an earlier state.
        (FIRST, 9, FoundHistory(stored=FIRST, system=7, timeline=1, version=8), HistoryVerdict.OPEN),
        (FIRST, 9, FoundHistory(stored=SECOND, system=7, timeline=2, version=3), HistoryVerdict.FOLLOW),
        # A former primary, and a standby that was promoted without the known history.
        (SECOND, 9, FoundHistory(stored=FIRST, system=7, timeline=1, version=99), HistoryVerdict.REFUSE),
        (SECOND, 9, FoundHistory(stored=FIRST, system=7, timeline=2, version=99), HistoryVerdict.OPEN),
        # A database that another server has opened in a diverging history.
        (SECOND, 9, FoundHistory(stored=OTHER_SECOND, system=7, timeline=2, version=99), HistoryVerdict.OPEN),
    ],
)
def test_a_history_is_followed_opened_or_refused(
    known: Incarnation | None, version: int, found: FoundHistory, verdict: HistoryVerdict
) -> None:
    assert judge(KnownHistory(incarnation=known, version=version), found) is verdict
    assert next_number(KnownHistory(incarnation=known), found) > max(
        0 if each is None else each.number for each in (known, found.stored)
    )
