"""A cluster of hosts for the demo: a bucket and a broker, a database and a server, workers, and executors of Spark.

    host         processes
    store        broker, bucket; with YARN also an HDFS, through which drivers hand files to containers
    server       PostgreSQL with the catalog, the Tilth server
    drivers      Spark's master or YARN's ResourceManager, the Tilth workers, each with a driver of Spark
    executors    Spark's workers or YARN's NodeManager, the executors

Covers: starting all of it, on hosts of their own where this process may make them and on this machine otherwise;
cutting a host off. Does not cover: what it is used for.
Always holds: hosts share no folder that can be written: tables are in the bucket, the catalog is in PostgreSQL, secrets
are copied to each; everything it starts ends with it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from tilth.base.errors import TilthError
from tools.hdfs_cluster import HdfsCluster
from tools.hosts import HERE, Host, OwnHosts, why_no_hosts
from tools.postgres import Postgres, open_folder
from tools.spark_cluster import SparkCluster
from tools.stage import BUCKET_JARS, POLL_SECONDS, WAIT_SECONDS_MAX, Stage
from tools.yarn_cluster import YarnCluster

STORE, SERVER, DRIVERS, EXECUTORS = "store", "server", "drivers", "executors"
STANDALONE, YARN = "standalone", "yarn"
#: Properties of each worker in the cluster.
ONE_EXECUTOR = {
    STANDALONE: {"spark.cores.max": "1"},
    YARN: {"spark.executor.instances": "1"},
}
EXECUTOR = {"spark.executor.cores": "1", "spark.executor.memory": "600m"}


class Cluster(Protocol):
    """A cluster that runs executors of Spark."""

    @property
    def settings(self) -> dict[str, str]: ...

    @property
    def environment(self) -> dict[str, str]: ...

    @property
    def properties(self) -> dict[str, str]: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill_executor(self) -> None: ...


class ClusterStage(Stage):
    """All processes; `start_all` before use."""

    def __init__(self, folder: Path, *, master: str, workers: Sequence[str]) -> None:
        """`master`: STANDALONE or YARN. `workers`: names of all workers that will ever be added."""
        super().__init__(folder)
        self._master = master
        self._database_folder = open_folder()
        #: Folders of each process, by its host.
        self._processes = {
            STORE: {name: [folder / name] for name in ("broker", "s3", "hdfs")},
            SERVER: {"node": [folder / "node"], "postgres": [folder / "postgres", self._database_folder]},
            DRIVERS: {"master": [folder / "spark" / "master"], **{name: [folder / name] for name in workers}},
            EXECUTORS: {"executors": [folder / "spark" / "workers"]},
        }
        #: Reason why all processes run on this machine; empty: each host is one of its own.
        self.why_one_host = why_no_hosts()
        self._hosts: OwnHosts | None = None

    def __enter__(self) -> Self:
        self._parts.callback(shutil.rmtree, self._database_folder, ignore_errors=True)
        if not self.why_one_host:
            owned = {
                host: [folder for folders in processes.values() for folder in folders]
                for host, processes in self._processes.items()
            }
            try:
                self._hosts = self._parts.enter_context(OwnHosts(self._folder, owned))
            except BaseException:
                self._parts.close()
                raise
        return self

    @property
    def hosts(self) -> Sequence[str]:
        """Names of the hosts, each of which can be cut off; none where all is on this machine."""
        return [] if self._hosts is None else list(self._processes)

    def host_of(self, name: str) -> Host:
        if self._hosts is None:
            return HERE
        [found] = [host for host, processes in self._processes.items() if name in processes]
        return self._hosts.named(found)

    def start_all(self) -> None:
        """Start everything but the workers, and return when the server is ready."""
        self.start_broker()
        root = self.start_store()
        self.cluster = self._start_cluster()
        database = Postgres(self._folder / "postgres", host=self.host_of("postgres"), folder=self._database_folder)
        self._parts.callback(database.stop)
        database.start()
        if self._hosts is not None:
            # The addresses of tables and of the cluster refer to them, and each process reads them for itself.
            for name in ("token", "key", "secret"):
                self._hosts.copy(self._folder / name)
            if isinstance(self.cluster, SparkCluster):
                self._hosts.copy(self.cluster.secret_file)
        # Queries and imports are for the workers; the server keeps to its catalog.
        self.start_node(root | {"catalog.url": database.address(), "server.name": SERVER, "warehouse.embedded": ""})

    def _start_cluster(self) -> Cluster:
        folder, drivers, executors = self._folder / "spark", self.host_of("master"), self.host_of("executors")
        cluster: Cluster
        if self._master == YARN:
            files = HdfsCluster(self._folder / "hdfs", host=self.host_of("hdfs"))
            self._parts.callback(files.stop)
            cluster = YarnCluster(folder, store=files.start(), host=drivers, nodes_host=executors)
        else:
            cluster = SparkCluster(folder, workers=2, cores=4, host=drivers, workers_host=executors)
        self._parts.callback(cluster.stop)
        cluster.start()
        return cluster

    def add_all(self, workers: Mapping[str, str]) -> None:
        """Start workers, by name and warehouse, and wait until they take tasks."""
        properties = self.cluster.properties | ONE_EXECUTOR[self._master] | EXECUTOR
        conf = " ".join(f"{name}={value}" for name, value in properties.items())
        settings = BUCKET_JARS | self.cluster.settings | {"warehouse.spark-conf": conf}
        for name, warehouse in workers.items():
            self.add(name, warehouse, settings, environment=self.cluster.environment)
        self.wait_alive(*workers)

    def number(self, query: str) -> int:
        """Return the single number that the query gives; repeat it while the server cannot answer."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                return self.node.value(query)
            except TilthError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def cut_off(self, host: str, seconds: float) -> None:
        """Lose all packets from and to a host for so long, and join it again."""
        assert self._hosts is not None
        number = self._hosts.number(host)
        self._hosts.cut(number)
        try:
            time.sleep(seconds)
        finally:
            self._hosts.heal(number)
