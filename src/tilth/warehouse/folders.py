"""Temporary folders that name their owner, so that what a dead process left behind is known and goes.

Covers: names, whether an owner is alive, removing. Does not cover: what is in the folders (sessions.py).
Always holds: a folder of a process that lives is never removed by another one; an owner is a process by its number and
the time of its start, for numbers come again.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

import psutil

from tilth.base.logs import Log

#: `run-PID-START-N`: the N-th of the process.
_NAME = re.compile(r"(?:run|tilth)-(\d+)-([0-9a-f]+)-\w+")
#: Clocks that are set move the time of a start a little.
_START_SECONDS_APART_MAX = 2

_log = Log("warehouse")


def make_run_folder(parent: Path, number: int) -> Path:
    """A new folder of this process, for whom it runs; nobody else may look into it."""
    folder = parent / f"run-{_owner()}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def make_socket_folder() -> Path:
    """A folder of this process with a short path."""
    return Path(tempfile.mkdtemp(prefix=f"tilth-{_owner()}-"))


def remove_left_behind(parent: Path, *, but: Path) -> int:
    """Removes folders below the parent, and short ones, whose process is gone, or that this process no longer uses.

    Returns how many.
    """
    removed = 0
    for folder in (*parent.glob("run-*"), *Path(tempfile.gettempdir()).glob("tilth-*")):
        if folder == but or not _is_left_behind(folder, is_ours=folder.parent == parent):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
    if removed:
        _log.info("left_behind_removed", folder=parent, folders=removed)
    return removed


def _is_left_behind(folder: Path, *, is_ours: bool) -> bool:
    found = _NAME.fullmatch(folder.name)
    if found is None or folder.is_symlink():
        return False
    pid, start = int(found[1]), int(found[2], 16)
    if pid == os.getpid() and _is_start(start, psutil.Process()):
        # An earlier one of this process: its Spark has ended. Short ones have no numbers that say which is the last.
        return is_ours
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        return not _is_start(start, psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, OSError):
        # Somebody else's, or gone by now.
        return False


def _is_start(start: int, process: psutil.Process) -> bool:
    return abs(int(process.create_time()) - start) <= _START_SECONDS_APART_MAX


def _owner() -> str:
    return f"{os.getpid()}-{int(psutil.Process().create_time()):x}"
