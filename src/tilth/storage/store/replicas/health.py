"""States of replicas, as this process has seen them.

Covers: a failure that shows that a location is away, probing it until it is back, a watch that never ends.
Does not cover: which files a replica lacks (tilth.catalog).
Always holds: a replica that hangs costs one thread of this process, and its time limit once, not once for each file.

Tests: tests/unit/storage/store/replicas/test_failover.py, tests/integration/storage/test_storages.py.
"""

from __future__ import annotations

import os
import threading

from tilth.base.clock import SystemClock
from tilth.base.errors import RetryError, TilthError, UnavailableError
from tilth.base.logs import Log
from tilth.storage.store.backends.backend import backend_of
from tilth.storage.store.backends.marker import trouble_at
from tilth.storage.store.root import StoreRoot

#: Interval between two probes of a replica.
PROBE_INTERVAL_SECONDS = 1.0
#: A replica that has not answered after this time is unavailable.
PROBE_TIMEOUT_SECONDS = 3.0
#: Time for which a server's report that a replica is away counts; after it, this process's own checks do.
REPORTED_SECONDS = 5.0
#: Time within which a repeated report of a server is not a new one.
REPORTED_AGAIN_SECONDS = 60.0
#: Tables whose marker is remembered.
MARKED_TABLES_MAX = 10_000

_log = Log("storage")
_lock = threading.Lock()
_clock = SystemClock()
_known: dict[StoreRoot, ReplicaHealth] = {}


def health_of(replica: StoreRoot) -> ReplicaHealth:
    """Return what this process knows of a replica."""
    with _lock:
        found = _known.get(replica)
        # Threads of a parent process do not probe for a forked one.
        if found is None or found.pid != os.getpid():
            found = _known[replica] = ReplicaHealth(replica)
        return found


def replica_trouble(replica: StoreRoot) -> str:
    """Return why the location of a replica cannot be used now; empty: it can."""
    return trouble_at(replica, backend_of)


def note_unanswered(error: TilthError) -> None:
    """Note that a replica is away, where an error names a file in it that could not be read."""
    file = error.facts.get("file", "")
    with _lock:
        unanswered = [health for root, health in _known.items() if file.startswith(f"{root.uri}/")]
    for health in unanswered:
        health.note_error(error)


class ReplicaHealth:
    """The state of one replica. For any thread."""

    def __init__(self, replica: StoreRoot) -> None:
        self.pid = os.getpid()
        #: Reason why it cannot be used; empty: it can, as last known.
        self.trouble = ""
        #: Number of times it has come back: it may hold less than before.
        self.returns = 0
        #: Tables whose marker it was seen to have.
        self.marked_tables: set[str] = set()
        self._replica = replica
        self._lock = threading.Lock()
        self._is_probing = self._is_watched = False
        #: Monotonic times of a server's first and last report that the replica is away.
        self._reported_since = self._reported_last = -REPORTED_AGAIN_SECONDS

    @property
    def reported_trouble(self) -> str:
        """Return the trouble that a server has just reported; empty: none, or this process's own checks count."""
        is_new = _clock.monotonic() - self._reported_since < REPORTED_SECONDS
        return "the server finds that it is away" if is_new else ""

    def note_reported_away(self) -> None:
        """Note a server's report that the replica is away."""
        now = _clock.monotonic()
        if now - self._reported_last >= REPORTED_AGAIN_SECONDS:
            self._reported_since = now
        self._reported_last = now

    def note_error(self, error: Exception) -> None:
        """Note an error of the store; an error that does not concern the location is ignored."""
        if isinstance(error, UnavailableError | RetryError):
            self.note(error.message)

    def note(self, trouble: str) -> None:
        """Use it no more until it answers again."""
        with self._lock:
            is_new = not self.trouble
            self.trouble = trouble
        if is_new:
            _log.warning("replica_away", root=self._replica, reason=trouble)
        self._start_probing()

    def remember_marker(self, table: str) -> None:
        if len(self.marked_tables) >= MARKED_TABLES_MAX:
            self.marked_tables.clear()
        self.marked_tables.add(table)

    def watch(self) -> None:
        """Probe it from now on, also while nobody uses it."""
        self._is_watched = True
        self._start_probing()

    def check(self) -> None:
        """Check the replica now, on a thread of its own, for a caller that waits longer than usual."""
        self._start_probing()

    def unwatch(self) -> None:
        """Probe it no more than those who use it need."""
        self._is_watched = False

    def _start_probing(self) -> None:
        with self._lock:
            if self._is_probing:
                return
            self._is_probing = True
        threading.Thread(target=self._run, name="tilth-replica", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            probe = _Probe(self._replica)
            if not probe.ended.wait(PROBE_TIMEOUT_SECONDS):
                self._record(f"no answer in {PROBE_TIMEOUT_SECONDS:g} seconds")
                probe.ended.wait()
            if self._record(probe.trouble):
                break
            pause.wait(PROBE_INTERVAL_SECONDS)

    def _record(self, trouble: str) -> bool:
        """Record the outcome of a probe; return whether nobody needs another one."""
        with self._lock:
            before, self.trouble = self.trouble, trouble
            self.returns += bool(before and not trouble)
            is_over = not trouble and not self._is_watched
            self._is_probing = not is_over
        if bool(before) != bool(trouble):
            _log.info("replica_state_changed", root=self._replica, reason=trouble or "it is back")
        return is_over


class _Probe:
    """A check whether a location can be used, on a thread of its own: one that hangs ends late."""

    def __init__(self, root: StoreRoot) -> None:
        self.ended = threading.Event()
        self.trouble = ""
        self._root = root
        threading.Thread(target=self._run, name="tilth-replica-probe", daemon=True).start()

    def _run(self) -> None:
        try:
            self.trouble = replica_trouble(self._root)
        finally:
            self.ended.set()


def trouble_of(error: TilthError | OSError) -> str:
    """Return the words of an error."""
    return error.message if isinstance(error, TilthError) else str(error)
