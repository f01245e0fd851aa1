"""Temporary folders that are named by their owner, so that the folders of dead processes can be found and removed.

Covers: names, whether an owner is alive, removal. Does not cover: the content of the folders (session.py).
Always holds: no process removes a folder of another living process. An owner is identified by process id and start
time, because ids are reused.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from tilth.base.logs import Log

#: `run-PID-START-N` is the N-th folder of a process, `result-PID-START-ID` that of a query, with `-leaving`
#: behind it while it is removed; START is in hexadecimal seconds.
_NAME = re.compile(r"(run|tilth|result)-(\d+)-([0-9a-f]+)-[\w-]+")
#: Setting the clock shifts start times a little.
_START_SECONDS_APART_MAX = 2
#: A file whose creation had begun may come into a renamed folder.
_REMOVALS_MAX = 5

_log = Log("warehouse")


def make_run_folder(parent: Path, number: int) -> Path:
    """Create a folder of this process that only its user can read."""
    folder = parent / f"run-{_owner()}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def make_result_folder(parent: Path, query_id: str) -> Path:
    """Create a folder of this process for the rows of a query, which outlives a restart of Spark."""
    folder = parent / f"result-{_owner()}-{query_id}"
    folder.mkdir(mode=0o700)
    return folder


def remove_result_folder(folder: Path) -> None:
    """Remove it with its files; tasks that still write there fail."""
    # Under another name nothing new comes into it: else what is written while it is being emptied would keep it.
    leaving = folder.with_name(f"{folder.name}-leaving")
    with suppress(OSError):
        folder.rename(leaving)
    for _ in range(_REMOVALS_MAX):
        shutil.rmtree(leaving, ignore_errors=True)
        if not leaving.exists():
            return


def make_socket_folder() -> Path:
    """Create a folder of this process with a short path."""
    return Path(tempfile.mkdtemp(prefix=f"tilth-{_owner()}-"))


def remove_left_behind(parent: Path, *, but: Path) -> int:
    """Remove folders of runs and results below the parent and short folders whose owner is gone, and earlier run
    folders of this process. Returns how many."""
    removed = 0
    for folder in (*parent.glob("run-*"), *parent.glob("result-*"), *Path(tempfile.gettempdir()).glob("tilth-*")):
        if folder == but or not _is_left_behind(folder):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
    if removed:
        _log.info("left_behind_removed", folder=parent, folders=removed)
    return removed


def _is_left_behind(folder: Path) -> bool:
    found = _NAME.fullmatch(folder.name)
    if found is None or folder.is_symlink():
        return False
    kind, pid, start = found[1], int(found[2]), int(found[3], 16)
    if pid == os.getpid() and _is_start(start, psutil.Process()):
        # The Spark of an earlier run has ended. Names of short folders do not show which one is in use, and results are
        # removed by their queries.
        return kind == "run"
    try:
        if folder.stat().st_uid != os.getuid():
            return False
        return not _is_start(start, psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, OSError):
        # It belongs to another user, or has just been removed.
        return False


def _is_start(start: int, process: psutil.Process) -> bool:
    return abs(int(process.create_time()) - start) <= _START_SECONDS_APART_MAX


def _owner() -> str:
    return f"{os.getpid()}-{int(psutil.Process().create_time()):x}"
