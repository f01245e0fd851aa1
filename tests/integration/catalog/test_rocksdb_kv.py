"""The embedded store: the suite of all stores, restart, lock, a process that is killed, a disk that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import WriteBatch

from tests.failing_syncs import FailingSyncs, ReplacedDatabase, after_power_loss, log_sizes, make_read_only
from tests.panics import PanicError
from tests.waiting import MOMENT, wait_until
from tilth.base.errors import CorruptError, UnknownOutcomeError
from tilth.base.full import StoreFullError
from tilth.base.rand import new_rng
from tilth.catalog import (
    GroupedKV,
    KeyValue,
    NewerFormatError,
    RocksKV,
    StoreClosedError,
    StoreIOError,
    StoreLockedError,
)
from tilth.catalog.kv import Absent, AtVersion, Conflict, Landed, Unknown, rocksdb
from tilth.catalog.kv.protocol import Commit
from tilth.catalog.records.small_commit import put_new
from tilth.testing import FaultyKV, ManualClock, RetryingKV, check_kv

pytestmark = pytest.mark.integration

SECONDS_MAX = 30.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], KeyValue]:
    """A new store in a folder of its own at each call."""
    made: list[int] = []

    def new() -> RocksKV:
        made.append(1)
        return RocksKV(str(tmp_path / f"kv{len(made)}"))

    return new


def test_rocksdb_passes_the_suite(make: Callable[[], KeyValue]) -> None:
    check_kv(make)


def test_rocksdb_behind_faults_passes_the_suite(make: Callable[[], KeyValue]) -> None:
    check_kv(lambda: FaultyKV(make(), new_rng(1)))
    check_kv(lambda: RetryingKV(FaultyKV(make(), new_rng(2), commit_rate=0.3, read_rate=0.2)))


def test_rocksdb_with_commits_that_are_applied_together_passes_the_suite(make: Callable[[], KeyValue]) -> None:
    check_kv(lambda: GroupedKV(make()))


def test_commits_of_one_write_see_each_other_and_have_versions_of_their_own(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path))
    old = kv.commit([], {b"old": b"1"}, [])
    assert isinstance(old, Landed)
    found = kv.commit_all(
        [
            Commit([Absent(b"a")], {b"a": b"1"}, [b"old"]),
            Commit([Absent(b"a")], {b"x": b"1"}, []),
            Commit([AtVersion(b"old", old.version)], {b"x": b"2"}, []),
            Commit([AtVersion(b"a", old.version + 1), Absent(b"old")], {b"a": b"2", b"old": b"2"}, []),
        ]
    )
    assert found == [Landed(old.version + 1), Conflict(b"a"), Conflict(b"old"), Landed(old.version + 2)]
    kv.close()
    again = RocksKV(str(tmp_path))
    assert {key: (each.value, each.version) for key, each in again.scan(b"", None)} == {
        b"a": (b"2", old.version + 2),
        b"old": (b"2", old.version + 2),
    }
    assert again.commit([], {b"b": b""}, []) == Landed(old.version + 3)


class SlowDisk(ReplacedDatabase):
    """A database whose log waits for the disk until `may_go_on`, and then fails with the error, if one is given."""

    def __init__(self, kv: RocksKV, error: Exception | None = None) -> None:
        super().__init__(kv)
        self._error = error
        self.is_waiting, self.may_go_on = threading.Event(), threading.Event()

    def flush_wal(self, sync: bool) -> None:
        assert sync
        self.is_waiting.set()
        assert self.may_go_on.wait(SECONDS_MAX)
        if self._error is not None:
            raise self._error
        self._db.flush_wal(sync)


def at_the_gate(kv: RocksKV, seen: list[object]) -> None:
    """Returns when a reader waits for the end of a write, or has seen something."""
    wait_until(lambda: kv._gate.entrance.locked() or seen, first_pause=MOMENT)


def read_by_get(kv: RocksKV) -> bytes:
    found = kv.get(b"a")
    assert found is not None
    return found.value


def read_by_view(kv: RocksKV) -> bytes:
    with kv.view() as view:
        found = view.get(b"a")
        assert found is not None
        return found.value


def read_by_scan(kv: RocksKV) -> bytes:
    [found] = [found.value for _, found in kv.scan(b"a", b"b")]
    return found


READS = [read_by_get, read_by_view, read_by_scan]


@pytest.mark.parametrize("read", READS)
def test_nobody_sees_a_commit_that_the_disk_does_not_have(tmp_path: Path, read: Callable[[RocksKV], bytes]) -> None:
    kv = RocksKV(str(tmp_path))
    kv.commit([], {b"a": b"old"}, [])
    disk = SlowDisk(kv)
    seen: list[object] = []
    threads = [threading.Thread(target=kv.commit, args=([], {b"a": b"new"}, []))]
    with kv.view() as before:
        threads[0].start()
        assert disk.is_waiting.wait(SECONDS_MAX)
        # Other threads run meanwhile, and who has a view reads on in it.
        found = before.get(b"a")
        assert found is not None
        assert found.value == b"old"
    threads += [threading.Thread(target=lambda: seen.append(read(kv))) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    at_the_gate(kv, seen)
    assert seen == []
    disk.may_go_on.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert seen == [b"new"] * 2


@pytest.mark.parametrize("read", READS)
def test_who_waits_for_a_sync_that_fails_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[RocksKV], bytes]
) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    kv.commit([], {b"a": b"old"}, [])
    disk = SlowDisk(kv, OSError("IO error: no sync"))
    seen: list[object] = []

    def run() -> None:
        try:
            seen.append(read(kv))
        except StoreIOError as error:
            seen.append(str(error))

    threads = [threading.Thread(target=kv.commit, args=([], {b"a": b"new"}, []))]
    threads[0].start()
    assert disk.is_waiting.wait(SECONDS_MAX)
    threads.append(threading.Thread(target=run))
    threads[1].start()
    at_the_gate(kv, seen)
    make_read_only(monkeypatch)
    disk.may_go_on.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
    [told] = seen
    assert "path=" + kv.path in str(told)
    assert "check the disk" in str(told)


def test_a_log_that_cannot_be_synced_is_a_failed_write(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path))
    disk = SlowDisk(kv, OSError("IO error: no sync"))
    disk.may_go_on.set()
    # Its batch is in the log all the same, as the database shows when it is opened anew.
    assert isinstance(kv.commit([], {b"a": b"1"}, []), Landed)
    found = kv.get(b"a")
    assert found is not None
    assert found.value == b"1"
    assert isinstance(kv.commit([AtVersion(b"a", found.version)], {b"a": b"2"}, []), Landed)


def assert_nothing_is_answered(kv: RocksKV) -> None:
    uses = [lambda: kv.commit([Absent(b"b")], {b"b": b""}, []), lambda: kv.get(b"b"), kv.confirm]
    for use in [*uses, *(lambda read=read: read(kv) for read in READS)]:
        with pytest.raises(StoreIOError, match=r"path=.*/kv .*check the disk"):
            use()


def test_after_a_sync_that_failed_nobody_reads_its_batch_until_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    kv.commit([], {b"a": b"old"}, [])
    disk = FailingSyncs(kv, monkeypatch)
    with kv.view() as before:
        # Its tries after the unknown outcome do not find the batch in memory.
        with pytest.raises(UnknownOutcomeError):
            put_new(kv, ManualClock(), b"a2", b"new")
        assert before.get(b"a2") is None
        for _ in range(2):
            assert_nothing_is_answered(kv)
        assert disk.after_power_loss(tmp_path / "lost").get(b"a2") is None
        monkeypatch.undo()
        # The log has it, and opening wrote it to files: a power loss that takes all of the log does not take it.
        found = kv.get(b"a2")
        assert found is not None
        assert found.value == b"new"
        assert after_power_loss(kv, tmp_path / "later", dict.fromkeys(log_sizes(kv), 0)).get(b"a2") == found
        with pytest.raises(StoreIOError, match="try again"):
            before.get(b"a")
    kv.confirm()
    after = kv.commit([AtVersion(b"a2", found.version)], {b"a": b"newer"}, [])
    assert isinstance(after, Landed)
    assert after.version > found.version


def test_a_batch_that_the_log_has_lost_was_not_applied(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path))
    kv.commit([], {b"a": b"old"}, [])
    disk = SlowDisk(kv, OSError("IO error: no sync"))
    disk.may_go_on.set()
    disk.write = lambda _: None  # type: ignore[attr-defined]
    with pytest.raises(StoreIOError, match="nothing was applied"):
        kv.commit([], {b"a": b"new"}, [])
    assert read_by_get(kv) == b"old"
    assert isinstance(kv.commit([], {b"a": b"new"}, []), Landed)


@pytest.mark.parametrize("error", [PanicError(), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["write", "flush_wal"])
def test_a_batch_whose_write_was_interrupted_is_read_when_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, call: str
) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    kv.commit([], {b"a": b"old"}, [])
    disk = FailingSyncs(kv, monkeypatch, error=error)
    if call == "write":

        def write(batch: WriteBatch) -> None:
            disk._db.write(batch)
            disk.flush_wal(True)

        disk.write = write  # type: ignore[attr-defined]
    with pytest.raises(type(error)):
        kv.commit([], {b"a": b"new"}, [])
    assert_nothing_is_answered(kv)
    monkeypatch.undo()
    found = kv.get(b"a")
    assert found is not None
    assert found.value == b"new"
    assert kv.commit([], {b"b": b"1"}, []) == Landed(found.version + 1)


def test_a_batch_that_the_log_refuses_leaves_the_store_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    kv.commit([], {b"a": b"old"}, [])
    disk = FailingSyncs(kv, monkeypatch)

    def write(batch: WriteBatch) -> None:
        raise Exception("IO error: No space left on device")

    disk.write = write  # type: ignore[attr-defined]
    make_read_only(monkeypatch)
    assert isinstance(kv.commit([], {b"a": b"new"}, []), Unknown)
    with pytest.raises(StoreIOError):
        kv.commit([], {b"a": b"new"}, [])
    kv.confirm()
    for read in READS:
        assert read(kv) == b"old"
    monkeypatch.undo()
    assert isinstance(kv.commit([], {b"a": b"new"}, []), Landed)
    assert read_by_get(kv) == b"new"


def test_a_damaged_key_fails_only_the_commit_that_needs_it(tmp_path: Path) -> None:
    class Damaged(ReplacedDatabase):
        def get(self, key: bytes) -> object:
            if key == b"bad":
                raise Exception("Corruption: block checksum mismatch")
            assert key != b"worse"
            return self._db.get(key)

    kv = RocksKV(str(tmp_path))
    Damaged(kv)
    found = kv.commit_all(
        [
            Commit([Absent(b"a")], {b"a": b"1"}, []),
            Commit([Absent(b"x"), Absent(b"bad")], {b"x": b"1"}, []),
            Commit([Absent(b"worse")], {b"x": b"1"}, [b"a"]),
            Commit([], {b"\x00sequence": b"1"}, []),
            Commit([Absent(b"b"), Absent(b"x")], {b"b": b"1"}, []),
        ]
    )
    assert [type(each) for each in found] == [Landed, CorruptError, AssertionError, AssertionError, Landed]
    assert [key for key, _ in kv.scan(b"", None)] == [b"a", b"b"]
    with pytest.raises(CorruptError):
        GroupedKV(kv).commit([Absent(b"bad")], {b"x": b"1"}, [])


def test_where_a_write_fails_none_of_its_commits_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = RocksKV(str(tmp_path))
    kv.commit([], {b"old": b"1"}, [])
    monkeypatch.setattr(rocksdb, "free_bytes", lambda _: 0)
    found = kv.commit_all([Commit([], {b"a": b"1"}, []), Commit([Absent(b"b")], {b"b": b"1"}, [])])
    assert [type(each) for each in found] == [StoreFullError, StoreFullError]
    assert found[0] is not found[1]
    monkeypatch.undo()
    assert [key for key, _ in kv.scan(b"", None)] == [b"old"]
    assert isinstance(kv.commit([Absent(b"a")], {b"a": b"1"}, []), Landed)


def test_content_and_versions_survive_a_restart(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path / "deep" / "kv"))
    first = kv.commit([], {b"a": b"1", b"b": b"1"}, [])
    second = kv.commit([], {b"b": b"2"}, [])
    assert isinstance(first, Landed)
    assert isinstance(second, Landed)
    kv.close()
    again = RocksKV(str(tmp_path / "deep" / "kv"))
    assert [(key, found.value, found.version) for key, found in again.scan(b"", None)] == [
        (b"a", b"1", first.version),
        (b"b", b"2", second.version),
    ]
    assert again.commit([AtVersion(b"b", first.version)], {}, [b"b"]) == Conflict(b"b")
    third = again.commit([AtVersion(b"b", second.version), Absent(b"c")], {b"c": b"3"}, [])
    assert isinstance(third, Landed)
    assert third.version > second.version
    again.close()


def test_each_commit_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By RocksDB's own count of how often it has waited for its log; the first time is for the store's format."""
    options = rocksdb._options(1 << 20)
    options.enable_statistics()
    monkeypatch.setattr(rocksdb, "_options", lambda _: options)

    def waits() -> int:
        counts = (options.get_statistics() or "").splitlines()
        [line] = [each for each in counts if each.startswith("rocksdb.wal.synced ")]
        return int(line.rpartition(" ")[2])

    kv = RocksKV(str(tmp_path / "kv"))
    assert waits() == 1
    for number in range(3):
        assert isinstance(kv.commit([], {b"a": b"%d" % number}, []), Landed)
        assert waits() == 2 + number
    assert isinstance(kv.commit([], {}, [b"a"]), Landed)
    assert waits() == 5
    kv.close()


def test_a_second_user_is_told_what_to_do(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    with pytest.raises(StoreLockedError, match=r"path=.*/kv .*--data"):
        RocksKV(str(tmp_path / "kv"))
    code = f"""
        from tilth.catalog import RocksKV, StoreLockedError
        try:
            RocksKV({str(tmp_path / "kv")!r})
        except StoreLockedError as error:
            print(error.code)
    """
    assert run(code).stdout.strip() == "STORE_LOCKED"
    kv.close()
    RocksKV(str(tmp_path / "kv")).close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreIOError, match=r"path=.*/file"):
        RocksKV(str(tmp_path / "file"))


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    kv = RocksKV(str(tmp_path / "kv"))
    kv.close()
    for use in (lambda: kv.get(b"a"), lambda: list(kv.scan(b"a", None)), lambda: kv.commit([], {b"a": b""}, [])):
        with pytest.raises(StoreClosedError):
            use()


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    path = str(tmp_path / "kv")
    RocksKV(path).close()
    raw = Rdict(path, Options(raw_mode=True))
    raw[b"\x00format"] = (2).to_bytes(8, "big")
    raw.close()
    with pytest.raises(NewerFormatError, match="found=2 known=1"):
        RocksKV(path)


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    """A process commits and prints each number after its commit, until it is killed in the middle."""
    code = f"""
        from tilth.catalog import RocksKV
        kv = RocksKV({str(tmp_path / "kv")!r})
        for number in range(10**6):
            kv.commit([], {{b"a%08d" % number: b"x" * 500, b"last": b"%d" % number}}, [])
            print(number, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None
    for _ in range(300):
        acknowledged = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, process.stdout.read().splitlines()[:-1])])
    process.wait()
    process.stdout.close()
    kv = RocksKV(str(tmp_path / "kv"))
    last = kv.get(b"last")
    assert last is not None
    assert int(last.value) >= acknowledged
    assert [key for key, _ in kv.scan(b"a", b"b")] == [b"a%08d" % number for number in range(int(last.value) + 1)]
    kv.close()


def test_a_full_disk_is_told_and_cured(tmp_path: Path) -> None:
    """The limit on file sizes plays the full disk: a write fails, nothing of its batch is there,
    and later all goes on.
    """
    code = f"""
        import resource, signal
        from tilth.base.errors import UnavailableError
        from tilth.catalog import RocksKV
        from tilth.catalog.kv import Landed, Unknown
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        kv = RocksKV({str(tmp_path / "kv")!r})
        assert isinstance(kv.commit([], {{b"a": b"1"}}, []), Landed)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        landed, failed = [], []
        for number in range(8):
            key = b"k%d" % number
            try:
                outcome = kv.commit([], {{key: b"x" * 60_000}}, [])
                (landed if isinstance(outcome, Landed) else failed).append(key)
            except UnavailableError as error:
                failed.append(key)
                print(error.code)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert failed and landed, (failed, landed)
        assert kv.get(b"a").value == b"1"
        assert isinstance(kv.commit([], {{b"z": b"1"}}, []), Landed)
        there = {{key for key, _ in kv.scan(b"", None)}}
        assert there == {{b"a", b"z", *landed}}, there
        kv.close()
        kv = RocksKV({str(tmp_path / "kv")!r})
        assert {{key for key, _ in kv.scan(b"", None)}} == there
        print("cured")
    """
    done = run(code)
    assert done.stdout.splitlines()[-1:] == ["cured"], done.stdout + done.stderr


def test_a_failed_write_is_cured_although_somebody_goes_on_reading(tmp_path: Path) -> None:
    """Reading goes on while nothing can be written; a view that is open from before ends when the store is cured."""
    code = f"""
        import resource, signal
        from tilth.base.errors import ErrorKind, UnavailableError
        from tilth.catalog import RocksKV
        from tilth.catalog.kv import Landed
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        kv = RocksKV({str(tmp_path / "kv")!r})
        for number in range(100):
            kv.commit([], {{b"a%03d" % number: b"1"}}, [])
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        with kv.view() as view:
            scan = view.scan(b"a", b"b")
            next(scan)
            # Not even an empty store can be opened for writing.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
            for number in range(3):
                try:
                    assert not isinstance(kv.commit([], {{b"b": b"x" * 60_000}}, []), Landed)
                except UnavailableError as error:
                    print(error)
            assert kv.get(b"a007").value == b"1"
            assert len(list(kv.scan(b"a", b"b"))) == 100
            assert kv.get(b"b") is None
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            assert isinstance(kv.commit([], {{b"c": b"1"}}, []), Landed)
            try:
                list(scan)
                raise AssertionError("the view should have ended")
            except UnavailableError as error:
                assert error.kind is ErrorKind.UNAVAILABLE
        assert {{key for key, _ in kv.scan(b"b", None)}} == {{b"c"}}
        kv.close()
        kv = RocksKV({str(tmp_path / "kv")!r})
        assert len(list(kv.scan(b"a", None))) == 101
        print("cured")
    """
    done = run(code)
    assert done.stdout.splitlines()[-1:] == ["cured"], done.stdout + done.stderr


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
