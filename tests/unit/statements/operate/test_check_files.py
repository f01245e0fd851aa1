"""SYSTEM CHECK FILES over real folders: the states of files that differ from the catalog, and removed orphans.

Times of files are those of the world's clock, set by `put`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.removals import watch_removals
from tests.sql_world import SqlWorld, table_of
from tilth.base.errors import TilthError
from tilth.base.hybrid import pack
from tilth.catalog import MemoryKV, TxnHandle
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space
from tilth.catalog.records.keys import pack as key_of
from tilth.maintenance.cleaner.cleaner import LOST_KEPT_MS, TRIM_PERIOD_MS, Cleaner
from tilth.maintenance.cleaner.ended import GRACE_MS
from tilth.model.copy_note import CopyNote
from tilth.model.part import DataFile
from tilth.model.txn import LostTxn, Txn, TxnOutput, TxnState
from tilth.storage import NamedRoots, StoredFile, local_root
from tilth.storage.store.backends.local import LocalStore
from tilth.verify import FileState, check_stored, stored

DAY_SECONDS = 86_400


class Stored:
    """A table with two parts, and its folder."""

    def __init__(self, folder: Path) -> None:
        self.kv = MemoryKV()
        self.world = SqlWorld(folder, kv=self.kv)
        self.roots = NamedRoots(self.world.clock, local_root(folder), self.world.catalog.storage_of)
        self.world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
        [table] = self.world.catalog.tables.all()
        self.uuid = table.uuid
        self.folder = folder / self.uuid
        self.insert()
        self.insert()
        watch_removals(str(folder), lambda: self.kv)

    def insert(self) -> None:
        self.world.run("INSERT INTO t VALUES (1)")
        for path in self.data.iterdir():
            os.utime(path, (self.now, self.now))

    @property
    def now(self) -> float:
        return self.world.clock.now_ms() / 1000

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.data.iterdir())

    def put(self, name: str, content: bytes = b"x") -> None:
        path = self.data / name
        path.write_bytes(content)
        os.utime(path, (self.now, self.now))

    def begin(self, *, has_tasks: bool = True) -> TxnHandle:
        outputs = [TxnOutput(table=self.uuid, tasks=2)]
        return self.world.catalog.transactions.open("merge", outputs=outputs, has_tasks=has_tasks)

    def check(self, text: str = "", **settings: str) -> list[dict[str, Any]]:
        """The rows without the summaries."""
        rows = self.world.run(f"SYSTEM CHECK FILES t{text}", settings=settings).table.to_pylist()
        summaries = [row for row in rows if row["state"] == "known"]
        assert all(row["file"] == "" for row in summaries)
        return [row for row in rows if row["state"] != "known"]

    def states(self) -> dict[str, str]:
        return {row["file"].removeprefix("data/"): row["state"] for row in self.check()}


@pytest.fixture
def files(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_a_table_whose_files_are_as_they_should_be_has_a_summary_alone(files: Stored) -> None:
    assert files.check() == []
    [summary] = files.world.run("SYSTEM CHECK FILES t").table.to_pylist()
    assert (summary["state"], summary["detail"]) == ("known", "2 files as the catalog names them")
    assert summary["bytes"] == sum(path.stat().st_size for path in files.data.iterdir())


def test_each_file_is_what_it_is(files: Stored) -> None:
    running, aborted = files.begin(), files.begin()
    files.put(f"{running.id}-0.0-0.parquet")
    files.put(f"{aborted.id}-0.0-0.parquet")
    files.put(f"{aborted.id}-0.0-0.filter")
    aborted.give_up("it was cancelled", is_settled=False)
    files.put("7-0.0-0.arrow")
    files.put("notes.txt")
    files.put("7-0.0-0.txt")
    first, second = sorted(part.file.name for part in files.world.catalog.parts.snapshot(files.uuid).parts)
    (files.data / first).unlink()
    files.put(second, b"cut")
    files.put(second.replace(".parquet", ".filter"))
    files.put(first.replace(".parquet", ".map"))
    assert files.states() == {
        f"{running.id}-0.0-0.parquet": "running",
        f"{aborted.id}-0.0-0.parquet": "orphan",
        f"{aborted.id}-0.0-0.filter": "sidecar without file",
        "7-0.0-0.arrow": "orphan",
        "notes.txt": "foreign",
        "7-0.0-0.txt": "foreign",
        first: "missing",
        second: "wrong size",
    }
    details = {row["file"].removeprefix("data/"): row["detail"] for row in files.check()}
    assert details[first].startswith("of part all_")
    assert details["7-0.0-0.arrow"] == "no record of transaction 7"
    assert details[f"{aborted.id}-0.0-0.parquet"].startswith(f"transaction {aborted.id} was aborted: it was cancelled")
    running.give_up("over", is_settled=True)


def test_files_outside_of_the_data_folder_are_foreign_whatever_their_name(files: Stored) -> None:
    [name, _] = [part.file.name for part in files.world.catalog.parts.snapshot(files.uuid).parts]
    (files.folder / name).write_bytes(b"x")
    (files.data / "deeper").mkdir()
    (files.data / "deeper" / "7-0.0-0.parquet").write_bytes(b"x")
    found = {row["file"]: row["state"] for row in files.check(" REPAIR", repair_files_older_than_seconds="60")}
    assert found == {name: "foreign", "data/deeper/7-0.0-0.parquet": "foreign"}
    assert (files.folder / name).exists()
    assert (files.data / "deeper" / "7-0.0-0.parquet").exists()


def test_what_is_collected_is_in_the_trash_and_nothing_of_it_is_missing(files: Stored) -> None:
    parts = files.world.catalog.parts.snapshot(files.uuid).parts
    files.world.run("ALTER TABLE t DROP PARTITION ID 'all'")
    ends = files.world.catalog.clock.now()
    entries = [(part, ends) for part in parts]
    assert files.world.catalog.parts.move_to_trash(files.uuid, entries, now_ms=files.world.clock.now_ms())
    assert files.states() == {part.file.name: "in trash" for part in parts}
    (files.data / parts[0].file.name).unlink()
    assert files.states() == {parts[1].file.name: "in trash"}


def test_repair_removes_old_orphans_of_transactions_that_can_never_commit_and_nothing_else(files: Stored) -> None:
    old = pack(files.world.clock.now_ms() - 1000)
    running, aborted = files.begin(), files.begin()
    aborted.give_up("it was cancelled", is_settled=False)
    for txn in (old, running.id, aborted.id):
        files.put(f"{txn}-0.0-0.parquet")
        files.put(f"{txn}-1.1-3.arrow")
    files.put(f"{old}-0.0-0.map")
    files.put("notes.txt")
    before = files.names()
    files.world.clock.advance(DAY_SECONDS - 60)
    assert not any(row["removed"] for row in files.check(" REPAIR"))
    assert files.names() == before
    files.world.clock.advance(120)
    # The transaction of this file is old enough, but the file was written a moment ago.
    files.put(f"{old}-0.2-0.arrow")
    # This file is old enough, but the transaction in its name is not.
    young = pack(files.world.clock.now_ms())
    files.put(f"{young}-0.0-0.arrow")
    os.utime(files.data / f"{young}-0.0-0.arrow", (1, 1))
    assert not any(row["removed"] for row in files.check())
    removed = {row["file"].removeprefix("data/") for row in files.check(" REPAIR") if row["removed"]}
    gone = {f"{txn}-{name}" for txn in (old, aborted.id) for name in ("0.0-0.parquet", "1.1-3.arrow")}
    assert removed == {*gone, f"{old}-0.0-0.map"}
    assert set(files.names()) == {*before, f"{old}-0.2-0.arrow", f"{young}-0.0-0.arrow"} - removed
    running.give_up("over", is_settled=True)


def test_what_a_tombstone_or_a_note_says_stays_and_tells_since_when(files: Stored) -> None:
    world = files.world
    cleaner = Cleaner(world.clock, world.catalog, files.roots, dropped_kept_ms=1)
    aborted = files.begin()
    aborted.give_up("it was cancelled", is_settled=False)
    cleaner.tick()
    world.clock.advance(GRACE_MS / 1000)
    cleaner.tick()
    [tombstone] = world.catalog.transactions.tombstones.all()
    files.put(f"{aborted.id}-0.0-0.parquet")
    [row] = files.check()
    assert (row["state"], row["txn"]) == ("orphan", aborted.id)
    assert row["since"].timestamp() * 1000 == tombstone.since_ms
    assert "was aborted; its files are removed again" in row["detail"]


def test_files_of_a_transaction_that_has_landed_are_left_to_the_cleaner(files: Stored) -> None:
    txn = files.world.catalog.parts.snapshot(files.uuid).parts[0].file.name.partition("-")[0]
    files.put(f"{txn}-0.7-0.parquet")
    # Shortly after the commit the catalog that was read may be older than the commit.
    assert files.states() == {f"{txn}-0.7-0.parquet": "running"}
    files.world.clock.advance(2 * DAY_SECONDS)
    [row] = files.check(" REPAIR")
    assert (row["state"], row["removed"]) == ("orphan", False)
    assert "has committed without it" in row["detail"]


def record_loss(files: Stored, txn: int, *names: str) -> None:
    """Record that the catalog's database has lost a transaction that had named these files."""
    begun = Txn(id=txn, actor="insert", state=TxnState.RUNNING, fences=(), outputs=(), server="a-1")
    lost = LostTxn(
        txn=begun,
        commit_ts=txn + 1,
        tables=(files.uuid,),
        files=names,
        server="a-1",
        found_ms=files.world.clock.now_ms(),
        before="1 x",
        now="2 y",
    )
    files.kv.commit([], {key_of(Space.LOST_TXN, txn): codec.LOST_TXNS.encode(lost)}, [])


def test_files_of_a_transaction_that_the_database_has_lost_stay_as_long_as_that_is_recorded(files: Stored) -> None:
    world = files.world
    cleaner = Cleaner(world.clock, world.catalog, files.roots, dropped_kept_ms=1)
    txn = pack(world.clock.now_ms() - 1000)
    # A file of the commit, a file that belongs to it, and a file of a failed attempt.
    names = {f"{txn}-0.0-0.parquet", f"{txn}-0.0-0.filter", f"{txn}-0.1-0.parquet"}
    for name in names:
        files.put(name)
    record_loss(files, txn, f"{txn}-0.0-0.parquet")
    world.clock.advance(LOST_KEPT_MS / 1000 - 60)
    cleaner.tick()
    rows = files.check(" REPAIR")
    assert {row["file"].removeprefix("data/") for row in rows} == names
    assert {(row["state"], row["removed"], row["txn"]) for row in rows} == {("lost", False, txn)}
    assert rows[0]["detail"].startswith(f"acknowledged as transaction {txn}, lost by the failover of the database")
    world.clock.advance(60 + TRIM_PERIOD_MS / 1000)
    cleaner.tick()
    assert world.catalog.transactions.lost.all() == []
    assert {row["removed"] for row in files.check(" REPAIR")} == {True}


def test_a_loss_that_is_recorded_while_the_store_is_listed_keeps_the_files(
    files: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = pack(files.world.clock.now_ms() - 1000)
    for name in (f"{txn}-0.0-0.parquet", f"{txn}-0.0-0.map"):
        files.put(name)
    files.world.clock.advance(2 * DAY_SECONDS)
    real, calls = stored.NamedFiles, list[int]()

    def reading(given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            record_loss(files, txn, f"{txn}-0.0-0.parquet")
        return real(given)

    monkeypatch.setattr(stored, "NamedFiles", reading)
    assert not any(row["removed"] for row in files.check(" REPAIR"))


def test_a_file_that_lands_while_the_store_is_listed_is_no_orphan(
    files: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is read before the listing, which then shows a part that the catalog did not name."""
    real = LocalStore.files

    def listing(store: LocalStore, folder: str) -> Iterator[StoredFile]:
        files.insert()
        files.world.clock.advance(2 * DAY_SECONDS)
        yield from real(store, folder)

    monkeypatch.setattr(LocalStore, "files", listing)
    [row] = files.check(" REPAIR")
    assert (row["state"], row["removed"]) == ("running", False)
    monkeypatch.undo()
    assert files.check() == []


def test_a_part_that_was_merged_away_while_the_store_is_listed_is_not_missing(
    files: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalStore.files

    def listing(store: LocalStore, folder: str) -> Iterator[StoredFile]:
        parts = files.world.catalog.parts.snapshot(files.uuid).parts
        files.world.run("ALTER TABLE t DROP PARTITION ID 'all'")
        moved = files.world.catalog.parts.move_to_trash(files.uuid, [(each, 1) for each in parts], now_ms=1)
        assert moved == len(parts)
        for part in parts:
            (files.data / part.file.name).unlink()
        yield from real(store, folder)

    monkeypatch.setattr(LocalStore, "files", listing)
    assert files.check() == []


def test_what_the_catalog_names_when_it_comes_to_removing_stays(files: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when files of a lost catalog are attached meanwhile: the names are those of another transaction."""
    old = pack(files.world.clock.now_ms() - 1000)
    files.put(f"{old}-0.0-0.parquet")
    files.world.clock.advance(2 * DAY_SECONDS)
    real, calls = stored.NamedFiles, list[int]()

    def reading(given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return real(given)
        named = files.world.catalog.parts.snapshot(files.uuid).parts[0]
        return real([(replace(named, file=replace(named.file, name=f"{old}-0.0-0.parquet")), False)])

    monkeypatch.setattr(stored, "NamedFiles", reading)
    [row] = files.check(" REPAIR")
    assert not row["removed"]
    assert f"{old}-0.0-0.parquet" in files.names()


def test_more_files_than_there_are_rows_are_counted_and_all_old_orphans_go(
    files: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "ROWS_MAX", 5)
    monkeypatch.setattr(stored, "BATCH", 3)
    monkeypatch.setattr(stored, "NAMES_AT_ONCE", 4)
    monkeypatch.setattr(stored, "TRACES_MAX", 2)
    for number in range(20):
        files.put(f"{number}-0.0-0.parquet")
    assert len(files.check()) == 5
    [summary] = [row for row in files.world.run("SYSTEM CHECK FILES t").table.to_pylist() if row["state"] == "known"]
    assert summary["detail"] == "2 files as the catalog names them; 15 more are orphan"
    files.world.clock.advance(2 * DAY_SECONDS)
    files.check(" REPAIR")
    assert len(files.names()) == 2
    [line] = [each for each in files.world.catalog.audit.recent(10) if "CHECK FILES" in each.verb]
    assert (line.verb, line.outcome) == ("SYSTEM CHECK FILES REPAIR", "done: 20 files removed, 0 orphans left")


def test_every_replica_is_listed_and_one_that_is_away_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SqlWorld(tmp_path, settings={"storage.local-folder": str(tmp_path)})
    one, two = (tmp_path / "places" / name for name in ("one", "two"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'")
    world.run("INSERT INTO t VALUES (1)")
    world.run("INSERT INTO t VALUES (2)")
    [table] = world.catalog.tables.all()
    first, second = sorted(part.file.name for part in world.catalog.parts.snapshot(table.uuid).parts)
    for name in (first, second):
        (two / table.uuid / "data" / name).unlink()
    (two / table.uuid / "data" / "7-0.0-0.parquet").write_bytes(b"x")
    note = CopyNote(
        table=table.uuid, replica=1, file=DataFile(name=first, size=1, checksum=1), since_ms=1, reason="it was away"
    )
    world.catalog.copies.note([note])
    rows = {
        (row["replica"], row["file"].removeprefix("data/")): row["state"]
        for row in world.run("SYSTEM CHECK FILES t").table.to_pylist()
    }
    assert rows == {
        (0, ""): "known",
        (1, ""): "known",
        (1, first): "copy to be made",
        (1, second): "missing",
        (1, "7-0.0-0.parquet"): "orphan",
    }
    real = LocalStore.files

    def failing(store: LocalStore, folder: str) -> Iterator[StoredFile]:
        if store._folder == str(two):
            raise PermissionError("no")
        yield from real(store, folder)

    monkeypatch.setattr(LocalStore, "files", failing)
    [_, away] = world.run("SYSTEM CHECK FILES t REPAIR").table.to_pylist()
    assert (away["replica"], away["state"], away["detail"]) == (1, "away", "no")


def test_a_store_that_fails_in_the_middle_is_an_error(files: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(store: LocalStore, folder: str) -> Iterator[StoredFile]:
        yield StoredFile(f"{files.uuid}/data/7-0.0-0.parquet", 1, 1)
        raise PermissionError("no")

    monkeypatch.setattr(LocalStore, "files", failing)
    with pytest.raises((TilthError, PermissionError)):
        files.check(" REPAIR")


def test_a_view_or_a_kafka_table_has_no_files(files: Stored) -> None:
    files.world.run(
        "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_broker_list = 'b:1', "
        "kafka_topic_list = 't', kafka_format = 'JSONEachRow'"
    )
    with pytest.raises(TilthError, match="SYSTEM CHECK FILES"):
        files.world.run("SYSTEM CHECK FILES k")


def test_the_age_has_a_least_value(files: Stored) -> None:
    with pytest.raises(TilthError, match="1 minute and up"):
        files.check(" REPAIR", repair_files_older_than_seconds="59")


def test_memory_is_some_bytes_for_each_file(files: Stored) -> None:
    """The names of a million files are not kept in memory."""
    [part, _] = files.world.catalog.parts.snapshot(files.uuid).parts
    named = stored.NamedFiles((part, False) for _ in range(1000))
    assert named._hashes.nbytes + named.sizes.nbytes + named.leaving.nbytes == 17 * len(named)


def test_troubles_can_be_counted(files: Stored) -> None:
    files.put("7-0.0-0.parquet")
    world = files.world
    report = check_stored(world.catalog, files.roots, world.clock, table_of(world))
    assert (report.count(*stored.TROUBLES), report.count(FileState.RUNNING), report.removed) == (1, 0, 0)
