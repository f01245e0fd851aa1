"""Replicas that hang in the middle of a file, or are slow: folders of the local disk, some of whose calls wait."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.storage.store.replicas.test_replicated import Locations, lacking
from tilth.base.clock import SystemClock
from tilth.storage import check_file, local_root, make_copy, read_copies, replicas_with_marker, reserve_replica
from tilth.storage.errors import QuorumError, StoreAwayError
from tilth.storage.store.backends.local import LocalStore, SummingFile
from tilth.storage.store.files.files import new_file, open_sized, read_verified
from tilth.storage.store.replicas import failover, health, new_copies, replica
from tilth.storage.store.replicas.replica import Replica, replicas_of
from tilth.storage.store.root import StoreRoot

MIB = 1 << 20


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Event that lets hanging calls continue; the time limits of replicas are short."""
    monkeypatch.setattr(replica, "STRAGGLER_SECONDS", 0.25)
    monkeypatch.setattr(new_copies, "BEHIND_BYTES_MAX", 4 * MIB)
    monkeypatch.setattr(replica, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(replica, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(health, "PROBE_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(health, "PROBE_INTERVAL_SECONDS", 0.05)
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    return Locations(tmp_path)


class Disk:
    """A folder whose calls wait while `hangs` is set."""

    def __init__(
        self, locations: Locations, number: int, over: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.number = number
        self.folder = folder = locations.folders[number]
        self.hangs = False
        self.waiting = threading.Event()
        self._over = over
        self._monkeypatch = monkeypatch
        trouble = health.replica_trouble

        def probe(root: StoreRoot) -> str:
            if root.uri == str(folder):
                self.wait()
            return trouble(root)

        monkeypatch.setattr(health, "replica_trouble", probe)
        for name in ("write", "finish", "give_up"):
            self._slowed(SummingFile, name, "_path")
        for name in ("create", "open", "size", "checksum", "exist", "remove", "prepare"):
            self._slowed(LocalStore, name, "_folder")
        opened = failover._Reader._open_source

        def reading(reader: failover._Reader) -> pa.NativeFile:
            # Each read waits, also one of a file that was opened long before.
            if reader.replica.root.uri == str(folder):
                self.wait()
            return opened(reader)

        monkeypatch.setattr(failover._Reader, "_open_source", reading)

    def wait(self) -> None:
        if self.hangs:
            self.waiting.set()
            self._over.wait(60)

    def _slowed(self, kind: type, name: str, where: str) -> None:
        method = getattr(kind, name)

        # Any: whatever the method takes and returns.
        def slowed(this: Any, *given: Any, **named: Any) -> Any:
            if str(getattr(this, where)).startswith(str(self.folder)):
                self.wait()
            return method(this, *given, **named)

        self._monkeypatch.setattr(kind, name, slowed)


# The first two are alike.
@pytest.fixture(params=[0, pytest.param(1, marks=pytest.mark.long), 2])
def disk(
    request: pytest.FixtureRequest, locations: Locations, over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> Disk:
    return Disk(locations, request.param, over, monkeypatch)


def content(pieces: int) -> bytes:
    return b"".join(bytes([number % 251]) * MIB for number in range(pieces))


@pytest.mark.parametrize("at", ["create", "write", "finish"])
def test_a_quorum_goes_on_without_a_replica_that_hangs_in_the_middle_of_a_file(
    locations: Locations, disk: Disk, at: str
) -> None:
    disk.hangs = at == "create"
    file: Any = new_file(locations.folder, "a")
    data = content(12)
    file.write(data[: 2 * MIB])
    disk.hangs = disk.hangs or at == "write"
    file.write(data[2 * MIB :])
    disk.hangs = True
    written = file.finish(fsync=True)
    assert (written.size, file.tell(), lacking(written)) == (12 * MIB, 12 * MIB, (disk.number,))
    assert disk.waiting.is_set()
    check_file(locations.folder, written)
    for number in {0, 1, 2} - {disk.number}:
        assert locations.copy(number, "a").read_bytes() == data


def test_of_what_a_replica_has_not_taken_a_bounded_part_is_kept(locations: Locations, disk: Disk) -> None:
    file: Any = new_file(locations.folder, "a")
    disk.hangs = True
    most = 0
    for _ in range(16):
        file.write(content(1))
        most = max(most, *(copy.queued for copy in file._copies))
    assert most <= new_copies.BEHIND_BYTES_MAX + new_copies.PIECE_BYTES
    [left_out] = [copy for copy in file._copies if copy.error is not None]
    assert (left_out.replica.number, left_out.queued, list(left_out._pieces)) == (disk.number, 0, [])
    assert "MiB behind" in str(left_out.error)
    assert lacking(file.finish(fsync=True)) == (disk.number,)


def test_a_replica_that_is_left_out_and_goes_on_later_has_no_bytes(
    locations: Locations, disk: Disk, over: threading.Event
) -> None:
    file: Any = new_file(locations.folder, "a")
    disk.hangs = True
    file.write(content(12))
    file.finish(fsync=True)
    disk.hangs = False
    over.set()
    wait_until(lambda: all(copy.is_over for copy in file._copies))
    assert locations.copy(disk.number, "a").stat().st_size == 0


def test_nobody_waits_for_ever_where_too_few_replicas_go_on(
    locations: Locations, over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = [Disk(locations, number, over, monkeypatch) for number in (0, 2)]
    file = new_file(locations.folder, "a")
    for each in disks:
        each.hangs = True
    with pytest.raises(QuorumError, match="copies=1 quorum=2"):
        file.write(content(12))
    assert file.write(b"more") == 4
    with pytest.raises(QuorumError):
        file.finish(fsync=True)


def test_a_file_is_given_up_though_a_replica_hangs(locations: Locations, disk: Disk) -> None:
    file = new_file(locations.folder, "a")
    file.write(content(2))
    disk.hangs = True
    file.give_up()
    assert [locations.copy(number, "a").stat().st_size for number in {0, 1, 2} - {disk.number}] == [0, 0]


def test_a_file_that_nobody_ends_leaves_no_thread(locations: Locations) -> None:
    def threads() -> int:
        return sum(thread.name == "tilth-replica-copy" for thread in threading.enumerate())

    new_file(locations.folder, "a").write(content(2))
    gc.collect()
    wait_until(lambda: threads() == 0)


def test_a_defect_of_one_copy_is_raised(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: SummingFile, data: bytes) -> int:
        raise AssertionError("a defect")

    monkeypatch.setattr(SummingFile, "write", broken)
    file = new_file(locations.folder, "a")
    file.write(b"x")
    with pytest.raises(AssertionError, match="a defect"):
        file.finish(fsync=True)


def test_a_name_that_is_taken_in_one_replica_is_reported(locations: Locations, disk: Disk) -> None:
    locations.copy(disk.number, "a").write_bytes(b"")
    with pytest.raises(FileExistsError):
        locations.write("a")


def test_a_reader_in_the_middle_of_a_file_goes_on_with_another_replica(
    locations: Locations, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader switches as soon as the replica is found to be away, not only at the end of its time limit."""
    monkeypatch.setattr(failover, "HUNG_SECONDS", 12.0)
    data = content(3)
    file = locations.write("a", data)
    with open_sized(locations.folder, file) as source:
        assert source.read(1000) == data[:1000]
        disk.hangs = True
        assert source.read(MIB) == data[1000 : MIB + 1000]
        # A probe has found it, where the reader waited for it: it reads from the first one.
        is_probed = "no answer in 0.2 seconds" in replicas_of(locations.root)[disk.number].trouble
        assert is_probed == (disk.number == 0)
        source.seek(2 * MIB)
        assert source.read() == data[2 * MIB :]
        assert (source.size(), source.read(1)) == (3 * MIB, b"")


def test_a_reader_whose_disk_fails_or_is_cut_goes_on_too(locations: Locations) -> None:
    data = content(3)
    file = locations.write("a", data)
    with open_sized(locations.folder, file) as source:
        source.read(10)
        locations.copy(0, "a").write_bytes(data[:100])
        assert source.read(MIB) == data[10 : MIB + 10]


def test_a_small_file_is_read_from_another_replica_than_one_that_hangs(locations: Locations, disk: Disk) -> None:
    file = locations.write("a", b"abc")
    disk.hangs = True
    assert read_verified(locations.folder, file).to_pybytes() == b"abc"


def test_copies_are_made_and_compared_without_a_replica_that_hangs(locations: Locations, disk: Disk) -> None:
    data = content(2)
    file = locations.write("a", data)
    target = (disk.number + 1) % 3
    locations.copy(target, "a").write_bytes(b"wrong")
    disk.hangs = True
    check = read_copies(locations.folder, file)
    assert (set(check.wrong), set(check.away)) == ({target}, {disk.number})
    assert make_copy(locations.folder, file, target) == len(data)
    assert locations.copy(target, "a").read_bytes() == data
    with pytest.raises(StoreAwayError):
        make_copy(locations.folder, file, disk.number)


def test_statements_about_storages_wait_for_no_replica_that_hangs(
    locations: Locations, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "RESERVE_SECONDS", 0.2)
    # One answer is enough for the first statement: the other replica that is well has this time for its own.
    monkeypatch.setattr(replica, "STRAGGLER_SECONDS", 0.5)
    disk.hangs = True
    there = replicas_with_marker(replicas_of(locations.root), "t")
    assert [each.number for each in there] == sorted({0, 1, 2} - {disk.number})
    with pytest.raises(StoreAwayError):
        reserve_replica(local_root(disk.folder / "new"), "owner")


def test_a_report_of_a_server_about_a_replica_counts_for_some_seconds(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resident task keeps its root for a long time, and a repeated report is no news."""
    now = [1000.0]

    class Steady(SystemClock):
        def monotonic(self) -> float:
            return now[0]

    monkeypatch.setattr(health, "_clock", Steady())

    def trouble() -> str:
        return Replica(1, locations.root.replicas[1], is_away=True).trouble

    assert "the server finds" in trouble()
    assert Replica(1, locations.root.replicas[1]).trouble == ""
    now[0] += health.REPORTED_SECONDS
    for _ in range(10):
        assert trouble() == ""
        now[0] += health.REPORTED_AGAIN_SECONDS / 2
    now[0] += health.REPORTED_AGAIN_SECONDS
    assert "the server finds" in trouble()


def wait_until(is_so: Any) -> None:
    clock = SystemClock()
    until = clock.monotonic() + 30
    while not is_so():
        assert clock.monotonic() < until
        clock.sleep(0.01)
