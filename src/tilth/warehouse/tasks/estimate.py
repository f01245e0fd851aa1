"""Estimates of the cost of tasks: first guesses by kind, corrected by measurements. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilth.base.units import GIB, MIB
from tilth.model.task import Cost, TaskKind

#: Weight of one measurement in the correction: 0 not at all, 1 all the way.
_LEARNING_RATE = 0.2
#: A correction stays within these; one odd task must not spoil the estimates of a day.
_FACTOR_MIN = 1 / 64
_FACTOR_MAX = 64.0
#: Shorter tasks say more about the machine's mood than about their kind.
_LEARN_SECONDS_MIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A kind's first guess, before anything was measured."""

    #: Base time of every task, however small.
    seconds_min: float
    #: Input bytes per second.
    speed: float
    #: Output bytes per input byte.
    output: float
    #: Memory bytes per input byte, and their ceiling: kernels work in blocks.
    memory: float
    memory_max: int


GUESSES: dict[TaskKind, Guess] = {
    # Of a round. A consumer itself reads nothing.
    TaskKind.CONSUME: Guess(seconds_min=0.0, speed=50.0 * MIB, output=0.3, memory=4.0, memory_max=256 * MIB),
    TaskKind.INSERT: Guess(seconds_min=0.1, speed=40.0 * MIB, output=0.3, memory=4.0, memory_max=1 * GIB),
    TaskKind.FLUSH: Guess(seconds_min=0.1, speed=20.0 * MIB, output=0.7, memory=8.0, memory_max=1 * GIB),
    TaskKind.MERGE: Guess(seconds_min=0.1, speed=20.0 * MIB, output=0.95, memory=8.0, memory_max=512 * MIB),
    TaskKind.MUTATE: Guess(seconds_min=0.5, speed=15.0 * MIB, output=1.0, memory=8.0, memory_max=512 * MIB),
    TaskKind.DELTA: Guess(seconds_min=0.1, speed=40.0 * MIB, output=0.9, memory=6.0, memory_max=1 * GIB),
    TaskKind.COPY: Guess(seconds_min=0.1, speed=100.0 * MIB, output=0.0, memory=1.0, memory_max=64 * MIB),
    TaskKind.QUERY: Guess(seconds_min=0.1, speed=100.0 * MIB, output=0.01, memory=0.1, memory_max=256 * MIB),
}
#: Temporary bytes per input byte, before any were measured: what Spark shuffles and spills of a statement. Rewrites of
#: parts keep nothing on the worker's disk.
TEMPORARY = {TaskKind.INSERT: 0.2, TaskKind.QUERY: 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Measured over guessed, as a running mean of logarithms."""

    seconds: float = 1.0
    output: float = 1.0
    memory: float = 1.0
    #: Temporary bytes per input byte, as a running mean; none: not measured yet.
    temporary: float | None = None
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Estimator:
    """A value: `learn` returns the next one."""

    corrections: dict[TaskKind, Correction] = field(default_factory=dict)

    def estimate(self, kind: TaskKind, *, input_bytes: int) -> Cost:
        """Estimate the cost of a task over this much input."""
        guess, known = GUESSES[kind], self.corrections.get(kind, Correction())
        return Cost(
            input_bytes=input_bytes,
            output_bytes=int(input_bytes * guess.output * known.output),
            memory_bytes=int(min(input_bytes * guess.memory, guess.memory_max) * known.memory),
            temporary_bytes=int(
                input_bytes * (TEMPORARY.get(kind, 0.0) if known.temporary is None else known.temporary)
            ),
            seconds=(guess.seconds_min + input_bytes / guess.speed) * known.seconds,
        )

    def learn(self, kind: TaskKind, *, estimated: Cost, actual: Cost) -> Estimator:
        """Correct the next estimates by what was measured; zeros count as not measured, but for temporary bytes."""
        if actual.seconds < _LEARN_SECONDS_MIN:
            return self
        known = self.corrections.get(kind, Correction())
        learnt = replace(
            known,
            seconds=_moved(known.seconds, estimated=estimated.seconds, actual=actual.seconds),
            output=_moved(known.output, estimated=estimated.output_bytes, actual=actual.output_bytes),
            memory=_moved(known.memory, estimated=estimated.memory_bytes, actual=actual.memory_bytes),
            temporary=_mean(known.temporary, before=_temporary(kind, known), estimated=estimated, actual=actual),
            tasks=known.tasks + 1,
        )
        return Estimator({**self.corrections, kind: learnt})


def _temporary(kind: TaskKind, known: Correction) -> float:
    return TEMPORARY.get(kind, 0.0) if known.temporary is None else known.temporary


def _mean(known: float | None, *, before: float, estimated: Cost, actual: Cost) -> float | None:
    """Most statements keep nothing on disk, which a mean of logarithms could not take in."""
    if actual.temporary_bytes is None or estimated.input_bytes <= 0:
        return known
    return before + _LEARNING_RATE * (actual.temporary_bytes / estimated.input_bytes - before)


def _moved(factor: float, *, estimated: float, actual: float) -> float:
    if estimated <= 0 or actual <= 0:
        return factor
    step = _LEARNING_RATE * (math.log(actual) - math.log(estimated))
    return min(max(factor * math.exp(step), _FACTOR_MIN), _FACTOR_MAX)
