"""Fitness of a worker for a task, by the last report of its machine. Pure.

Covers: memory and disk that a machine lacks, cores that are busy. Does not cover: slots, and what tasks hold by their
estimates (state.py).

Tests: tests/unit/warehouse/tasks/test_state.py.
"""

from __future__ import annotations

from tilth.model.task import Cost
from tilth.warehouse.stats import WorkerLoad


def slowed(load: WorkerLoad) -> float:
    """Return the factor by which a machine with busy cores is slower: up to 2."""
    return 2.0 - min(1.0, load.free_cores / load.cores) if load.cores else 1.0


def lack_of(worker: str, load: WorkerLoad, need: Cost, *, is_idle: bool) -> str:
    """Return what the worker's machine lacks for a task; empty: nothing.

    The memory of an idle worker is not checked: no task of ours would release any, and estimates are upper bounds.
    """
    if load.memory_bytes and not is_idle and need.memory_bytes > load.free_memory_bytes:
        return f"needs {need.memory_bytes} bytes of memory, the machine of {worker} has {load.free_memory_bytes}"
    temporary = need.temporary_bytes or 0
    if load.disk_bytes and temporary > load.free_disk_bytes:
        return f"needs {temporary} bytes of disk, the machine of {worker} has {load.free_disk_bytes}"
    return ""
