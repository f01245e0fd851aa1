"""Files that tasks write after their transaction has ended: they are removed too, and no file that a commit has named.

The world is that of test_left_files.py: a real folder, a catalog in memory, a clock that the tests move.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.maintenance.cleaner.test_left_files import NoStorage, Server
from tilth.base.errors import UnavailableError
from tilth.base.rand import new_rng
from tilth.catalog import Catalog, InsertPart, TxnAbortedError, TxnHandle, TxnNotFoundError
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GAPS_MS, GRACE_MS
from tilth.maintenance.cleaner.left_files import sweep_again, sweep_transaction
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.storage import data_folder, local_root
from tilth.storage.store.files.files import remove_files
from tilth.storage.store.files.removal import LeftNames
from tilth.testing import Fault, FaultyKV

DAY_SECONDS = 86_400


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path)
    made.is_away = False
    made.folder.mkdir(parents=True)
    return made


@pytest.fixture
def other(server: Server, tmp_path: Path) -> Server:
    """Another server of the same catalog; it is not the coordinator."""
    made = Server(tmp_path, server)
    made.is_coordinator = made.is_away = False
    return made


def begin(server: Server, *, has_tasks: bool = True) -> TxnHandle:
    return server.catalog.transactions.open("merge", outputs=[TxnOutput(table=server.t, tasks=2)], has_tasks=has_tasks)


def cancel(work: TxnHandle) -> None:
    """End the work as a cancelled one ends: its tasks may still write."""
    with pytest.raises(RuntimeError), work:
        raise RuntimeError("it was cancelled")


def begin_and_cancel(server: Server) -> TxnHandle:
    work = begin(server)
    cancel(work)
    return work


def pass_grace(server: Server) -> None:
    """Let the cleaner see what has ended, and let it remove the files after the grace period."""
    server.tick()
    server.tick(GRACE_MS / 1000)


def write(server: Server, txn: object, *names: str) -> None:
    for name in names:
        (server.folder / f"{txn}-{name}").touch()


def tombstones_of(server: Server) -> list[str]:
    """Return the ids of the transactions that have a tombstone."""
    return [str(each.txn.id) for each in server.catalog.transactions.tombstones.all()]


def pass_time(server: Server, seconds: float, *, steps: int = 20) -> None:
    for _ in range(steps):
        server.tick(seconds / steps)


def removals(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by each transaction whose files the cleaner removes from now on."""
    found: list[int] = []

    def counting(*given: Any, **named: Any) -> int:
        found.append(given[2].id)
        return sweep_again(*given, **named)

    monkeypatch.setattr("tilth.maintenance.cleaner.ended.sweep_again", counting)
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_a_slow_store_holds_up_the_manager_for_seconds_and_no_transaction_for_good(
    server: Server, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Each removal takes a second, and the first ones may fail each time."""
    works = [begin_and_cancel(server) for _ in range(10)]
    first = {work.id for work in works[:4]} if fails else set()
    swept: list[int] = []

    def slow(catalog: Catalog, root: object, txn: Txn, **options: Any) -> int:
        server.clock.advance(1)
        swept.append(txn.id)
        if txn.id in first:
            raise UnavailableError("the store does not answer")
        return sweep_again(catalog, root, txn, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("tilth.maintenance.cleaner.ended.sweep_again", slow)
    pass_grace(server)
    for work in works:
        write(server, work.id, "0.0-0.parquet")
    counts = []
    for _ in range(30):
        before = len(swept)
        server.tick(GAPS_MS[0] / 1000)
        counts.append(len(swept) - before)
    # Two of the aborted ones, and one of those with a tombstone, in a round.
    assert max(counts) <= 3
    assert {work.id for work in works} == set(swept)
    assert [bool(server.files_of(str(work.id))) for work in works] == [work.id in first for work in works]


def test_a_start_before_a_slow_store_leaves_removals_to_the_rounds(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [begin(server) for _ in range(20)]
    for work in works:
        write(server, work.id, "0.0-0.parquet")
    server.catalog.servers.end(server.record)
    server.open("s1")
    found = removals(server, monkeypatch)
    sweep = server.cleaner._ended._remove

    def slow(txn: Txn) -> None:
        server.clock.advance(1)
        sweep(txn)

    monkeypatch.setattr(server.cleaner._ended, "_remove", slow)
    assert server.cleaner.start() == 20
    assert len(found) == 10
    pass_time(server, 60)
    assert [server.files_of(str(work.id)) for work in works] == [[]] * 20


@pytest.mark.parametrize("late_seconds", [1, 35, 3600, DAY_SECONDS - 3600])
def test_what_a_task_writes_after_its_server_was_ended_goes(server: Server, other: Server, late_seconds: int) -> None:
    work = begin(other)
    server.catalog.servers.end(other.record)
    pass_grace(server)
    pass_time(server, late_seconds)
    write(server, work.id, "0.0-0.parquet", "0.0-0.filter", "1.0-0.arrow")
    # Its process is back under another name.
    other.open("s2")
    with pytest.raises((TxnAbortedError, TxnNotFoundError)), work:
        work.commit([InsertPart(table=server.t, written=server.written())])
    pass_time(server, 2 * DAY_SECONDS, steps=200)
    assert (server.files_of(str(work.id)), tombstones_of(server)) == ([], [])


def test_what_comes_after_a_start_goes(server: Server) -> None:
    """The worker of a server that died learns of it a moment after the next process has removed its files."""
    work = begin(server)
    server.catalog.servers.end(server.record)
    server.open("s1")
    assert server.cleaner.start() == 1
    assert server.catalog.transactions.unfinished() == []
    write(server, work.id, "0.0-0.parquet")
    pass_time(server, 2 * GAPS_MS[0] / 1000)
    assert server.files_of(str(work.id)) == []
    assert tombstones_of(server) == [str(work.id)]


def test_late_files_are_removed_with_growing_gaps_and_then_nothing_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_and_cancel(server)
    found = removals(server, monkeypatch)
    pass_time(server, 3 * DAY_SECONDS, steps=3000)
    assert len(found) == 1 + len(GAPS_MS)
    assert DAY_SECONDS * 1000 <= sum(GAPS_MS) <= 1.1 * DAY_SECONDS * 1000
    assert (tombstones_of(server), server.catalog.transactions.unfinished()) == ([], [])


def test_tasks_that_have_all_ended_need_no_tombstone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = removals(server, monkeypatch)
    work = begin(server)
    write(server, work.id, "0.0-0.parquet")
    work.tasks_ended()
    with pytest.raises(RuntimeError), work:
        raise RuntimeError("refused")
    landed = server.land("0.1-0.parquet")
    pass_grace(server)
    assert (server.files_of(str(work.id)), server.files_of(landed)) == ([], ["0.0-0.parquet"])
    assert (found, tombstones_of(server), server.catalog.transactions.unfinished()) == ([], [], [])


def test_files_behind_those_that_are_gone_are_found(server: Server) -> None:
    """The task had written three files when they were removed, and continues with the next number."""
    work = begin(server)
    write(server, work.id, *(f"0.0-{n}.parquet" for n in range(3)))
    cancel(work)
    pass_grace(server)
    assert server.files_of(str(work.id)) == []
    for start, end in ((3, 40), (40, 60)):
        write(server, work.id, *(f"0.0-{n}.parquet" for n in range(start, end)))
        pass_time(server, 300)
        assert server.files_of(str(work.id)) == []


def test_files_behind_those_that_are_gone_are_found_after_a_death_in_between(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count is stored before the first file is removed."""

    def away(txn: int) -> None:
        raise UnavailableError("the catalog is away")

    work = begin(server)
    write(server, work.id, *(f"0.0-{n}.parquet" for n in range(3)))
    cancel(work)
    server.tick()
    with monkeypatch.context() as patched:
        patched.setattr(server.catalog.transactions, "forget", away)
        server.tick(GRACE_MS / 1000)
    assert [each.state for each in server.catalog.transactions.unfinished()] == [TxnState.ABORTED]
    write(server, work.id, "0.0-3.parquet")
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    assert (server.files_of(str(work.id)), server.catalog.transactions.unfinished()) == ([], [])


def test_late_files_behind_those_that_are_gone_are_found_after_a_death_in_between(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(BaseException):
        """End of the process, which no handler catches."""

    remove = LeftNames.remove

    def removed_and_dead(names: LeftNames) -> int:
        remove(names)
        raise Death

    work = begin_and_cancel(server)
    pass_grace(server)
    write(server, work.id, *(f"0.0-{n}.parquet" for n in range(3)))
    with monkeypatch.context() as patched:
        patched.setattr(LeftNames, "remove", removed_and_dead)
        with pytest.raises(Death):
            pass_time(server, 300)
    assert server.files_of(str(work.id)) == []
    write(server, work.id, "0.0-3.parquet")
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    pass_time(server, 300)
    assert server.files_of(str(work.id)) == []


def test_late_files_of_one_that_landed_go_and_what_it_named_stays(server: Server) -> None:
    txn = server.land("0.1-0.parquet", may_write_on=True)
    pass_grace(server)
    assert (server.files_of(txn), tombstones_of(server)) == (["0.0-0.parquet"], [txn])
    server.tick()
    assert server.notes() == []
    write(server, txn, "0.1-1.parquet", "1.1-0.arrow")
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    pass_time(server, 2 * GAPS_MS[0] / 1000)
    assert server.files_of(txn) == ["0.0-0.parquet"]
    pass_time(server, 3 * DAY_SECONDS, steps=200)
    assert (server.files_of(txn), tombstones_of(server)) == (["0.0-0.parquet"], [])


def test_nothing_of_a_transaction_that_runs_or_has_landed_is_removed(server: Server) -> None:
    """Its record counts, even if the caller takes it for aborted."""
    running = begin(server)
    write(server, running.id, "0.0-0.parquet")
    txn = int(server.land())
    server.tick()
    for each in (running.txn, replace(running.txn, id=txn)):
        assert sweep_transaction(server.catalog, local_root(server.root), each) == 0
        assert server.files_of(str(each.id)) == ["0.0-0.parquet"]


def test_the_note_says_what_stays_whoever_removes(server: Server) -> None:
    txn = int(server.land("0.1-0.parquet", may_write_on=True))
    [note] = server.catalog.transactions.leftover_notes()
    assert sweep_transaction(server.catalog, local_root(server.root), note.txn) == 1
    assert server.files_of(str(txn)) == ["0.0-0.parquet"]


def test_a_storage_that_is_away_takes_no_removal_from_the_tombstone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = begin_and_cancel(server)
    pass_grace(server)
    write(server, work.id, "0.0-0.parquet")
    with monkeypatch.context() as patched:
        patched.setattr("tilth.maintenance.cleaner.ended.away_reason", lambda _: "a replica is away")
        pass_time(server, 3 * DAY_SECONDS)
    assert (server.files_of(str(work.id)), tombstones_of(server)) == (["0.0-0.parquet"], [str(work.id)])
    pass_time(server, 120)
    assert server.files_of(str(work.id)) == []


def test_the_tombstone_of_a_table_that_is_gone_goes_too(server: Server) -> None:
    work = begin_and_cancel(server)
    pass_grace(server)
    assert tombstones_of(server) == [str(work.id)]
    server.cleaner = Cleaner(server.clock, server.catalog, NoStorage(), dropped_kept_ms=86_400_000)
    server.catalog.tables.drop(server.t)
    server.catalog.tables.forget(server.t)
    pass_time(server, 3 * DAY_SECONDS, steps=200)
    assert tombstones_of(server) == []


def test_a_tombstone_that_a_clock_ahead_has_written_is_due_now(server: Server) -> None:
    server.clock.advance(400 * DAY_SECONDS)
    work = begin_and_cancel(server)
    pass_grace(server)
    write(server, work.id, "0.0-0.parquet")
    server.clock.set_now_ms(server.clock.now_ms() - 400_000 * DAY_SECONDS)
    server.clock.advance(60)
    server.tick()
    assert server.files_of(str(work.id)) == []


def test_the_oldest_tombstones_are_forgotten_beyond_a_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.maintenance.cleaner.ended.TOMBSTONES_MAX", 3)
    monkeypatch.setattr("tilth.maintenance.cleaner.ended.LATE_SWEEPS_MAX", 2)
    works = [begin(server) for _ in range(5)]
    for work in works:
        cancel(work)
    pass_grace(server)
    assert len(tombstones_of(server)) == 5
    for work in works[2:]:
        write(server, work.id, "0.0-0.parquet")
    server.tick(60)
    assert tombstones_of(server) == [str(work.id) for work in works[2:]]
    # All of them are due, and each round removes the files of two.
    server.tick(1)
    assert [server.files_of(str(work.id)) for work in works] == [[]] * 5


@pytest.mark.parametrize("is_away", [False, True])
def test_tombstones_whose_files_cannot_be_removed_take_no_turn_from_others(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    monkeypatch.setattr("tilth.maintenance.cleaner.ended.LATE_SWEEPS_MAX", 2)
    works = [begin(server) for _ in range(5)]
    for work in works:
        cancel(work)
    pass_grace(server)
    for work in works:
        write(server, work.id, "0.0-0.parquet")
    first = {work.id for work in works[:3]}

    def failing(catalog: Catalog, root: object, txn: Txn, **options: Any) -> int:
        if txn.id in first:
            raise UnavailableError("the store does not answer")
        return sweep_again(catalog, root, txn, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        if is_away:
            patched.setattr(server.cleaner._ended, "_away", lambda txn, known: txn.id in first)
        else:
            patched.setattr("tilth.maintenance.cleaner.ended.sweep_again", failing)
        server.tick(60)
        server.tick(1)
        server.tick(1)
        assert [bool(server.files_of(str(work.id))) for work in works] == [True] * 3 + [False] * 2
    # The next round over all tombstones comes after its period.
    server.tick(60)
    server.tick(1)
    assert [server.files_of(str(work.id)) for work in works] == [[]] * 5


def test_answers_that_are_lost_leave_no_file(server: Server) -> None:
    """Each commit of the cleaner loses its answer once."""
    work = begin_and_cancel(server)
    write(server, work.id, "0.0-0.parquet")
    faulty = FaultyKV(server.kv, new_rng(1))
    server.kv = faulty
    server.catalog.servers.end(server.record)
    server.open("s1")
    for _ in range(3):
        faulty.plan_commits(Fault.ANSWER_LOST, Fault.ANSWER_LOST)
        server.tick(GRACE_MS / 1000)
        write(server, work.id, "1.0-0.parquet")
        pass_time(server, 400)
    pass_time(server, 2 * DAY_SECONDS, steps=200)
    assert (server.files_of(str(work.id)), tombstones_of(server)) == ([], [])


def test_the_world_sees_a_removal_of_what_the_catalog_names(server: Server) -> None:
    """The check that all these tests rely on (tests/removals.py)."""
    txn = int(server.land())
    folder = data_folder(local_root(server.root), server.t)
    with pytest.raises(AssertionError, match="the catalog names what is to be removed"):
        remove_files(folder, [f"{txn}-0.0-0.parquet"])
    assert server.files_of(str(txn)) == ["0.0-0.parquet"]
