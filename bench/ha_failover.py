"""Seconds from the kill of a server until its consumer commits again on another one.

    python -m bench.ha_failover --kills 20

Two servers over one PostgreSQL, one consumer; the server that hosts it is killed with SIGKILL, and started again before
the next blow. A kill is over with the first commit of a round that another process than the killed one has begun.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.cluster_stream import STATEMENTS, TOPIC, streaming
from tools.ha_stage import HaStage
from tools.stage import wait

SERVERS = ("a", "b")
ROUNDS = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'k'"
#: A commit that was on its way when its server ended has arrived by then.
UNDER_WAY_SECONDS = 0.05
COUNTED = "SELECT count(*), count(DISTINCT id) FROM d.t"


@dataclass(frozen=True, slots=True)
class Failovers:
    killed_s: list[float]
    lost: int
    twice: int


def fail_over(folder: Path, *, kills: int) -> Failovers:
    """Kill the host of the Kafka table again and again."""
    with HaStage(folder) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC, 2)
        stage.start_servers(SERVERS, {"warehouse.master": "local[2]"})
        stage.run(*STATEMENTS)
        with streaming(stage.broker.bootstrap) as stream:
            wait(lambda: stage.number(ROUNDS) >= 3, "the first rounds")
            killed = [_kill(stage) for _ in range(kills)]
        wait(lambda: stage.number("SELECT sum(messages) FROM system.ingest_ledger") >= stream.sent, "all messages")
        stored, distinct = stage.query(COUNTED).rows[0]
        return Failovers(killed, lost=stream.sent - distinct, twice=stored - distinct)


def _kill(stage: HaStage) -> float:
    host = stage.wait_host()
    other = stage.nodes[next(name for name in SERVERS if name != host)]
    # The server that stays answers a query, so that no client's pause counts.
    other.value(ROUNDS)
    began = time.monotonic()
    stage.nodes[host].kill()
    time.sleep(UNDER_WAY_SECONDS)
    rounds = other.value(ROUNDS)
    wait(lambda: other.value(ROUNDS) > rounds, "the next commit")
    seconds = time.monotonic() - began
    print(f"{host} killed: {seconds:.2f} s", file=sys.stderr, flush=True)
    stage.nodes[host].start()
    stage.wait_all_alive()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-failover-") as folder:
        print(fail_over(Path(folder), kills=arguments.kills))


if __name__ == "__main__":
    main()
