"""The executors of a cluster, by the status that Spark keeps.

Covers: how many there are, the tasks that they run at once, those that they run, and those of jobs that go on. Does
not cover: what follows from it (parallelism.py). Always holds: nothing waits for an executor; a JVM that is silent is
waited for.

Tests: tests/integration/warehouse/test_spark_cluster.py.
"""

from __future__ import annotations

from typing import Any

from tilth.warehouse.parallelism import Executors


# Any: pyspark ships no types for objects of the JVM.
def read_executors(context: Any) -> Executors:
    """Read the executors that are there now: two calls of the JVM for each, and a few more."""
    spark = context._jsc.sc()
    infos = spark.statusTracker().getExecutorInfos()
    running = sum(infos[index].numRunningTasks() for index in range(len(infos)))
    profile = spark.resourceProfileManager().defaultResourceProfile()
    # The driver is one of the list.
    count = max(0, len(infos) - 1)
    return Executors(count=count, cores=int(spark.maxNumConcurrentTasks(profile)), running=running)


def tasks_of_jobs(context: Any) -> int:
    """Count the running tasks of jobs that have not ended: three calls of the JVM for each job, and a few more."""
    spark = context._jsc.sc()
    store, jobs = spark.statusStore(), spark.statusTracker().getActiveJobIds()
    return sum(store.job(jobs[index]).numActiveTasks() for index in range(len(jobs)))
