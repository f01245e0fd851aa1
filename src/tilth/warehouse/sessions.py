"""A worker's Spark: one JVM and one SparkContext in a process, started, watched, restarted, stopped.

Covers: the session's life, sessions, job tags, pools, its temporary files and logs. Does not cover: properties
(conf.py), tasks (worker.py).
Always holds: the JVM ends when this process ends, however it ends: it reads end-of-file on its standard input, and the
Python workers end with the JVM in the same way. Temporary files of Spark are in one folder for each run, which is
removed when the run ends, or at the next start. A process has one WorkerSession at a time.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tilth.base
from tilth.base.logs import Log, rotate_appended
from tilth.warehouse.closed import USER, remove_refused_functions, user_of_thread
from tilth.warehouse.conf import FAIR_SCHEDULER, cores_of, log_properties, spark_conf
from tilth.warehouse.errors import SessionTakenError, SparkGoneError, SparkStartError
from tilth.warehouse.folders import make_run_folder, make_socket_folder, remove_left_behind
from tilth.warehouse.java import find_java
from tilth.warehouse.settings import QUERY_WAREHOUSE, WarehouseSettings
from tilth.warehouse.spark import warm

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_END_SECONDS_MAX = 10
_OUTPUT = "spark.out"
#: Spark refuses a longer folder for sockets: the system allows a socket's path 107 characters, and Spark adds a name.
_SOCKET_FOLDER_MAX = 60

_log = Log("warehouse")
#: Guards the process's one place for a session, and the environment while the JVM is started.
_process_lock = threading.RLock()
_owner: WorkerSession | None = None


class WorkerSession:
    """The Spark of this process; `start` before use, `stop` at the end."""

    def __init__(self, settings: WarehouseSettings, *, folder: str, log_folder: str) -> None:
        """`folder`: Spark's temporary files and configuration; `log_folder`: its log."""
        self._settings = settings
        self._folder = Path(folder).absolute()
        self._log_folder = Path(log_folder).absolute()
        #: Of the present run: Spark's files, and the sockets of its Python workers.
        self._run_folder = self._folder
        self._socket_folder = self._folder
        self._runs = 0
        self._is_killed = False
        self._session: SparkSession | None = None
        # Any: pyspark ships no types for the handle of the JVM's process.
        self._jvm_process: Any = None
        # Any: a handle of the JVM.
        self._user: Any = None
        self.cores = cores_of(settings.master, machine_cores=os.cpu_count() or 1)

    def start(self) -> None:
        """Starts Java and Spark. Raises WrongJavaError, SessionTakenError, SparkStartError."""
        global _owner
        with _process_lock:
            if _owner is not None:
                raise SessionTakenError(
                    folder=str(_owner._folder), hint="one process runs one node: close the other one first"
                )
            self._launch()
            _owner = self

    def stop(self) -> None:
        """Stops Spark and the JVM; returns when the JVM is gone. Does nothing if it is not running."""
        global _owner
        with _process_lock:
            if _owner is not self:
                return
            self._end()
            _owner = None

    def kill(self) -> None:
        """Ends the JVM at once and for good: every call into it that is under way fails. For a stop that takes too
        long; may be called from any thread, and `stop` still comes after it."""
        self._is_killed = True
        process = self._jvm_process
        if process is not None:
            process.kill()

    def is_alive(self) -> bool:
        """False once the JVM has gone without being asked to."""
        return self._session is not None and self._jvm_process.poll() is None

    def restart_if_gone(self) -> bool:
        """Starts Spark anew after the JVM has died; True if it had to."""
        with _process_lock:
            if _owner is not self or self._is_killed or self.is_alive():
                return False
            _log.error("spark_gone", exit_code=self._jvm_process.returncode, log=self._log_folder)
            self._end()
            self._launch()
            return True

    def tend_logs(self) -> None:
        """Rotate the output of Java itself; log4j rotates its own file."""
        rotate_appended(self._log_folder / _OUTPUT, self._settings.logs)

    @property
    def session(self) -> SparkSession:
        """The root session. Raises SparkGoneError."""
        session = self._session
        if session is None or not self.is_alive():
            raise SparkGoneError(hint=f"it is started again by itself; the reason is in {self._log_folder}")
        return session

    @property
    def context(self) -> SparkContext:
        """Raises SparkGoneError."""
        return self.session.sparkContext

    @property
    def jvm_pid(self) -> int:
        """The process id of the JVM."""
        return int(self._jvm_process.pid)

    def new_session(self, *, pool: str) -> SparkSession:
        """A session with its own views and settings; jobs of this thread run in the pool from now on."""
        context = self.context
        context.setLocalProperty("spark.scheduler.pool", pool)
        # A cancelled job ends its tasks where they wait and sleep, too.
        context.setLocalProperty("spark.job.interruptOnCancel", "true")
        self._user.set(USER)
        return self.session.newSession()

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Jobs that this thread starts inside carry the tag."""
        context = self.context
        context.addJobTag(tag)
        try:
            yield
        finally:
            if self.is_alive():
                context.removeJobTag(tag)

    def cancel_jobs(self, tag: str) -> None:
        """Ends the jobs that carry the tag."""
        self.context.cancelJobsWithTag(tag)

    def warm(self) -> int:
        """Starts the Python workers, one for each core, and imports what tasks need; returns how many there are."""
        return warm(self.new_session(pool=QUERY_WAREHOUSE), tasks=self.cores)

    def _launch(self) -> None:
        java = find_java(self._settings.java_home, os.environ)
        self._prepare_folders()
        from pyspark import SparkConf, SparkContext, __version__
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None or SparkContext._gateway is not None:
            raise SessionTakenError(
                "this process already runs a Spark of its own",
                hint="stop it first, or run the node as a process of its own: tilth serve",
            )
        conf = SparkConf(loadDefaults=False)
        properties = spark_conf(
            self._settings,
            folder=str(self._run_folder),
            socket_folder=str(self._socket_folder),
            package_folder=str(Path(tilth.base.__file__).parents[2]),
            log_folder=str(self._log_folder),
        )
        for key, value in properties.items():
            conf.set(key, value)
        with _environment(self._environment(java.home)), self._open_log() as log:
            try:
                # pyspark leaves this function untyped.
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
                self._jvm_process = gateway.proc
                context = SparkContext(conf=conf, gateway=gateway)
                remove_refused_functions(context)
                self._user = user_of_thread(context)
                self._session = SparkSession(context)
            # Whatever Spark, py4j or the operating system raise here, the node cannot compute.
            except Exception as error:
                self._end()
                raise SparkStartError(
                    reason=str(error).strip().splitlines()[0][:500], hint=f"see {self._log_folder}/{_OUTPUT}"
                ) from error
        # Again: the JVM of a killed node may have ended only now.
        remove_left_behind(self._folder, but=self._run_folder)
        _log.info("spark_started", version=__version__, java=java.home, master=conf.get("spark.master"))

    def _end(self) -> None:
        """Leaves pyspark as it was before the start, so that a later start launches a new JVM."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context, gateway, process = SparkContext._active_spark_context, SparkContext._gateway, self._jvm_process
        if context is not None:
            # Once for the JVM, which may be dead, and once for what pyspark itself keeps open. What either says about
            # the end changes nothing: the process is ended below.
            for _ in range(2):
                with suppress(Exception):
                    context.stop()
            SparkContext._active_spark_context = None
        if gateway is not None:
            with suppress(Exception):
                gateway.shutdown()
        if process is not None:
            process.stdin.close()
            try:
                process.wait(_END_SECONDS_MAX)
            except Exception:
                process.kill()
                process.wait()
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        self._session = None
        for folder in {self._run_folder, self._socket_folder} - {self._folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def _prepare_folders(self) -> None:
        remove_left_behind(self._folder, but=self._folder)
        self._runs += 1
        self._run_folder = self._socket_folder = make_run_folder(self._folder, self._runs)
        if len(str(self._socket_folder)) > _SOCKET_FOLDER_MAX:
            self._socket_folder = make_socket_folder()
        for name in ("local", "tmp", "conf"):
            (self._run_folder / name).mkdir()
        self._log_folder.mkdir(parents=True, exist_ok=True)
        (self._run_folder / "conf" / "fairscheduler.xml").write_text(FAIR_SCHEDULER)
        properties = log_properties(str(self._log_folder / "spark.log"), self._settings.logs)
        (self._run_folder / "conf" / "log4j2.properties").write_text(properties)

    def _environment(self, java_home: str) -> dict[str, str]:
        """What the launch scripts and pyspark read; the user's own Spark set-up must not leak in."""
        import pyspark

        return {
            "JAVA_HOME": java_home,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_CONF_DIR": str(self._run_folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self._run_folder / "local"),
            # For the Python workers.
            "TMPDIR": str(self._run_folder / "tmp"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PIN_THREAD": "true",
            "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
        }

    def _open_log(self) -> Any:
        # Any: what `open` returns has no name that says more. Beside log4j's file, for what Java itself prints.
        return open(self._log_folder / _OUTPUT, "ab")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables in this process's environment while the JVM starts: pyspark takes them from nowhere else."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
