"""A server, its workers, a broker and what else they need, as processes of one's own: for the demo and benchmarks.

Covers: starting them in order, with a service token and a bucket where one is wanted; ending all. Does not cover: what
they are used for.
Always holds: everything it starts ends with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.broker import ROOT, Broker
from tools.hosts import HERE, Host
from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server
from tools.worker_process import WorkerRun

WAIT_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05
BUCKET = "tilth"
#: With these, Spark reads buckets.
BUCKET_JARS = {"warehouse.jars": str(ROOT / ".cache" / "s3a")}
DRIVER_MEMORY = {"warehouse.driver-memory": "1g"}


class Stage:
    """One server and its workers; broker and store only if they are needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = ExitStack()
        self._token = secrets.token_hex(16)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(self._token)
        self.workers: dict[str, WorkerRun] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._parts.close()

    def host_of(self, name: str) -> Host:
        """Return where the process of this name runs."""
        return HERE

    def start_broker(self) -> None:
        self.broker = Broker(self._folder / "broker", host=self.host_of("broker"))
        self.broker.start()
        self._parts.callback(self.broker.stop)

    def start_store(self) -> dict[str, str]:
        """Return the settings of a node whose tables are in its bucket; the secrets go by files."""
        self.store = S3Server(self._folder / "s3", host=self.host_of("s3"))
        self.store.start()
        self._parts.callback(self.store.stop)
        self.store.create_bucket(BUCKET)
        (self._folder / "key").write_text(KEY)
        (self._folder / "secret").write_text(SECRET)
        keys = f"key=file:{self._folder / 'key'}&secret=file:{self._folder / 'secret'}"
        root = f"s3://{BUCKET}/tables?endpoint={self.store.endpoint}&region=us-east-1&{keys}"
        return BUCKET_JARS | {"storage.root": root}

    def start_node(self, settings: Mapping[str, str]) -> None:
        """Start the server, and return when it is ready."""
        given = DRIVER_MEMORY | {"server.token-file": str(self._folder / "token"), **settings}
        self.node = NodeProcess(self._folder / "node", settings=given, host=self.host_of("node"))
        self.node.start()
        self._parts.callback(self.node.stop)
        self.node.wait_ready()

    def add(
        self,
        name: str,
        warehouse: str,
        settings: Mapping[str, str],
        *,
        server: str = "",
        host: Host | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a worker of the node, or of the server at this address; `wait_alive` waits until it takes tasks."""
        worker = WorkerRun(
            self._folder / name,
            server=server or self.node.url,
            warehouse=warehouse,
            name=name,
            token=self._token,
            settings={**DRIVER_MEMORY, **settings},
            host=host or self.host_of(name),
        )
        worker.change_environment(environment or {})
        self.workers[name] = worker
        worker.start()
        self._parts.callback(worker.stop)

    def wait_alive(self, *names: str) -> None:
        """Raises RuntimeError when a worker ends before, or takes too long."""
        for name in names:
            self.workers[name].wait_ready()
        states = "SELECT name FROM system.workers WHERE state = 'alive'"
        wait(lambda: set(names) <= {name for (name,) in self.node.connection.sql(states).rows}, f"workers {names}")

    def sql(self, *statements: str) -> None:
        """Run statements whose answers do not matter; `{bootstrap}` in them is the broker's address."""
        for statement in statements:
            bootstrap = self.broker.bootstrap if "{bootstrap}" in statement else ""
            self.node.connection.sql(statement.replace("{bootstrap}", bootstrap))

    def worker_of(self, kafka: str) -> str:
        """Return the worker on which the only consumer of the Kafka table runs; empty: none."""
        query = "SELECT worker FROM system.tasks WHERE kind = 'consume' AND state = 'running' "
        rows = self.node.connection.sql(query + f"AND table LIKE '%.{kafka}'").rows
        return str(rows[0][0]) if rows else ""


def wait(is_done: Callable[[], bool], what: str, *, seconds_max: float = WAIT_SECONDS_MAX) -> float:
    """Return the seconds of the wait. Raises RuntimeError naming what was waited for."""
    began = time.monotonic()
    while not is_done():
        if time.monotonic() - began > seconds_max:
            raise RuntimeError(f"waited {seconds_max:.0f} s for {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began
