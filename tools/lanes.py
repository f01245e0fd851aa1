"""The lanes of tests, one after the other, with the time of each: what `make test` and `make test-fast` run.

    python -m tools.lanes [--jobs N] [all | fast | lint | long]

Covers: the style and the lanes; what runs beside them (types, the start of the broker, class data); the long tests,
which `make test-long` alone runs. Does not cover: which tests there are (tests/README.md). Always holds: it stops at
the first lane that fails, prints the times in the end, and ends the broker that it has started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.broker import ROOT, Broker
from tools.durations import report_of

#: Where a broker runs that all tests of a run may share; tests/conftest.py starts one of its own without.
BROKER_VARIABLE = "TILTH_TEST_BROKER"
BIN = Path(sys.executable).parent
STYLE = (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["lint-imports", "--no-cache"])
TYPES = [str(BIN / "mypy")]
#: With it, the JVMs of the other lanes start in half the time.
CLASS_DATA = [sys.executable, "-m", "tools.class_data"]
FAST = ("tests/tidy", "tests/unit", "tests/property", "tests/docs")
#: Slowest tests that a lane shows in the end.
SLOWEST_SHOWN = 20
#: One lane, so that no process is idle before the last file.
SLOW = ("tests/simulation", "tests/acceptance", "tests/integration")
#: Lane of `make test-long`: all of these, and the tests with examples.
LONG = ("tests/property", *SLOW)
#: Files that stay together in one process, because they share its HDFS and its S3 server: four JVMs.
ON_STORES = (
    "tests/integration/storage/test_store_behaviour.py",
    "tests/integration/storage/test_node_on_hdfs.py",
    "tests/integration/storage/test_hdfs_faults.py",
    "tests/integration/storage/test_storage_spark_hdfs.py",
    "tests/integration/storage/test_store_faults.py",
)
#: Without the tests and the cases that are marked so.
NOT_LONG = ("-m", "not long")


def scope_of(file: str) -> str:
    """Return the name of all files that stay in one process with this one."""
    return "stores" if file in ON_STORES else file


class LaneFailedError(Exception):
    """a command of a lane failed; its output stands above"""


class Lanes:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._seconds: list[tuple[str, float]] = []

    def style(self) -> None:
        with self._timed("style"):
            for command in STYLE:
                self._run([str(BIN / command[0]), *command[1:]])

    def types(self) -> None:
        with self._timed("types"):
            self._run(TYPES)

    def fast(self) -> None:
        """Lane 1."""
        with self._timed("lane 1"):
            self._pytest("1", "worksteal", FAST, *NOT_LONG)

    def slow(self) -> None:
        """Lane 2, which needs a broker."""
        with self._timed("lane 2"):
            self._in_files("2", SLOW, *NOT_LONG)

    def long(self) -> None:
        """Every test with every case; needs a broker."""
        with self._timed("long"):
            self._in_files("long", LONG)

    def summary(self) -> str:
        total = sum(seconds for _, seconds in self._seconds)
        each = [f"{name} {_clock(seconds)}" for name, seconds in self._seconds]
        return ", ".join([*each, f"together {_clock(total)}"])

    def _in_files(self, lane: str, folders: Sequence[str], *options: str) -> None:
        """The tests of a file, which share a node or a Spark, stay together, and so do files of one scope; order and
        distribution are those of tests/conftest.py.
        """
        self._pytest(lane, "loadfile", folders, "--no-loadscope-reorder", *options)

    def _pytest(self, lane: str, distribution: str, folders: Sequence[str], *options: str) -> None:
        """Run the tests of a lane; their durations are recorded, and the slowest are shown."""
        report = f"--junitxml={report_of(lane)}"
        command = [sys.executable, "-m", "pytest", "-n", str(self._jobs), "--dist", distribution, report]
        self._run([*command, f"--durations={SLOWEST_SHOWN}", *options, *folders])

    def _run(self, command: Sequence[str]) -> None:
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise LaneFailedError(" ".join(command))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds.append((name, time.monotonic() - started))


@contextmanager
def _beside(command: Sequence[str]) -> Iterator[None]:
    """Runs the command meanwhile, and shows its output in the end."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        print(process.communicate()[0], end="", flush=True)
    if process.returncode:
        raise LaneFailedError(" ".join(command))


@contextmanager
def _broker_and_class_data() -> Iterator[Callable[[], None]]:
    """Starts a broker and makes class data meanwhile; who calls what this yields has both, and so have the tests that
    are run from then on.
    """
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory(prefix="tilth-lanes-") as folder, ExitStack() as class_data:
        broker = Broker(Path(folder))

        def start() -> None:
            try:
                broker.start()
            except Exception as error:
                failures.append(error)

        class_data.enter_context(_beside(CLASS_DATA))
        starting = threading.Thread(target=start, name="broker")

        def wait_for_them() -> None:
            starting.join()
            class_data.close()
            if failures:
                raise LaneFailedError(f"the broker did not start: {failures[0]}")
            os.environ[BROKER_VARIABLE] = folder

        starting.start()
        try:
            yield wait_for_them
        finally:
            starting.join()
            broker.stop()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _run_chosen(lanes: Lanes, which: str) -> None:
    if which == "long":
        with _broker_and_class_data() as wait_for_them:
            wait_for_them()
            lanes.long()
        return
    lanes.style()
    if which == "lint":
        lanes.types()
    elif which == "fast":
        with _beside(TYPES):
            lanes.fast()
    else:
        with _broker_and_class_data() as wait_for_them:
            lanes.fast()
            wait_for_them()
            # Types are checked beside the longest lane.
            with _beside(TYPES):
                lanes.slow()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.lanes", description="Runs the lanes of tests.")
    parser.add_argument("which", nargs="?", choices=("all", "fast", "lint", "long"), default="all")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run the tests of a lane")
    arguments = parser.parse_args()
    # With this variable, each of some hundred processes would compile the source and the tests anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    lanes = Lanes(arguments.jobs)
    try:
        _run_chosen(lanes, arguments.which)
    except LaneFailedError as failed:
        sys.exit(f"failed: {failed}; {lanes.summary()}")
    print(lanes.summary())


if __name__ == "__main__":
    main()
