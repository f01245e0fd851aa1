"""Code positions where a test may kill the process, to prove that a crash there loses nothing and doubles nothing.

A failpoint is armed by the environment variable TILTH_FAILPOINTS, as in `round.before_commit:3,merge.after_files:1`:
the process kills itself with SIGKILL when it reaches that failpoint for the n-th time. Without the variable `hit` does
nothing.

Tests: tests/simulation/test_crash.py.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "TILTH_FAILPOINTS"

_lock = threading.Lock()
_left: dict[str, int] = {}


def arm(text: str) -> None:
    """Arm the failpoints of the text; raises ValueError when it is not `name:count,...`."""
    with _lock:
        _left.clear()
        for item in filter(None, text.split(",")):
            name, _, count = item.partition(":")
            _left[name.strip()] = int(count or "1")


def hit(name: str) -> None:
    """Kill the process if this is the pass that was armed."""
    if not _left:
        return
    with _lock:
        if name not in _left:
            return
        _left[name] -= 1
        is_due = _left[name] == 0
    if is_due:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
