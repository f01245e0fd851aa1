"""Estimates of the cost of tasks: first guesses by kind, corrected by measurements. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilth.base.units import GIB, MIB
from tilth.model.task import Cost, TaskKind

#: How far one measurement moves the correction: 0 not at all, 1 all the way.
_LEARNING_RATE = 0.2
#: A correction stays within these; one odd task must not spoil the estimates of a day.
_FACTOR_MIN = 1 / 64
_FACTOR_MAX = 64.0
#: Shorter tasks say more about the machine's mood than about their kind.
_LEARN_SECONDS_MIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A kind's first guess, before anything was measured."""

    #: Of every task, however small.
    seconds_min: float
    #: Input bytes per second.
    speed: float
    #: Output bytes per input byte.
    output: float
    #: Memory bytes per input byte, and their ceiling: kernels work in blocks.
    memory: float
    memory_max: int
    #: Temporary bytes per input byte.
    temporary: float = 0.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Measured over guessed, as a running mean of logarithms."""

    seconds: float = 1.0
    output: float = 1.0
    memory: float = 1.0
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
            temporary_bytes=int(input_bytes * guess.temporary),
            seconds=(guess.seconds_min + input_bytes / guess.speed) * known.seconds,
        )

    def learn(self, kind: TaskKind, *, estimated: Cost, actual: Cost) -> Estimator:
        """Correct the next estimates by what was measured; zeros count as not measured."""
        if actual.seconds < _LEARN_SECONDS_MIN:
            return self
        known = self.corrections.get(kind, Correction())
        learnt = replace(
            known,
            seconds=_moved(known.seconds, estimated=estimated.seconds, actual=actual.seconds),
            output=_moved(known.output, estimated=estimated.output_bytes, actual=actual.output_bytes),
            memory=_moved(known.memory, estimated=estimated.memory_bytes, actual=actual.memory_bytes),
            tasks=known.tasks + 1,
        )
        return Estimator({**self.corrections, kind: learnt})


def _moved(factor: float, *, estimated: float, actual: float) -> float:
    if estimated <= 0 or actual <= 0:
        return factor
    step = _LEARNING_RATE * (math.log(actual) - math.log(estimated))
    return min(max(factor * math.exp(step), _FACTOR_MIN), _FACTOR_MAX)
