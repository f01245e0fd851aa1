"""Resources of a node, seen from outside: processes, their memory, temporary files. For the soak and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil


def processes_below(pid: int) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Processes below the node: JVMs, and all others."""
    jvms: list[psutil.Process] = []
    others: list[psutil.Process] = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            (jvms if process.name().startswith("java") else others).append(process)
    return jvms, others


def resident(processes: Iterable[psutil.Process]) -> int:
    """Bytes of memory that they have together."""
    total = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def file_sizes(*folders: Path) -> list[int]:
    """Return the sizes of all files below the folders."""
    sizes: list[int] = []
    for folder in folders:
        # Folders that go while we look are left out by `walk`, files by us.
        for inside, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    sizes.append(os.stat(os.path.join(inside, name)).st_size)
    return sizes
