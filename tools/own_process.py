"""A process that is known again by a record in a file, also by another program than the one that started it.

Covers: starting it in a session of its own, whether it still runs, ending it. Does not cover: what it is.
Always holds: a process is ended by its recorded id, and only if it still is the one that was started.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

#: A process's time of creation is computed from the clock: two readings of it may differ a little.
CREATED_SECONDS_TOLERANCE = 2.0
STOP_SECONDS_MAX = 30.0


class OwnProcess:
    """At most one process, written down in one file."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def recorded(self) -> dict[str, float]:
        """Return the record of the process that was started last, and the numbers beside it; empty: none ever was."""
        if not self._record.exists():
            return {}
        found: dict[str, float] = json.loads(self._record.read_text())
        return found

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process that this program has started; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def start(self, command: Sequence[str], log: Path, **numbers: float) -> None:
        """Starts it, its output going to the log; `numbers` are written down beside its id."""
        with log.open("ab") as output:
            # A session of its own: an interrupt typed at a terminal must not end it before its owner does.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        created = psutil.Process(self._process.pid).create_time()
        self._record.write_text(json.dumps({"pid": self._process.pid, "created": created, **numbers}))

    def running(self) -> psutil.Process | None:
        recorded = self.recorded
        if not recorded:
            return None
        try:
            process = psutil.Process(int(recorded["pid"]))
            is_same = abs(process.create_time() - recorded["created"]) < CREATED_SECONDS_TOLERANCE
            is_alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if is_same and is_alive else None

    def stop(self) -> None:
        """SIGTERM; SIGKILL if it does not obey. No process, no effect."""
        self._end(psutil.Process.terminate)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(psutil.Process.kill)

    def _end(self, how: Callable[[psutil.Process], None]) -> None:
        process = self.running()
        if process is not None:
            how(process)
            try:
                process.wait(STOP_SECONDS_MAX)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS_MAX)
        if self._process is not None:
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None
