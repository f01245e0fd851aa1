"""A real YARN (one ResourceManager, one NodeManager) on loopback ports or on two hosts, for the demo.

Covers: its configuration, starting and ending both daemons, the executors of Spark in its containers. Does not cover:
its file system, which drivers need to hand files to containers (hdfs_cluster.py); queues, Kerberos, several
NodeManagers.
Always holds: a process is ended by its recorded id; the containers end with the NodeManager.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tilth.warehouse.session.class_data import spark_home
from tools.broker import JAVA_HOME, ROOT, free_port
from tools.hdfs_cluster import bean_of, hadoop_command, has_hadoop, write_properties
from tools.hosts import HERE, Host
from tools.own_process import OwnProcess
from tools.spark_cluster import busiest, executors_of

#: Beside those of HDFS.
JARS = ROOT / ".cache" / "yarn"
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1
CORES = 16
MEMORY_MIB = 12_288
#: Containers are multiples of it.
CONTAINER_MIB = 256
_DAEMONS = "org.apache.hadoop.yarn.server"
_METRICS = "Hadoop:service=ResourceManager,name=ClusterMetrics"
#: Its pages inject classes by reflection, which Java refuses since 17.
_JAVA_OPTIONS = ("--add-opens=java.base/java.lang=ALL-UNNAMED",)
_RESOURCE_PORTS = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
_NODE_PORTS = ("address", "localizer.address", "webapp.address")


class YarnError(RuntimeError):
    """the cluster did not start"""


class YarnCluster:
    """One cluster in one folder."""

    def __init__(self, folder: Path, *, store: str, host: Host = HERE, nodes_host: Host | None = None) -> None:
        """`store`: address of the file system through which drivers hand files to containers. `host`: where the
        ResourceManager runs, and the drivers; `nodes_host`: where the NodeManager and the executors run, the same by
        default.
        """
        self.folder = folder
        self._store, self._host, self._nodes_host = store, host, nodes_host or host
        self._resource_manager = OwnProcess(folder / "resourcemanager.json")
        self._node_manager = OwnProcess(folder / "nodemanager.json")
        self._web = ""

    @property
    def settings(self) -> dict[str, str]:
        """Settings of nodes and workers that compute on this cluster."""
        return {"warehouse.master": "yarn", "warehouse.driver-host": self._host.address}

    @property
    def properties(self) -> dict[str, str]:
        """Properties of Spark: its jars are on each host at the same path, and are not sent."""
        return {"spark.yarn.jars": f"local:{spark_home()}/jars/*", "spark.yarn.am.memory": "512m"}

    @property
    def environment(self) -> dict[str, str]:
        """Variables of nodes and workers that compute on this cluster."""
        return {"HADOOP_CONF_DIR": str(self.master_folder / "conf")}

    @property
    def master_folder(self) -> Path:
        """Folder of the ResourceManager, with the configuration that drivers read."""
        return self.folder / "master"

    @property
    def workers_folder(self) -> Path:
        """Folder of the NodeManager and its containers alone."""
        return self.folder / "workers"

    def start(self) -> None:
        """Start both daemons, and return when the NodeManager has registered."""
        if not (has_hadoop() and any(JARS.glob("*.jar"))):
            raise YarnError(f"the cluster's jars are missing, run `make yarn-jars`: folder={JARS}")
        self._write_configurations()
        # With Log4j of Spark they say why they end.
        jars = [*JARS.glob("*.jar"), *(spark_home() / "jars").glob("log4j-*.jar")]
        resources = ("resourcemanager", "resourcemanager.ResourceManager", self._resource_manager)
        nodes = ("nodemanager", "nodemanager.NodeManager", self._node_manager)
        for (name, daemon, process), folder, host in (
            (resources, self.master_folder, self._host),
            (nodes, self.workers_folder, self._nodes_host),
        ):
            command = hadoop_command(folder / "conf", f"{_DAEMONS}.{daemon}", options=_JAVA_OPTIONS, jars=jars)
            environment = (f"JAVA_HOME={JAVA_HOME.read_text().strip()}", f"PATH={os.environ['PATH']}")
            process.start([*host.begin, "env", "-i", *environment, *command], self.folder / f"{name}.log")
        deadline = time.monotonic() + START_SECONDS_MAX
        while bean_of(self._web, _METRICS).get("NumActiveNMs") != 1:
            if any(each.exit_code is not None for each in (self._resource_manager, self._node_manager)):
                raise YarnError(f"a daemon ended while starting: logs={self.folder}")
            if time.monotonic() > deadline:
                raise YarnError(f"no NodeManager has registered: seconds={START_SECONDS_MAX} logs={self.folder}")
            time.sleep(POLL_SECONDS)

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, those of all drivers."""
        return executors_of(self._node_manager)

    def kill_executor(self) -> None:
        """SIGKILL for the executor that has used the most processor time: one that works."""
        executor = busiest(self.executors())
        executor.kill()
        executor.wait(STOP_SECONDS_MAX)

    def stop(self) -> None:
        """End both daemons and the containers."""
        running = self._node_manager.running()
        containers = [] if running is None else running.children(recursive=True)
        self._node_manager.kill()
        for each in containers:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(containers, timeout=STOP_SECONDS_MAX)
        self._resource_manager.kill()

    def _write_configurations(self) -> None:
        ports = {name: f"{self._host.address}:{free_port()}" for name in _RESOURCE_PORTS}
        self._web = ports["webapp.address"]
        nodes = {name: f"{self._nodes_host.address}:{free_port()}" for name in _NODE_PORTS}
        yarn = {
            "yarn.resourcemanager.hostname": self._host.address,
            **{f"yarn.resourcemanager.{name}": address for name, address in ports.items()},
            "yarn.nodemanager.hostname": self._nodes_host.address,
            **{f"yarn.nodemanager.{name}": address for name, address in nodes.items()},
            "yarn.nodemanager.local-dirs": self.workers_folder / "local",
            "yarn.nodemanager.log-dirs": self.workers_folder / "logs",
            "yarn.nodemanager.resource.memory-mb": MEMORY_MIB,
            "yarn.nodemanager.resource.cpu-vcores": CORES,
            "yarn.scheduler.minimum-allocation-mb": CONTAINER_MIB,
            # The memory of the machine is shared, and its disk may be full for other reasons.
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": 200,
        }
        queues = {
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": 100,
            # Many small applications: half of all containers is a driver's envoy.
            "yarn.scheduler.capacity.maximum-am-resource-percent": 1,
        }
        for folder in (self.master_folder, self.workers_folder):
            conf = folder / "conf"
            # The daemons look for the folders of their pages on the class path; the jars have none.
            for pages in ("cluster", "node"):
                (conf / "webapps" / pages).mkdir(parents=True, exist_ok=True)
            core = {"fs.defaultFS": self._store, "hadoop.tmp.dir": folder / "tmp"}
            write_properties(conf / "core-site.xml", core)
            write_properties(conf / "hdfs-site.xml", {"dfs.replication": 1})
            write_properties(conf / "yarn-site.xml", yarn)
            write_properties(conf / "capacity-scheduler.xml", queues)
