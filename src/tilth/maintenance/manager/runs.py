"""The manager's runs: a slot from the choice to the end, counted so that none is ever lost.

Covers: slots, the threads that ops run on, the last runs that ended, waiting for the end of all. Does not cover: what
is chosen (scheduler.py), what a run does (the folders of their kinds).
Always holds: a slot that was reserved is released however the run goes; no run of a cancelled op begins.

Tests: tests/unit/maintenance/manager/test_manager.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.maintenance.kinds import Prepared
from tilth.maintenance.stats import OpRun
from tilth.maintenance.work.op import Op

_log = Log("maintenance")


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """The right to run once."""

    number: int
    op: Op
    #: Empty until it runs.
    about: str = ""
    started_ms: int = 0
    thread_id: int = 0

    def run(self, *, ended_ms: int = 0, error: str = "") -> OpRun:
        return OpRun(
            name=self.op.name,
            about=self.about,
            thread_id=self.thread_id,
            started_ms=self.started_ms,
            ended_ms=ended_ms,
            error=error,
        )


class Runs:
    """The runs of one manager. Safe to use from several threads."""

    def __init__(self, clock: Clock, *, history_size: int, ended: Callable[[Slot], None]) -> None:
        """`ended` is called on the run's thread, when its slot is free again."""
        self._clock = clock
        self._on_end = ended
        self._lock = threading.Lock()
        self._is_idle = threading.Condition(self._lock)
        #: Runs from the choice on, also while being prepared; in the order of their reservation.
        self._slots: dict[int, Slot] = {}
        self._numbers = 0
        self._ended: deque[OpRun] = deque(maxlen=history_size)

    @property
    def count(self) -> int:
        return len(self._slots)

    def rewrites(self) -> int:
        with self._lock:
            return sum(slot.op.kind.traits.is_rewrite for slot in self._slots.values())

    def has_any(self, uuid: str) -> bool:
        """True if something of the table runs or is being prepared."""
        with self._lock:
            return any(slot.op.watch.uuid == uuid for slot in self._slots.values())

    def reserve(self, op: Op) -> Slot | None:
        """Reserve a slot for a run that is to be prepared; none if the op is cancelled."""
        with self._lock:
            if op.is_cancelled:
                return None
            self._numbers += 1
            slot = self._slots[self._numbers] = Slot(number=self._numbers, op=op)
            return slot

    def release(self, slot: Slot) -> None:
        with self._lock:
            self._free(slot)

    def begin(self, slot: Slot, prepared: Prepared) -> None:
        """Run it on a thread of its own; return at once."""
        slot.started_ms = self._clock.now_ms()
        slot.about = prepared.about
        thread = threading.Thread(
            target=self._work, args=(slot, prepared), name=f"tilth-{slot.op.kind.lower()}-{slot.number}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            # The system gives no more threads: what was reserved can be chosen again.
            self.release(slot)
            slot.op.abandon(prepared)
            raise

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait at most so long until nothing runs any more; True if nothing does."""
        with self._lock:
            # Real time: what is waited for are other threads.
            return self._is_idle.wait_for(lambda: not self._slots, seconds)

    def listing(self) -> list[OpRun]:
        """Runs under way, then the last that ended, newest first."""
        with self._lock:
            live = [slot.run() for slot in reversed(self._slots.values()) if slot.started_ms]
            return live + list(reversed(self._ended))

    def _work(self, slot: Slot, prepared: Prepared) -> None:
        slot.thread_id = threading.get_ident()
        failure = ""
        try:
            slot.about = slot.op.perform(prepared)
        except TilthError as error:
            failure = str(error)
        # The outermost loop of a run: no failure ends the process, each one is reported.
        except BaseException as error:
            failure = f"{type(error).__name__}: {error}"
            _log.error("maintenance_run_failed", op=slot.op.name, error=error)
        run = slot.run(ended_ms=self._clock.now_ms(), error=failure)
        with self._lock:
            self._ended.append(run)
            self._free(slot)
        _log.info("maintenance_run", op=run.name, about=run.about, ms=run.ended_ms - run.started_ms, error=failure)
        self._on_end(slot)

    def _free(self, slot: Slot) -> None:
        self._slots.pop(slot.number, None)
        if not self._slots:
            self._is_idle.notify_all()
