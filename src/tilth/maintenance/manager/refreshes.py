"""Refreshes of what the manager knows of its tables: one by one where something was reported, all of them at times.

Covers: what is to be read, passes over all tables, waiting for one. Does not cover: what is read of a table, tables
that come and go (registry.py).
Always holds: a step ends when its time is over and the next one goes on where it ended; a change that is reported while
a pass is under way is read again after it.

Tests: tests/unit/maintenance/manager/test_manager.py, tests/unit/maintenance/manager/test_turns.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnavailableError
from tilth.maintenance.manager.registry import Registry
from tilth.maintenance.manager.table_ops import TableOps

#: Interval of passes over all tables, when nobody requests one.
REFRESH_MS = 30_000
#: At most one part in this many of the time goes into passes, however often they are requested; the longest wait.
REFRESH_SHARE = 10
REFRESH_WAIT_SECONDS_MAX = 2.0
#: Tables that are read one by one; with more, all are.
CHANGED_MAX = 1_000
#: Maximum wait of a statement until the switches have been read.
REFRESH_SECONDS_MAX = 10.0


class Refreshes:
    """The refreshes of one manager: `step` is for its thread, the others for any."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        *,
        leave: Callable[[TableOps], None],
        ended: Callable[[], None],
    ) -> None:
        """`leave` gets each table that is gone or another server's now; `ended` is called after each pass."""
        self._clock = clock
        self._registry = registry
        self._leave = leave
        self._on_end = ended
        #: Guards what is to be read; notified after each pass.
        self._lock = threading.Condition()
        #: Tables of which definition, switches or mutations are to be read anew; or those of all.
        self._changed: set[str] = set()
        self._must_pass = True
        self._begun = self._ended = 0
        #: The pass under way, and the sum of its steps.
        self._pass: Iterator[list[TableOps]] | None = None
        self._pass_seconds = 0.0
        self._passed_at = -REFRESH_MS / 1000
        self._may_pass_at = 0.0

    @property
    def has_passed(self) -> bool:
        """True once all tables have been read."""
        return self._ended > 0

    def changed(self, uuid: str | None) -> None:
        """Read the table in the next step; None: all tables."""
        with self._lock:
            if uuid is None or len(self._changed) >= CHANGED_MAX:
                self._must_pass = True
            else:
                self._changed.add(uuid)

    def wait(self, wake: Callable[[], None]) -> None:
        """Wait until all tables have been read by a pass that begins now; `wake` lets the manager make it. Raises
        UnavailableError.
        """
        with self._lock:
            wanted = self._begun + 1
            self._must_pass = True
            wake()
            if not self._lock.wait_for(lambda: self._ended >= wanted, REFRESH_SECONDS_MAX):
                hint = "it will, as soon as it can read the catalog; the switch is stored"
                raise UnavailableError(
                    "the maintenance has not read its switches yet", seconds=REFRESH_SECONDS_MAX, hint=hint
                )

    def step(self, is_over: Callable[[], bool]) -> bool:
        """Read tables until it is over; return whether some are left."""
        while self._changed:
            with self._lock:
                uuid = self._changed.pop()
            self._read(uuid)
            if is_over():
                return True
        now = self._clock.monotonic()
        if self._pass is None:
            is_wanted = self._must_pass and now >= self._may_pass_at
            if not is_wanted and now - self._passed_at < REFRESH_MS / 1000:
                return False
            with self._lock:
                self._must_pass = False
                self._begun += 1
            self._passed_at, self._pass_seconds = now, 0.0
            self._pass = self._registry.refresh(self._clock.now_ms, is_over)
        is_left = self._go_on(self._pass, is_over)
        self._pass_seconds += self._clock.monotonic() - now
        if is_left:
            return True
        self._end()
        return False

    def _read(self, uuid: str) -> None:
        try:
            left = self._registry.refresh_one(uuid, self._clock.now_ms)
        except TilthError:
            self._must_pass = True
            raise
        if left is not None:
            self._leave(left)

    def _go_on(self, steps: Iterator[list[TableOps]], is_over: Callable[[], bool]) -> bool:
        """Go on with a pass; return whether some of it is left."""
        try:
            for gone in steps:
                for table in gone:
                    self._leave(table)
                if is_over():
                    return True
        except BaseException:
            # Tables that were not read are still to be read.
            self._pass, self._must_pass = None, True
            raise
        return False

    def _end(self) -> None:
        self._pass = None
        with self._lock:
            self._ended = self._begun
            self._lock.notify_all()
        rest = min(self._pass_seconds * (REFRESH_SHARE - 1), REFRESH_WAIT_SECONDS_MAX)
        self._may_pass_at = self._clock.monotonic() + rest
        self._on_end()
