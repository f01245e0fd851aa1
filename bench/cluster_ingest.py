"""One consumer with the server's own Spark, beside one on a worker in a process of its own, in turns on the same cores.

    python -m bench.cluster_ingest --messages 1500000 --passes 4

Each pass consumes the whole topic into a new table; the first of each does not count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.cluster_stream import consumed, create_import, drop_import, fill
from tools.stage import Stage, wait

TOPIC = "whole"
TWO_CORES = {"warehouse.master": "local[2]"}
KINDS_OF_WORKER = ("embedded", "remote")
MIB = 1 << 20
PASS_SECONDS_MAX = 300.0


def ingest(folder: Path, *, messages: int, passes: int) -> dict[str, list[float]]:
    """Return the MiB/s of each pass, by where the consumer ran."""
    with Stage(folder) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC, 2)
        size = fill(stage.broker.bootstrap, TOPIC, messages)
        stage.start_node(TWO_CORES)
        stage.add("remote", "write", TWO_CORES)
        stage.wait_alive("remote")
        stage.sql("CREATE DATABASE d")
        found: dict[str, list[float]] = {kind: [] for kind in KINDS_OF_WORKER}
        for number in range(passes + 1):
            for kind in KINDS_OF_WORKER:
                seconds = _pass(stage, f"{kind}_{number}", kind, messages)
                print(f"{kind} {number}: {size / MIB / seconds:.1f} MiB/s", file=sys.stderr, flush=True)
                if number > 0:
                    found[kind].append(size / MIB / seconds)
        return found


def _pass(stage: Stage, name: str, kind: str, messages: int) -> float:
    (other,) = set(KINDS_OF_WORKER) - {kind}
    create_import(stage, name, TOPIC)
    # The server's own Spark is the only one that answers queries: drained only while there are none.
    stage.sql(f"ALTER WORKER {other} DRAIN", f"SYSTEM START CONSUME d.{name}_k")
    is_done = lambda: consumed(stage.node, f"{name}_k") >= messages  # noqa: E731  # its use explains it
    seconds = wait(is_done, f"{name} to be consumed", seconds_max=PASS_SECONDS_MAX)
    ran = stage.worker_of(f"{name}_k")
    stage.sql(f"ALTER WORKER {other} RESUME")
    [(rows,)] = stage.node.connection.sql(f"SELECT count(*) FROM d.{name} WHERE id >= 0").rows
    if ran != kind or rows != messages:
        raise RuntimeError(f"the pass is not right: worker={ran} wanted={kind} rows={rows} messages={messages}")
    drop_import(stage, name)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_500_000)
    parser.add_argument("--passes", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-ingest-") as folder:
        print(ingest(Path(folder), messages=arguments.messages, passes=arguments.passes))


if __name__ == "__main__":
    main()
