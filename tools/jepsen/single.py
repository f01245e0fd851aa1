"""One node with its catalog in RocksDB: its files on a local disk, in a bucket, or in HDFS.

Covers: starting node and broker, the blows on them and on the disk, the bucket or HDFS. Does not cover: several servers
(servers.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from hdfs_native import Client as HdfsClient

from tilth import Result
from tools.hdfs_cluster import HdfsCluster
from tools.jepsen.definitions import Replicas
from tools.jepsen.harm import (
    SHORT,
    SITE,
    Blow,
    Clock,
    Disk,
    clock_blows,
    jvm_killed,
    link_blows,
    pauses,
)
from tools.jepsen.history import History
from tools.jepsen.servers import python_path
from tools.jepsen.services import KILLED_SECONDS, broker_killed, bucket_killed, start_broker
from tools.jepsen.subjects import Copies, HarnessConnection, Store, bucket_copies, folder_copies
from tools.node_process import NodeProcess
from tools.own_process import OwnProcess
from tools.stage import BUCKET, Stage
from tools.tcp_link import TcpLink

DISK_MIB = 2048
#: Sizes of wrong clocks. They are small, since a node alone keeps files whose use ended in the future until that time.
CLOCK_SECONDS = (0.3, 2.0, 20.0)


class Single(Stage):
    """A node and its broker behind a link; subclasses say where its files are."""

    storage = ""
    replicas: Replicas | None = None
    keeps_commits = True

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder)
        self._rng = rng
        self._clock = Clock(folder / "clock")
        self._links: dict[str, TcpLink] = {}
        self._is_down = False

    def start_all(self) -> None:
        self.broker = start_broker(self._folder / "broker", self._link("broker"), self._parts)
        settings = {"warehouse.driver-memory": "1g", "warehouse.master": "local[2]", **self._start_files()}
        environment = self._clock.environment | {"PYTHONPATH": python_path(SITE)}
        self.node = NodeProcess(self._node_folder, settings=settings, environment=environment)
        self.node.start()
        self._parts.callback(self.node.stop)
        self.node.wait_ready()
        self.harness = HarnessConnection([self.node.url])
        self._parts.callback(self.harness.close)

    @property
    def _node_folder(self) -> Path:
        return self._folder / "node"

    def _start_files(self) -> dict[str, str]:
        """Start the store of the files, and return the settings of the node for it."""
        return {}

    def _link(self, name: str) -> TcpLink:
        link = self._links[name] = TcpLink()
        self._parts.callback(link.close)
        return link

    @property
    def urls_by_name(self) -> dict[str, str]:
        return {"node": self.node.url}

    def sql(self, statement: str) -> Result:  # type: ignore[override]  # one statement, with its answer
        return self.harness.sql(statement.replace("{bootstrap}", f"127.0.0.1:{self._links['broker'].port}"))

    def wait_all_there(self) -> list[str]:
        self.node.wait_ready()
        return []

    def recover(self) -> list[str]:
        if self.node.has_ended and not self._is_down:
            code = self.node.exit_code
            self.node.start()
            return [f"the node ended by itself: exit {code}"]
        return []

    def stores(self) -> list[Store]:
        return [Store(storage="", quorum=1, copies=self._copies)]

    def _copies(self) -> Sequence[Copies]:
        return [folder_copies(self.node.data / "tables")]

    def logs(self) -> dict[str, Path]:
        return {"node": self._node_folder / "node.log"}

    def blows(self) -> list[Blow]:
        def kill() -> None:
            self._is_down = True
            self.node.kill()

        def stop() -> None:
            self._is_down = True
            self.node.stop()

        def start() -> None:
            self._is_down = False
            with suppress(AssertionError):
                self.node.start()

        found = [
            Blow(name="node killed", target="node", strike=kill, mend=start, seconds=KILLED_SECONDS, weight=1.5),
            Blow(name="node stopped", target="node", strike=stop, mend=start, seconds=SHORT, weight=0.5),
            *pauses("node", self.node),
            jvm_killed("node", self.node, self._rng),
            *clock_blows("node", self._clock, self._rng, sizes=CLOCK_SECONDS),
            broker_killed(self.broker, self._links["broker"], weight=0.5),
            pauses("broker", self.broker)[0],
        ]
        for name, link in self._links.items():
            found += link_blows(name, link, self._rng)
        return found


class OnDisk(Single):
    """A node with catalog and files on a small disk."""

    def _start_files(self) -> dict[str, str]:
        self._disk = Disk(self._folder / "disk", mib=DISK_MIB)
        self._parts.callback(self._disk.close)
        return {}

    @property
    def _node_folder(self) -> Path:
        return self._folder / "disk" / "node"

    def logs(self) -> dict[str, Path]:
        return {"node": self._node_folder / "node.log"}

    def blows(self) -> list[Blow]:
        return [*super().blows(), *self._disk.blows("disk of the node", "disk")]


class OnBucket(Single):
    """A node with its files in a bucket behind a link."""

    def _start_files(self) -> dict[str, str]:
        settings = self.start_store()
        to_store, port = self._link("bucket"), self.store.port
        to_store.connect(port)
        root = settings["storage.root"].replace(f":{port}", f":{to_store.port}")
        return settings | {"storage.root": root}

    def _copies(self) -> Sequence[Copies]:
        return [bucket_copies(self.store.folder / "buckets" / BUCKET / "tables")]

    def blows(self) -> list[Blow]:
        store = self.store
        return [
            *super().blows(),
            bucket_killed(store, "bucket"),
            Blow(name="bucket hangs", target="bucket", strike=store.pause, mend=store.go_on, may_last=True),
        ]


class OnHdfs(Single):
    """A node with its files in an HDFS of one NameNode and one DataNode."""

    def _start_files(self) -> dict[str, str]:
        self._hdfs = HdfsCluster(self._folder / "hdfs")
        self._parts.callback(self._hdfs.stop)
        return {"storage.root": f"{self._hdfs.start()}/tables"}

    def _copies(self) -> Sequence[Copies]:
        """Return names and lengths, for HDFS checks its own checksums."""
        client = HdfsClient(self._hdfs.address)
        found: dict[str, dict[str, str]] = {}
        for status in client.list_status("/tables", recursive=True):
            parts = Path(status.path).parts
            if not status.isdir and "data" in parts:
                found.setdefault(parts[-3], {})[parts[-1]] = str(status.length)
        return [found]

    def blows(self) -> list[Blow]:
        cluster = self._hdfs
        found = super().blows()
        starts = {
            "NameNode": (cluster.name_node, partial(cluster.start_name_node, is_waiting=False)),
            "DataNode": (cluster.data_node, partial(cluster.start_data_node, is_waiting=False)),
        }
        for name, (process, start) in starts.items():
            found.append(
                Blow(name=f"{name} killed", target=name, strike=process.kill, mend=start, seconds=KILLED_SECONDS)
            )
            found.append(pauses(name, _Running(process))[0])
        return found


class _Running:
    """Process id of a daemon of the cluster, current after each restart."""

    def __init__(self, process: OwnProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        found = self._process.running()
        return None if found is None else int(found.pid)


def rocksdb(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> OnDisk:
    return stack.enter_context(OnDisk(folder, rng))


def s3(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> OnBucket:
    return stack.enter_context(OnBucket(folder, rng))


def hdfs(folder: Path, rng: random.Random, stack: ExitStack, history: History) -> OnHdfs:
    return stack.enter_context(OnHdfs(folder, rng))
