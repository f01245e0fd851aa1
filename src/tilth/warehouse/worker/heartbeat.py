"""The heartbeat of Spark: probes the JVM, kills one that hangs, and starts Spark again.

Covers: the threads of the probes, the restart, the outage that users see meanwhile. Does not cover: the rules
(pulse.py), the JVM's process (session/session.py), tasks (embedded.py).
Always holds: a call into the JVM is made by a thread that can be left behind, because it cannot be interrupted; it ends
when its JVM does. A JVM that has ended and one that hangs are replaced in the same way.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import psutil

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, as_exception
from tilth.base.logs import Log
from tilth.warehouse.session.reports import Beat, Outage
from tilth.warehouse.session.session import WorkerSession
from tilth.warehouse.worker.pulse import Probe, Pulse, PulseReading, PulseVerdict

_CHECK_SECONDS = 1.0
_STOP_SECONDS_MAX = 2.0
#: Between two starts of Spark that fail: 1, 2, 4 .. seconds, no more than this.
_RESTART_WAIT_SECONDS_MAX = 30.0

_log = Log("warehouse")

T = TypeVar("T")


class BackgroundCaller(Generic[T]):
    """Calls a function on request, on a thread of its own."""

    def __init__(self, name: str, act: Callable[[], T]) -> None:
        self._act = act
        self._wanted = threading.Event()
        self._is_over = False
        self._answers: deque[T | Exception] = deque(maxlen=1)
        threading.Thread(target=self._loop, name=f"tilth-probe-{name}", daemon=True).start()

    def request(self) -> None:
        self._wanted.set()

    def poll(self) -> T | Exception | None:
        """The answer, or what the call raised; None: there is none yet."""
        return self._answers.popleft() if self._answers else None

    def abandon(self) -> None:
        """Make no more calls; a call that hangs is left behind."""
        self._is_over = True
        self._wanted.set()

    def _loop(self) -> None:
        while self._wanted.wait() and not self._is_over:
            self._wanted.clear()
            try:
                self._answers.append(self._act())
            # Whatever Spark and py4j raise is an answer: the caller decides.
            except BaseException as error:
                self._answers.append(as_exception(error))


class Heartbeat:
    """Watches over the Spark of one worker."""

    def __init__(self, clock: Clock, session: WorkerSession) -> None:
        self._clock = clock
        self._session = session
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._restart_wait = 0.0
        #: Reason for the end of the previous JVM, until there is another one.
        self._why_gone = ""
        self._checked_at = self._cpu_seconds = 0.0
        self._begin()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tilth-spark-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """A start of Spark that is under way is ended by the session's owner."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS_MAX)
        self._abandon_calls()

    def step(self) -> None:
        """Check the JVM once. The thread calls it every second; tests may."""
        now = self._clock.monotonic()
        seconds, self._checked_at = now - self._checked_at, now
        if not self._session.is_alive():
            self._restart(self._why_gone or self._session.exit_reason())
            return
        verdict = self._check(seconds)
        if verdict is PulseVerdict.WELL:
            self._session.note_outage(None)
            return
        outage = self._session.outage
        # The time when the silence began, and not when it was noticed.
        since_ms = self._clock.now_ms() - int(self._pulse.late_seconds * 1000) if outage is None else outage.since_ms
        self._session.note_outage(Outage(reason=f"the JVM does not go on: {self._pulse.why}", since_ms=since_ms))
        if verdict is PulseVerdict.HUNG:
            reason = f"the JVM was killed because it hung: {self._pulse.why}"
            self._session.kill(reason)
            self._restart(reason)

    def _check(self, seconds: float) -> PulseVerdict:
        """Read the answers, send new probes, and count the time."""
        for probe, caller in self._callers.items():
            answer = caller.poll()
            if isinstance(answer, Beat):
                self._beat = answer
                if answer.has_ended:
                    self._pulse.record_end("Spark has ended inside of it")
            if isinstance(answer, Exception):
                # Not an answer: the probe is repeated, and its time goes on.
                _log.warning("heartbeat_failed", probe=probe, reason=answer)
                caller.request()
            elif answer is not None:
                self._pulse.record_answer(probe)
        for probe in self._pulse.due():
            self._callers[probe].request()
        try:
            cpu_seconds, is_stopped = self._session.jvm_usage()
        except psutil.Error:
            # It is ending right now.
            return PulseVerdict.WELL
        used, self._cpu_seconds = cpu_seconds - self._cpu_seconds, cpu_seconds
        reading = PulseReading(
            seconds=seconds,
            cpu_seconds=used,
            is_stopped=is_stopped,
            is_full=self._beat.is_full,
            is_remote=self._session.is_on_cluster,
            slots=self._beat.slots,
            outliving=self._beat.outliving,
            cores=os.cpu_count() or 1,
        )
        return self._pulse.observe(reading)

    def _restart(self, reason: str) -> None:
        outage = self._session.outage
        since_ms = self._clock.now_ms() if outage is None else outage.since_ms
        self._session.note_outage(Outage(reason=f"{reason}; Spark is being started again", since_ms=since_ms))
        self._why_gone = reason
        self._abandon_calls()
        try:
            has_restarted = self._session.restart_if_gone()
        except TilthError as error:
            self._session.note_outage(Outage(reason=f"{reason}; Spark does not start: {error}", since_ms=since_ms))
            _log.error("spark_not_restarted", reason=error)
            self._restart_wait = min(_RESTART_WAIT_SECONDS_MAX, max(1.0, 2 * self._restart_wait))
            self._clock.wait(self._stopping, self._restart_wait)
            return
        finally:
            self._begin()
        self._restart_wait, self._why_gone = 0.0, ""
        if has_restarted:
            _log.warning("spark_restarted", reason=reason, seconds=(self._clock.now_ms() - since_ms) / 1000)
            self._session.note_outage(None)
            threading.Thread(target=self._session.warm_if_possible, name="tilth-warm", daemon=True).start()

    def _begin(self) -> None:
        """Begin with a new JVM, of which nothing is known yet."""
        settings, session = self._session.settings, self._session
        self._pulse = Pulse(interval_seconds=settings.heartbeat_seconds, hang_seconds=settings.hang_seconds)
        self._callers: dict[Probe, BackgroundCaller[Beat] | BackgroundCaller[bool]] = {
            Probe.CALL: BackgroundCaller("call", session.beat),
            Probe.JOB: BackgroundCaller("job", session.run_small_job),
        }
        self._checked_at = self._clock.monotonic()
        self._cpu_seconds = 0.0
        self._beat = Beat(has_ended=False, is_full=False)

    def _abandon_calls(self) -> None:
        for caller in self._callers.values():
            caller.abandon()

    def _watch(self) -> None:
        while not self._clock.wait(self._stopping, _CHECK_SECONDS):
            try:
                self.step()
            # The outermost loop of the watch: it goes on whatever happened.
            except BaseException as error:
                _log.error("heartbeat_failed", error=error)
