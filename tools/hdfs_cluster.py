"""A real HDFS (one NameNode, one DataNode) on loopback ports or on a host of its own, for tests and demo.

Covers: formatting, starting, ending and stopping its two processes. Does not cover: replicas, Kerberos, failover.
Always holds: files outlive both processes; a process is ended by its recorded id.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

import pyspark

from tools.broker import JAVA_HOME, ROOT, free_port
from tools.hosts import HERE, Host
from tools.own_process import OwnProcess

JARS = ROOT / ".cache" / "hdfs"
START_SECONDS_MAX = 120.0
POLL_SECONDS = 0.1
#: Time after which a count is made anew.
METRICS_SECONDS = 1

JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
#: Spark's jars hold the rest of Hadoop and of what it logs with.
SPARK_JARS = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "snappy-java", "jsr305", "jcl-over-slf4j")
_DAEMONS = "org.apache.hadoop.hdfs.server"
_NAMES = "Hadoop:service=NameNode,name=FSNamesystemState"
_DATA = "Hadoop:service=DataNode,name=DataNodeInfo"


class HdfsError(RuntimeError):
    """the cluster did not start, or is not there"""


class HdfsCluster:
    """One cluster in one folder; both processes keep their ports over restarts."""

    def __init__(self, folder: Path, *, host: Host = HERE) -> None:
        self.folder = folder
        self._host = host
        self.name_node = OwnProcess(folder / "namenode.json")
        self.data_node = OwnProcess(folder / "datanode.json")
        self._ports: dict[str, int] = {}

    @property
    def address(self) -> str:
        """`hdfs://host:port` of the NameNode; raises HdfsError if it has never been started."""
        if not self._ports:
            raise HdfsError(f"no cluster has been started here: folder={self.folder}")
        return f"hdfs://{self._host.address}:{self._ports['name']}"

    def start(self) -> str:
        """Format it where that was not done, start both processes, wait until files can be written."""
        if not has_hadoop():
            raise HdfsError(f"the cluster's jars are missing, run `make hdfs-jars`: folder={JARS}")
        if not self._ports:
            self._ports = _free_ports()
            self._write_config()
            subprocess.run(
                [*self._command("namenode.NameNode"), "-format", "-nonInteractive"],
                check=True,
                capture_output=True,
                timeout=START_SECONDS_MAX,
            )
        try:
            self.start_name_node(is_waiting=False)
            self.start_data_node(is_waiting=False)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.address

    def start_name_node(self, *, is_waiting: bool = True) -> None:
        self.name_node.start(self._command("namenode.NameNode"), self.folder / "namenode.log")
        if is_waiting:
            self.wait_ready()

    def start_data_node(self, *, is_waiting: bool = True) -> None:
        self.data_node.start(self._command("datanode.DataNode"), self.folder / "datanode.log")
        if is_waiting:
            self.wait_ready()

    def calls(self) -> dict[str, int]:
        """Return the number of requests to the NameNode by kind, since it started; waits until its counts are
        refreshed.
        """
        time.sleep(METRICS_SECONDS + POLL_SECONDS)
        bean = self._bean("name-http", f"Hadoop:service=NameNode,name=RpcDetailedActivityForPort{self._ports['name']}")
        return {name.removesuffix("NumOps"): int(count) for name, count in bean.items() if name.endswith("NumOps")}

    def pause_name_node(self) -> None:
        """SIGSTOP: it takes connections and answers nothing."""
        self._signal(self.name_node, signal.SIGSTOP)

    def continue_name_node(self) -> None:
        self._signal(self.name_node, signal.SIGCONT)

    def stop(self) -> None:
        """End both, by their ids. No process, no effect."""
        # Nothing is to be kept in order: files that were closed are on the disk.
        for process in (self.data_node, self.name_node):
            process.kill()

    def wait_ready(self) -> None:
        """Wait until the NameNode has left its safe mode and knows the DataNode that runs now."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if any(process.running() is None for process in (self.name_node, self.data_node)):
                raise HdfsError(f"a process ended while starting: folder={self.folder}")
            names, data = self._bean("name-http", _NAMES), self._bean("data-http", _DATA)
            is_registered = '"NamenodeHaState":"active"' in data.get("BPServiceActorInfo", "")
            if names.get("NumLiveDataNodes") == 1 and names.get("FSState") == "Operational" and is_registered:
                return
            time.sleep(POLL_SECONDS)
        raise HdfsError(f"the cluster does not answer: seconds={START_SECONDS_MAX} folder={self.folder}")

    def _bean(self, port: str, name: str) -> dict[str, Any]:
        return bean_of(f"{self._host.address}:{self._ports[port]}", name)

    def _command(self, daemon: str) -> list[str]:
        return [*self._host.begin, *hadoop_command(self.folder / "conf", f"{_DAEMONS}.{daemon}")]

    def _write_config(self) -> None:
        (self.folder / "conf").mkdir(parents=True, exist_ok=True)
        local = f"{self._host.address}:{{}}"
        core = {"fs.defaultFS": self.address, "hadoop.tmp.dir": self.folder / "tmp"}
        hdfs = {
            "dfs.replication": 1,
            "dfs.namenode.name.dir": self.folder / "names",
            "dfs.datanode.data.dir": self.folder / "blocks",
            "dfs.namenode.http-address": local.format(self._ports["name-http"]),
            "dfs.datanode.address": local.format(self._ports["data"]),
            "dfs.datanode.http.address": local.format(self._ports["data-http"]),
            "dfs.datanode.ipc.address": local.format(self._ports["data-ipc"]),
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            # The short intervals make the death of a DataNode known soon.
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.safemode.extension": 0,
        }
        (self.folder / "conf" / "hadoop-metrics2.properties").write_text(f"*.period={METRICS_SECONDS}\n")
        write_properties(self.folder / "conf" / "core-site.xml", core)
        write_properties(self.folder / "conf" / "hdfs-site.xml", hdfs)

    def _signal(self, process: OwnProcess, what: signal.Signals) -> None:
        running = process.running()
        if running is not None:
            running.send_signal(what)


def has_hadoop() -> bool:
    return any(JARS.glob("hadoop-client-minicluster-*.jar"))


def hadoop_command(conf: Path, daemon: str, *, options: Sequence[str] = (), jars: Iterable[Path] = ()) -> list[str]:
    """Return the command of a daemon of Hadoop with this folder of its configuration, and further jars."""
    found = [*sorted(JARS.glob("*.jar")), *sorted(jars)]
    for name in SPARK_JARS:
        found += sorted((Path(pyspark.__file__).parent / "jars").glob(f"{name}-*.jar"))
    class_path = ":".join(map(str, (conf, *found)))
    return [f"{JAVA_HOME.read_text().strip()}/bin/java", *JVM_OPTIONS, *options, "-cp", class_path, daemon]


def bean_of(address: str, name: str) -> dict[str, Any]:
    """Return what the daemon at this address of its pages says about itself; nothing where it does not answer."""
    try:
        with urlopen(f"http://{address}/jmx?qry={name}", timeout=1) as answer:
            beans: list[dict[str, Any]] = json.load(answer)["beans"]
    except (URLError, OSError, ValueError):
        return {}
    return beans[0] if beans else {}


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Write properties in the form in which daemons of Hadoop read them."""
    lines = [
        f"<property><name>{key}</name><value>{escape(str(value))}</value></property>"
        for key, value in properties.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def _free_ports() -> dict[str, int]:
    names = ("name", "name-http", "data", "data-http", "data-ipc")
    while True:
        ports = [free_port() for _ in names]
        if len(set(ports)) == len(ports):
            return dict(zip(names, ports, strict=True))
