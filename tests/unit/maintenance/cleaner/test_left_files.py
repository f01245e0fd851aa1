"""Files of failed tries of transactions that landed, real ones: who removes them, when, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.catalog_world import World
from tests.removals import watch_removals
from tilth.base.errors import NotFoundError, UnavailableError, UnknownOutcomeError
from tilth.catalog import Catalog, InsertPart, Joining, Unknown
from tilth.maintenance import sweep_transaction
from tilth.maintenance.cleaner.cleaner import Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.server import COORDINATOR, ServerRecord
from tilth.model.txn import Txn, TxnOutput
from tilth.storage import StoreRoot, local_root

KEPT_MS = 86_400_000


class Server(World):
    """A server with a cleaner; it dies before it sweeps, unless its disk can be used."""

    def __init__(self, root: Path, first: Server | None = None) -> None:
        super().__init__(*(() if first is None else (first.kv,)), clock=None if first is None else first.clock)
        if first is not None:
            self.clock = first.clock
        self.root = root
        self.is_coordinator = True
        self.is_away = True
        watch_removals(str(root), lambda: self.kv)
        self.open("s1" if first is None else "s2")

    def open(self, name: str) -> None:
        """Another process of the server."""
        # Its transactions must be newer than those of the process before it.
        self.clock.advance(1)
        self.catalog = Catalog(self.kv, self.clock, name, self.new_id, is_checking=True, sweep=self._sweep)
        self.record: ServerRecord = self.catalog.servers.join(Joining(name=name, run=self.new_id(), version="1"))
        self.catalog.serve_as(self.record)
        self.cleaner = Cleaner(
            self.clock,
            self.catalog,
            local_root(self.root),
            dropped_kept_ms=KEPT_MS,
            hosts=lambda thing: thing == COORDINATOR and self.is_coordinator,
        )

    def _sweep(self, txn: Txn, *, keep: object) -> None:
        if self.is_away:
            raise UnavailableError("the storage is away")
        sweep_transaction(self.catalog, local_root(self.root), txn, keep=keep)  # type: ignore[arg-type]  # of the seam

    @property
    def folder(self) -> Path:
        return self.root / self.t / "data"

    def land(self, *left: str, may_write_on: bool = False) -> str:
        """A transaction lands with one file, and leaves these: their names without the transaction; returns its id."""
        self.folder.mkdir(parents=True, exist_ok=True)
        outputs = [TxnOutput(table=self.t, tasks=2)]
        with self.catalog.transactions.open("merge", outputs=outputs, has_tasks=True) as work:
            if not may_write_on:
                work.tasks_ended()
            written = self.written()
            kept = replace(written, file=replace(written.file, name=f"{work.id}-0.0-0.parquet"))
            for name in (kept.file.name, *(f"{work.id}-{each}" for each in left)):
                (self.folder / name).touch()
            work.commit([InsertPart(table=self.t, written=kept)])
        return str(work.id)

    def files_of(self, txn: str) -> list[str]:
        """Names of files of the transaction, without it."""
        names = [path.name.removeprefix(f"{txn}-") for path in self.folder.glob(f"{txn}-*")]
        return sorted(names)

    def notes(self) -> list[str]:
        return [str(each.txn.id) for each in self.catalog.transactions.leftover_notes()]

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.cleaner.tick()


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.fixture
def other(server: Server, tmp_path: Path) -> Server:
    """Another server of the same catalog; it is not the coordinator."""
    made = Server(tmp_path, server)
    made.is_coordinator = False
    return made


def test_a_start_removes_what_its_forerunner_has_left(server: Server) -> None:
    txn = server.land("0.1-0.parquet", "1.0-0.arrow")
    assert server.files_of(txn) == ["0.0-0.parquet", "0.1-0.parquet", "1.0-0.arrow"]
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    assert server.files_of(txn) == ["0.0-0.parquet"]
    server.tick()
    assert server.notes() == []
    assert server.files_of(txn) == ["0.0-0.parquet"]


def test_files_that_the_storage_would_not_remove_go_when_it_does(server: Server) -> None:
    txn = server.land("0.1-0.parquet")
    # Its own: nobody works on it any more.
    server.tick()
    assert server.files_of(txn) == ["0.0-0.parquet"]
    server.tick()
    assert server.notes() == []


def test_what_was_removed_with_the_commit_is_not_looked_for_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.is_away = False
    txn = server.land("0.1-0.parquet")
    assert (server.files_of(txn), server.notes()) == (["0.0-0.parquet"], [txn])
    swept: list[int] = []
    monkeypatch.setattr("tilth.maintenance.cleaner.ended.sweep_again", lambda *given, **_: swept.append(given[2].id))
    server.tick()
    server.tick(GRACE_MS)
    assert (swept, server.notes()) == ([], [])


def test_what_lands_while_notes_go_is_not_looked_for_either(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.is_away = False
    forget, swept = server.catalog.transactions.forget_swept, list[int]()

    def forget_and_land(txns: Collection[int]) -> None:
        forget(txns)
        server.land("0.1-0.parquet")

    monkeypatch.setattr(server.catalog.transactions, "forget_swept", forget_and_land)
    monkeypatch.setattr("tilth.maintenance.cleaner.ended.sweep_again", lambda *given, **_: swept.append(given[2].id))
    server.tick()
    assert (len(server.notes()), swept) == (1, [])


def test_tasks_that_may_write_on_are_given_time(server: Server) -> None:
    txn = server.land("0.1-0.parquet", may_write_on=True)
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    server.tick()
    (server.folder / f"{txn}-0.2-0.parquet").touch()
    server.tick(GRACE_MS / 1000 - 1)
    assert server.files_of(txn) == ["0.0-0.parquet", "0.1-0.parquet", "0.2-0.parquet"]
    server.tick(1)
    assert server.files_of(txn) == ["0.0-0.parquet"]
    server.tick()
    assert server.notes() == []


def test_a_file_that_was_collected_since_hides_none_behind_it(server: Server) -> None:
    txn = server.land("0.0-1.parquet", "0.0-2.parquet", "1.0-0.parquet")
    (server.folder / f"{txn}-0.0-0.parquet").unlink()
    server.tick()
    assert server.files_of(txn) == []


def test_files_that_are_being_removed_after_an_abort_are_left_alone(server: Server) -> None:
    steps: list[Callable[[], None]] = []

    def offer(step: Callable[[], None], /) -> bool:
        steps.append(step)
        return True

    server.catalog.sweep_on(offer)
    server.is_away = False
    server.folder.mkdir(parents=True, exist_ok=True)
    outputs = [TxnOutput(table=server.t, tasks=1)]
    with server.catalog.transactions.open("merge", outputs=outputs) as work:
        (server.folder / f"{work.id}-0.0-0.parquet").touch()
    server.tick()
    server.tick(2 * GRACE_MS)
    assert server.files_of(str(work.id)) == ["0.0-0.parquet"]
    steps.pop()()
    server.tick()
    server.tick(2 * GRACE_MS)
    assert (server.files_of(str(work.id)), server.catalog.transactions.unfinished()) == ([], [])


def test_work_that_is_live_is_left_alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner asks for the commit again, which has landed."""
    commit = server.catalog.transactions.commit

    def lost(*given: object) -> object:
        commit(*given)  # type: ignore[arg-type]  # as it was called
        return Unknown("the answer was lost")

    server.folder.mkdir(parents=True, exist_ok=True)
    outputs = [TxnOutput(table=server.t, tasks=1)]
    work = server.catalog.transactions.open("merge", outputs=outputs, has_tasks=True)
    work.tasks_ended()
    (server.folder / f"{work.id}-0.1-0.parquet").touch()
    updates = [InsertPart(table=server.t, written=server.written())]
    with monkeypatch.context() as patched:
        patched.setattr(server.catalog.transactions, "commit", lost)
        with pytest.raises(UnknownOutcomeError):
            work.commit(updates)
    assert server.notes() == [str(work.id)]
    server.cleaner.start()
    server.tick(3600)
    assert server.files_of(str(work.id)) == ["0.1-0.parquet"]
    server.is_away = False
    work.commit(updates)
    assert server.files_of(str(work.id)) == []
    server.tick()
    assert server.notes() == []


def test_a_server_that_lives_removes_its_own_files_and_the_coordinator_those_of_one_that_is_gone(
    server: Server, other: Server
) -> None:
    txn = other.land("0.1-0.parquet")
    server.catalog.servers.end(server.record)
    server.open("s1")
    server.cleaner.start()
    server.tick()
    server.tick(3600)
    assert (server.files_of(txn), server.notes()) == (["0.0-0.parquet", "0.1-0.parquet"], [txn])
    server.catalog.servers.end(other.record)
    server.is_coordinator = False
    server.tick()
    assert server.files_of(txn) == ["0.0-0.parquet", "0.1-0.parquet"]
    server.is_coordinator = True
    server.tick()
    assert server.files_of(txn) == ["0.0-0.parquet"]
    server.tick()
    assert server.notes() == []


def test_a_server_that_is_no_coordinator_cleans_up_after_itself(server: Server, other: Server) -> None:
    mine, theirs = other.land("0.1-0.parquet"), server.land("0.1-0.parquet")
    other.tick()
    other.tick()
    assert other.files_of(mine) == ["0.0-0.parquet"]
    assert other.files_of(theirs) == ["0.0-0.parquet", "0.1-0.parquet"]
    assert other.notes() == [theirs]


def test_a_file_that_cannot_be_removed_leaves_the_note_and_is_remembered(server: Server) -> None:
    txn = server.land(*(f"0.1-{n}.parquet" for n in range(6)))
    stuck = server.folder / f"{txn}-0.1-3.parquet"
    # Nobody removes a folder as a file.
    stuck.unlink()
    stuck.mkdir()
    server.tick()
    server.tick()
    assert (server.files_of(txn), server.notes()) == (["0.0-0.parquet", "0.1-3.parquet"], [txn])
    stuck.rmdir()
    stuck.touch()
    server.tick()
    server.tick()
    assert (server.files_of(txn), server.notes()) == (["0.0-0.parquet"], [])
    assert server.catalog.state.get("maintenance/files-left") == msgspec.msgpack.encode({})


def test_what_the_work_itself_could_not_remove_is_remembered(server: Server) -> None:
    server.is_away = False
    real = Path.touch

    def touch(path: Path) -> None:
        path.mkdir() if path.name.endswith("-0.1-3.parquet") else real(path)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "touch", touch)
        txn = server.land(*(f"0.1-{n}.parquet" for n in range(6)))
    assert server.files_of(txn) == ["0.0-0.parquet", "0.1-3.parquet"]
    (server.folder / f"{txn}-0.1-3.parquet").rmdir()
    (server.folder / f"{txn}-0.1-3.parquet").touch()
    server.tick()
    assert server.files_of(txn) == ["0.0-0.parquet"]


class NoStorage:
    """No table has a root any more."""

    def of(self, table: str) -> StoreRoot:
        raise NotFoundError.coded("STORAGE_NOT_FOUND", "no such storage", storage="gone", known="default", hint="")


def test_the_note_of_a_table_that_is_gone_goes_too(server: Server) -> None:
    txn = server.land("0.1-0.parquet")
    server.cleaner = Cleaner(server.clock, server.catalog, NoStorage(), dropped_kept_ms=KEPT_MS)
    server.tick()
    assert server.notes() == [txn]
    server.catalog.tables.drop(server.t)
    server.tick()
    server.tick()
    # It may come back.
    assert server.notes() == [txn]
    server.catalog.tables.forget(server.t)
    server.tick()
    server.tick()
    assert server.notes() == []


def test_a_dropped_table_is_swept_too(server: Server) -> None:
    txn = server.land("0.1-0.parquet")
    server.catalog.tables.drop(server.t)
    server.tick()
    assert server.files_of(txn) == ["0.0-0.parquet"]
