"""A worker's Spark: one JVM and one SparkContext in a process, started, watched, restarted, stopped.

Covers: the session's life, sessions, job tags, pools, its temporary files and logs. Does not cover: properties
(conf.py), tasks (worker/embedded.py).
Always holds: the JVM ends when this process ends, however it ends: it reads end-of-file on its standard input, and the
Python workers end with the JVM in the same way. Temporary files of Spark are in one folder for each run, which is
removed when the run ends, or at the next start. A process has one WorkerSession at a time.

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import tilth.base
from tilth.base.java_class import compiled
from tilth.base.logs import Log, rotate_appended
from tilth.base.units import show_time
from tilth.model.warehouse import QUERY_WAREHOUSE
from tilth.warehouse.allowed.function_registry import USER, register_functions, remove_refused_functions, user_of_thread
from tilth.warehouse.errors import SessionTakenError, SparkRestartingError, SparkStartError
from tilth.warehouse.parallelism import (
    Executors,
    Parallelism,
    allocation_of,
    cluster_parallelism,
    local_parallelism,
)
from tilth.warehouse.session.class_data import ClassData, spark_home
from tilth.warehouse.session.cluster import (
    check_executors,
    check_master,
    cluster_conf,
    pack,
    tries_tasks_again,
)
from tilth.warehouse.session.cluster_auth import REFUSED_HINT, cluster_secret, is_refused, split_secrets
from tilth.warehouse.session.conf import (
    FAIR_SCHEDULER,
    is_cluster,
    log_properties,
    session_conf,
    slots_of,
    spark_conf,
)
from tilth.warehouse.session.executors import read_executors, tasks_of_jobs
from tilth.warehouse.session.folders import make_run_folder, make_socket_folder, remove_left_behind
from tilth.warehouse.session.java import find_java
from tilth.warehouse.session.jobs import progress_of, temporary_bytes_of
from tilth.warehouse.session.launching import call_nicely, environment
from tilth.warehouse.session.reports import Beat, JobProgress, Outage, Processes
from tilth.warehouse.session.root_session import create_root_session
from tilth.warehouse.session.spark import warm
from tilth.warehouse.settings import STOP_SHARE, WarehouseSettings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_END_SECONDS_MAX = 10
#: A start of Spark that lasts longer has failed. It lasts 3 to 10 s, and ten times that on a crowded machine.
_LAUNCH_SECONDS_MAX = 300
_OUTPUT = "spark.out"
#: Spark refuses a longer folder for sockets: the system allows a socket's path 107 characters, and Spark adds a name.
_SOCKET_FOLDER_MAX = 60

_log = Log("warehouse")
#: Begins sessions.
_beginner = ThreadPoolExecutor(1, "tilth-spark-begin")
#: Guards the only session of the process, and the environment while the JVM is started.
_process_lock = threading.RLock()
_owner: WorkerSession | None = None


class WorkerSession:
    """The Spark of this process; `start` before use, `stop` at the end."""

    def __init__(
        self, settings: WarehouseSettings, *, folder: str, log_folder: str, class_data: ClassData | None = None
    ) -> None:
        """`folder`: Spark's temporary files and configuration; `log_folder`: its log."""
        self._settings = settings
        self._folder = Path(folder).absolute()
        self._log_folder = Path(log_folder).absolute()
        #: Folders of the current run: Spark's files, and the sockets of its Python workers.
        self._run_folder = self._folder
        self._socket_folder = self._folder
        self._runs = 0
        self._session: SparkSession | None = None
        # Any: pyspark ships no types for the handle of the JVM's process.
        self._jvm_process: Any = None
        # Any: a handle of the JVM.
        self._user: Any = None
        # Any: handles of the JVM: its class Thread, and a TaskStopper; None: none was compiled yet.
        self._threads: Any = None
        self._stopper: Any = None
        self._outage: Outage | None = None
        #: Reason why this process has killed the JVM; empty: it has not.
        self._why_killed = ""
        #: Reason why the previous JVM has ended; empty: there was none.
        self._why_ended = ""
        self._is_ending = False
        self._class_data = class_data or ClassData()
        self._beginning: Future[None] | None = None
        self._slots = slots_of(settings.master, machine_cores=os.cpu_count() or 1)
        self._conf = dict(settings.spark_conf)
        self._allocation = allocation_of(self._conf)
        #: Executors of the cluster at the last heartbeat.
        self._executors = Executors()

    def begin(self) -> None:
        """Begin to start on a thread of its own; `start` waits for it."""
        # Here, not there: imports of two threads exclude each other, and Java would begin later.
        import pyspark.java_gateway  # noqa: F401

        self._beginning = _beginner.submit(self._start)

    def start(self) -> None:
        """Start Java and Spark. Raises WrongJavaError, SessionTakenError, SparkStartError."""
        begun, self._beginning = self._beginning, None
        if begun is None:
            self._start()
        else:
            begun.result()

    def _start(self) -> None:
        global _owner
        with _process_lock:
            if _owner is not None:
                raise SessionTakenError(
                    folder=str(_owner._folder), hint="one process runs one node: close the other one first"
                )
            self._is_ending = False
            self._launch()
            _owner = self

    def stop(self) -> None:
        """Stop Spark and the JVM; return when the JVM is gone. Does nothing if it is not running."""
        global _owner
        if self._beginning is not None:
            wait([self._beginning])
        self._class_data.stop()
        if not _process_lock.acquire(timeout=_END_SECONDS_MAX):
            # It is being started, by a JVM that may hang.
            self._kill_launched()
            _process_lock.acquire()
        try:
            if _owner is not self:
                return
            self._end()
            _owner = None
        finally:
            _process_lock.release()

    @property
    def folder(self) -> str:
        """Below which Spark's temporary files are."""
        return str(self._folder)

    @property
    def is_on_cluster(self) -> bool:
        return is_cluster(self._settings.master)

    @property
    def temporary_folder(self) -> Path:
        """Below which the present run's temporary files are."""
        return self._run_folder / "tmp"

    @property
    def executors(self) -> Executors:
        """The executors of the cluster at the last heartbeat; none where there is no cluster."""
        return self._executors

    @property
    def parallelism(self) -> Parallelism:
        """Tasks that share a scan, a shuffle or a round now."""
        if self.is_on_cluster:
            return cluster_parallelism(self._executors, self._allocation)
        return local_parallelism(self._settings.master, self._allocation, machine_cores=os.cpu_count() or 1)

    @property
    def settings(self) -> WarehouseSettings:
        return self._settings

    def is_alive(self) -> bool:
        """Return `False` once the JVM has ended by itself or was killed, even while its killed process still ends."""
        return self._session is not None and not self._why_killed and self._jvm_process.poll() is None

    @property
    def run(self) -> int:
        """The number of the JVM: a task that began in an earlier one is lost."""
        return self._runs

    @property
    def outage(self) -> Outage | None:
        """Outage of a JVM that is gone, or does not answer; None: it is well."""
        return self._outage

    def note_outage(self, outage: Outage | None) -> None:
        """Set the outage that users see of the JVM, until the next call."""
        self._outage = outage

    @property
    def why_ended(self) -> str:
        """Reason why the previous JVM has ended; empty: there was none."""
        return self._why_ended

    def exit_reason(self) -> str:
        """Return the reason why the JVM has ended: the reason of a kill by this process rather than its signal."""
        if self._why_killed:
            return self._why_killed
        code = None if self._jvm_process is None else self._jvm_process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"the JVM was ended by {signal.Signals(-code).name}"
        return f"the JVM ended with exit code {code}"

    def kill(self, reason: str) -> None:
        """Kill the JVM at once, also if it is stopped. Calls that wait for it fail. The first reason is kept."""
        self._why_killed = self._why_killed or reason
        _log.error("jvm_killed", pid=self.jvm_pid, reason=reason)
        self._jvm_process.kill()

    def keep_ended(self) -> None:
        """Start no JVM again that ends: the node ends."""
        self._is_ending = True

    def kill_if_alive(self) -> None:
        if self.is_alive():
            self.kill("the JVM was killed because its process ends")

    def restart_if_gone(self) -> bool:
        """Start Spark anew after the JVM has died; True if it had to. Raises what a start raises."""
        with _process_lock:
            if _owner is not self or self.is_alive() or self._is_ending:
                return False
            if self._session is not None:
                self._why_ended = self.exit_reason()
            _log.error("spark_gone", reason=self._why_ended, log=self._log_folder)
            self._end()
            self._launch()
            return True

    @property
    def tries_tasks_again(self) -> bool:
        """True if Spark may try a failed task again, as on a cluster, where executors may go at any time."""
        return tries_tasks_again(self._settings.master)

    def beat(self) -> Beat:
        """Read the state of the JVM. Waits as long as the JVM is silent; fails when it ends."""
        context = self._require_session().sparkContext
        spark = context._jsc.sc()
        # Executors are read before the jobs: the tasks of a job that begins in between only hide, until the next beat,
        # those of jobs that have ended.
        executors, slots = read_executors(context), self._slots
        wanted = tasks_of_jobs(context)
        if self.is_on_cluster:
            self._executors, slots = executors, max(1, executors.cores)
        # The stopper is compiled only where there may be such tasks, which costs half a second.
        outliving: str = self._task_stopper(context).outliving(spark) if executors.running > wanted else ""
        return Beat(
            has_ended=bool(spark.isStopped()),
            is_full=executors.running >= slots,
            slots=slots,
            outliving=frozenset(int(task) for task in outliving.split(",") if task),
        )

    def run_small_job(self) -> bool:
        """Run one job of one task inside of the JVM. Waits as long as Spark does not run it; fails when it ends."""
        context = self._require_session().sparkContext
        context.setLocalProperty("spark.scheduler.pool", QUERY_WAREHOUSE)
        # Any: pyspark ships no types for objects of the JVM.
        jvm: Any = context._jvm
        rows = jvm.java.util.ArrayList()
        rows.add(1)
        return int(context._jsc.parallelize(rows, 1).count()) == 1

    def progress(self, tags: Collection[str]) -> dict[str, JobProgress]:
        """Return the progress of the running jobs with these tags. Waits as long as the JVM is silent."""
        return progress_of(self._require_session().sparkContext, tags)

    def temporary_bytes(self, tag: str) -> int:
        """Return what jobs with this tag have shuffled and spilled, without the jobs that Spark has forgotten."""
        return temporary_bytes_of(self._require_session().sparkContext, tag)

    def release_memory(self) -> None:
        """Let the JVM collect its garbage and give back heap that it does not use; waits for it."""
        # Any: pyspark ships no types for objects of the JVM.
        jvm: Any = self._require_session().sparkContext._jvm
        jvm.java.lang.System.gc()

    def processes(self) -> Processes:
        """Return the processor time of the JVM and its Python workers, and how many of these workers are stopped."""
        cpu_seconds, stopped = self.jvm_usage()[0], 0
        for child in psutil.Process(self.jvm_pid).children(recursive=True):
            with suppress(psutil.Error):
                times = child.cpu_times()
                cpu_seconds += times.user + times.system
                stopped += child.status() == psutil.STATUS_STOPPED
        return Processes(cpu_seconds=cpu_seconds, stopped=stopped)

    def jvm_usage(self) -> tuple[float, bool]:
        """Processor seconds that the JVM has used since its start, and whether its process is stopped."""
        process = psutil.Process(self.jvm_pid)
        times = process.cpu_times()
        return times.user + times.system, process.status() == psutil.STATUS_STOPPED

    def tend_logs(self) -> None:
        """Rotate the output of Java itself; log4j rotates its own file."""
        rotate_appended(self._log_folder / _OUTPUT, self._settings.logs)

    @property
    def session(self) -> SparkSession:
        """The root session. Raises SparkRestartingError."""
        if self._session is None or not self.is_alive():
            since = "" if self._outage is None else show_time(self._outage.since_ms)
            reason = self.exit_reason() if self._outage is None else self._outage.reason
            hint = f"retry the statement: Spark is started again by itself; its log is in {self._log_folder}"
            raise SparkRestartingError(reason=reason, **({"since": since} if since else {}), hint=hint)
        return self._require_session()

    def _require_session(self) -> SparkSession:
        session = self._session
        if session is None:
            raise SparkRestartingError(hint=f"its log is in {self._log_folder}")
        return session

    @property
    def context(self) -> SparkContext:
        """Raises SparkRestartingError."""
        return self.session.sparkContext

    @property
    def jvm_pid(self) -> int:
        return int(self._jvm_process.pid)

    def new_session(self, *, pool: str) -> SparkSession:
        """A session with its own views and settings; jobs of this thread run in the pool from now on."""
        context = self.context
        context.setLocalProperty("spark.scheduler.pool", pool)
        # A cancelled job ends its tasks where they wait and sleep, too.
        context.setLocalProperty("spark.job.interruptOnCancel", "true")
        self._user.set(USER)
        session = self.session.newSession()
        self.fit(session)
        return session

    def fit(self, session: SparkSession) -> Parallelism:
        """Let the session's scans and shuffles have as many tasks as the cluster now runs; return that number."""
        parallelism = self.parallelism
        if self.is_on_cluster:
            for name, value in session_conf(parallelism, self._conf).items():
                session.conf.set(name, value)
        return parallelism

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tag the jobs that this thread starts inside, and its calls into the JVM."""
        context, run = self.context, self._runs
        context.addJobTag(tag)
        # Each thread here has a thread of its own in the JVM, which stop_cancelled finds by this name.
        self._threads.currentThread().setName(tag)
        try:
            yield
        finally:
            if self.is_alive() and self._runs == run:
                # The JVM may end right now; what failed because of it is the better reason.
                with suppress(Exception):
                    context.removeJobTag(tag)

    def cancel_jobs(self, tag: str) -> None:
        self.context.cancelJobsWithTag(tag)

    def stop_cancelled(self, tags: Collection[str], *, seconds: float) -> list[str]:
        """Stop the calls with these tags, and the tasks of Spark in this JVM whose jobs have ended `seconds` ago.

        Cancelling a job ends all tasks that check for interrupts; these do not. Returns a line for each stopped thread:
        its name, a tab, its top frame. Java 20 and later cannot stop threads: the list is empty there. Waits until the
        JVM answers.
        """
        context = self.context
        stopped: str = self._task_stopper(context).stop(context._jsc.sc(), "\n".join(tags), float(seconds))
        return stopped.splitlines()

    # Any: an object of the JVM.
    def _task_stopper(self, context: SparkContext) -> Any:
        if self._stopper is None:
            self._stopper = compiled(context._jvm, __package__, "TaskStopper")
        return self._stopper

    def warm(self) -> int:
        """Start the Python workers, one for each core, and import what tasks need; return how many there are."""
        return warm(self.new_session(pool=QUERY_WAREHOUSE), tasks=max(1, self.parallelism.cores))

    def warm_if_possible(self, *, with_query: bool = False) -> None:
        """Warm, and with `with_query` run a first query; what fails is logged.

        It only saves time: a real fault shows itself again in the first task.
        """
        try:
            self.warm()
            if with_query:
                self.run_first_query()
        except Exception as error:
            _log.warning("warming_failed", reason=error)

    def run_first_query(self) -> None:
        """Run a query, which loads what queries need."""
        self.new_session(pool=QUERY_WAREHOUSE).sql("SELECT 1").toArrow()

    def _launch(self) -> None:
        java = find_java(self._settings.java_home, os.environ)
        check_master(self._settings.master)
        secret = cluster_secret(self._settings, os.environ)
        self._prepare_folders()
        from pyspark import SparkConf, SparkContext, __version__
        from pyspark.java_gateway import launch_gateway

        from tilth.warehouse.session.java_names import remember_names

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
            jvm_options=self._class_data.options(java, spark_home()),
            further=self._further_conf(),
        )
        shown, hidden = split_secrets(properties | secret)
        for key, value in shown.items():
            conf.set(key, value)
        too_long = threading.Timer(_LAUNCH_SECONDS_MAX, self._kill_launched)
        too_long.daemon = True
        too_long.start()
        with environment(self._environment(java.home)), self._open_log() as log:
            try:
                # pyspark leaves this function untyped.
                gateway = call_nicely(
                    lambda: launch_gateway(conf, {"stdout": log, "stderr": log}),  # type: ignore[no-untyped-call]
                    self._settings.nice,
                )
                self._jvm_process = gateway.proc
                remember_names(gateway)
                # Hidden properties are set after the launch: the launcher writes properties into Java's command line.
                for key, value in hidden.items():
                    conf.set(key, value)
                context = SparkContext(conf=conf, gateway=gateway)
                remove_refused_functions(context)
                register_functions(context)
                self._user = user_of_thread(context)
                # Any: pyspark ships no types for objects of the JVM.
                jvm: Any = context._jvm
                self._threads, self._stopper = jvm.java.lang.Thread, None
                self._session, self._why_killed = create_root_session(context), ""
                if self.is_on_cluster:
                    check_executors(self._session)
                    self._executors = read_executors(context)
            except SparkStartError:
                self._end()
                raise
            # Whatever Spark, py4j or the operating system raise here, the node cannot compute.
            except Exception as error:
                # The error is converted before `_end`: the text of a Java error is in the JVM.
                failure = self._start_error(error)
                self._end()
                raise failure from error
            finally:
                too_long.cancel()
        # Again: the JVM of a killed node may have ended only now.
        remove_left_behind(self._folder, but=self._run_folder)
        _log.info("spark_started", version=__version__, java=java.home, master=conf.get("spark.master"))
        self._class_data.started(java, spark_home())

    def _start_error(self, error: Exception) -> SparkStartError:
        reason = str(error).strip() or type(error).__name__
        if is_refused(self._settings, reason):
            return SparkStartError(
                "the master of the Spark cluster does not accept this session",
                master=self._settings.master,
                hint=f"{REFUSED_HINT}; Spark's log is in {self._log_folder}",
            )
        return SparkStartError(reason=reason.splitlines()[0][:500], hint=f"see {self._log_folder}/{_OUTPUT}")

    def _end(self) -> None:
        """Leave pyspark as it was before the start, so that a later start launches a new JVM."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context, gateway, process = SparkContext._active_spark_context, SparkContext._gateway, self._jvm_process

        def farewell() -> None:
            # Once for the JVM, which may be dead, and once for what pyspark itself keeps open. What either says about
            # the end changes nothing: the process is ended below.
            for _ in range(2):
                with suppress(Exception):
                    if context is not None:
                        context.stop()
            with suppress(Exception):
                if gateway is not None:
                    gateway.shutdown()

        leaving = threading.Thread(target=farewell, name="tilth-spark-end", daemon=True)
        leaving.start()
        leaving.join(_END_SECONDS_MAX)
        if process is not None:
            if leaving.is_alive():
                # The JVM hangs. Without it, the calls that wait for it fail.
                process.kill()
            process.stdin.close()
            try:
                process.wait(self._class_data.end_seconds)
            except Exception:
                process.kill()
                process.wait()
        leaving.join(_END_SECONDS_MAX)
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        self._session = None
        for folder in {self._run_folder, self._socket_folder} - {self._folder}:
            shutil.rmtree(folder, ignore_errors=True)

    def _kill_launched(self) -> None:
        """End a JVM that is being started; until it has answered, nobody but the system knows its process."""
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if any(str(self._run_folder) in argument for argument in child.cmdline()):
                    _log.error("jvm_start_killed", pid=child.pid)
                    child.kill()

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
        """Return the environment of the launch scripts and pyspark; the user's own Spark set-up must not leak in."""
        home = spark_home()
        return {
            "JAVA_HOME": java_home,
            "SPARK_HOME": str(home),
            # First on the class path, and the same at each start: there is no such folder.
            "SPARK_CONF_DIR": str(home / "no-conf"),
            "SPARK_LOCAL_DIRS": str(self._run_folder / "local"),
            # For the Python workers.
            "TMPDIR": str(self._run_folder / "tmp"),
            "SPARK_LOCAL_IP": self._settings.driver_host,
            "PYSPARK_PYTHON": self._settings.python or sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PIN_THREAD": "true",
            "PYSPARK_SUBMIT_ARGS": "pyspark-shell",
        }

    def _further_conf(self) -> dict[str, str]:
        settings = self._settings
        jars = sorted(map(str, Path(settings.jars).absolute().glob("*.jar"))) if settings.jars else []
        conf = {"spark.jars": ",".join(jars)} if jars else {}
        if not self.is_on_cluster:
            return conf
        python, package = settings.python or sys.executable, pack(self._run_folder)
        return conf | cluster_conf(
            settings.master,
            package=package,
            python=python,
            driver_host=settings.driver_host,
            end_seconds=settings.hang_seconds * STOP_SHARE,
        )

    def _open_log(self) -> Any:
        # Any: what `open` returns has no name that says more. Beside log4j's file, for what Java itself prints.
        return open(self._log_folder / _OUTPUT, "ab")
