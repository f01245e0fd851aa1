"""Seconds from a blow to a worker until its consumer commits again elsewhere: killed, or its JVM stopped.

    python -m bench.cluster_kills --kills 20 --stops 3

Two workers for imports, one consumer; the worker that has it is struck, and started again before the next blow. A kill
is over with the first commit of a round on the other worker. A stopped JVM answers nothing and ends nothing: it is
found because it makes no progress.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cluster_stream import ROUNDS, STATEMENTS, TOPIC, check_stream, streaming
from tools.stage import Stage, wait

WORKERS = ("write-1", "write-2")
ONE_CORE = {"warehouse.master": "local[1]"}
#: A commit that was on its way when its worker ended has arrived by then.
UNDER_WAY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Blows:
    killed_s: list[float]
    #: Until the consumer is no longer where the JVM was stopped; until it has committed elsewhere.
    found_s: list[float]
    stopped_s: list[float]
    #: Each message was a row at the end, once.
    is_right: bool


def strike(folder: Path, *, kills: int, stops: int) -> Blows:
    """Kill and stop workers in turn."""
    with Stage(folder) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC, 2)
        stage.start_node({"warehouse.embedded": ""})
        for name in WORKERS:
            stage.add(name, "write", ONE_CORE)
        # This worker counts the rows at the end.
        stage.add("query", "default", ONE_CORE)
        stage.wait_alive(*WORKERS, "query")
        stage.sql(*STATEMENTS)
        with streaming(stage.broker.bootstrap) as stream:
            wait(lambda: stage.node.value(ROUNDS) >= 3, "the first rounds")
            killed = [_kill(stage) for _ in range(kills)]
            stopped = [_stop(stage) for _ in range(stops)]
        found, committed = ([each[index] for each in stopped] for index in range(2))
        return Blows(killed, found, committed, check_stream(stage, stream.sent))


def _kill(stage: Stage) -> float:
    name = _struck(stage)
    began = time.monotonic()
    stage.workers[name].kill()
    seconds = _seconds_to_commit(stage, began)
    stage.workers[name].start()
    return _report(stage, name, "killed", seconds)


def _stop(stage: Stage) -> tuple[float, float]:
    name = _struck(stage)
    (jvm,) = [each for each in psutil.Process(stage.workers[name].pid).children() if each.name() == "java"]
    began = time.monotonic()
    jvm.suspend()
    wait(lambda: stage.worker_of("k") != name, "the stopped JVM to be found")
    found = time.monotonic() - began
    # The worker ends it and starts another one.
    return found, _report(stage, name, f"stopped, found after {found:.1f} s", _seconds_to_commit(stage, began))


def _struck(stage: Stage) -> str:
    wait(lambda: stage.worker_of("k") != "", "the consumer to run")
    return stage.worker_of("k")


def _seconds_to_commit(stage: Stage, began: float) -> float:
    time.sleep(UNDER_WAY_SECONDS)
    rounds = stage.node.value(ROUNDS)
    wait(lambda: stage.node.value(ROUNDS) > rounds, "the next commit")
    return time.monotonic() - began


def _report(stage: Stage, name: str, what: str, seconds: float) -> float:
    print(f"{name} {what}: {seconds:.1f} s", file=sys.stderr, flush=True)
    stage.wait_alive(*WORKERS)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stops", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-kills-") as folder:
        print(strike(Path(folder), kills=arguments.kills, stops=arguments.stops))


if __name__ == "__main__":
    main()
