"""Spark on a cluster: how this project's code gets to executors, and whether they can run it.

The package goes as one zip among Spark's files, which every kind of cluster puts into the folder where an executor
runs before its first task; PYTHONPATH names it there, so that also the process that Python's workers are forked from
finds it. Libraries are those of the executors' own Python (`warehouse.python`).

Covers: the zip, the properties of clusters, the checks before and after a start. Does not cover: those of all masters
(conf.py), authentication (cluster_auth.py), the session (session.py).

Tests: tests/integration/warehouse/test_spark_cluster.py.
"""

from __future__ import annotations

import hashlib
import re
import socket
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import tilth.base
from tilth.base.errors import TilthError
from tilth.warehouse.errors import SparkStartError
from tilth.warehouse.session.cluster_auth import AUTHENTICATED, STANDALONE
from tilth.warehouse.session.conf import is_cluster
from tilth.warehouse.session.spark import run_in_task
from tilth.warehouse.settings import MASTER_AUTO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A master of a standalone cluster that does not accept a connection within this time does not answer.
CONNECT_SECONDS_MAX = 5.0
#: Executors of a cluster start when the cluster has cores for them.
EXECUTOR_SECONDS_MAX = 60.0
#: Time without a heartbeat after which an executor is given up, and its tasks run elsewhere.
EXECUTOR_SILENCE_SECONDS_MAX = 30
_ADDRESS = re.compile(r"(.+):(\d+)")
_ONE_TRY = re.compile(r"local(\[(\d+|\*)\])?")
#: Versions that tasks depend on.
_LIBRARIES = ("pyspark", "pyarrow", "numpy", "pandas", "msgspec", "confluent-kafka")
#: A fixed time in the zip's entries, so that the same code has the same name.
_ENTRY_TIME = (2020, 1, 1, 0, 0, 0)


def tries_tasks_again(master: str) -> bool:
    """Return whether Spark may try a failed task again: not in one process, unless `local[N, tries]` says so."""
    return master != MASTER_AUTO and not _ONE_TRY.fullmatch(master)


def check_master(master: str) -> None:
    """Raises SparkStartError if no master of a standalone cluster accepts connections: Spark would try for long."""
    found = STANDALONE.fullmatch(master)
    if found is None:
        return
    reasons = []
    for address in found[1].split(","):
        parts = _ADDRESS.fullmatch(address)
        if parts is None:
            hint = "write spark://host:port, several with commas between"
            raise SparkStartError("this is no address of a Spark master", master=master, hint=hint)
        try:
            socket.create_connection((parts[1], int(parts[2])), timeout=CONNECT_SECONDS_MAX).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    hint = "start the master, or set warehouse.master to where it is"
    raise SparkStartError("no Spark master answers", master=master, reason="; ".join(reasons), hint=hint)


def cluster_conf(master: str, *, package: Path, python: str, driver_host: str, end_seconds: float) -> dict[str, str]:
    """Return the properties of a session on a cluster; none for other masters. `package`: what `pack` made.
    `end_seconds`: time after which an executor is ended because a cancelled task goes on in it.
    """
    if not is_cluster(master):
        return {}
    return AUTHENTICATED | {
        "spark.driver.host": driver_host,
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.files": str(package),
        "spark.executorEnv.PYTHONPATH": package.name,
        "spark.pyspark.python": python,
        # A folder that each machine has, with a short name.
        "spark.python.unix.domain.socket.dir": "/tmp",
        # An executor may go at any time. Names of files carry the attempt, and only attempts that ended well are named.
        "spark.task.maxFailures": "4",
        # Spark's own two to three minutes are long for rows that wait.
        "spark.executor.heartbeatInterval": "5s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{EXECUTOR_SILENCE_SECONDS_MAX}s",
        "spark.network.timeoutInterval": "5s",
        # Nothing else ends a task that does not check for interrupts. Other tasks of the executor are tried again.
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": f"{max(1000, round(1000 * end_seconds))}ms",
        "spark.task.reaper.pollingInterval": "1s",
        "spark.task.reaper.threadDump": "false",
        "spark.executor.extraJavaOptions": "-XX:+UseParallelGC -XX:-UsePerfData -XX:MetaspaceSize=256m",
    }


def pack(folder: Path) -> Path:
    """Write the package as a zip into the folder, under a name that changes with its content; return its path."""
    root = Path(tilth.base.__file__).parents[1]
    files = {str(path.relative_to(root.parent)): path.read_bytes() for path in sorted(_sources(root))}
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    target = folder / f"tilth-{digest.hexdigest()[:12]}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ENTRY_TIME), content, zipfile.ZIP_DEFLATED)
    return target


def _sources(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and path.suffix in (".py", ".toml", ".java"))


def check_executors(session: SparkSession) -> None:
    """Run a task on an executor and compare its libraries. Raises SparkStartError."""
    ours, theirs = _versions(), {}
    answer = ThreadPoolExecutor(1, "tilth-executors").submit(
        run_in_task, session, lambda *, task, attempt: _versions(), dict[str, str]
    )
    try:
        theirs = answer.result(EXECUTOR_SECONDS_MAX)
    except TimeoutError:
        reason = f"no task has run within {EXECUTOR_SECONDS_MAX:.0f} s"
        hint = "give the cluster free cores, or others less of them by spark.cores.max in warehouse.spark-conf"
        raise SparkStartError("the cluster gives no executor", reason=reason, hint=hint) from None
    except TilthError:
        raise
    except Exception as error:
        reason = str(error)
        missing = re.search(r"No module named '([^']+)'", reason)
        last = re.findall(r"^\s*(\w*(?:Error|Exception): .+)$", reason, re.MULTILINE)
        why = f"its Python has no {missing[1]}" if missing else (last or reason.splitlines())[0][:500]
        raise SparkStartError("an executor cannot run Python tasks", reason=why, hint=_PYTHON_HINT) from error
    others = [f"{name} {theirs.get(name)} instead of {ours[name]}" for name in ours if theirs.get(name) != ours[name]]
    if others:
        raise SparkStartError("an executor has other versions", reason=", ".join(others), hint=_PYTHON_HINT)


_PYTHON_HINT = "install this server's requirements there, and name that Python by warehouse.python"


def _versions() -> dict[str, str]:
    """Return the versions of this process; this project's code has come with the job."""
    found = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in _LIBRARIES:
        found[name] = "none"
        with suppress(Exception):
            found[name] = version(name)
    return found
