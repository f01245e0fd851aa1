"""Broken set-ups, and the exact sentences of the doctor about each: real files, sockets and processes, no Spark.

Cost: 4 s together, most of it waits for what hangs on purpose.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tests.docs.pages import anchors_of
from tests.tidy.sources import ROOT
from tilth.base.clock import Clock, SystemClock
from tilth.base.full import DiskSpace
from tilth.base.units import GIB, MIB
from tilth.catalog import DatabaseFacts
from tilth.catalog.kv.rocksdb import RocksKV
from tilth.client.settings import SERVE_SETTINGS
from tilth.doctor import Checkup, LocalSetup, local_checks, read_setup, run_checks
from tilth.doctor.catalog import check_ahead, check_database
from tilth.doctor.folders import check_disk, check_inodes
from tilth.doctor.libraries import check_libraries, check_spark
from tilth.doctor.machine import check_memory, check_open_files
from tilth.model.diagnosis import Diagnosis, Grade
from tilth.testing.clock import ManualClock
from tilth.warehouse.session.java import MODULES

#: A user without rights, for the file system alone.
NOBODY = 65534
#: Time of a set-up's checks, in seconds.
SECONDS = 2.0
#: Checks that expect what a server has while it runs.
RUNNING = ("port", "catalog")
CHECK = Checkup(name="x", heading="x", run=lambda _: ())


@dataclass
class Broken:
    """A set-up in a folder of its own."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    brokers: str = ""
    port: int = 0
    clock: Clock = field(default_factory=SystemClock)

    def findings(self, check: str) -> list[Diagnosis]:
        setup = LocalSetup(
            folder=self.folder,
            address=("127.0.0.1", self.port),
            texts=self.texts,
            environment=self.environment,
            brokers=self.brokers,
        )
        checks = [each for each in local_checks(self.clock, setup, seconds_max=SECONDS) if each.name == check]
        return run_checks(self.clock, checks, seconds_max=SECONDS)


def make_java(folder: Path, answer: str) -> Path:
    """Make a `java` that is a script."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    return folder


def modules(release: str, *, without: str = "") -> str:
    listed = "\\n".join(f"{name}@{release}" for name in MODULES if name != without)
    return f"printf '{listed}\\n'"


@contextmanager
def wrong_java_home(setup: Broken) -> Iterator[str]:
    setup.environment["JAVA_HOME"] = "/nowhere/jdk"
    yield "there is no bin/java: folder=/nowhere/jdk named_by=JAVA_HOME"


@contextmanager
def java_11(setup: Broken) -> Iterator[str]:
    home = make_java(setup.folder / "jdk", modules("11.0.2"))
    setup.environment["JAVA_HOME"] = str(home)
    yield f"this Java has the wrong version: folder={home} named_by=JAVA_HOME version=11"


@contextmanager
def java_8(setup: Broken) -> Iterator[str]:
    home = make_java(setup.folder / "jdk", "echo 'Unrecognized option: --list-modules' >&2; exit 1")
    setup.texts["warehouse.java-home"] = str(home)
    yield f"this Java is older than 17, or broken: folder={home} output=Unrecognized option: --list-modules"


@contextmanager
def cut_down_java(setup: Broken) -> Iterator[str]:
    home = make_java(setup.folder / "jre", modules("21.0.4", without="java.naming"))
    setup.texts["warehouse.java-home"] = str(home)
    yield f"this Java is cut down: folder={home} named_by=warehouse.java-home version=21 missing=java.naming"


@contextmanager
def hung_java(setup: Broken) -> Iterator[str]:
    home = make_java(setup.folder / "jdk", "exec sleep 30")
    setup.environment["JAVA_HOME"] = str(home)
    reason = f"Command '['{home}/bin/java', '--list-modules']' timed out after 1.6 seconds"
    yield f"this Java does not run: folder={home} reason={reason}"


@contextmanager
def no_java(setup: Broken) -> Iterator[str]:
    setup.environment["PATH"] = str(setup.folder)
    yield "no Java was found: JAVA_HOME is not set and no java is on the path"


@contextmanager
def closed_broker_port(setup: Broken) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    setup.brokers = f"127.0.0.1:{port}"
    yield f"broker 127.0.0.1:{port} cannot be reached: Connection refused"


@contextmanager
def broker_without_a_label(setup: Broken) -> Iterator[str]:
    setup.brokers = "kafka..invalid:9092"
    yield "broker kafka..invalid:9092 cannot be reached: the name kafka..invalid is not known"


@contextmanager
def unknown_broker(setup: Broken) -> Iterator[str]:
    setup.brokers = "kafka.invalid:9092"
    yield "broker kafka.invalid:9092 cannot be reached: the name kafka.invalid is not known"


@contextmanager
def silent_port(setup: Broken) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        setup.brokers = f"127.0.0.1:{door.getsockname()[1]}"
        why = "Failed to get metadata: Local: Broker transport failure"
        yield f"{setup.brokers} accepts connections and has not answered as a broker of Kafka in 1.6 s: {why}"


@contextmanager
def port_taken(setup: Broken) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        setup.port = door.getsockname()[1]
        reason = "Address already in use"
        yield f"the HTTP server cannot listen on this address: address=127.0.0.1:{setup.port} reason={reason}"


@contextmanager
def database_refuses(setup: Broken) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    setup.texts["catalog.url"] = f"postgresql://tilth@127.0.0.1:{port}/shop"
    yield (
        f"the catalog's database does not answer as it should: catalog=postgresql://127.0.0.1:{port}/shop schema=tilth "
        f'reason=connection failed: connection to server at "127.0.0.1", port {port} failed: Connection refused'
    )


@contextmanager
def silent_database(setup: Broken) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        setup.texts["catalog.url"] = f"postgresql://tilth@127.0.0.1:{port}/shop"
        yield (
            f"the catalog's database does not answer as it should: catalog=postgresql://127.0.0.1:{port}/shop "
            "schema=tilth reason=no answer within 0.8 s"
        )


def refuse_password(door: socket.socket) -> None:
    """Answer each connection as PostgreSQL answers a wrong password."""
    fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "tilth"\0\0'
    while True:
        try:
            connection, _ = door.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(5)
            # The request for TLS has a code of its own, and is answered by a letter.
            while connection.recv(4096)[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
                connection.sendall(b"N")
            connection.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)


@contextmanager
def wrong_password(setup: Broken) -> Iterator[str]:
    setup.environment["PASSWORD"] = "hunter2-is-wrong"
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        threading.Thread(target=refuse_password, args=(door,), daemon=True).start()
        setup.texts["catalog.url"] = f"postgresql://tilth@127.0.0.1:{port}/shop?password=env:PASSWORD"
        yield (
            f"the catalog's database does not answer as it should: catalog=postgresql://127.0.0.1:{port}/shop "
            f'schema=tilth reason=connection failed: connection to server at "127.0.0.1", port {port} failed: FATAL:  '
            'password authentication failed for user "tilth"'
        )
        door.shutdown(socket.SHUT_RDWR)


@contextmanager
def no_password_file(setup: Broken) -> Iterator[str]:
    setup.texts["catalog.url"] = "postgresql://tilth@127.0.0.1:5/shop?password=file:/nowhere/password"
    yield (
        "a file with a secret of the catalog's database cannot be read: file=/nowhere/password "
        "reason=No such file or directory"
    )


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let this thread, and threads that it starts, use files as a user without rights, also where root runs tests."""
    if os.getuid():
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(NOBODY)
    try:
        yield
    finally:
        libc.setfsuid(0)


@contextmanager
def read_only_data(setup: Broken) -> Iterator[str]:
    setup.folder.chmod(0o555)
    with as_nobody():
        yield f"the data folder {setup.folder} cannot be written: Permission denied"
    setup.folder.chmod(0o755)


@contextmanager
def data_is_a_file(setup: Broken) -> Iterator[str]:
    file = setup.folder / "data"
    file.write_text("")
    setup.folder = file / "node"
    yield f"the data folder {file}/node cannot be made, because {file} is no folder"


@contextmanager
def read_only_storage(setup: Broken) -> Iterator[str]:
    root = setup.folder / "lake"
    root.mkdir(mode=0o555)
    setup.texts["storage.root"] = str(root)
    with as_nobody():
        yield f"the tables folder {root} cannot be written: Permission denied"


@contextmanager
def another_storage(setup: Broken) -> Iterator[str]:
    (setup.folder / "storage-root").write_text("/lake/old\n")
    setup.texts["storage.root"] = "/lake/new"
    yield "the tables of this node are somewhere else: chosen=/lake/old given=/lake/new"


@contextmanager
def clock_went_back(setup: Broken) -> Iterator[str]:
    setup.clock = ManualClock(now_ms=1_700_000_000_000)
    os.utime(setup.folder, (1_700_003_600, 1_700_003_600))
    yield f"the clock says 2023-11-14 22:13:20 UTC, and {setup.folder} was written 3600 s later than that"


@contextmanager
def catalog_is_open(setup: Broken) -> Iterator[str]:
    path = setup.folder / "catalog"
    RocksKV(str(path)).close()
    lock = f"import fcntl; file = open({str(path / 'LOCK')!r}, 'r+'); fcntl.lockf(file, fcntl.LOCK_EX)"
    program = f"{lock}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield f"the catalog in {path} is open in process {other.pid}, so that no other server can start over it"
        other.communicate("\n")


@contextmanager
def newer_catalog(setup: Broken) -> Iterator[str]:
    path = setup.folder / "catalog"
    store = RocksKV(str(path))
    store._db.put(b"\x00format", (7).to_bytes(8, "big"))
    store.close()
    yield f"a newer version of the program wrote this value: path={path} found=7 known=1"


@contextmanager
def damaged_catalog(setup: Broken) -> Iterator[str]:
    path = setup.folder / "catalog"
    RocksKV(str(path)).close()
    (path / "CURRENT").write_text("nonsense")
    yield f"the catalog is damaged: path={path} error=Corruption: CURRENT file does not end with newline"


@contextmanager
def lost_catalog(setup: Broken) -> Iterator[str]:
    journal = setup.folder / "tables" / "catalog-journal"
    journal.mkdir(parents=True)
    (journal / "0000000000001-1").write_bytes(b"x")
    root = setup.folder / "tables"
    yield f"the catalog is empty, and there are files of tables that it does not know: root={root}"


@contextmanager
def no_token_file(setup: Broken) -> Iterator[str]:
    setup.texts["server.token-file"] = "/nowhere/token"
    yield "the file of the service token cannot be read: file=/nowhere/token reason=No such file or directory"


@pytest.mark.parametrize(
    ("check", "make"),
    [
        ("java", wrong_java_home),
        ("java", java_11),
        ("java", java_8),
        ("java", cut_down_java),
        ("java", hung_java),
        ("java", no_java),
        ("broker", closed_broker_port),
        ("broker", unknown_broker),
        ("broker", broker_without_a_label),
        ("broker", silent_port),
        ("port", port_taken),
        ("catalog", database_refuses),
        ("catalog", silent_database),
        ("catalog", wrong_password),
        ("catalog", no_password_file),
        ("data folder", read_only_data),
        ("data folder", data_is_a_file),
        ("storage", read_only_storage),
        ("storage", another_storage),
        ("clock", clock_went_back),
        ("catalog", catalog_is_open),
        ("catalog", newer_catalog),
        ("catalog", damaged_catalog),
        ("catalog", lost_catalog),
        ("service token", no_token_file),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_said_of_a_broken_setup(
    tmp_path: Path, check: str, make: Callable[[Broken], AbstractContextManager[str]]
) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    # A user without rights passes through the folders above.
    for each in folder.parents:
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    setup = Broken(folder=folder)
    with make(setup) as sentence:
        found = setup.findings(check)
    assert [each.sentence for each in found] == [sentence]
    assert found[0].grade is Grade.ERROR
    assert found[0].todo
    page, _, anchor = found[0].page.partition("#")
    assert anchor in anchors_of(ROOT / page)


def test_nothing_is_changed(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    for name in ("catalog", "tables", "spark", "log"):
        (folder / name).mkdir(parents=True)
    RocksKV(str(folder / "catalog")).close()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    for check in ("data folder", "disk", "storage", "catalog", "clock"):
        assert [each.grade for each in Broken(folder=folder).findings(check)] == [Grade.OK], check
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_a_server_that_runs_may_have_port_and_catalog(tmp_path: Path) -> None:
    with catalog_is_open(Broken(folder=tmp_path)), socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        setup = LocalSetup(folder=tmp_path, address=("127.0.0.1", port), is_running=True)
        checks = [each for each in local_checks(SystemClock(), setup, seconds_max=SECONDS) if each.name in RUNNING]
        found = run_checks(SystemClock(), checks, seconds_max=SECONDS)
    assert [(each.check, each.grade) for each in found] == [("port", Grade.OK), ("catalog", Grade.OK)]
    assert found[0].sentence == f"127.0.0.1:{port} is taken, as by a server that runs"


def space(free: int) -> DiskSpace:
    return DiskSpace(device=1, size=100 * GIB, free=free)


@pytest.mark.parametrize(
    ("free", "grade", "end"),
    [
        (100 * MIB, Grade.ERROR, "has 100.0 MiB free, 0 % of 100.0 GiB: writes fail soon, or fail already"),
        (5 * GIB, Grade.WARNING, "has 5.0 GiB free, 5 % of 100.0 GiB"),
        (50 * GIB, Grade.OK, "has 50.0 GiB free, 50 % of 100.0 GiB"),
    ],
)
def test_a_disk_that_fills(tmp_path: Path, free: int, grade: Grade, end: str) -> None:
    found = check_disk(CHECK, tmp_path, lambda _: space(free))
    assert (found[0].grade, found[0].sentence) == (grade, f"the disk with {tmp_path} {end}")


def test_a_disk_without_inodes(tmp_path: Path) -> None:
    found = check_inodes(CHECK, tmp_path, free=40, total=1_000_000)
    assert [each.sentence for each in found] == [
        f"the disk with {tmp_path} has 40 free inodes of 1.0 million, and each file needs one"
    ]
    assert found[0].grade is Grade.ERROR
    assert check_inodes(CHECK, tmp_path, free=20_000, total=1_000_000)[0].grade is Grade.WARNING
    assert check_inodes(CHECK, tmp_path, free=0, total=0) == []
    assert check_inodes(CHECK, tmp_path, free=900, total=8_000) == []


@pytest.mark.parametrize(
    ("free", "grade", "sentence"),
    [
        (GIB, Grade.ERROR, "1.0 GiB of memory are free, and Spark's heap may take 2.0 GiB"),
        (
            5 * GIB // 2,
            Grade.WARNING,
            "2.5 GiB of memory are free, and Spark's heap may take 2.0 GiB: less than 1.0 GiB is left for everything "
            "else",
        ),
        (8 * GIB, Grade.OK, "8.0 GiB of memory are free, and Spark's heap may take 2.0 GiB"),
    ],
)
def test_memory(free: int, grade: Grade, sentence: str) -> None:
    found = check_memory(CHECK, "2g", free)
    assert [(each.grade, each.sentence) for each in found] == [(grade, sentence)]


@pytest.mark.parametrize(
    ("limit", "grade", "sentence"),
    [
        (256, Grade.ERROR, "a process may have 256 open files, and a server needs 1,024"),
        (1_000, Grade.WARNING, "a process may have 1,000 open files, and a server needs 1,024"),
        (1_024, Grade.OK, "a process may have 1,024 open files"),
        (-1, Grade.OK, "a process may have any number of open files"),
    ],
)
def test_open_files(limit: int, grade: Grade, sentence: str) -> None:
    found = check_open_files(CHECK, limit)
    assert [(each.grade, each.sentence) for each in found] == [(grade, sentence)]


def test_libraries_of_other_versions_and_missing_ones() -> None:
    versions = {"pandas": "3.0.1", "pyspark": "4.3.0", "httpx": "0.28.1"}

    def read(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    needed = ["pandas<3,>=2.3", "pyspark<4.4,>=4.3", "msgspec<0.23,>=0.22", 'ruff>=0.17; extra == "dev"']
    found = check_libraries(
        CHECK, read, [*needed, 'psycopg[binary]>=3.3; extra == "server"', 'pandas<3,>=2.3; extra == "pandas"']
    )
    assert [(each.sentence, each.todo) for each in found] == [
        ("the library pandas has version 3.0.1, and Tilth needs <3,>=2.3", "pip install 'pandas<3,>=2.3'"),
        ("the library msgspec is not installed", "pip install 'msgspec<0.23,>=0.22'"),
        ("the library psycopg is not installed", "pip install 'psycopg>=3.3'"),
    ]
    assert check_libraries(CHECK, read, needed[1:2])[0].grade is Grade.OK


def test_a_python_that_cannot_import_spark_is_absent_or_hangs(tmp_path: Path) -> None:
    broken, hung = tmp_path / "broken", tmp_path / "hung"
    broken.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyspark'\" >&2; exit 1\n")
    hung.write_text("#!/bin/sh\nexec sleep 30\n")
    for each in (broken, hung):
        each.chmod(0o755)
    said = {
        str(broken): f"{broken} cannot import Spark: ModuleNotFoundError: No module named 'pyspark'",
        str(hung): f"{hung} has not imported Spark within 0.2 s",
        "/nowhere/python": "the Python of Spark's workers, /nowhere/python, cannot be started: No such file or "
        "directory",
    }
    for python, sentence in said.items():
        assert [each.sentence for each in check_spark(CHECK, python, 0.2)] == [sentence]


FACTS = DatabaseFacts(
    version="17.2",
    format=1,
    may_create=True,
    moved="",
    synchronous="ANY 1 (b)",
    is_synced=True,
    standbys=1,
    ahead_ms=3.0,
    error_ms=1.0,
)


@pytest.mark.parametrize(
    ("facts", "grade", "sentence"),
    [
        (FACTS, Grade.OK, "the catalog's database db answers: PostgreSQL 17.2, schema of format 1, clocks 3 ms apart"),
        (
            replace(FACTS, ahead_ms=-4_000.0),
            Grade.ERROR,
            "the clock of this machine is 4.0 s behind the catalog's database db: a server here would host and commit "
            "nothing",
        ),
        (
            replace(FACTS, ahead_ms=400.0),
            Grade.WARNING,
            "the clock of this machine is 0.4 s ahead of the catalog's database db, 0.5 s is the bound",
        ),
        (
            replace(FACTS, format=9),
            Grade.ERROR,
            "the catalog's database db has a schema of format 9, which a newer version of Tilth wrote",
        ),
        (replace(FACTS, moved="/data"), Grade.ERROR, "the catalog's database db was moved to /data"),
        (
            replace(FACTS, format=0, may_create=False),
            Grade.ERROR,
            "the catalog's database db has no schema of Tilth, and this user cannot make one",
        ),
        (
            replace(FACTS, is_synced=False),
            Grade.WARNING,
            "the catalog's database db runs with fsync off: a crash of its machine may lose commits, or all",
        ),
        (
            replace(FACTS, synchronous=""),
            Grade.WARNING,
            "the catalog's database db waits for no standby: a failover may lose the last commits",
        ),
    ],
)
def test_a_database(facts: DatabaseFacts, grade: Grade, sentence: str) -> None:
    found = check_database(CHECK, facts, "db", requires_sync=False, clock_bound_seconds=0.5)
    assert [(each.grade, each.sentence) for each in found] == [(grade, sentence)]


def test_a_slow_answer_of_a_database_is_no_wrong_clock() -> None:
    assert check_ahead(CHECK, 900.0, 800.0, "db", 0.5) == []


def test_a_check_that_hangs_or_is_a_defect_is_a_finding() -> None:
    never = threading.Event()

    def hang(_: Checkup) -> list[Diagnosis]:
        never.wait(30)
        return []

    def fail(_: Checkup) -> list[Diagnosis]:
        raise ValueError("x")

    def lack(_: Checkup) -> list[Diagnosis]:
        raise ImportError("No module named 'obstore'")

    checks = [Checkup(name=each.__name__, heading="java", run=each) for each in (hang, fail, lack)]
    found = run_checks(SystemClock(), checks, seconds_max=0.1)
    never.set()
    assert [(each.check, each.grade, each.sentence) for each in found] == [
        ("hang", Grade.ERROR, "the check has not ended within 0.1 s"),
        ("fail", Grade.ERROR, "the check has failed by a defect of Tilth: ValueError('x')"),
        ("lack", Grade.ERROR, "a library that a server needs cannot be imported: No module named 'obstore'"),
    ]


def test_all_wrong_settings_are_named_and_the_right_ones_count(tmp_path: Path) -> None:
    config = tmp_path / "tilth.toml"
    config.write_text("log-level = 'debug'\n[warehouse]\nquery-slot = 3\nwrite-slots = 2\n")
    given = read_setup(
        SERVE_SETTINGS.all,
        flags={"data": "/data", "warehouse.query-slots": "many", "warehouse.java": "x"},
        environment={"TILTH_WAREHOUSE__DRIVER_MEMORY": "3g", "TILTH_LISTN": "y", "HOME": "/root"},
        file=config,
    )
    assert [each.sentence for each in given.findings] == [
        f"unknown setting: setting=warehouse.query-slot file={config}",
        "unknown setting: variable=TILTH_LISTN",
        "the value of a setting is not valid: setting=warehouse.query-slots value='many' allowed=1 to 1024",
        "unknown setting: setting=warehouse.java",
    ]
    assert given.findings[0].todo == (
        "did you mean: warehouse.query-slots, warehouse.write-slots, warehouse.driver-host?"
    )
    assert given.texts == {
        "data": "/data",
        "log-level": "debug",
        "warehouse.driver-memory": "3g",
        "warehouse.write-slots": "2",
    }
    assert read_setup(SERVE_SETTINGS.all, flags={}, environment={}, file=None).findings[0].grade is Grade.OK
