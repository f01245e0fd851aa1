"""One node with its catalog in RocksDB: its files on a local disk, in a bucket, or in HDFS.

Covers: starting node and broker, the blows on them and on what is below. Does not cover: several servers (servers.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from hdfs_native import Client as HdfsClient

from tilth import Result
from tools.broker import Broker
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
from tools.jepsen.servers import KILLED_SECONDS, python_path
from tools.jepsen.subjects import Asking, Copies, Store, folder_copies
from tools.jepsen.tables import OTHER_TOPIC, TOPIC
from tools.node_process import NodeProcess
from tools.own_process import OwnProcess
from tools.stage import BUCKET, Stage
from tools.tcp_link import TcpLink

DISK_MIB = 2048
#: Files that ended in a time to come stay until then: nothing but its own clock says what the time is.
CLOCK_SECONDS = (0.3, 2.0, 20.0)


class Single(Stage):
    """A node, its broker behind a link; what keeps its files is a subclass's."""

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
        to_broker = self._link("broker")
        self.broker = Broker(self._folder / "broker")
        self.broker.start(proxy_port=to_broker.port)
        self._parts.callback(self.broker.stop)
        to_broker.connect(self.broker.proxied_port)
        self.broker.create_topic(TOPIC, 2)
        self.broker.create_topic(OTHER_TOPIC, 1)
        settings = {"warehouse.driver-memory": "1g", "warehouse.master": "local[2]", **self._start_files()}
        environment = self._clock.environment | {"PYTHONPATH": python_path(SITE)}
        self.node = NodeProcess(self._node_folder, settings=settings, environment=environment)
        self.node.start()
        self._parts.callback(self.node.stop)
        self.node.wait_ready()
        self.asking = Asking([self.node.url])
        self._parts.callback(self.asking.close)

    @property
    def _node_folder(self) -> Path:
        return self._folder / "node"

    def _start_files(self) -> dict[str, str]:
        """Start what keeps the files, and return the settings of the node for it."""
        return {}

    def _link(self, name: str) -> TcpLink:
        link = self._links[name] = TcpLink()
        self._parts.callback(link.close)
        return link

    @property
    def urls_by_name(self) -> dict[str, str]:
        return {"node": self.node.url}

    def sql(self, statement: str) -> Result:  # type: ignore[override]  # one statement, with its answer
        return self.asking.sql(statement.replace("{bootstrap}", f"127.0.0.1:{self._links['broker'].port}"))

    def wait_all_there(self) -> None:
        self.node.wait_ready()

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

        def restart_broker() -> None:
            self.broker.restart()
            self._links["broker"].connect(self.broker.proxied_port)

        found = [
            Blow(name="node killed", place="node", strike=kill, mend=start, seconds=KILLED_SECONDS, weight=1.5),
            Blow(name="node stopped", place="node", strike=stop, mend=start, seconds=SHORT, weight=0.5),
            *pauses("node", self.node),
            jvm_killed("node", self.node, self._rng),
            *clock_blows("node", self._clock, self._rng, sizes=CLOCK_SECONDS),
            Blow(
                name="broker killed",
                place="broker",
                strike=self.broker.kill,
                mend=restart_broker,
                seconds=KILLED_SECONDS,
                weight=0.5,
            ),
            pauses("broker", self.broker)[0],
        ]
        for name, link in self._links.items():
            found += link_blows(name, link, self._rng)
        return found


class OnDisk(Single):
    """Catalog and files on a small disk of the node's own."""

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
    """Files in a bucket behind a link."""

    def _start_files(self) -> dict[str, str]:
        settings = self.start_store()
        to_store, self._port = self._link("bucket"), int(self.store.endpoint.rpartition(":")[2])
        to_store.connect(self._port)
        root = settings["storage.root"].replace(f":{self._port}", f":{to_store.port}")
        return settings | {"storage.root": root}

    def _copies(self) -> Sequence[Copies]:
        return [folder_copies(self.store.folder / "buckets" / BUCKET / "tables")]

    def blows(self) -> list[Blow]:
        store = self.store
        killed = Blow(
            name="bucket killed",
            place="bucket",
            strike=store.kill,
            mend=partial(store.start, self._port),
            seconds=KILLED_SECONDS,
        )
        return [
            *super().blows(),
            killed,
            Blow(name="bucket hangs", place="bucket", strike=store.pause, mend=store.go_on, may_last=True),
        ]


class OnHdfs(Single):
    """Files in an HDFS of one NameNode and one DataNode."""

    def _start_files(self) -> dict[str, str]:
        self._hdfs = HdfsCluster(self._folder / "hdfs")
        self._parts.callback(self._hdfs.stop)
        return {"storage.root": f"{self._hdfs.start()}/tables"}

    def _copies(self) -> Sequence[Copies]:
        """Read names and lengths: HDFS keeps checksums itself."""
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
                Blow(name=f"{name} killed", place=name, strike=process.kill, mend=start, seconds=KILLED_SECONDS)
            )
            found.append(pauses(name, _Running(process))[0])
        return found


class _Running:
    """A process of a cluster, by its id of now."""

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
