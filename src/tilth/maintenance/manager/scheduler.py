"""Choose the next maintenance op. Pure: statistics in, choice and its reason out.

Covers: the order of choice, the band of memory pressure, priorities, turns among tables. Does not cover: gathering the
statistics, running ops (manager.py).
Always holds: ops are weighed in the order of their names and ties go to the first; random draws are made in a fixed
order: one for pressure, only inside its band; then one for data, only if an op with a gain competes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilth.base.rand import Rng
from tilth.base.units import MIB
from tilth.maintenance.op import Choice, ChoiceRule, IoUsage, OpStats, OpView
from tilth.maintenance.settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes in use, and the limit; none is no limit."""

    consumption: int = 0
    hard_limit: int | None = None

    @property
    def percent(self) -> float:
        return self.consumption * 100 / self.hard_limit if self.hard_limit else 0.0


@dataclass(slots=True)
class _Best:
    """The leaders of the five races."""

    log: tuple[int, OpView] | None = None
    #: Leaders among the ops that free log or memory, and among those that free memory.
    replay: tuple[tuple[int, int], OpView] | None = None
    memory: tuple[tuple[int, int], OpView] | None = None
    data: tuple[int, OpView] | None = None
    gain: tuple[float, OpView] | None = None


def choose(
    ops: Iterable[OpView],
    *,
    free_workers: int,
    memory: MemoryUse,
    settings: SchedulerSettings,
    rng: Rng,
    last_served: Mapping[str, int] | None = None,
) -> Choice:
    """The op to run next, or none, with the reason. docs/policies/scheduling.md#choice.

    `last_served` numbers the choices by table, so that tables whose gains are about equal take turns.
    """
    if free_workers <= 0:
        return Choice(op_name=None, rule=ChoiceRule.NO_FREE_WORKER, reason="no free threads")
    runnable = [
        (op, op.stats)
        for op in sorted(ops, key=lambda op: op.name.encode())
        if op.stats is not None and op.stats.is_runnable and not op.is_cancelled
    ]
    best = _lead(runnable, settings)
    if best.log:
        freed, op = best.log
        return _choice(op, ChoiceRule.FREE_LOG, f"free {freed} bytes of WAL")
    is_pressed = is_flush_due(memory, settings=settings, rng=rng)
    if best.memory and is_pressed:
        (logs, ram), op = best.memory
        text = f"{logs} bytes log retention, and flush {ram} bytes memory"
        return _choice(op, ChoiceRule.MEMORY_PRESSURE, f"under memory pressure ({memory.percent:.2f}% used), {text}")
    if best.replay and best.replay[0][0] // MIB >= settings.log_target_replay_size_mb:
        (logs, ram), op = best.replay
        return _choice(op, ChoiceRule.REPLAY_SIZE, f"{logs} bytes log retention, and flush {ram} bytes memory")
    has_gain = best.gain is not None and best.gain[0] > 0
    if best.data and best.data[0] > settings.data_gc_min_size_mb * MIB:
        freed, op = best.data
        if not has_gain or rng.random() <= settings.data_gc_prioritization_prob:
            return _choice(op, ChoiceRule.FREE_DATA, f"{freed} bytes on disk")
    if best.gain is not None and has_gain:
        score, op = _in_turn(runnable, best.gain, settings, last_served or {})
        return _choice(op, ChoiceRule.READ_GAIN, f"perf score={score:.6f}", score)
    return Choice(op_name=None, rule=ChoiceRule.NOTHING_TO_GAIN, reason="no ops with positive improvement")


def passed_over(
    ops: Iterable[OpView], choice: Choice, settings: SchedulerSettings, *, count: int = 3
) -> list[tuple[str, float]]:
    """Return the ops that could have run beside the one that was chosen, those with the best scores first."""
    others = (
        (adjusted_score(op.stats, settings), op.name)
        for op in ops
        if op.name != choice.op_name and op.stats is not None and op.stats.is_runnable
    )
    return [(name, score) for score, name in heapq.nsmallest(count, others, key=lambda each: (-each[0], each[1]))]


def adjusted_score(stats: OpStats, settings: SchedulerSettings) -> float:
    """Return the gain with workload and priority; 0 stays 0."""
    if stats.perf_improvement == 0:
        return 0.0
    steps = max(-settings.max_priority_range, min(stats.priority, settings.max_priority_range))
    gain = stats.perf_improvement + stats.workload_score
    return float(gain * settings.maintenance_op_multiplier**steps)


def is_flush_due(memory: MemoryUse, *, settings: SchedulerSettings, rng: Rng) -> bool:
    """Choose whether ops that free memory go first: never below the band, always above, by chance inside.

    docs/policies/scheduling.md#memory-pressure.
    """
    if memory.hard_limit is None or memory.percent < settings.memory_pressure_percentage:
        return False
    band = settings.memory_limit_soft_percentage - settings.memory_pressure_percentage
    below_soft = settings.memory_limit_soft_percentage - memory.percent
    if band <= 0 or below_soft <= 0:
        return True
    return rng.random() * band >= settings.run_non_memory_ops_prob * below_soft


def _lead(runnable: Sequence[tuple[OpView, OpStats]], settings: SchedulerSettings) -> _Best:
    best = _Best()
    for op, stats in runnable:
        logs = stats.logs_retained_bytes
        if stats.io is IoUsage.LOW and logs > (best.log[0] if best.log else 0):
            best.log = (logs, op)
        pair = (logs, stats.ram_anchored_bytes)
        if pair > (best.replay[0] if best.replay else (0, 0)):
            best.replay = (pair, op)
        if pair[1] and pair > (best.memory[0] if best.memory else (0, 0)):
            best.memory = (pair, op)
        if stats.data_retained_bytes > (best.data[0] if best.data else 0):
            best.data = (stats.data_retained_bytes, op)
        score = adjusted_score(stats, settings)
        if best.gain is None or score > best.gain[0]:
            best.gain = (score, op)
    return best


def _in_turn(
    runnable: Sequence[tuple[OpView, OpStats]],
    best: tuple[float, OpView],
    settings: SchedulerSettings,
    last_served: Mapping[str, int],
) -> tuple[float, OpView]:
    """Return the op of the table served longest ago, of those less than one step of priority below the best score."""
    # The hair keeps an op exactly one step below out of the band, whatever the rounding.
    floor = best[0] / settings.maintenance_op_multiplier * (1 + 1e-9)
    turn = (last_served.get(best[1].table, -1), -best[0])
    for op, stats in runnable:
        score = adjusted_score(stats, settings)
        if score > floor and (last_served.get(op.table, -1), -score) < turn:
            turn = (last_served.get(op.table, -1), -score)
            best = (score, op)
    return best


def _choice(op: OpView, rule: ChoiceRule, reason: str, score: float = 0.0) -> Choice:
    return Choice(op_name=op.name, rule=rule, reason=reason, score=score)
