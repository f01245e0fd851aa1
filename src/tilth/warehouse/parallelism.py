"""Numbers of tasks and slots, by the cores that compute: those of this machine, or of a cluster's executors. Pure.

    local                        cores of the master
    cluster, fixed               cores of the executors that are there
    cluster, dynamic allocation  cores of all executors that there may be; without a maximum, twice those that are there

Covers: tasks that share a scan, a shuffle or a round, slots of warehouses that write. Does not cover: reading Spark's
status (session/executors.py), which task gets a slot (tasks/state.py).
Always holds: what a user has set wins; at least one task; a reason goes with each number. See also:
docs/operate/cluster.md#how-much-runs-at-once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: Most tasks that share one scan or shuffle: each costs its driver some milliseconds.
TASKS_MAX = 4096
#: Inserts and merges that run at once on the smallest machine.
WRITE_SLOTS_MIN = 4

#: Spark's property by which a user gives the number of tasks.
GIVEN_PROPERTY = "spark.default.parallelism"

_LOCAL = re.compile(r"local\[(\d+|\*)(?:,\d+)?\]")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """The executors of a cluster, as Spark reports them."""

    count: int = 0
    #: Tasks that all of them run at once.
    cores: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Spark's properties that decide how many executors there may be; 0: not set."""

    #: Tasks by the user's own word.
    given: int = 0
    is_dynamic: bool = False
    executors_max: int = 0
    executor_cores: int = 0
    #: Cores that one task uses.
    task_cores: int = 1
    #: Cores of all executors together, on a standalone cluster.
    cores_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Tasks that share a scan, a shuffle or a round."""

    tasks: int
    #: Tasks that run at once now.
    cores: int
    #: Origin of the number of tasks, for people.
    reason: str


def cores_of(master: str, *, machine_cores: int) -> int:
    """Return the number of cores of the master; the machine's for clusters, whose size only Spark knows."""
    found = _LOCAL.fullmatch(master)
    if found is not None and found[1] != "*":
        return int(found[1])
    return 1 if master == "local" else machine_cores


def write_slots_of(cores: int) -> int:
    """Return how many inserts, flushes and merges run at once where nobody has set it."""
    return max(WRITE_SLOTS_MIN, cores * 3 // 2)


def allocation_of(conf: Mapping[str, str]) -> Allocation:
    """Read Spark's properties. A value that is no number counts as not set: Spark refuses it."""

    def number(name: str) -> int:
        text = conf.get(name, "").strip()
        return int(text) if _NUMBER.fullmatch(text) else 0

    return Allocation(
        given=number(GIVEN_PROPERTY),
        is_dynamic=conf.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true",
        executors_max=number("spark.dynamicAllocation.maxExecutors"),
        executor_cores=number("spark.executor.cores"),
        task_cores=max(1, number("spark.task.cpus")),
        cores_max=number("spark.cores.max"),
    )


def local_parallelism(master: str, allocation: Allocation, *, machine_cores: int) -> Parallelism:
    """Return the parallelism of a Spark that computes in its own process."""
    cores = cores_of(master, machine_cores=machine_cores)
    if allocation.given:
        return Parallelism(tasks=allocation.given, cores=cores, reason=_given(allocation))
    return Parallelism(tasks=cores, cores=cores, reason=f"{_count(cores, 'core')} of warehouse.master = {master}")


def cluster_parallelism(executors: Executors, allocation: Allocation) -> Parallelism:
    """Return the parallelism of a Spark on a cluster."""
    cores = executors.cores
    there = f"{_count(cores, 'core')} of {_count(executors.count, 'executor')}"
    if allocation.given:
        return Parallelism(tasks=allocation.given, cores=cores, reason=f"{_given(allocation)}; there are {there}")
    if not allocation.is_dynamic:
        return Parallelism(tasks=_bounded(cores), cores=cores, reason=there)
    most = _growth_max(executors, allocation)
    if not most:
        reason = f"twice the {there}: their dynamic allocation has no maximum"
        return Parallelism(tasks=_bounded(2 * cores), cores=cores, reason=reason)
    reason = f"the {_count(most, 'core')} that dynamic allocation may bring; there are {there}"
    return Parallelism(tasks=_bounded(max(most, cores)), cores=cores, reason=reason)


def _growth_max(executors: Executors, allocation: Allocation) -> int:
    """Return how many tasks may run at once when the allocation has grown; 0: there is no maximum."""
    each = allocation.executor_cores // allocation.task_cores
    if not each and executors.count:
        each = executors.cores // executors.count
    bounds = (allocation.executors_max * each, allocation.cores_max // allocation.task_cores)
    return min((bound for bound in bounds if bound), default=0)


def _given(allocation: Allocation) -> str:
    return f"{GIVEN_PROPERTY} = {allocation.given} in warehouse.spark-conf"


def _bounded(tasks: int) -> int:
    return max(1, min(TASKS_MAX, tasks))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
