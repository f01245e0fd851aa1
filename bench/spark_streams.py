"""A stream into a table whose driver, executors and Python workers are killed in the middle of commits: rows beside a
model.

    python -m bench.spark_streams [--kills 20] [--files 200] [--rows 200]

Each blow kills a driver with all its processes while a write of it is open, and the next driver goes on from its
checkpoint. Before every second one, an executor of the driver or all its Python workers are killed in turns, so that
tasks fail and are tried again. The model is each row of each file, once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.report import Figure, less, more, print_report
from bench.rivals import PROJECT
from tools.node_process import NodeProcess

TABLE = "default.events"
_POLL_SECONDS = 0.01
#: Time for a driver to begin a write, and for the last one to end.
_DRIVER_SECONDS_MAX = 120.0
#: A blow falls at most so long after a write was seen to be open: before, during and after its commit.
_AFTER_SECONDS_MAX = 0.6
#: Time for a driver to have what is killed.
_VICTIMS_SECONDS_MAX = 5.0
_NEWEST = "SELECT coalesce(max(id), 0) FROM system.transactions WHERE state = 'running' AND actor LIKE '%of Spark%'"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLoss:
    """Rows of a stream that was killed, beside the model."""

    sent: int
    lost: int
    twice: int
    drivers_killed: int
    executors_killed: int
    workers_killed: int
    seconds: float


def stream_loop(folder: Path, *, kills: int, files: int, rows: int, seed: int) -> StreamLoss:
    """Run a stream to its end, with so many blows."""
    rng = random.Random(seed)  # moments of blows
    source = folder / "source"
    source.mkdir(parents=True)
    for number in range(files):
        lines = [json.dumps({"a": number * rows + row, "b": f"x{row}"}) for row in range(rows)]
        (source / f"{number:06}.json").write_text("\n".join(lines))
    began = time.monotonic()
    with _node(folder) as node:
        node.connection.sql(f"CREATE TABLE {TABLE} (a BIGINT NOT NULL, b STRING) ENGINE = MergeTree ORDER BY a")
        drivers = executors = workers = newest = 0
        for blow in range(kills):
            process = _driver(folder, node)
            newest = _wait_open(node, process, after=newest)
            if blow % 4 == 1 and _kill_some(process, _is_worker, is_one=False):
                workers += 1
                newest = _wait_open(node, process, after=newest)
            if blow % 4 == 3 and _kill_some(process, _is_executor, is_one=True):
                executors += 1
                newest = _wait_open(node, process, after=newest)
            time.sleep(rng.uniform(0.0, _AFTER_SECONDS_MAX))
            # One that has written all has ended by itself.
            drivers += process.poll() is None
            _kill(process)
        last = _driver(folder, node)
        if last.wait(_DRIVER_SECONDS_MAX * 5) != 0:
            raise RuntimeError(f"the last driver failed:\n{(folder / 'driver.log').read_text()[-4000:]}")
        [(count, distinct)] = node.connection.sql(f"SELECT count(*), count(DISTINCT a) FROM {TABLE}").rows
    sent = files * rows
    return StreamLoss(
        sent=sent,
        lost=sent - distinct,
        twice=count - distinct,
        drivers_killed=drivers,
        executors_killed=executors,
        workers_killed=workers,
        seconds=time.monotonic() - began,
    )


@contextmanager
def _node(folder: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(folder / "node")
    node.start()
    try:
        node.wait_ready()
        yield node
    finally:
        node.kill()


def _driver(folder: Path, node: NodeProcess) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.stream_driver", node.url, TABLE]
    command += [str(folder / name) for name in ("source", "checkpoint", "scratch")]
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])}
    with (folder / "driver.log").open("ab") as log:
        # A session of its own, so that its JVM and its workers are killed with it.
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def _wait_open(node: NodeProcess, process: subprocess.Popen[bytes], *, after: int) -> int:
    """Wait until a write is open that began after this transaction, or until the driver has written all; return its
    transaction. Those of killed drivers stay open for a while.
    """
    deadline = time.monotonic() + _DRIVER_SECONDS_MAX
    while process.poll() is None:
        newest = node.value(_NEWEST)
        if newest > after:
            return newest
        if time.monotonic() > deadline:
            raise TimeoutError("the driver begins no write")
        time.sleep(_POLL_SECONDS)
    return after


def _kill_some(process: subprocess.Popen[bytes], is_victim: Callable[[psutil.Process], bool], *, is_one: bool) -> bool:
    """Kill one or all such processes of a driver as soon as there are some; `False`: there were none in time."""
    deadline = time.monotonic() + _VICTIMS_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        if _killed(process, is_victim, is_one=is_one):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _killed(process: subprocess.Popen[bytes], is_victim: Callable[[psutil.Process], bool], *, is_one: bool) -> bool:
    has_killed = False
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if not (is_one and has_killed) and is_victim(child):
                    child.kill()
                    has_killed = True
    return has_killed


def _is_worker(process: psutil.Process) -> bool:
    """Return whether it runs Python code of tasks: not the process that forks these."""
    parent = process.parent()
    return parent is not None and "pyspark.daemon" in " ".join(parent.cmdline())


def _is_executor(process: psutil.Process) -> bool:
    return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def figures_of(loss: StreamLoss) -> list[Figure]:
    return [
        less("stream_lost", loss.lost, "rows", 0),
        less("stream_twice", loss.twice, "rows", 0),
        more("stream_drivers_killed", loss.drivers_killed, "drivers"),
        more("stream_executors_killed", loss.executors_killed, "executors"),
        more("stream_workers_killed", loss.workers_killed, "times"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-streams-") as folder:
        loss = stream_loop(
            Path(folder), kills=arguments.kills, files=arguments.files, rows=arguments.rows, seed=arguments.seed
        )
    print_report("spark_streams", figures_of(loss))


if __name__ == "__main__":
    main()
