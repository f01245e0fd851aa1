"""Seconds from kill -9 of an embedded node to its first answer, and to its first commit of a round.

    python -m bench.cluster_restart --kills 5

prints restart_catalog_s, restart_answer_s and restart_commit_s, the medians of the kills.
Messages keep coming while the node is away, so that there is something to commit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from bench.cluster_stream import ROUNDS, STATEMENTS, TOPIC, streaming
from tilth.base.errors import TilthError
from tools.node_process import NodeProcess
from tools.stage import Stage, wait


def restart(folder: Path, *, kills: int) -> dict[str, float]:
    """Return median seconds to the first answer from the catalog, from Spark, and to the first commit."""
    with Stage(folder) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC, 2)
        stage.start_node({})
        stage.sql(*STATEMENTS)
        with streaming(stage.broker.bootstrap):
            wait(lambda: stage.node.value(ROUNDS) > 0, "the first round")
            measured = [_kill(stage.node) for _ in range(kills)]
    return {name: statistics.median(each[name] for each in measured) for name in measured[0]}


def _kill(node: NodeProcess) -> dict[str, float]:
    rounds = node.value(ROUNDS)
    node.kill()
    began = time.monotonic()
    node.start()
    seconds: dict[str, float] = {}

    def poll(name: str, query: str, least: int) -> None:
        def is_answered() -> bool:
            with suppress(TilthError):
                return node.value(query) >= least
            return False

        wait(is_answered, query)
        seconds[name] = time.monotonic() - began

    polls = (
        ("catalog_s", ROUNDS, 0),
        ("answer_s", "SELECT count(*) FROM d.t WHERE v <> ''", 1),
        ("commit_s", ROUNDS, rounds + 1),
    )
    threads = [threading.Thread(target=poll, args=each) for each in polls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(seconds) < len(polls):
        raise RuntimeError(f"no answer after a kill: {node.log_tail()}")
    print({name: round(value, 2) for name, value in seconds.items()}, file=sys.stderr, flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(prefix="tilth-restart-") as folder:
        seconds = restart(Path(folder), kills=kills)
    for name, value in seconds.items():
        print(f"restart_{name} {value:.2f}")


if __name__ == "__main__":
    main()
