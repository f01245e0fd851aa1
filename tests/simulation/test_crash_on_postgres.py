"""The crash suite over a catalog in a real PostgreSQL: a node that dies in the middle, and a database that does.

As test_crash.py, with fewer deaths: TILTH_CRASH_POSTGRES_KILLS says how many beside the first, TILTH_CRASH_SEED where;
`make test` makes one of the node and one of the database. Every other time the database is killed too, before the node
starts again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.crash_client import WritingClient
from tests.simulation.test_crash import QUICK_START, SEED, drawn_places, survive
from tools.broker import Broker
from tools.node_process import NodeProcess
from tools.postgres import Postgres

pytestmark = pytest.mark.simulation

KILLS = int(os.environ.get("TILTH_CRASH_POSTGRES_KILLS", "0"))


class NodeOnPostgres(NodeProcess):
    """A node whose database may die between two starts."""

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        super().__init__(folder, settings=QUICK_START | {"catalog.url": postgres.address()})
        self._postgres = postgres
        self._starts = 0

    def start(self, *, failpoints: str = "") -> None:
        self._starts += 1
        if self._starts % 2 == 0:
            self._postgres.kill()
            self._postgres.start()
        super().start(failpoints=failpoints)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    postgres = Postgres(tmp_path / "postgres")
    try:
        postgres.start()
        node = NodeOnPostgres(tmp_path, postgres)
        yield node
        node.stop()
    finally:
        postgres.stop()


@pytest.fixture
def client(node: NodeProcess) -> Iterator[WritingClient]:
    client = WritingClient(node.url)
    yield client
    client.stop()


def test_all_is_in_exactly_once_on_postgres(node: NodeProcess, own_broker: Broker, client: WritingClient) -> None:
    draw = random.Random(SEED)
    places = drawn_places(draw, KILLS)
    print(f"crash suite on PostgreSQL: seed={SEED} places={places}")
    survive(node, own_broker, client, places, draw)
