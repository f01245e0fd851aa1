"""Commits: what they do, what refuses them, and that an answer that was lost changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pytest

from tests.catalog_world import Racing, World
from tests.codes import WithCode
from tilth.base.errors import ConflictError, FencedError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.rand import new_rng
from tilth.catalog import (
    BadMergeError,
    ClockSkewError,
    Committed,
    Conflicted,
    HideEverything,
    HidePartition,
    InsertPart,
    MemoryKV,
    PartsGoneError,
    ReplaceParts,
    Requirement,
    SchemaChangedError,
    SchemaIs,
    TableNotFoundError,
    TooManyConflictsError,
    TxnAbortedError,
    TxnFinishedError,
    TxnNotFoundError,
    Unknown,
    WrongEngineError,
)
from tilth.catalog.kv import AtVersion, KVOutcome, Precondition
from tilth.model.lease import Fence
from tilth.model.part import LEVEL_MAX, PartName
from tilth.model.txn import TxnOutput, TxnState
from tilth.testing import Fault, FaultyKV

T = TypeVar("T")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def faulty() -> FaultyKV:
    return FaultyKV(MemoryKV(), new_rng(1))


def test_a_commit_makes_its_parts_visible_and_counts(world: World) -> None:
    first, second = world.insert("a", "b", rows=3)
    assert (first.name.partition, second.name.partition) == ("a", "b")
    assert first.name.min_block == first.name.max_block < first.commit_ts == second.commit_ts
    assert (first.min_row_ts, first.max_row_ts) == (first.commit_ts, first.commit_ts)
    version = world.catalog.parts.version(world.t)
    assert (version.counter, version.inserted_rows, version.parts_added) == (1, 6, 2)
    assert version.last_commit_ts == first.commit_ts
    assert world.catalog.parts.partitions(world.t) == ["a", "b"]


def test_time_rises_per_table_though_the_clock_goes_back(world: World) -> None:
    [first] = world.insert()
    world.clock.set_now_ms(1_000)
    restarted = World(world.kv)
    restarted.clock.set_now_ms(1_000)
    [second] = restarted.insert(table=world.t)
    assert second.name.mutation > first.name.mutation
    assert second.name.min_block > first.commit_ts
    assert second.commit_ts > first.commit_ts


def test_ids_are_not_used_again_after_clean_up_and_restart(world: World) -> None:
    transactions = world.catalog.transactions
    aborted = transactions.begin("test")
    transactions.abort(aborted.id, "no")
    transactions.forget(aborted.id)
    world.clock.set_now_ms(1_000)
    assert world.reopened().transactions.begin("test").id > aborted.id


def test_committing_twice_gives_the_same_answer(world: World) -> None:
    transactions = world.catalog.transactions
    txn = transactions.begin("test")
    updates = [InsertPart(table=world.t, written=world.written())]
    first = transactions.commit(txn.id, updates)
    assert isinstance(first, Committed)
    assert transactions.commit(txn.id, updates) == first
    assert world.reopened().transactions.commit(txn.id, ()) == first
    assert len(world.names()) == 1
    assert world.catalog.stats().commits == 2


def test_merge_names_marks_and_events(world: World) -> None:
    parts = [*world.insert(), *world.insert(), *world.insert()]
    before = parts[-1].commit_ts
    merged = world.merge(parts[:2])
    low, high = parts[0].name, parts[1].name
    assert merged.name == PartName("all", low.min_block, high.max_block, 1, merged.name.mutation)
    assert world.names() == sorted([merged.name, parts[2].name])
    assert world.names(at=before) == [part.name for part in parts]
    assert (merged.min_row_ts, merged.max_row_ts) == (parts[0].commit_ts, parts[1].commit_ts)
    events = world.catalog.part_log.recent(limit=10)
    assert [(event.event, event.part, event.sources) for event in events][-1] == ("merge", str(merged.name), 2)


def test_a_merge_of_no_rows_leaves_a_mark(world: World) -> None:
    parts = [*world.insert(), *world.insert()]
    names = tuple(part.name for part in parts)
    assert world.commit(ReplaceParts(table=world.t, sources=names, written=None, reason="all expired")) == []
    assert world.names() == []
    assert world.catalog.parts.version(world.t).removed_rows == 20


def test_bad_merges_are_refused(world: World) -> None:
    a, b = world.insert("a", "b")
    [c] = world.insert("a")
    covering = world.merge([a, c])
    for sources in ((), (b.name, covering.name), (b.name, b.name)):
        with pytest.raises(BadMergeError):
            world.commit(ReplaceParts(table=world.t, sources=sources, written=world.written("a")))
    assert sorted(world.names()) == sorted([covering.name, b.name])


def test_a_merge_whose_sources_are_gone_is_refused(world: World) -> None:
    parts = [*world.insert(), *world.insert()]
    names = tuple(part.name for part in parts)
    transactions = world.catalog.transactions
    txn = transactions.begin("merge")
    world.merge(parts)
    outcome = transactions.commit(txn.id, [ReplaceParts(table=world.t, sources=names, written=world.written())])
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, PartsGoneError)
    assert str(names[0]) in str(outcome.error)
    assert transactions.resolve(txn.id) is TxnState.RUNNING


def test_a_merge_of_dropped_sources_is_refused(world: World) -> None:
    parts = [*world.insert(), *world.insert()]
    world.commit(HidePartition(table=world.t, partition="all"))
    with pytest.raises(PartsGoneError):
        world.merge(parts)
    assert world.names() == []


def test_a_slow_insert_survives_a_drop_that_was_decided_before(world: World) -> None:
    """Its block id is drawn inside its commit: docs/policies/visibility.md#why-so."""
    world.insert("a")
    slow = world.catalog.transactions.open("insert")
    world.commit(HidePartition(table=world.t, partition="a"))
    slow.commit([InsertPart(table=world.t, written=world.written("a"))])
    [name] = world.names()
    assert name.mutation == slow.id
    [event] = [each for each in world.catalog.part_log.recent(limit=9) if each.event == "hide"]
    assert (event.rows, event.sources) == (10, 1)


def test_overwriting_a_partition_is_one_commit(world: World) -> None:
    world.insert("a", "b")
    [new] = world.commit(
        HidePartition(table=world.t, partition="a"), InsertPart(table=world.t, written=world.written("a"))
    )
    assert new.name in world.names()
    assert [name.partition for name in world.names()] == ["a", "b"]


def test_truncate_hides_what_is_there_now(world: World) -> None:
    world.insert("a", "b")
    world.insert("b")
    world.commit(HideEverything(table=world.t))
    assert world.names() == []
    ranges = [entry for entry in world.catalog.parts.all_entries(world.t) if entry.name.level == LEVEL_MAX]
    assert [entry.name.partition for entry in ranges] == ["a", "b"]
    world.commit(HideEverything(table=world.t))
    assert world.catalog.parts.version(world.t).counter == 3
    [again] = world.insert("b")
    assert world.names() == [again.name]


def test_several_tables_commit_at_one_time(world: World) -> None:
    other = world.table("other")
    for _ in range(5):
        world.insert(table=other)
    parts = world.commit(
        InsertPart(table=world.t, written=world.written()), InsertPart(table=other, written=world.written())
    )
    assert parts[0].commit_ts == parts[1].commit_ts
    assert world.catalog.parts.version(world.t).last_commit_ts == parts[0].commit_ts
    assert world.catalog.parts.version(other).last_commit_ts == parts[0].commit_ts
    with pytest.raises(TableNotFoundError):
        world.commit(
            InsertPart(table=world.t, written=world.written()), InsertPart(table="gone", written=world.written())
        )
    assert len(world.names()) == 1


def test_fences(world: World) -> None:
    leases, transactions = world.catalog.leases, world.catalog.transactions
    old = leases.acquire("table/x", "s1")
    txn = transactions.begin("merge", fences=[old.fence])
    updates = [InsertPart(table=world.t, written=world.written())]
    new = leases.acquire("table/x", "s2")
    outcome = transactions.commit(txn.id, updates)
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, FencedError)
    assert outcome.error.facts["now_holder"] == "s2"
    with pytest.raises(FencedError):
        transactions.begin("merge", fences=[old.fence])
    with pytest.raises(FencedError):
        world.catalog.transactions.begin("merge", fences=[Fence("never/taken", 1)])
    assert world.names() == []
    theirs = transactions.begin("merge", fences=[new.fence])
    assert isinstance(transactions.commit(theirs.id, updates), Committed)
    assert world.catalog.stats().fenced == 1


def test_requirements(world: World) -> None:
    transactions = world.catalog.transactions
    world.insert()
    txn = transactions.begin("test")
    updates = [InsertPart(table=world.t, written=world.written())]
    broken: list[tuple[Requirement, type[TilthError]]] = [
        (SchemaIs(table=world.t, schema_version=2), SchemaChangedError),
        (SchemaIs(table="gone", schema_version=1), TableNotFoundError),
        (SchemaIs(table=world.kafka(), schema_version=1), WrongEngineError),
    ]
    for requirement, error in broken:
        outcome = transactions.commit(txn.id, updates, [requirement])
        assert isinstance(outcome, Conflicted)
        assert isinstance(outcome.error, error)
    holding: list[Requirement] = [
        SchemaIs(table=world.t, schema_version=1),
    ]
    assert isinstance(transactions.commit(txn.id, updates, holding), Committed)


def test_a_dropped_table_takes_no_commit(world: World) -> None:
    txn = world.catalog.transactions.open("insert")
    world.catalog.tables.drop(world.t)
    with pytest.raises(TableNotFoundError):
        txn.commit([InsertPart(table=world.t, written=world.written())])


def test_aborting(world: World) -> None:
    transactions = world.catalog.transactions
    txn = transactions.open("insert", outputs=[TxnOutput(table=world.t, tasks=2)])
    assert transactions.oldest_running() == txn.id
    with pytest.raises(ConflictError, check=WithCode("TXN_RUNNING")):
        transactions.forget(txn.id)
    transactions.abort(txn.id, "its worker is gone")
    transactions.abort(txn.id, "again")
    assert transactions.oldest_running() is None
    [left] = transactions.unfinished()
    assert (left.state, left.reason, left.outputs) == (TxnState.ABORTED, "its worker is gone", txn.txn.outputs)
    outcome = transactions.commit(txn.id, [InsertPart(table=world.t, written=world.written())])
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, TxnAbortedError)
    transactions.forget(txn.id)
    transactions.forget(txn.id)
    assert transactions.resolve(txn.id) is None
    with pytest.raises(TxnNotFoundError):
        transactions.abort(txn.id, "gone")
    # Its handle knows that it is not committed.
    with pytest.raises(TxnAbortedError):
        txn.commit([])


def test_a_finished_transaction_cannot_be_aborted(world: World) -> None:
    txn = world.catalog.transactions.open("insert")
    txn.commit([])
    with pytest.raises(TxnFinishedError):
        world.catalog.transactions.abort(txn.id, "too late")
    assert world.catalog.transactions.unfinished() == []


def test_recent_and_trim(world: World) -> None:
    transactions = world.catalog.transactions
    ids = []
    for number in range(6):
        txn = transactions.open(f"test {number}")
        ids.append(txn.id)
        if number % 2:
            txn.commit([])
    assert [txn.id for txn in transactions.recent(4)] == ids[:1:-1]
    assert transactions.trim_finished(ids[5]) == 2
    assert [txn.id for txn in transactions.recent(10)] == [ids[5], ids[4], ids[2], ids[0]]
    assert transactions.resolve(ids[1]) is None


def test_a_commit_whose_answer_is_lost_is_recognised(faulty: FaultyKV) -> None:
    world = World(faulty)
    transactions = world.catalog.transactions
    txn = transactions.begin("insert")
    faulty.plan_commits(Fault.ANSWER_LOST)
    outcome = transactions.commit(txn.id, [InsertPart(table=world.t, written=world.written())])
    assert isinstance(outcome, Committed)
    assert world.names() == [part.name for _, part in outcome.parts]
    assert world.catalog.parts.version(world.t).counter == 1
    assert world.catalog.stats().commits == 1


def test_a_commit_whose_request_is_lost_is_made_again(faulty: FaultyKV) -> None:
    world = World(faulty)
    txn = world.catalog.transactions.begin("insert")
    faulty.plan_commits(Fault.REQUEST_LOST, Fault.REFUSED, Fault.REQUEST_LOST)
    updates = [InsertPart(table=world.t, written=world.written())]
    assert isinstance(world.catalog.transactions.commit(txn.id, updates), Committed)
    assert len(world.names()) == 1


def test_an_outcome_that_stays_unknown_is_reported_as_such(faulty: FaultyKV) -> None:
    world = World(faulty)
    transactions = world.catalog.transactions
    txn = transactions.open("insert")
    updates = [InsertPart(table=world.t, written=world.written())]
    faulty.plan_commits(*[Fault.REQUEST_LOST] * 5)
    assert isinstance(transactions.commit(txn.id, updates), Unknown)
    faulty.plan_commits(*[Fault.REQUEST_LOST] * 5)
    with pytest.raises(UnknownOutcomeError):
        txn.commit(updates)
    assert transactions.resolve(txn.id) is TxnState.RUNNING
    assert isinstance(transactions.commit(txn.id, updates), Committed)
    assert world.catalog.stats().unknown == 2


def test_after_a_lost_answer_an_outage_is_no_refusal(faulty: FaultyKV) -> None:
    """The first request may still be on its way: after a refusal, the files of a commit that is applied later would be
    removed.
    """
    world = World(faulty)
    transactions = world.catalog.transactions
    txn = transactions.open("insert")
    updates = [InsertPart(table=world.t, written=world.written())]
    faulty.plan_commits(Fault.REQUEST_LOST, *[Fault.REFUSED] * 9)
    assert isinstance(transactions.commit(txn.id, updates), Unknown)


def test_after_a_lost_answer_a_refusal_of_this_server_is_none_of_the_commit(
    faulty: FaultyKV, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is found wrong while the first request may still be on its way."""
    world = World(faulty)
    transactions = world.catalog.transactions
    txn = transactions.begin("insert")
    faulty.plan_commits(Fault.REQUEST_LOST)
    monkeypatch.setattr(world.clock, "sleep", lambda seconds: transactions.refuse(ClockSkewError(server="s1")))
    updates = [InsertPart(table=world.t, written=world.written())]
    assert isinstance(transactions.commit(txn.id, updates), Unknown)
    transactions.refuse(None)
    assert isinstance(transactions.commit(txn.id, updates), Committed)


def test_a_transaction_that_is_aborted_while_it_commits_lands_nothing() -> None:
    kv = Racing()
    world = World(kv)
    transactions = world.catalog.transactions
    txn = transactions.begin("insert")
    kv.before = lambda: transactions.abort(txn.id, "it took too long")
    outcome = transactions.commit(txn.id, [InsertPart(table=world.t, written=world.written())])
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, TxnAbortedError)
    assert transactions.resolve(txn.id) is TxnState.ABORTED
    assert world.names() == []


def test_an_unknown_outcome_that_landed_is_found_out_by_asking(faulty: FaultyKV) -> None:
    """The answer is lost and then the store cannot be read for as long as the commit tries."""
    world = World(faulty)
    transactions = world.catalog.transactions
    txn = transactions.open("insert")
    updates = [InsertPart(table=world.t, written=world.written())]
    faulty.plan_commits(Fault.ANSWER_LOST)
    # All reads of the last try arrive but the query after the lost answer.
    faulty.plan_reads(*[None] * 5, *[Fault.REFUSED] * 4, *[None] * 9, Fault.REFUSED)
    outcome = transactions.commit(txn.id, updates)
    assert isinstance(outcome, Unknown)
    assert transactions.resolve(txn.id) is TxnState.FINISHED
    assert isinstance(txn.commit(updates), Committed)
    assert len(world.names()) == 1


def test_a_commit_that_is_found_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = MemoryKV()
    world = World(kv)
    confirmed: list[bool] = []
    monkeypatch.setattr(kv, "confirm", lambda: confirmed.append(True))
    transactions = world.catalog.transactions
    txn = transactions.open("insert")
    assert (transactions.resolve(txn.id), confirmed) == (TxnState.RUNNING, [])
    txn.commit([InsertPart(table=world.t, written=world.written())])
    assert (transactions.resolve(txn.id), confirmed) == (TxnState.FINISHED, [True])


def test_a_store_that_does_not_answer_applies_nothing(faulty: FaultyKV) -> None:
    world = World(faulty)
    txn = world.catalog.transactions.open("insert")
    faulty.plan_commits(*[Fault.REFUSED] * 5)
    with pytest.raises(UnavailableError):
        txn.commit([InsertPart(table=world.t, written=world.written())])
    assert world.names() == []


def test_nothing_is_claimed_when_the_record_cannot_be_read(faulty: FaultyKV) -> None:
    """An earlier call may have landed."""
    world = World(faulty)
    txn = world.catalog.transactions.open("insert")
    txn.commit([])
    faulty.plan_reads(*[Fault.REFUSED] * 6)
    assert isinstance(world.catalog.transactions.commit(txn.id, []), Unknown)


def test_a_table_that_is_always_busy_is_reported(world: World) -> None:
    class Busy(MemoryKV):
        """Before each commit that has preconditions somebody else changes the first of these keys."""

        is_busy = False

        def commit(
            self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
        ) -> KVOutcome:
            if self.is_busy and preconditions:
                first = preconditions[0]
                assert isinstance(first, AtVersion)
                key = first.key
                found = self.get(key)
                assert found is not None
                super().commit([], {key: found.value}, [])
            return super().commit(preconditions, puts, deletes)

    kv = Busy()
    world = World(kv)
    txn = world.catalog.transactions.open("insert")
    kv.is_busy = True
    with pytest.raises(TooManyConflictsError):
        txn.commit([InsertPart(table=world.t, written=world.written())])
    assert world.names() == []


@pytest.mark.parametrize("seed", range(20))
def test_every_commit_happens_once_whatever_is_lost(seed: int) -> None:
    """Inserts and merges through a store that fails half of the time; at the end every row is there once."""
    faulty = FaultyKV(MemoryKV(), new_rng(seed))
    world = World(faulty)
    faulty.commit_rate, faulty.read_rate = 0.5, 0.05
    rng = new_rng(seed + 1000)
    rows = 0
    for number in range(30):
        txn = _until_known(lambda: world.catalog.transactions.open("test"))
        parts = _until_known(lambda: world.catalog.parts.visible(world.t, "all"))
        if len(parts) > 3 and rng.random() < 0.5:
            names = tuple(part.name for part in parts[:3])
            written = world.written(rows=sum(part.rows for part in parts[:3]))
            update = ReplaceParts(table=world.t, sources=names, written=written)
            _until_known(partial(txn.commit, [update]))
        else:
            rows += number
            insert = InsertPart(table=world.t, written=world.written(rows=number))
            _until_known(partial(txn.commit, [insert]))
    faulty.commit_rate = faulty.read_rate = 0.0
    snapshot = world.catalog.parts.snapshot(world.t)
    assert snapshot.rows == rows == world.catalog.parts.version(world.t).inserted_rows
    assert world.catalog.parts.version(world.t).counter == 30
    assert len(set(world.files())) == len(list(world.files()))
    assert faulty.faults > 10


def _until_known(call: Callable[[], T]) -> T:
    for _ in range(100):
        try:
            return call()
        except (UnavailableError, UnknownOutcomeError) as error:
            failed = error
    raise failed
