"""Requests to an S3-compatible server: of rounds of a consumer, and of a query over many parts.

python -m bench.cluster_store --parts 3000 --rounds 20
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.cluster_stream import ROUNDS, STATEMENTS, TOPIC, consumed
from tools.stage import BUCKET, Stage, wait

#: An INSERT makes so many.
PARTITIONS_AT_ONCE = 100
MESSAGES_A_ROUND = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    #: Beside one for each file that was written.
    a_round_beside_files: float
    parts: int
    #: Requests of the whole query beside those of its scan; listings among them.
    of_plan: int
    gets_a_part: float
    heads_a_part: float


def count_requests(folder: Path, *, parts: int, rounds: int) -> Requests:
    """A node of one process, its tables in the bucket."""
    with Stage(folder) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC, 2)
        stage.start_node(stage.start_store())
        stage.sql(*STATEMENTS)
        beside_files = _of_rounds(stage, rounds)
        stage.sql("SYSTEM STOP MERGES")
        stage.sql("CREATE TABLE d.many (id BIGINT, p INT) ENGINE = MergeTree PARTITION BY p ORDER BY id")
        for first in range(0, parts, PARTITIONS_AT_ONCE):
            ids = f"range({first}, {first + PARTITIONS_AT_ONCE})"
            stage.sql(f"INSERT INTO d.many SELECT id, CAST(id AS INT) FROM {ids}")
        made = stage.node.value("SELECT count(*) FROM system.parts WHERE table = 'many' AND active")
        stage.store.requests()
        stage.sql("SELECT count(*), sum(id) FROM d.many WHERE id >= 0")
        every = [(verb, path) for verb, path in stage.store.requests() if _uuid(stage, "many") in path or _lists(path)]
        gets = sum(verb == "GET" and not _lists(path) for verb, path in every)
        heads = sum(verb == "HEAD" for verb, _ in every)
        of_plan = len(every) - min(gets, made) - min(heads, made)
        return Requests(
            a_round_beside_files=beside_files,
            parts=made,
            of_plan=of_plan,
            gets_a_part=gets / made,
            heads_a_part=heads / made,
        )


def _of_rounds(stage: Stage, rounds: int) -> float:
    producer = Producer({"bootstrap.servers": stage.broker.bootstrap})
    for number in range(rounds + 1):
        if number == 1:
            # The first one also checks whether its folder exists.
            stage.store.requests()
        for id_ in range(MESSAGES_A_ROUND):
            producer.produce(TOPIC, b'{"id": %d, "v": "x"}' % id_, partition=id_ % 2)
        producer.flush(30)
        wanted = (number + 1) * MESSAGES_A_ROUND
        wait(lambda wanted=wanted: consumed(stage.node, "k") >= wanted, "a round")  # type: ignore[misc]  # bound here
    counted = stage.node.value(ROUNDS) - 1
    requests = [(verb, path) for verb, path in stage.store.requests() if _uuid(stage, "t") in path]
    files = sum(verb == "PUT" for verb, _ in requests)
    return (len(requests) - files) / counted


def _uuid(stage: Stage, table: str) -> str:
    return str(stage.node.connection.sql(f"SELECT uuid FROM system.tables WHERE name = '{table}'").rows[0][0])


def _lists(path: str) -> bool:
    """A listing is a GET of the bucket itself."""
    return path.split("?")[0].strip("/") == BUCKET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilth-store-") as folder:
        print(count_requests(Path(folder), parts=arguments.parts, rounds=arguments.rounds))


if __name__ == "__main__":
    main()
