"""A cached thread pool: idle threads are used again, and a new one is started where there is none.

Covers: a thread for each job that is under way. Does not cover: how many jobs there may be (control/slots.py), results
(server/threads.py).
Always holds: no job waits for the end of another one; a thread that has been idle for `IDLE_SECONDS` ends. The next job
goes to the thread that became idle last, so that threads which are not needed reach that time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

#: Time after which an idle thread ends.
IDLE_SECONDS = 10.0

# The next job of one thread.
_Slot = queue.SimpleQueue[Callable[[], object]]


class CachedThreadPool:
    """Runs jobs on daemon threads with this name. Safe to use from several threads."""

    def __init__(self, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        #: Slots of the idle threads; the thread that became idle last is the last.
        self._idle: dict[_Slot, None] = {}

    def start(self, job: Callable[[], object]) -> None:
        """Run the job, which raises nothing, on another thread. Raises RuntimeError where the system has none left."""
        with self._lock:
            slot = self._idle.popitem()[0] if self._idle else None
        if slot is None:
            slot = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(slot,), name=self._name, daemon=True).start()
        slot.put(job)

    def _run(self, slot: _Slot) -> None:
        # The first job is about to come.
        job = slot.get()
        while True:
            job()
            # An idle thread must not keep the objects of its last job alive.
            del job
            with self._lock:
                self._idle[slot] = None
            try:
                job = slot.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if slot in self._idle:
                        del self._idle[slot]
                        return
                # `start` has chosen this thread: its job is about to come.
                job = slot.get()
