"""The Spark properties of a worker: low latency for tiny jobs, quiet, loopback only. Pure.

Measured (docs/design/0006-measured.md#rounds): a tiny job is mostly planning and py4j, so what saves planning
saves most.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from tilth.base.settings import LogSettings
from tilth.model.warehouse import QUERY_WAREHOUSE, WRITE_WAREHOUSE
from tilth.warehouse.parallelism import GIVEN_PROPERTY, Parallelism, cores_of
from tilth.warehouse.settings import MASTER_AUTO, SECRET_PROPERTIES, WarehouseSettings

#: Queries get twice the share of imports and merges when both want the cores.
FAIR_SCHEDULER = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{QUERY_WAREHOUSE}"><schedulingMode>FAIR</schedulingMode><weight>2</weight><minShare>1</minShare></pool>
  <pool name="{WRITE_WAREHOUSE}"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>1</minShare></pool>
</allocations>
"""

#: Tasks of a shuffle, and of what Spark reads without one.
_SHUFFLE_TASKS = "spark.sql.shuffle.partitions"
_SCAN_TASKS = "spark.sql.leafNodeDefaultParallelism"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

#: Generated classes that a JVM caches, 35 KB each beside their machine code. The 22 queries of TPC-H have 300. Where
#: more are in use than fit, each query compiles its code again, and the JVM begins anew to optimize it.
_GENERATED_CLASSES_MAX = 1000

_CONSTANT = {
    "spark.app.name": "tilth",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Tasks carry passwords of Kafka tables, which must not be written to a log.
    "spark.eventLog.enabled": "false",
    "spark.redaction.regex": SECRET_PROPERTIES,
    "spark.ui.showConsoleProgress": "false",
    # The default counts only the first of the tasks that start within a tenth of a second, for up to ten seconds: the
    # others would look like tasks that outlive their job.
    "spark.ui.liveUpdate.period": "0",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0s",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # For texts that did not pass the allow list (allowed.toml): no programs, no Java classes, no files by path, no
    # classes named in a schema, no scripts.
    "spark.sql.restrictedMode.enabled": "true",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.udt.allowCreatingUDTFromString": "false",
    "spark.sql.scripting.enabled": "false",
    # `${env:..}` would read the node's environment, and move the positions of everything behind it.
    "spark.sql.variable.substitute": "false",
    "spark.sql.codegen.cache.maxEntries": str(_GENERATED_CLASSES_MAX),
    # Without, flipped bits are values like any others. Costs 2 % of a scan, up to 7 % where values are random.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Hadoop's defaults let a scan wait two minutes for a silent NameNode, and 15 minutes for one whose machine is gone.
    "spark.hadoop.ipc.client.rpc-timeout.ms": "30000",
    "spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # A failed Python task kills nothing else; a cancelled one is gone half a second later.
    "spark.python.worker.reuse": "true",
    # Over TCP each task waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.task.killTimeout": "500ms",
    "spark.python.daemon.module": "tilth.daemon",
    # Retries would hide errors; whoever submitted the task decides.
    "spark.task.maxFailures": "1",
    "spark.cleaner.periodicGC.interval": "10min",
    # One kernel, one core: Spark runs as many tasks as there are cores.
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
}

#: Twenty times the default: a start runs much code a little, and the optimizing compiler would take half of the
#: processor from it. Hot code reaches it milliseconds later (docs/design/0006-measured.md#starts).
_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=12000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=800000",
)

_LOG = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %p %c{{1}} %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {size}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {others}
logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
logger.processes.name = org.apache.spark.executor.ProcfsMetricsGetter
logger.processes.level = error
logger.truncated.name = org.apache.spark.sql.catalyst.util.SparkStringUtils
logger.truncated.level = error
"""


def slots_of(master: str, *, machine_cores: int) -> int:
    """Return the number of tasks that run at once; 1 for clusters, whose size is not known here."""
    if master == MASTER_AUTO:
        return 2 * machine_cores
    return cores_of(master, machine_cores=machine_cores) if master.startswith("local") else 1


def is_cluster(master: str) -> bool:
    """Return whether Spark's tasks run in other processes than its driver."""
    return not (master == MASTER_AUTO or master.startswith("local"))


def session_conf(parallelism: Parallelism, given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a session on a cluster that follow its executors; those that a user has set are not
    among them."""
    tasks = str(parallelism.tasks)
    return {name: tasks for name in (_SHUFFLE_TASKS, _SCAN_TASKS) if name not in given}


def log_properties(path: str, bounds: LogSettings) -> str:
    """The text of log4j2.properties: warnings to a file of bounded size."""
    return _LOG.format(path=path, size=bounds.size_max, others=bounds.files_max - 1)


def java_options(*others: str, folder: str, log_folder: str) -> str:
    """Return the options of the JVM, each in quotes that its launcher removes; `folder` as in `spark_conf`."""
    options = (
        # Short tasks on few cores: throughput collectors beat concurrent ones, and fewer threads start faster.
        "-XX:+UseParallelGC",
        "-XX:-UsePerfData",
        # Spark's own classes fill the default, at which the heap is collected whole: in the middle of a start.
        "-XX:MetaspaceSize=256m",
        *_LATE_COMPILER,
        # For libraries that unpack files, and for Spark; in /tmp the files would stay when the JVM is killed.
        f"-Djava.io.tmpdir={folder}/tmp",
        # A property, because a folder with files on the class path would keep class data from being used.
        f"-Dlog4j2.configurationFile={PurePath(folder, 'conf', 'log4j2.properties').as_uri()}",
        # The default is a new file for each crash in the folder where the node was started.
        *([f"-XX:ErrorFile={log_folder}/jvm-crash.log"] if log_folder else []),
        *others,
    )
    quoted = (option.replace("\\", "\\\\").replace('"', '\\"') for option in options)
    return " ".join(f'"{option}"' for option in quoted)


def spark_conf(
    settings: WarehouseSettings,
    *,
    folder: str,
    socket_folder: str,
    package_folder: str,
    log_folder: str = "",
    jvm_options: Sequence[str] = (),
    further: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Spark's properties.

    `folder` has its configuration and temporary files, `package_folder` is where tilth can be imported from, `further`
    are those of clusters and of jars (session.py). Without `log_folder`, reports of crashes are written to the folder
    where the process was started.
    """
    given = dict(settings.spark_conf)
    options = java_options(*jvm_options, folder=folder, log_folder=log_folder)
    machine_cores = os.cpu_count() or 1
    local = f"local[{slots_of(MASTER_AUTO, machine_cores=machine_cores)}]"
    conf = {
        "spark.master": local if settings.master == MASTER_AUTO else settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.warehouse.dir": f"file://{folder}/unused",
        "spark.scheduler.allocation.file": f"file://{folder}/conf/fairscheduler.xml",
        "spark.python.unix.domain.socket.dir": socket_folder,
        "spark.executorEnv.PYTHONPATH": package_folder,
    }
    if not is_cluster(settings.master):
        cores = cores_of(settings.master, machine_cores=machine_cores)
        conf |= {GIVEN_PROPERTY: str(cores), _SHUFFLE_TASKS: str(cores), "spark.sql.files.minPartitionNum": str(cores)}
    fixed = {
        # In each text that a node has kept, double quotes mean one thing.
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        _JAVA_OPTIONS: f"{options} {given.get(_JAVA_OPTIONS, '')}".strip(),
    }
    return _CONSTANT | conf | dict(further or {}) | given | fixed
