"""Servers over one catalog, a database, a broker and workers, as processes of one's own: for the demo and benchmarks.

Covers: starting them, queries to any living server, striking one. Does not cover: what they are used for.
Always holds: everything it starts ends with it; a query is repeated until it is answered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import tilth
from tilth import Result
from tilth.base.errors import TilthError
from tools.node_process import NodeProcess
from tools.postgres import Postgres
from tools.stage import DRIVER_MEMORY, POLL_SECONDS, WAIT_SECONDS_MAX, Stage, wait

ONE_CORE = {"warehouse.master": "local[1]"}
HOLDERS = "SELECT holder FROM system.leases WHERE name LIKE 'consumer/%' AND is_valid ORDER BY name"
ALIVE = "SELECT count(*) FROM system.servers WHERE state = 'alive' AND url IS NOT NULL"


class HaStage(Stage):
    """Several servers, of which any may be killed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.nodes: dict[str, NodeProcess] = {}
        self.database = Postgres(folder / "postgres")
        # Its folder is there before it starts.
        self._parts.callback(self.database.stop)

    def start_database(self) -> None:
        """Start it before the servers do, to put something into it."""
        self.database.start()

    def start_servers(self, names: Sequence[str], settings: Mapping[str, str]) -> None:
        """Start the servers, and the database where it does not run yet; return when all are ready."""
        if self.database.pid is None:
            self.start_database()
        for name in names:
            own = {
                "server.name": name,
                "catalog.url": self.database_address(name),
                "storage.root": f"file://{self._folder}/tables",
                "server.token-file": str(self._folder / "token"),
            }
            node = self.nodes[name] = NodeProcess(self._folder / name, settings={**DRIVER_MEMORY, **own, **settings})
            node.start()
            self._parts.callback(node.stop)
        for node in self.nodes.values():
            node.wait_ready()
        #: Asks whichever server answers.
        self.any = tilth.connect(self.urls, timeout_seconds=30)
        self._parts.callback(self.any.close)

    def database_address(self, server: str) -> str:
        """Return where this server finds the database."""
        return self.database.address()

    @property
    def bootstrap(self) -> str:
        """Return where servers and workers find the broker."""
        return self.broker.bootstrap

    @property
    def urls(self) -> str:
        """Return where clients find the servers."""
        return ",".join(node.url for node in self.nodes.values())

    def query(self, query: str) -> Result:
        """Return the answer of a server; repeat the query until there is one, as clients do in a failover."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                return self.any.sql(query)
            except TilthError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def number(self, query: str) -> int:
        return int(self.query(query).rows[0][0] or 0)

    @property
    def host(self) -> str:
        """The server that hosts the only Kafka table; empty: it moves right now."""
        rows = self.query(HOLDERS).rows
        return str(rows[0][0]).partition("#")[0] if rows else ""

    def wait_host(self) -> str:
        """Return the first server that is seen hosting the only Kafka table."""
        seen = [""]

        def has_host() -> bool:
            seen[0] = self.host
            return seen[0] != ""

        wait(has_host, "a host")
        return seen[0]

    def wait_all_alive(self) -> None:
        for node in self.nodes.values():
            node.wait_ready()
        wait(lambda: self.number(ALIVE) == len(self.nodes), "all servers to be alive")

    def run(self, *statements: str) -> None:
        """Run statements whose answers do not matter; `{bootstrap}` in them is the broker's address."""
        for statement in statements:
            self.query(statement.replace("{bootstrap}", self.bootstrap) if "{bootstrap}" in statement else statement)
