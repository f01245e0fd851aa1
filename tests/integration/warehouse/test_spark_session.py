"""One real Spark, local[2]: tasks run in pools, are cancelled, fail with their reason; the JVM ends with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from tests.lane_spark import session_of, settings_of
from tests.waiting import wait_until
from tilth.base.clock import SystemClock
from tilth.base.errors import CorruptError, NotFoundError
from tilth.base.ids import random_id
from tilth.model.task import TaskKind, TaskState
from tilth.warehouse import (
    Dispatcher,
    EmbeddedWorker,
    SessionTakenError,
    SparkRestartingError,
    TaskCancelledError,
    TaskContext,
    TaskFailedError,
    TaskResult,
    WorkerSession,
    WrongJavaError,
    make_class_data,
    run_in_task,
)
from tilth.warehouse.session.java import find_java
from tilth.warehouse.session.root_session import create_root_session, has_extensions
from tilth.warehouse.worker.embedded import MEASURED_BYTES_MIN
from tools.class_data import CLASS_DATA

pytestmark = pytest.mark.integration
SETTINGS = settings_of()
#: Time limit of an end that must come, on a busy machine.
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the session's files and log."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def session(no_spark: None, folder: Path) -> Iterator[WorkerSession]:
    assert make_class_data(SETTINGS)
    session = session_of(SETTINGS, folder)
    session.start()
    assert session.warm() == 2
    yield session
    session.stop()


@pytest.fixture
def dispatcher(session: WorkerSession, runner: Callable[[TaskContext], TaskResult]) -> Iterator[Dispatcher]:
    """A dispatcher whose INSERT tasks are done by the test's own `runner`."""
    worker = EmbeddedWorker(SystemClock(), session, name="here", memory_bytes=1 << 30)
    worker.register(TaskKind.INSERT, runner)
    dispatcher = Dispatcher(SystemClock(), random_id, {"write": [worker]}, slots={"write": 4})
    worker.start()
    dispatcher.start()
    yield dispatcher
    dispatcher.stop()
    worker.stop()


def run(dispatcher: Dispatcher, payload: bytes = b"") -> TaskResult:
    return dispatcher.run(dispatcher.new_spec(TaskKind.INSERT, warehouse="write", table="db.t", payload=payload))


def double_in_spark(context: TaskContext) -> TaskResult:
    pool = context.session.sparkContext.getLocalProperty("spark.scheduler.pool")
    number = int(context.spec.payload)
    doubled = run_in_task(context.session, lambda task, attempt: (2 * number, task, attempt), tuple[int, int, int])
    return TaskResult(payload=f"{doubled} {pool}".encode())


def test_spark_maps_its_archive_of_class_data(session: WorkerSession, folder: Path) -> None:
    # The system shows resolved paths, and the folder may be a link.
    archive = str(Path(CLASS_DATA["warehouse.class-data"]).resolve())
    assert archive in Path(f"/proc/{session.jvm_pid}/maps").read_text()
    # It is used as it is: the JVM has nothing to say about it.
    assert "shared" not in (folder / "log" / "spark.out").read_text().lower()


def test_tasks_that_start_at_once_are_those_of_their_job(session: WorkerSession) -> None:
    """Spark's own counts are late by default, and what they lack would look like tasks that outlive their job."""
    session.warm()
    spark = session.new_session(pool="default")

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(3)
        yield from batches

    running = threading.Thread(target=spark.range(0, 2, 1, 2).mapInArrow(hold, "id long").count)
    running.start()
    beats = []
    while running.is_alive():
        running.join(0.2)
        beats.append(session.beat())
    assert any(beat.is_full for beat in beats)
    assert not any(beat.outliving for beat in beats), beats


def test_queries_of_one_shape_share_their_generated_code_over_all_sessions(session: WorkerSession) -> None:
    # Any: pyspark ships no types for objects of the JVM.
    jvm: Any = session.context._jvm
    metrics = jvm.org.apache.spark.metrics.source.CodegenMetrics

    def classes_compiled_by(text: str) -> int:
        before = metrics.METRIC_COMPILATION_TIME().getCount()
        assert session.new_session(pool="default").sql(text).collect()
        return int(metrics.METRIC_COMPILATION_TIME().getCount() - before)

    text = "SELECT id % 7 + 0.25 AS k, sum(id * 3) AS s FROM range(0, 1000, 1, 2) GROUP BY 1 ORDER BY s"
    assert classes_compiled_by(text) > 0
    assert classes_compiled_by(text) == 0
    # More classes than Spark would cache by default.
    others = " UNION ALL ".join(f"SELECT id * {number} AS v FROM range(0, 3, 1, 1)" for number in range(2, 130))
    assert classes_compiled_by(others) > 100
    assert classes_compiled_by(text) == 0


def test_spark_and_its_python_workers_yield_the_processor_to_the_node(session: WorkerSession) -> None:
    jvm = psutil.Process(session.jvm_pid)
    workers = jvm.children(recursive=True)
    assert workers
    own = psutil.Process().nice()
    assert {process.nice() for process in (jvm, *workers)} == {min(19, own + SETTINGS.nice)}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


@pytest.mark.parametrize("runner", [double_in_spark])
def test_a_task_computes_in_a_spark_task_in_the_pool_of_its_warehouse(dispatcher: Dispatcher) -> None:
    handles = [
        dispatcher.submit(
            dispatcher.new_spec(TaskKind.INSERT, warehouse="write", table="db.t", payload=str(i).encode())
        )
        for i in range(8)
    ]
    assert [handle.wait(SECONDS_MAX).payload for handle in handles] == [
        f"({2 * i}, 0, 0) write".encode() for i in range(8)
    ]
    assert all(task.actual.seconds > 0 for task in dispatcher.tasks())


def shuffled_in_spark(context: TaskContext) -> TaskResult:
    rows = context.session.range(0, 200_000, 1, 2).repartition(4, "id").count()
    return TaskResult(payload=str(rows).encode())


@pytest.mark.parametrize("runner", [shuffled_in_spark])
def test_what_spark_keeps_on_disk_is_measured(dispatcher: Dispatcher) -> None:
    assert dispatcher.workers()[0].load.free_disk_bytes > 0
    for input_bytes, is_measured in ((MEASURED_BYTES_MIN, True), (1, False)):
        spec = dispatcher.new_spec(
            TaskKind.INSERT, warehouse="write", table="db.t", payload=b"", input_bytes=input_bytes
        )
        assert spec.estimate.temporary_bytes is not None
        dispatcher.run(spec)
        [task] = [each for each in dispatcher.tasks() if each.id == spec.id]
        measured = task.actual.temporary_bytes
        assert (measured is not None and measured > 100_000) is is_measured, measured


def test_memory_that_the_jvm_does_not_use_is_collected(session: WorkerSession) -> None:
    # Any: pyspark ships no types for objects of the JVM.
    jvm: Any = session.context._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()

    def collected() -> int:
        return sum(int(beans.get(index).getCollectionCount()) for index in range(beans.size()))

    before = collected()
    session.release_memory()
    assert collected() > before


def test_the_pools_of_the_configuration_are_those_that_spark_knows(session: WorkerSession) -> None:
    pools = session.context._jsc.sc().getAllPools()
    assert {"default", "write"} <= {pools.apply(i).name() for i in range(pools.size())}


def fail_on_the_executor(context: TaskContext) -> TaskResult:
    def fail(task: int, attempt: int) -> None:
        if context_payload == b"typed":
            raise NotFoundError("the file is gone", file="f", hint="look elsewhere")
        raise ValueError("no such luck")

    context_payload = context.spec.payload
    run_in_task(context.session, fail, type(None))
    return TaskResult()


@pytest.mark.parametrize("runner", [fail_on_the_executor])
def test_errors_of_a_spark_task_arrive_with_type_reason_and_hint(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFoundError, match=r"the file is gone: file=f \(look elsewhere\)") as found:
        run(dispatcher, b"typed")
    assert found.value.facts == {"file": "f"}
    with pytest.raises(TaskFailedError, match="ValueError: no such luck"):
        run(dispatcher, b"other")


def fail_on_the_driver(context: TaskContext) -> TaskResult:
    if context.spec.payload == b"typed":
        raise CorruptError(file="f")
    context.session.sql("select nonsense from nowhere").collect()
    return TaskResult()


@pytest.mark.parametrize("runner", [fail_on_the_driver])
def test_errors_of_a_runner_are_reported_with_their_reason(dispatcher: Dispatcher) -> None:
    with pytest.raises(CorruptError, match="file=f"):
        run(dispatcher, b"typed")
    with pytest.raises(TaskFailedError, match="TABLE_OR_VIEW_NOT_FOUND"):
        run(dispatcher, b"spark")


def sleep_in_spark(context: TaskContext) -> TaskResult:
    path = context.spec.payload.decode()

    def sleep(task: int, attempt: int) -> None:
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)

    run_in_task(context.session, sleep, type(None))
    return TaskResult()


@pytest.mark.parametrize("runner", [sleep_in_spark])
def test_cancel_ends_the_spark_job_and_the_python_worker(dispatcher: Dispatcher, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    handle = dispatcher.submit(
        dispatcher.new_spec(TaskKind.INSERT, warehouse="write", table="db.t", payload=str(path).encode())
    )
    wait_until(lambda: path.exists() and path.read_text() != "")
    handle.cancel()
    with pytest.raises(TaskCancelledError):
        handle.wait(SECONDS_MAX)
    assert dispatcher.tasks()[0].state is TaskState.CANCELLED
    wait_until(lambda: not is_running(int(path.read_text())))


def resident(context: TaskContext) -> TaskResult:
    while not context.cancelled.wait(0.01):
        pass
    context.raise_if_cancelled()
    return TaskResult()


@pytest.mark.parametrize("runner", [resident])
def test_a_runner_that_watches_for_cancel_ends(dispatcher: Dispatcher) -> None:
    handle = dispatcher.submit(dispatcher.new_spec(TaskKind.INSERT, warehouse="write", table="db.t", payload=b""))
    wait_until(lambda: dispatcher.tasks()[0].state is TaskState.RUNNING)
    handle.cancel()
    with pytest.raises(TaskCancelledError):
        handle.wait(SECONDS_MAX)


def test_a_process_has_one_session(session: WorkerSession, tmp_path: Path) -> None:
    other = WorkerSession(SETTINGS, folder=str(tmp_path / "spark"), log_folder=str(tmp_path / "log"))
    with pytest.raises(SessionTakenError, match="close the other one first"):
        other.start()
    other.stop()
    assert session.is_alive()


def test_extensions_of_machine_learning_are_left_out_and_those_of_other_jars_are_not(
    session: WorkerSession, tmp_path: Path
) -> None:
    root = session.session
    jvm: Any = root._jvm  # pyspark ships no types for objects of the JVM
    names = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
    with zipfile.ZipFile(tmp_path / "of_a_user.jar", "w") as jar:
        jar.writestr(names, "org.apache.spark.sql.ml.InternalFunctionRegistration")
    thread = jvm.java.lang.Thread.currentThread()
    own = thread.getContextClassLoader()
    gateway: Any = root.sparkContext._gateway  # as above
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URL((tmp_path / "of_a_user.jar").as_uri())
    further = jvm.java.net.URLClassLoader(urls, own)
    assert own.getResources(names).hasMoreElements()
    assert (has_extensions(own), has_extensions(further)) == (False, True)
    registries: Any = getattr(jvm.org.apache.spark.sql.catalyst.analysis, "FunctionRegistry$")  # as above
    functions = getattr(registries, "MODULE$").internal().listFunction().mkString(",")
    # Spark's own internal functions, without the extension's.
    assert ("product" in functions, "vector_to_array" in functions) == (True, False)

    def is_sparks_own(loader: Any) -> bool:
        """Whether Spark chooses the session, which is the one that is there."""
        thread.setContextClassLoader(loader)
        try:
            return bool(create_root_session(root.sparkContext)._jsparkSession.equals(root._jsparkSession))
        finally:
            thread.setContextClassLoader(own)

    assert (is_sparks_own(own), is_sparks_own(further)) == (False, True)


@pytest.mark.parametrize("runner", [double_in_spark])
def test_a_killed_jvm_is_started_again_and_work_goes_on(dispatcher: Dispatcher, session: WorkerSession) -> None:
    pid = session.jvm_pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: session.is_alive() and session.jvm_pid != pid)
    wait_until(lambda: dispatcher.workers()[0].state == "alive")
    assert run(dispatcher, b"21").payload == b"(42, 0, 0) write"


def test_stop_ends_the_jvm_and_a_new_session_may_start(session: WorkerSession) -> None:
    pid = session.jvm_pid
    session.stop()
    assert not is_running(pid)
    with pytest.raises(SparkRestartingError):
        session.new_session(pool="write")
    session.start()
    assert run_in_task(session.new_session(pool="write"), lambda task, attempt: task, int) == 0


OWNER = textwrap.dedent(
    """
    import sys, threading, time
    from tilth.warehouse import WarehouseSettings, WorkerSession, run_in_task
    folder = sys.argv[1]
    session = WorkerSession(
        WarehouseSettings(master="local[2]", driver_memory="1g"), folder=folder + "/spark", log_folder=folder + "/log"
    )
    session.start()
    def spin(task, attempt):
        import time
        end = time.monotonic() + 600
        while time.monotonic() < end:
            pass
    asked = (session.new_session(pool="write"), spin, type(None))
    threading.Thread(target=run_in_task, args=asked, daemon=True).start()
    print("started", flush=True)
    time.sleep(600)
    """
)


def test_a_killed_owner_takes_the_jvm_and_the_python_workers_with_it(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "src"},
        text=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "started\n"
        process = psutil.Process(owner.pid)
        # The JVM, the Python daemon, the worker that spins.
        wait_until(lambda: len(process.children(recursive=True)) >= 3)
        children = process.children(recursive=True)
        owner.kill()
        wait_until(lambda: not any(is_running(child.pid) for child in children))
    finally:
        owner.kill()
        owner.wait()
        # Not read to its end: what hangs might hold the other end.
        if owner.stdout is not None:
            owner.stdout.close()


def test_a_wrong_java_is_told_by_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(
        WrongJavaError, match=r"there is no bin/java: folder=/nowhere named_by=JAVA_HOME \(set JAVA_HOME"
    ):
        find_java("", {"JAVA_HOME": "/nowhere"})
    with pytest.raises(WrongJavaError, match="no Java was found"):
        find_java("", {"PATH": str(tmp_path)})
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    for text, expected in (
        ("echo java.base@11.0.2", "wrong version.*named_by=warehouse.java-home version=11"),
        ("echo java.base@17.0.2", "cut down.*missing=java.instrument,"),
        ("echo Unrecognized option >&2; exit 1", "older than 17.*output=Unrecognized option"),
    ):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        with pytest.raises(WrongJavaError, match=expected):
            find_java(str(tmp_path), {})


def is_running(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
