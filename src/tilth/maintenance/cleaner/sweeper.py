"""Removal of what finished work leaves, on a thread of its own, so that no statement's answer waits for a slow store.

Covers: the thread and its queue. Does not cover: what is removed (left_files.py), work that is left to the cleaner
(ended.py).
Always holds: the queue is bounded, and whatever is not run is found by the cleaner, from the note of the commit or the
record of the aborted transaction.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from tilth.base.logs import Log

#: Removals that may wait; those beyond are left to the cleaner.
WAITING_MAX = 256
#: The end of a server waits so long for the removal that runs.
STOP_SECONDS = 2.0

_log = Log("maintenance")


class Sweeper:
    """Runs removals one after the other; `start` it once."""

    def __init__(self) -> None:
        self._steps: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING_MAX)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tilth-sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Run no further removal; wait for the present one, though not for a store that does not answer."""
        self._is_over.set()
        # With a full queue the thread waits for no step, and sees the end after the current one.
        with suppress(queue.Full):
            self._steps.put_nowait(None)
        self._thread.join(STOP_SECONDS)

    def offer(self, step: Callable[[], None], /) -> bool:
        """Run the step as soon as those before it have ended; False: it is not run."""
        if self._is_over.is_set():
            return False
        try:
            self._steps.put_nowait(step)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        while (step := self._steps.get()) is not None and not self._is_over.is_set():
            try:
                step()
            except Exception as error:
                # The next ones are of other work.
                _log.error("sweep_failed", reason=error)
