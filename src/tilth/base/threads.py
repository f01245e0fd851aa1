"""Threads that are kept for the next work.

Covers: a thread for each work that is under way. Does not cover: how many there may be (control/slots.py), results
(server/threads.py).
Always holds: no work waits for the end of another one; a thread that nobody needs for `IDLE_SECONDS` ends, because the
thread that has waited for the shortest time gets the next work.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

#: Time after which a thread without work ends.
IDLE_SECONDS = 10.0

# The next work of one thread.
_Slot = queue.SimpleQueue[Callable[[], object]]


class KeptThreads:
    """Runs work on daemon threads with this name; from any thread."""

    def __init__(self, name: str, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        #: Threads that wait, by their slots; the one that came last is the last.
        self._free: dict[_Slot, None] = {}

    def start(self, work: Callable[[], object]) -> None:
        """Run the work, which raises nothing, on another thread. Raises RuntimeError where the system has none left."""
        with self._lock:
            slot = self._free.popitem()[0] if self._free else None
        if slot is None:
            slot = queue.SimpleQueue()
            threading.Thread(target=self._run, args=(slot,), name=self._name, daemon=True).start()
        slot.put(work)

    def _run(self, slot: _Slot) -> None:
        # The first work is about to come.
        work = slot.get()
        while True:
            work()
            # The work and its result are not held until the next one.
            del work
            with self._lock:
                self._free[slot] = None
            try:
                work = slot.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if slot in self._free:
                        del self._free[slot]
                        return
                # Work that this thread was chosen for is about to come.
                work = slot.get()
