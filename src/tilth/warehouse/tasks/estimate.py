"""Estimates of the cost of tasks: first guesses by kind, corrected by measurements. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilth.model.task import Cost, TaskKind

#: Weight of one measurement in the correction: 0 not at all, 1 all the way.
_LEARNING_RATE = 0.2
#: A correction stays within these; one odd task must not spoil the estimates of a day.
_FACTOR_MIN = 1 / 64
_FACTOR_MAX = 64.0
#: Measurements of shorter tasks are mostly noise.
_LEARN_SECONDS_MIN = 0.05


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
        guess, known = kind.traits, self.corrections.get(kind, Correction())
        return Cost(
            input_bytes=input_bytes,
            output_bytes=int(input_bytes * guess.output * known.output),
            memory_bytes=int(min(input_bytes * guess.memory, guess.memory_max) * known.memory),
            temporary_bytes=int(input_bytes * _temporary(kind, known)),
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
    return kind.traits.temporary if known.temporary is None else known.temporary


def _mean(known: float | None, *, before: float, estimated: Cost, actual: Cost) -> float | None:
    """Return the arithmetic mean: most statements keep nothing on disk, and zero has no logarithm."""
    if actual.temporary_bytes is None or estimated.input_bytes <= 0:
        return known
    return before + _LEARNING_RATE * (actual.temporary_bytes / estimated.input_bytes - before)


def _moved(factor: float, *, estimated: float, actual: float) -> float:
    if estimated <= 0 or actual <= 0:
        return factor
    step = _LEARNING_RATE * (math.log(actual) - math.log(estimated))
    return min(max(factor * math.exp(step), _FACTOR_MIN), _FACTOR_MAX)
