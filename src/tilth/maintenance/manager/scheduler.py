"""Choose the next maintenance op. Pure: statistics in, choice and its reason out.

Covers: the order of choice, the band of memory pressure, priorities, turns among tables. Does not cover: gathering the
statistics, running ops (manager.py).
Always holds: ops are weighed in the order of their names and ties go to the first; random draws are made in a fixed
order: one for pressure, only inside its band; then one for data, only if an op with a gain competes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tilth.base.memory import MemoryReading
from tilth.base.rand import Rng
from tilth.base.units import MIB
from tilth.maintenance.kinds import Choice, ChoiceRule, IoUsage, OpStats, OpView
from tilth.maintenance.settings import SchedulerSettings

KeyT = TypeVar("KeyT", int, float, tuple[int, int])


def choose(
    ops: Iterable[OpView],
    *,
    free_workers: int,
    memory: MemoryReading,
    settings: SchedulerSettings,
    rng: Rng,
    last_served: Mapping[str, int] | None = None,
) -> Choice:
    """The op to run next, or none, with the reason. docs/policies/scheduling.md#choice.

    `last_served` numbers the choices by table, so that tables whose gains are about equal take turns.
    """
    if free_workers <= 0:
        return Choice(op_name=None, rule=ChoiceRule.NO_FREE_WORKER, reason="no free threads")
    runnable = [op for op in sorted(ops, key=lambda op: op.name.encode()) if op.stats.is_runnable]
    freeing = _first(runnable, lambda op: op.stats.logs_retained_bytes if op.stats.io is IoUsage.LOW else 0, above=0)
    if freeing is not None:
        return _choice(freeing, ChoiceRule.FREE_LOG, f"free {freeing.stats.logs_retained_bytes} bytes of WAL")
    is_pressed = is_flush_due(memory, settings=settings, rng=rng)
    flush = _first((op for op in runnable if op.stats.ram_anchored_bytes), _retained, above=(0, 0))
    if flush is not None and is_pressed:
        text = f"under memory pressure ({memory.percent:.2f}% used), {_retention(flush)}"
        return _choice(flush, ChoiceRule.MEMORY_PRESSURE, text)
    replayed = _first(runnable, _retained, above=(0, 0))
    if replayed is not None and replayed.stats.logs_retained_bytes // MIB >= settings.log_target_replay_size_mb:
        return _choice(replayed, ChoiceRule.REPLAY_SIZE, _retention(replayed))
    gain = _first(runnable, lambda op: adjusted_score(op.stats, settings), above=0.0)
    data = _first(runnable, lambda op: op.stats.data_retained_bytes, above=max(0, settings.data_gc_min_size_mb * MIB))
    if data is not None and (gain is None or rng.random() <= settings.data_gc_prioritization_prob):
        return _choice(data, ChoiceRule.FREE_DATA, f"{data.stats.data_retained_bytes} bytes on disk")
    if gain is not None:
        op = _in_turn(runnable, gain, settings, last_served or {})
        score = adjusted_score(op.stats, settings)
        return _choice(op, ChoiceRule.READ_GAIN, f"perf score={score:.6f}", score)
    return Choice(op_name=None, rule=ChoiceRule.NOTHING_TO_GAIN, reason="no ops with positive improvement")


def passed_over(
    ops: Iterable[OpView], choice: Choice, settings: SchedulerSettings, *, count: int = 3
) -> list[tuple[str, float]]:
    """Return the ops that could have run beside the one that was chosen, those with the best scores first."""
    others = (
        (adjusted_score(op.stats, settings), op.name)
        for op in ops
        if op.name != choice.op_name and op.stats.is_runnable
    )
    return [(name, score) for score, name in heapq.nsmallest(count, others, key=lambda each: (-each[0], each[1]))]


def adjusted_score(stats: OpStats, settings: SchedulerSettings) -> float:
    """Return the gain with workload and priority; 0 stays 0."""
    if stats.perf_improvement == 0:
        return 0.0
    steps = max(-settings.max_priority_range, min(stats.priority, settings.max_priority_range))
    gain = stats.perf_improvement + stats.workload_score
    return float(gain * settings.maintenance_op_multiplier**steps)


def is_flush_due(memory: MemoryReading, *, settings: SchedulerSettings, rng: Rng) -> bool:
    """Choose whether ops that free memory go first: never below the band, always above, by chance inside.

    docs/policies/scheduling.md#memory-pressure.
    """
    if memory.hard is None or memory.percent < settings.memory_pressure_percentage:
        return False
    band = settings.memory_limit_soft_percentage - settings.memory_pressure_percentage
    below_soft = settings.memory_limit_soft_percentage - memory.percent
    if band <= 0 or below_soft <= 0:
        return True
    return rng.random() * band >= settings.run_non_memory_ops_prob * below_soft


def _first(ops: Iterable[OpView], key: Callable[[OpView], KeyT], *, above: KeyT) -> OpView | None:
    """Return the first of those ops that have the most of something, if that is more than so much."""
    best = max(ops, key=key, default=None)
    return best if best is not None and key(best) > above else None


def _retained(op: OpView) -> tuple[int, int]:
    return op.stats.logs_retained_bytes, op.stats.ram_anchored_bytes


def _retention(op: OpView) -> str:
    return f"{op.stats.logs_retained_bytes} bytes log retention, and flush {op.stats.ram_anchored_bytes} bytes memory"


def _in_turn(
    runnable: Sequence[OpView], best: OpView, settings: SchedulerSettings, last_served: Mapping[str, int]
) -> OpView:
    """Return the op of the table served longest ago, of those less than one step of priority below the best score."""
    # The hair keeps an op exactly one step below out of the band, whatever the rounding.
    floor = adjusted_score(best.stats, settings) / settings.maintenance_op_multiplier * (1 + 1e-9)
    in_band = [op for op in runnable if adjusted_score(op.stats, settings) > floor]
    return min((best, *in_band), key=lambda op: (last_served.get(op.table, -1), -adjusted_score(op.stats, settings)))


def _choice(op: OpView, rule: ChoiceRule, reason: str, score: float = 0.0) -> Choice:
    return Choice(op_name=op.name, rule=rule, reason=reason, score=score)
