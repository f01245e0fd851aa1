"""Verdict whether a JVM still answers. Pure: observations go in, a verdict comes out.

    WELL --(half of the hang bound)--> LATE --(hang bound)--> HUNG
      ^----------- answered ------------'

WELL   the last call was answered, or has not waited for long (written by `record_answer`)
LATE   a call has waited for half of the hang bound; users see it, nothing is done (written by `observe`)
HUNG   the JVM is to be killed; final for this JVM (written by `observe` and `record_end`)

There are two probes: a call, which any thread of the JVM answers, and a job, which needs Spark's scheduler and a
free task slot. Only time in which nothing excuses the silence counts against the bound: a JVM that computes, as in a
long garbage collection, is given `BUSY_FACTOR` times as long, and so is a job on a cluster, whose executors may be cut
off and come back; a job does not count while all task slots are in use; of time in which this process itself did not
run, little counts. Nothing interrupts some code of Java (a regular expression that backtracks): tasks that outlive
their cancelled jobs hold slots, and the time of each counts by the share of the slots that it holds, until it ends:
many that end late, one after the other, are no hang. If these tasks get less than `STARVED_SHARE` of a core each, the
machine is crowded, or they wait for a store that is silent, which their client ends (storage/read/hadoop_spark.py):
they may still be ending, and are given `BUSY_FACTOR` times as long. Time in which a call waits for its answer counts as
silence; it counts for the tasks only that its answer reports again.

Covers: the rules. Does not cover: probing, killing (heartbeat.py), tasks without progress (stalls.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: A JVM that uses the processor may be silent for so many hang bounds.
BUSY_FACTOR = 4
#: Number of calls for each probe by a job.
CALLS_PER_JOB = 6
#: Share of one core: a JVM that uses more between two observations is busy. On a crowded machine one that works
#: gets little more; one that hangs uses less.
BUSY_SHARE = 0.05
#: Share of one core below which a cancelled task counts as starved; one that nothing interrupts gets a whole core of an
#: idle machine.
STARVED_SHARE = 0.5
#: Greatest time that counts between two observations: this process was stopped itself, or its machine slept.
STEP_SECONDS_MAX = 3.0


class Probe(StrEnum):
    """A way to see whether the JVM answers."""

    CALL = "call"
    JOB = "job"


class PulseVerdict(StrEnum):
    WELL = "well"
    LATE = "late"
    HUNG = "hung"


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseReading:
    """Observations since the previous reading."""

    #: Time since the previous reading.
    seconds: float
    #: Processor time that the JVM has used in it.
    cpu_seconds: float
    #: Its process is stopped, as by SIGSTOP.
    is_stopped: bool = False
    #: Every task slot of Spark was in use when it answered last.
    is_full: bool = False
    #: Tasks run in executors of a cluster.
    is_remote: bool = False
    #: Task slots, and the ids of the tasks that outlived their stages then.
    slots: int = 1
    outliving: frozenset[int] = frozenset()
    #: Cores of the machine.
    cores: int = 1


@dataclass(slots=True)
class _Waiting:
    """Time that a probe has waited for its answer, or that cancelled tasks have held slots."""

    seconds: float = 0.0
    #: Part of this time that nothing excuses.
    idle_seconds: float = 0.0

    def count(self, step: float, *, is_excused: bool) -> None:
        self.seconds += step
        if not is_excused:
            self.idle_seconds += step

    def add(self, other: _Waiting) -> None:
        self.seconds += other.seconds
        self.idle_seconds += other.idle_seconds


class Pulse:
    """State of one JVM, as known by its answers. For one thread."""

    def __init__(self, *, interval_seconds: float, hang_seconds: float) -> None:
        self._interval = interval_seconds
        self._hang = hang_seconds
        self._waiting: dict[Probe, _Waiting] = {}
        #: Time since the last call was made.
        self._since_call = interval_seconds
        self._calls = 0
        #: Time that each cancelled task has held a slot, by its id, as a share of all slots.
        self._stuck: dict[int, _Waiting] = {}
        #: The same for all of these tasks since a call that is not answered yet: they may have ended.
        self._maybe_stuck = _Waiting()
        #: `True` if a call was answered since the last call of `observe`.
        self._is_fresh = False
        self._hung_why = ""

    def due(self) -> list[Probe]:
        """Return the probes to send now; each then counts as sent."""
        if self._since_call < self._interval or Probe.CALL in self._waiting:
            return []
        self._since_call = 0.0
        probes = [Probe.CALL]
        if self._calls % CALLS_PER_JOB == 0 and Probe.JOB not in self._waiting:
            probes.append(Probe.JOB)
        self._calls += 1
        self._waiting |= {probe: _Waiting() for probe in probes}
        return probes

    def record_answer(self, probe: Probe) -> None:
        self._waiting.pop(probe, None)
        self._is_fresh = self._is_fresh or probe is Probe.CALL

    def record_end(self, why: str) -> None:
        """Record that Spark has ended inside of the JVM, which still runs."""
        self._hung_why = why

    def observe(self, reading: PulseReading) -> PulseVerdict:
        """Count the time that has passed."""
        step = min(reading.seconds, STEP_SECONDS_MAX)
        self._since_call += step
        is_busy = not reading.is_stopped and reading.cpu_seconds >= BUSY_SHARE * step
        call, job = self._waiting.get(Probe.CALL), self._waiting.get(Probe.JOB)
        if call is not None:
            call.count(step, is_excused=is_busy)
            if self._is_over(call):
                self._hung_why = f"it has not answered a call for {call.seconds:.0f} s" + (
                    "; its process is stopped" if reading.is_stopped else ""
                )
        elif job is not None and not reading.is_full:
            # While calls are not answered, the job shows nothing more.
            job.count(step, is_excused=is_busy or reading.is_remote)
            if self._is_over(job):
                self._hung_why = f"it answers calls, and has not run a job of one task for {job.seconds:.0f} s"
        self._count_stuck(reading, step)
        self._is_fresh = False
        if self._is_over(self._all_stuck):
            self._hung_why = self._why_stuck
        if self._hung_why:
            return PulseVerdict.HUNG
        return PulseVerdict.LATE if self.late_seconds >= self._hang / 2 else PulseVerdict.WELL

    @property
    def late_seconds(self) -> float:
        """Seconds for which the oldest probe has been waiting, or cancelled tasks have held slots."""
        return max(self._silent_seconds, self._all_stuck.seconds)

    @property
    def why(self) -> str:
        if self._hung_why:
            return self._hung_why
        if self._all_stuck.seconds > self._silent_seconds:
            return self._why_stuck
        what = "a call" if Probe.CALL in self._waiting else "a job of one task"
        return f"it has not answered {what} for {self._silent_seconds:.0f} s"

    @property
    def _silent_seconds(self) -> float:
        return max((each.seconds for each in self._waiting.values()), default=0.0)

    @property
    def _all_stuck(self) -> _Waiting:
        together = _Waiting()
        for each in self._stuck.values():
            together.add(each)
        return together

    @property
    def _why_stuck(self) -> str:
        return f"cancelled tasks that do not end have held its task slots for {self._all_stuck.seconds:.0f} s"

    def _count_stuck(self, reading: PulseReading, step: float) -> None:
        tasks = reading.outliving
        if not tasks:
            self._stuck, self._maybe_stuck = {}, _Waiting()
            return
        is_starved = reading.cpu_seconds < STARVED_SHARE * step * min(len(tasks), reading.cores)
        now = _Waiting()
        now.count(step / max(reading.slots, len(tasks)), is_excused=is_starved)
        self._maybe_stuck.add(now)
        known = self._stuck
        self._stuck = {task: known.get(task, _Waiting()) for task in tasks}
        if self._is_fresh or Probe.CALL not in self._waiting:
            for task, waiting in self._stuck.items():
                # One that is new was not there while the call waited for its answer.
                waiting.add(self._maybe_stuck if task in known else now)
            self._maybe_stuck = _Waiting()

    def _is_over(self, waiting: _Waiting) -> bool:
        return waiting.idle_seconds >= self._hang or waiting.seconds >= BUSY_FACTOR * self._hang
