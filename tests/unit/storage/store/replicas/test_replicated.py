"""Files of a storage with replicas of which one fails at the worst time; over folders of the local disk."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import pytest

from tilth.model.part import DataFile
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.storage import (
    Folder,
    begin_table,
    check_file,
    check_size,
    clean_transaction,
    data_folder,
    local_root,
    replicas_of,
    replicated_root,
    reserve_location,
)
from tilth.storage.errors import FilesLeftError, QuorumError, StoreAwayError, StoreSecretError
from tilth.storage.store.backends.local import LocalStore
from tilth.storage.store.files.files import new_file
from tilth.storage.store.protocol import Removal
from tilth.storage.store.replicas import replica as replica_module
from tilth.storage.store.replicas import replicated
from tilth.storage.store.replicas.replica import Replica
from tilth.storage.store.stores import store_of

NAMES = ("one", "two", "three")


class Locations:
    """A storage of three folders with a table `t`."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / name for name in NAMES]
        for each in self.folders:
            reserve_location(local_root(each))
        self.root = replicated_root("r", [local_root(each) for each in self.folders], 2)
        begin_table(self.root, "t")

    @property
    def folder(self) -> Folder:
        return data_folder(self.root, "t")

    def write(self, name: str, data: bytes = b"abc") -> DataFile:
        file = new_file(self.folder, name)
        file.write(data)
        return file.finish(fsync=True)

    def copy(self, replica: int, name: str) -> Path:
        return self.folders[replica] / "t" / "data" / name

    def lose(self, replica: int) -> None:
        """Let the location be away, as this process sees it."""
        (self.folders[replica] / ".tilth").rename(self.folders[replica] / "elsewhere")
        replicas_of(self.root)[replica].health.note_error(StoreAwayError("away"))

    def find(self, replica: int) -> None:
        (self.folders[replica] / "elsewhere").rename(self.folders[replica] / ".tilth")
        for _ in range(200):
            if not replicas_of(self.root)[replica].trouble:
                return
            threading.Event().wait(0.05)
        raise AssertionError("it is still away")


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path)


# Any: whatever the method of the store takes and returns.
def failing(monkeypatch: pytest.MonkeyPatch, name: str, where: Path, do: Callable[..., Any]) -> None:
    """Let `do` replace a store's method below a folder; the other stores go on as ever."""
    method = getattr(LocalStore, name)

    def either(self: Any, *given: Any, **named: Any) -> Any:
        instead = str(self._folder).startswith(str(where))
        return (MethodType(do, self) if instead else MethodType(method, self))(*given, **named)

    monkeypatch.setattr(LocalStore, name, either)


def read_only(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("replica", [0, 1, 2])
@pytest.mark.parametrize("at", ["write", "finish"])
def test_a_copy_that_fails_in_the_middle_does_not_concern_the_others(
    locations: Locations, replica: int, at: str
) -> None:
    file = broken(locations, {replica}, at)
    first, second = b"x" * 1000, b"y" * 2000
    file.write(first)
    file.write(second)
    written = file.finish(fsync=True)
    assert (written.size, written.checksum) == (3000, zlib.crc32(first + second))
    assert (lacking(written), file.tell()) == ((replica,), 3000)
    for other in {0, 1, 2} - {replica}:
        assert locations.copy(other, "a").read_bytes() == first + second
    check_file(locations.folder, written)


def lacking(file: DataFile) -> tuple[int, ...]:
    assert file.copies is not None
    return tuple(number for number in range(3) if str(number) not in file.copies.replicas)


# Any: a new file with its threads.
def broken(locations: Locations, replicas: Collection[int], at: str = "write") -> Any:
    """A new file whose copies in these replicas break."""
    file: Any = new_file(locations.folder, "a")
    with file._changed:
        assert file._changed.wait_for(lambda: all(each.is_open for each in file._copies), timeout=30)
    for replica in replicas:
        file._copies[replica]._file = Broken(file._copies[replica]._file, at)
    return file


class Broken:
    """A new file whose disk takes nothing more."""

    # Any: a new file of a store.
    def __init__(self, file: Any, at: str = "write") -> None:
        self._file = file
        self._at = at

    def write(self, data: bytes) -> int:
        if self._at == "write":
            raise OSError(errno.ENOSPC, "no space left on device")
        return int(self._file.write(data))

    def finish(self, *, fsync: bool) -> DataFile:
        self._file.finish(fsync=fsync)
        raise OSError(errno.EIO, "input/output error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_too_few_copies_are_an_error_and_free_the_bytes_of_those_that_failed(locations: Locations) -> None:
    file = broken(locations, (0, 2))
    file.write(b"x")
    with pytest.raises(QuorumError):
        file.finish(fsync=True)
    # Parquet's writer continues to write after an error.
    assert file.write(b"y") == 1
    assert [locations.copy(replica, "a").stat().st_size for replica in (0, 2)] == [0, 0]


def test_a_disk_that_cannot_read_is_no_damage_while_another_can(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = locations.write("a")
    for name in ("size", "checksum"):
        failing(monkeypatch, name, locations.folders[0], read_only)
    check_size(locations.folder, file)
    check_file(locations.folder, file)


def test_a_secret_that_is_not_there_hides_no_other_copy(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    file = locations.write("a")

    def without(folder: str, *, is_mapped: bool) -> LocalStore:
        if folder.endswith("one"):
            raise StoreSecretError(root=folder)
        return LocalStore(folder, is_mapped=is_mapped)

    monkeypatch.setattr(replica_module, "LocalStore", without)
    check_file(locations.folder, file)


def test_a_file_is_missing_only_when_all_replicas_confirm_it(locations: Locations) -> None:
    locations.write("a")
    store = store_of(locations.root)
    assert store.exist(["t/data/a", "t/data/b"]) == [True, False]
    locations.lose(1)
    assert store.exist(["t/data/a"]) == [True]
    with pytest.raises(StoreAwayError):
        store.exist(["t/data/a", "t/data/b"])


@pytest.mark.parametrize("away", [0, 1, 2])
def test_a_file_that_is_missing_here_and_away_there_is_away(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, away: int
) -> None:
    """A file that is taken for missing counts as lost."""
    file = locations.write("a")
    for other in {0, 1, 2} - {away}:
        locations.copy(other, "a").unlink()

    def unanswered(*_: Any, **__: Any) -> Any:
        raise StoreAwayError("no answer")

    for name in ("read", "open", "size", "checksum"):
        failing(monkeypatch, name, locations.folders[away], unanswered)
    store = store_of(locations.root)
    for call in (store.read, store.open, store.size, store.checksum):
        with pytest.raises(StoreAwayError):
            call("t/data/a")
    with pytest.raises(StoreAwayError):
        check_file(locations.folder, file)


def txn_of(number: int, tasks: int = 32) -> Txn:
    outputs = (TxnOutput(table="t", tasks=tasks),)
    return Txn(id=number, actor="test", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s")


def test_files_with_holes_in_a_replica_go_when_it_is_back_and_nothing_is_remembered_until_then(
    locations: Locations,
) -> None:
    """Counted where there are holes, the rest would never be found; named one by one, the names would be a megabyte."""
    names = [f"7-0.0-{number}.parquet" for number in range(30)]
    for number, name in enumerate(names):
        if number == 10:
            locations.lose(1)
        if number == 20:
            locations.find(1)
        locations.write(name)
    assert [locations.copy(1, name).exists() for name in names].count(False) == 10
    locations.lose(1)
    for keep in ((), (names[0],)):
        with pytest.raises((StoreAwayError, FilesLeftError)) as caught:
            clean_transaction(locations.root, txn_of(7), keep=keep)
        assert not getattr(caught.value, "left", ())
    locations.find(1)
    clean_transaction(locations.root, txn_of(7))
    left = [locations.copy(replica, name).exists() for replica in range(3) for name in names]
    assert not any(left)


def test_a_removal_is_waited_for_as_long_as_files_go(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated, "REMOVAL_SECONDS", 0.4)
    monkeypatch.setattr(replicated, "REMOVED_AT_ONCE", 2)
    names = [f"t/data/{number}" for number in range(10)]
    for name in names:
        locations.write(name.rpartition("/")[2])
    pause = threading.Event()

    def slowly(self: Any, paths: Sequence[str]) -> Removal:
        pause.wait(0.2)
        for path in paths:
            (locations.folders[2] / path).unlink()
        return Removal(gone=list(paths), found=list(paths))

    failing(monkeypatch, "remove", locations.folders[2], slowly)
    removal = store_of(locations.root).remove(names)
    assert (sorted(removal.gone), removal.failed) == (sorted(names), {})
    assert not replicas_of(locations.root)[2].trouble


def test_a_removal_that_hangs_has_failed_for_what_is_left_alone(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicated, "REMOVAL_SECONDS", 0.3)
    monkeypatch.setattr(replicated, "REMOVED_AT_ONCE", 2)
    names = [f"t/data/{number}" for number in range(6)]
    for name in names:
        locations.write(name.rpartition("/")[2])
    over = threading.Event()

    def hangs(self: Any, paths: Sequence[str]) -> Removal:
        if names[2] in paths:
            over.wait(30)
        return Removal(gone=list(paths))

    failing(monkeypatch, "remove", locations.folders[1], hangs)
    try:
        removal = store_of(locations.root).remove(names)
    finally:
        over.set()
    assert removal.gone == names[:2]
    assert set(removal.failed) == set(names[2:])


def test_a_disk_that_hangs_holds_up_a_new_file_for_a_short_time_only(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "STRAGGLER_SECONDS", 0.2)
    over = threading.Event()

    def hangs(self: Any, folder: str) -> None:
        over.wait(30)

    failing(monkeypatch, "sync", locations.folders[0], hangs)
    try:
        assert lacking(locations.write("a")) == (0,)
    finally:
        over.set()


def test_a_disk_that_hangs_and_is_needed_ends_in_an_error(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are too few for the quorum: nobody waits for ever."""
    monkeypatch.setattr(replica_module, "HUNG_SECONDS", 0.5)
    monkeypatch.setattr(replica_module, "STRAGGLER_SECONDS", 0.2)
    over = threading.Event()

    def hangs(self: Any, folder: str) -> None:
        over.wait(30)

    for number in (1, 2):
        failing(monkeypatch, "sync", locations.folders[number], hangs)
    try:
        with pytest.raises(QuorumError):
            locations.write("a")
    finally:
        over.set()


@pytest.mark.parametrize("failing_copies", [1, 2])
def test_a_disk_that_cannot_make_a_file_safe_fails_with_its_own_error(
    locations: Locations, monkeypatch: pytest.MonkeyPatch, failing_copies: int
) -> None:
    syncs = []

    def fsync(handle: int) -> None:
        syncs.append(handle)
        if len(syncs) <= failing_copies:
            raise OSError(errno.ENOSPC, "no space left on device")

    file = new_file(data_folder(local_root(locations.folders[0]), "t"), "alone")
    file.write(b"x")
    both = new_file(locations.folder, "both")
    both.write(b"x")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="no space"):
        file.finish(fsync=True)
    file.give_up()
    assert locations.copy(0, "alone").stat().st_size == 0
    syncs.clear()
    if failing_copies == 1:
        assert len(lacking(both.finish(fsync=True))) == 1
        return
    with pytest.raises(QuorumError):
        both.finish(fsync=True)


def test_replicas_are_numbered_as_they_are_named(locations: Locations) -> None:
    found: list[Replica] = replicas_of(locations.root)
    assert [(each.number, each.root.uri) for each in found] == [
        (number, str(folder)) for number, folder in enumerate(locations.folders)
    ]
