"""A real Spark standalone cluster from the PySpark package, on loopback ports or on two hosts: for tests, demo,
benchmarks.

Covers: a master and its workers, started, killed, stopped and ended by their ids; their executors. Does not cover:
drivers. Always holds: everything it starts ends with it; the master finds its workers again after a restart; only
processes with the secret, which is drawn for each cluster, are heard.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tilth.warehouse.session.class_data import spark_home
from tools.broker import JAVA_HOME, free_port
from tools.hosts import HERE, Host
from tools.own_process import OwnProcess

START_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
MEMORY = "2g"
_DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_ELECTED = "I have been elected leader"
_EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """One master and some workers in one folder, with the logs of all."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        cores: int,
        hidden: Sequence[Path] = (),
        host: Host = HERE,
        workers_host: Host | None = None,
    ) -> None:
        """`cores`: of each worker. `hidden`: folders that workers and executors do not see, as those of another
        machine; that needs the right to make namespaces of mounts. `host`: where the master runs, and the drivers;
        `workers_host`: where the workers and the executors run, the same by default.
        """
        self.folder = folder
        self._hidden = [*hidden]
        self._host = host
        self._workers_host = workers_host or host
        self._cores = cores
        self._port = free_port()
        self.secret = secrets.token_hex(16)
        #: File from which drivers read the secret.
        self.secret_file = folder / "secret"
        self._master = OwnProcess(folder / "master.json")
        self._workers = [OwnProcess(folder / f"worker{number}.json") for number in range(workers)]

    @property
    def settings(self) -> dict[str, str]:
        """Settings of nodes and workers that compute on this cluster."""
        return {
            "warehouse.master": self.master,
            "warehouse.cluster-secret": f"file:{self.secret_file}",
            "warehouse.driver-host": self._host.address,
        }

    @property
    def properties(self) -> dict[str, str]:
        """Properties of Spark that drivers need beside these settings."""
        return {}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that drivers need."""
        return {}

    @property
    def master(self) -> str:
        """Value of `spark.master` for drivers."""
        return f"spark://{self._host.address}:{self._port}"

    @property
    def master_folder(self) -> Path:
        """Folder of the master alone."""
        return self.folder / "master"

    @property
    def workers_folder(self) -> Path:
        """Folder of the workers and the executors alone."""
        return self.folder / "workers"

    def start(self) -> None:
        """Start all, and return when the workers have registered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_secretly(self.secret_file, self.secret)
        # Master and workers read this file when they start.
        defaults = f"spark.authenticate true\nspark.authenticate.secret {self.secret}\n"
        for folder in (self.master_folder, self.workers_folder):
            (folder / "conf").mkdir(parents=True, exist_ok=True)
            _write_secretly(folder / "conf" / "spark-defaults.conf", defaults)
        (self.master_folder / "recovery").mkdir(exist_ok=True)
        self.start_master()
        for number in range(len(self._workers)):
            self.start_worker(number)

    def start_master(self) -> None:
        """Start the master, for the first time or again, on the same port."""
        before = _count(self._log("master"), _ELECTED)
        options = "-Dspark.master.rest.enabled=false -Dspark.deploy.recoveryMode=FILESYSTEM "
        options += f"-Dspark.deploy.recoveryDirectory={self.master_folder / 'recovery'}"
        arguments = ["--host", self._host.address, "--port", str(self._port), "--webui-port", "0"]
        command = _command_of(_MASTER, arguments, host=self._host, folder=self.master_folder, options=options)
        self._master.start(command, self._log("master"))
        self._wait_for("master", _ELECTED, before)

    def start_worker(self, number: int) -> None:
        """Start a worker of Spark, for the first time or again."""
        name = f"worker{number}"
        before = _count(self._log(name), "Successfully registered")
        host, folder = self._workers_host, self.workers_folder
        arguments = ["--host", host.address, "--cores", str(self._cores), "--memory", MEMORY, "--webui-port", "0"]
        arguments += ["--work-dir", str(folder / f"work{number}"), self.master]
        command = _command_of(_WORKER, arguments, host=host, folder=folder, hidden=self._hidden)
        self._workers[number].start(command, self._log(name))
        self._wait_for(name, "Successfully registered", before)

    def stop(self) -> None:
        """End the workers, their executors and the master."""
        executors = self.executors()
        for process in (*self._workers, self._master):
            running = process.running()
            if running is not None and running.status() == psutil.STATUS_STOPPED:
                running.resume()
            process.kill()
        psutil.wait_procs(executors, timeout=START_SECONDS_MAX)

    def executors(self) -> list[psutil.Process]:
        """The executors that run now, those of all drivers."""
        return [each for daemon in self._workers for each in executors_of(daemon)]

    def kill_executor(self) -> None:
        """SIGKILL for the executor that has used the most processor time: one that works."""
        executor = busiest(self.executors())
        executor.kill()
        executor.wait(START_SECONDS_MAX)

    def signal_executor(self, number: signal.Signals) -> psutil.Process:
        """Send a signal to the busiest executor, and return it."""
        executor = busiest(self.executors())
        executor.send_signal(number)
        return executor

    def kill_worker(self, number: int) -> None:
        """SIGKILL for a worker of Spark; its executors end with it."""
        self._workers[number].kill()

    def kill_master(self) -> None:
        self._master.kill()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_for(self, name: str, words: str, before: int) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while _count(self._log(name), words) <= before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} has not started: {self._log(name).read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)


def executors_of(daemon: OwnProcess) -> list[psutil.Process]:
    """Return the executors below a daemon of a cluster, not the shells that have started them."""
    running = daemon.running()
    children = [] if running is None else running.children(recursive=True)
    return [child for child in children if any(word.endswith(_EXECUTOR) for word in _command(child))]


def busiest(processes: Sequence[psutil.Process]) -> psutil.Process:
    """Return the process that has used the most processor time."""
    return max(processes, key=lambda each: sum(each.cpu_times()[:2]))


def _command_of(
    kind: str, arguments: list[str], *, host: Host, folder: Path, options: str = "", hidden: Sequence[Path] = ()
) -> list[str]:
    """Return the command of a daemon with its environment, as the scripts of Spark have it: `spark-class` becomes the
    JVM.
    """
    home = spark_home()
    environment = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": JAVA_HOME.read_text().strip(),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON_OPTIONS} {options}".strip(),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PATH": os.environ["PATH"],
    }
    # The host is entered first: that leaves the mounts of this process.
    words = [*host.begin, *_hiding(hidden), "env", "-i", *(f"{key}={value}" for key, value in environment.items())]
    return [*words, str(home / "bin" / "spark-class"), kind, *arguments]


def _hiding(folders: Sequence[Path]) -> list[str]:
    """Return the first words of a command that does not see these folders; its process is the command's."""
    if not folders:
        return []
    mounts = " && ".join(f"mount -t tmpfs none {shlex.quote(str(folder))}" for folder in folders)
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" "$@"']


def _write_secretly(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _count(log: Path, words: str) -> int:
    return log.read_text(errors="replace").count(words) if log.exists() else 0


def _command(process: psutil.Process) -> list[str]:
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command
