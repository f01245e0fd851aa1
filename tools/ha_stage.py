"""Servers over one catalog, a database, a broker and workers, as processes of one's own: for the demo and benchmarks.

Covers: starting them, asking whichever server lives, striking one. Does not cover: what they are used for.
Always holds: everything it starts ends with it; a question is asked again until it is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tilth
from tilth import Result
from tilth.base.errors import TilthError
from tools.node_process import NodeProcess
from tools.postgres import Postgres
from tools.stage import DRIVER_MEMORY, LOOK_SECONDS, WAIT_SECONDS_MAX, Stage, wait
from tools.worker_process import WorkerRun

ONE_CORE = {"warehouse.master": "local[1]"}
HOLDERS = "SELECT holder FROM system.leases WHERE name LIKE 'consumer/%' AND is_valid ORDER BY name"
ALIVE = "SELECT count(*) FROM system.servers WHERE state = 'alive' AND url IS NOT NULL"


class HaStage(Stage):
    """Several servers, of which any may be killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.nodes: dict[str, NodeProcess] = {}
        self.database = Postgres(folder / "postgres")

    def start_servers(self, names: Sequence[str], settings: Mapping[str, str]) -> None:
        """Start the database and the servers, and return when all are ready."""
        self.database.start()
        self._parts.callback(self.database.stop)
        for name in names:
            own = {
                "server.name": name,
                "catalog.url": self.database.address(),
                "storage.root": f"file://{self._folder}/tables",
                "server.token-file": str(self._folder / "token"),
            }
            node = self.nodes[name] = NodeProcess(self._folder / name, settings={**DRIVER_MEMORY, **own, **settings})
            node.start()
            self._parts.callback(node.stop)
        for node in self.nodes.values():
            node.wait_ready()
        #: Asks whichever server answers.
        self.any = tilth.connect(",".join(node.url for node in self.nodes.values()), timeout_seconds=30)
        self._parts.callback(self.any.close)

    def add_worker(self, name: str, server: str, warehouse: str, settings: Mapping[str, str]) -> None:
        """Start a worker of one of the servers."""
        worker = self.workers[name] = WorkerRun(
            self._folder / name,
            server=self.nodes[server].url,
            warehouse=warehouse,
            name=name,
            token=self._token,
            settings={**DRIVER_MEMORY, **settings},
        )
        worker.start()
        self._parts.callback(worker.stop)

    def ask(self, query: str) -> Result:
        """Return the answer of a server, asked again until there is one: the client's part of a failover."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                return self.any.sql(query)
            except TilthError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)

    def number(self, query: str) -> int:
        return int(self.ask(query).rows[0][0] or 0)

    @property
    def host(self) -> str:
        """The server that hosts the only Kafka table; empty: it moves right now."""
        rows = self.ask(HOLDERS).rows
        return str(rows[0][0]).partition("#")[0] if rows else ""

    def wait_all_alive(self) -> None:
        for node in self.nodes.values():
            node.wait_ready()
        wait(lambda: self.number(ALIVE) == len(self.nodes), "all servers to be alive")

    def run(self, *statements: str) -> None:
        """Run statements whose answers do not matter; `{bootstrap}` in them is the broker's address."""
        for statement in statements:
            self.ask(statement.replace("{bootstrap}", self.broker.bootstrap))


def seconds_until(is_so: Callable[[], bool], what: str, since: float) -> float:
    """Return the seconds from a moment of the monotonic clock until it is so."""
    wait(is_so, what)
    return time.monotonic() - since
