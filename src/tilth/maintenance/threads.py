"""Threads that wait for the next run for a while: most runs are shorter than the start of a thread on a busy machine.

Does not cover: how many runs there are at once (runs.py). Always holds: what is handed over begins at once; no thread
keeps the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

#: How long a thread without work stays.
IDLE_SECONDS = 10.0


class IdleThreads:
    """Runs functions, each on a thread that does nothing else meanwhile. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = 0
        self._waiting: SimpleQueue[tuple[Callable[[], None], str]] = SimpleQueue()

    def run(self, work: Callable[[], None], name: str) -> None:
        """Raises RuntimeError where the system gives no more threads."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._waiting.put((work, name))
                return
        threading.Thread(target=self._loop, args=(work, name), name=name, daemon=True).start()

    def _loop(self, work: Callable[[], None], name: str) -> None:
        while True:
            threading.current_thread().name = name
            work()
            with self._lock:
                self._idle += 1
            while True:
                try:
                    work, name = self._waiting.get(timeout=IDLE_SECONDS)
                    break
                except Empty:
                    with self._lock:
                        # What was handed over just now is for one of those that wait.
                        if self._waiting.empty():
                            self._idle -= 1
                            return
