"""Threads that are kept for the next work.

Covers: a thread for each work that is under way. Does not cover: how many there may be (control/slots.py), results
(server/threads.py).
Always holds: no work waits for the end of another one; a thread that nobody needs for `IDLE_SECONDS` ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

#: Time after which a thread without work ends.
IDLE_SECONDS = 10.0


class KeptThreads:
    """Runs work on daemon threads with this name; from any thread."""

    def __init__(self, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        #: Threads that wait, without those for which work is in the queue.
        self._free = 0
        self._works: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    def start(self, work: Callable[[], object]) -> None:
        """Run the work, which raises nothing, on another thread. Raises RuntimeError where the system has none left."""
        with self._lock:
            has_thread = self._free > 0
            if has_thread:
                self._free -= 1
        if not has_thread:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        self._works.put(work)

    def _run(self) -> None:
        while True:
            try:
                work = self._works.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if self._free:
                        self._free -= 1
                        return
                # Work that this thread was chosen for is about to come.
                continue
            work()
            # The work and its result are not held until the next one.
            del work
            with self._lock:
                self._free += 1
