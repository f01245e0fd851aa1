"""Progress and temporary bytes of the Spark jobs with a tag, by the statuses that Spark keeps.

Covers: progress of those that run, bytes shuffled and spilled. Does not cover: what follows from it (worker/stalls.py,
worker/embedded.py). Always holds: nothing waits for Spark's scheduler; a JVM that is silent is waited for.

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from tilth.warehouse.session.reports import JobProgress


# Any, here and below: pyspark ships no types for objects of the JVM.
def progress_of(context: Any, tags: Collection[str]) -> dict[str, JobProgress]:
    """Return the progress of the running jobs with these tags."""
    spark = context._jsc.sc()
    store, active = spark.statusStore(), spark.statusTracker().getActiveJobIds()
    found: dict[str, JobProgress] = {}
    for index in range(len(active)):
        job = store.job(active[index])
        tag = next((tag for tag in job.jobTags().mkString("\n").split("\n") if tag in tags), None)
        if tag is not None:
            found[tag] = _added(found.get(tag), _progress(store, job))
    return found


def temporary_bytes_of(context: Any, tag: str) -> int:
    """Return what jobs with this tag have shuffled and spilled, without the jobs that Spark has forgotten."""
    spark = context._jsc.sc()
    store, jobs = spark.statusStore(), spark.statusTracker().getJobIdsForTag(tag)
    found = 0
    for index in range(len(jobs)):
        for stage in store.job(jobs[index]).stageIds().mkString(" ").split():
            # Skipped stages were never run.
            with suppress(Py4JJavaError):
                data = store.lastStageAttempt(int(stage))
                found += data.shuffleWriteBytes() + data.diskBytesSpilled()
    return found


def _progress(store: Any, job: Any) -> JobProgress:
    """The counts of a job and of its stages that run."""
    counts = [job.numCompletedTasks(), job.numFailedTasks(), job.numActiveTasks()]
    stages = job.stageIds().mkString(" ").split()
    running = store.activeStages()
    for index in range(running.size()):
        stage = running.apply(index)
        if str(stage.stageId()) in stages:
            counts += [
                stage.inputBytes(),
                stage.inputRecords(),
                stage.outputBytes(),
                stage.outputRecords(),
                stage.shuffleReadBytes(),
                stage.shuffleWriteBytes(),
            ]
    return JobProgress(active=job.numActiveTasks(), counts=tuple(counts))


def _added(one: JobProgress | None, other: JobProgress) -> JobProgress:
    if one is None:
        return other
    return JobProgress(active=one.active + other.active, counts=one.counts + other.counts)
