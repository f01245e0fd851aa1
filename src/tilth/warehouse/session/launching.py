"""The launch of the JVM: its priority, and the environment that its scripts and pyspark read.

Covers: both, for the time of a launch. Does not cover: the values (session.py).

Tests: tests/integration/warehouse/test_spark_session.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tilth.warehouse.session.class_data import NICE_MAX


# Any: what pyspark gives.
def call_nicely(act: Callable[[], Any], nice: int) -> Any:
    """Call it on a thread of lower priority, which the processes that it starts inherit."""

    def run() -> Any:
        # On Linux, of this thread alone.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, min(NICE_MAX, os.getpriority(os.PRIO_PROCESS, thread) + nice))
        return act()

    with ThreadPoolExecutor(1, "tilth-spark-start") as pool:
        return pool.submit(run).result()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """These variables in this process's environment while the JVM starts: pyspark reads them from nowhere else."""
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
