"""Numbers of tasks and slots: tables of clusters and settings, the numbers and words expected. No Spark, no machine."""

from __future__ import annotations

import pytest

from tilth.warehouse.parallelism import (
    TASKS_MAX,
    Allocation,
    Executors,
    allocation_of,
    cluster_parallelism,
    local_parallelism,
    write_slots_of,
)

FOUR = Executors(count=4, cores=16)


@pytest.mark.parametrize(
    ("conf", "executors", "tasks", "reason"),
    [
        ("", FOUR, 16, "16 cores of 4 executors"),
        ("", Executors(count=1, cores=1), 1, "1 core of 1 executor"),
        ("", Executors(), 1, "0 cores of 0 executors"),
        ("", Executors(count=5000, cores=20_000), TASKS_MAX, "20000 cores of 5000 executors"),
        ("spark.cores.max=64", FOUR, 16, "16 cores of 4 executors"),
        ("spark.default.parallelism=7", FOUR, 7, "spark.default.parallelism = 7 in warehouse.spark-conf; there are"),
        (
            "spark.dynamicAllocation.enabled=true spark.dynamicAllocation.maxExecutors=10 spark.executor.cores=4",
            FOUR,
            40,
            "the 40 cores that dynamic allocation may bring; there are 16 cores of 4 executors",
        ),
        # The cores of an executor that nobody has set are those of the executors that are there.
        ("spark.dynamicAllocation.enabled=TRUE spark.dynamicAllocation.maxExecutors=10", FOUR, 40, "the 40 cores"),
        # The smaller bound counts, and a task of two cores counts for two.
        (
            "spark.dynamicAllocation.enabled=true spark.dynamicAllocation.maxExecutors=10 spark.executor.cores=4 "
            "spark.cores.max=24",
            FOUR,
            24,
            "the 24 cores",
        ),
        (
            "spark.dynamicAllocation.enabled=true spark.dynamicAllocation.maxExecutors=10 spark.executor.cores=4 "
            "spark.task.cpus=2",
            Executors(count=4, cores=8),
            20,
            "the 20 cores",
        ),
        ("spark.dynamicAllocation.enabled=true", FOUR, 32, "twice the 16 cores of 4 executors"),
        ("spark.dynamicAllocation.enabled=true", Executors(), 1, "twice the 0 cores"),
        # It has shrunk in between: what is there counts.
        ("spark.dynamicAllocation.enabled=true spark.cores.max=8", FOUR, 16, "the 8 cores"),
        ("spark.dynamicAllocation.enabled=false spark.dynamicAllocation.maxExecutors=10", FOUR, 16, "16 cores of 4"),
    ],
)
def test_tasks_of_a_cluster_follow_its_executors(conf: str, executors: Executors, tasks: int, reason: str) -> None:
    allocation = allocation_of(dict(pair.split("=") for pair in conf.split()))
    found = cluster_parallelism(executors, allocation)
    assert (found.tasks, found.cores) == (tasks, executors.cores)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize("text", ["", "many", "-3", "4g", "9" * 30, "\u0663"])
def test_what_is_no_number_counts_as_not_set(text: str) -> None:
    names = ("spark.default.parallelism", "spark.cores.max", "spark.executor.cores", "spark.task.cpus")
    assert allocation_of(dict.fromkeys(names, text)) == Allocation()


def test_tasks_in_one_process_follow_its_master() -> None:
    found = local_parallelism("local[3]", Allocation(), machine_cores=8)
    assert (found.tasks, found.cores, found.reason) == (3, 3, "3 cores of warehouse.master = local[3]")
    assert local_parallelism("auto", Allocation(), machine_cores=8).tasks == 8
    given = local_parallelism("auto", Allocation(given=5), machine_cores=8)
    assert (given.tasks, given.cores) == (5, 8)
    assert "spark.default.parallelism = 5" in given.reason


@pytest.mark.parametrize(("cores", "slots"), [(0, 4), (1, 4), (2, 4), (4, 6), (100, 150)])
def test_slots_of_writers_are_one_and_a_half_for_each_core(cores: int, slots: int) -> None:
    assert write_slots_of(cores) == slots
