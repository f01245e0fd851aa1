"""A thread that writes small files beside the tables, again and again: the journal, and notes of transactions.

Covers: the thread, pauses, what follows from a failure. Does not cover: what is written (journal.py, txn_notes.py).
Always holds: no commit waits for it; what fails is logged once and tried again, after longer pauses; a store that does
not answer keeps no server from its end.

Tests: tests/unit/recovery/test_rebuild.py, tests/acceptance/test_lost_catalog.py.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.storage import Folder

#: Maximum wait for the last write of a server that stops.
STOP_SECONDS_MAX = 8.0

_log = Log("recovery")


class BackgroundWriter(ABC):
    """One file after the other, from a thread of its own; the last one when the server stops."""

    def __init__(
        self, clock: Clock, folder: Folder, *, name: str, first_seconds: float, seconds: float, pause_seconds_max: float
    ) -> None:
        """`name`: of the thread and the log's actions, with underscores; `first_seconds`: before the first write;
        `seconds`: between two; `pause_seconds_max`: between two that fail.
        """
        self._clock = clock
        self._folder = folder
        self._name = name
        self._first_seconds = first_seconds
        self._seconds = seconds
        self._pause_seconds_max = pause_seconds_max
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name.replace("_", "-"), daemon=True)
        self._failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what is left, once, and end."""
        self._is_stopping.set()
        self._thread.join(STOP_SECONDS_MAX)

    def write(self) -> bool:
        """Write what is new; return whether all is written. A failure is logged."""
        try:
            self._write()
        except (TilthError, OSError) as error:
            self._reset()
            self._failures += 1
            if self._failures == 1:
                _log.warning(f"{self._name}_not_written", folder=self._folder, reason=error, then="it is tried again")
            return False
        if self._failures:
            _log.info(f"{self._name}_written_again", folder=self._folder, failures=self._failures)
        self._failures = 0
        return True

    @abstractmethod
    def _write(self) -> None:
        """Write what is new. Raises TilthError and OSError."""

    def _reset(self) -> None:  # noqa: B027  # most have nothing to do
        """Prepare the next write after a failed one."""

    def _run(self) -> None:
        is_last = self._clock.wait(self._is_stopping, self._first_seconds)
        self.write()
        while not is_last:
            pause = min(self._pause_seconds_max, self._seconds * 2**self._failures)
            is_last = self._clock.wait(self._is_stopping, pause)
            self.write()
