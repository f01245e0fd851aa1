"""What every test may ask for: a Java, a real broker; and what every run must leave: no process.

Covers: fixtures of more than one room. Does not cover: a room's own fixtures, which stand in its folder.
Always holds: a process that a test starts, and its children, are gone when the run ends; one that is not fails the run.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tools.broker import JARS, JAVA_HOME, Broker
from tools.durations import PROCESSOR, processor_seconds, slow_files
from tools.lanes import BROKER_VARIABLE, scope_of
from tools.postgres import Postgres

if TYPE_CHECKING:
    from tests.lane_spark import LaneSpark

#: Inherited by everything that a test starts, so that orphans are found too.
SESSION_VARIABLE = "TILTH_TEST_SESSION"
#: Characters of a failure that are shown at once; all of it is shown in the end.
FAILURE_SHOWN_MAX = 2000
#: Grace period of processes that are about to end.
EXIT_SECONDS_MAX = 15.0


class AtOnce:
    """Names each test that fails when it fails: a run that is cut off says then what it has found."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.when} failed: {report.nodeid}\n{str(report.longrepr)[-FAILURE_SHOWN_MAX:]}")


def pytest_configure(config: pytest.Config) -> None:
    """Gives Spark its Java and Python also when pytest is called without `make`, and all JVMs a quick start; property
    tests have no deadline.
    """
    # A crowded machine is no defect.
    settings.register_profile("tilth", deadline=None)
    settings.load_profile("tilth")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(AtOnce(config))
    os.environ[SESSION_VARIABLE] = uuid4().hex
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # JVMs that live for minutes: what optimises code for hours would take a third of the processor.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if JAVA_HOME.exists():
        os.environ.setdefault("JAVA_HOME", JAVA_HOME.read_text().strip())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that start a Spark of their own first, before their process has that of the lane, then the slowest
    ones, so that no process is left with one in the end; files of one scope count together.
    """
    alone = {item.path for item in items if "no_spark" in getattr(item, "fixturenames", ())}
    seconds: dict[str, float] = defaultdict(float)
    for file, found in slow_files().items():
        seconds[scope_of(file)] += found
    items.sort(key=lambda item: (item.path not in alone, -seconds[scope_of(item.location[0])]))


class FilesInScopes(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives all files of a scope to one process."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesInScopes | None:
    """Distributes by scopes where files stay together."""
    return FilesInScopes(config, log) if config.getoption("dist") == "loadfile" else None


#: Processor seconds of this process at the first test of each file that is not over.
_processor_at_begin: dict[Path, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Notes the processor time before the first test of a file."""
    if item.path not in _processor_at_begin:
        _processor_at_begin[item.path] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Records the processor time of a file with its last test, when the fixtures of the file are torn down."""
    yield
    if nextitem is None or nextitem.path != item.path:
        seconds = processor_seconds() - _processor_at_begin.pop(item.path)
        item.user_properties.append((PROCESSOR, f"{seconds:.1f}"))


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: no collection of garbage goes through them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """Fails the run when a process that a test started outlives it; being first, it is torn down last."""
    yield
    _end_spark()
    _, left = psutil.wait_procs(_descendants(), timeout=EXIT_SECONDS_MAX)
    told = [_described(process) for process in left]
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=EXIT_SECONDS_MAX)
    assert not told, "processes left behind:\n" + "\n".join(told)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Undoes what a test did to the log: its standard error is closed once it is over."""
    root = logging.getLogger("tilth")
    handlers, level, propagates = [*root.handlers], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagates
    root.setLevel(level)


@pytest.fixture(scope="session")
def java_home() -> Path:
    """The Java that Spark and Kafka run on."""
    home = os.environ.get("JAVA_HOME", "")
    if not (Path(home) / "bin" / "java").exists():
        pytest.fail(f"no Java was chosen: run `make java` JAVA_HOME={home}")
    return Path(home)


@pytest.fixture(scope="session")
def broker(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker that all tests share: use topics of your own, do not stop it."""
    if BROKER_VARIABLE in os.environ:
        yield Broker(Path(os.environ[BROKER_VARIABLE]), JARS, java_home)
        return
    shared = Broker(tmp_path_factory.mktemp("broker"), JARS, java_home)
    shared.start()
    yield shared
    shared.stop()


@pytest.fixture
def own_broker(java_home: Path, tmp_path: Path) -> Iterator[Broker]:
    """A running broker of this test alone, to stop, kill and restart."""
    own = Broker(tmp_path / "broker", JARS, java_home)
    own.start()
    yield own
    own.stop()


@pytest.fixture(scope="session")
def lane_spark(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaneSpark]:
    """The Spark of the process, which starts when a test wants it."""
    # The import is here because tests of lane 1 do without Spark.
    from tests.lane_spark import LaneSpark

    lane = LaneSpark(tmp_path_factory.mktemp("spark"))
    yield lane
    lane.end()


@pytest.fixture(scope="module")
def no_spark(lane_spark: LaneSpark) -> None:
    """No Spark in this process: for tests that start one of their own."""
    lane_spark.end()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A running database of the tests of one file: use schemas of your own."""
    server = Postgres(tmp_path_factory.mktemp("postgres"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _end_spark() -> None:
    """Ends the JVM that pyspark has started in this process; it would live as long as the process."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    if context is None or gateway is None:
        return
    if context._active_spark_context is not None:
        context._active_spark_context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(EXIT_SECONDS_MAX)
    context._gateway = context._jvm = None


def _descendants() -> list[psutil.Process]:
    """Children and their children, and those that have lost their parent on the way."""
    this = psutil.Process()
    found = {process for process in psutil.process_iter() if process != this and _is_marked(process)}
    return [process for process in found | set(this.children(recursive=True)) if not _is_resource_tracker(process)]


def _is_marked(process: psutil.Process) -> bool:
    try:
        return bool(process.environ().get(SESSION_VARIABLE) == os.environ[SESSION_VARIABLE])
    except psutil.Error:
        return False


def _is_resource_tracker(process: psutil.Process) -> bool:
    """Python's own watcher of shared memory, which ends with this process and not before."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"pid={process.pid} command={' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return f"pid={process.pid}"
