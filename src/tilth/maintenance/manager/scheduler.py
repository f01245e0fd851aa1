"""Choose the next maintenance op. Pure: statistics in, choice and its reason out.

Covers: the order of choice, the band of memory pressure, turns among tables. Does not cover: scores and the orders of
ops (ranking.py), gathering the statistics (poller.py), running ops (manager.py).
Always holds: ops are weighed in the order of their names and ties go to the first; random draws are made in a fixed
order: one for pressure, only inside its band; then one for data, only if an op with a gain competes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from tilth.base.memory import MemoryReading
from tilth.base.rand import Rng
from tilth.base.units import MIB
from tilth.maintenance.kinds import Choice, ChoiceRule, OpView
from tilth.maintenance.manager.ranking import Order, Ranking, adjusted_score, by_score, first
from tilth.maintenance.settings import SchedulerSettings

#: Number of the last choice of a table that was never served.
_NEVER = -1


def choose(
    rankings: Sequence[Ranking],
    *,
    free_workers: int,
    memory: MemoryReading,
    settings: SchedulerSettings,
    rng: Rng,
    last_served: Mapping[str, int] | None = None,
) -> Choice:
    """The op to run next, or none, with the reason. docs/policies/scheduling.md#choice.

    `rankings` have the ops that could run; `last_served` numbers the choices by table, so that tables whose gains are
    about equal take turns.
    """
    if free_workers <= 0:
        return Choice(op_name=None, rule=ChoiceRule.NO_FREE_WORKER, reason="no free threads")
    freeing = first(rankings, Order.LOG)
    if freeing is not None:
        return _choice(freeing, ChoiceRule.FREE_LOG, f"free {freeing.stats.logs_retained_bytes} bytes of WAL")
    is_pressed = is_flush_due(memory, settings=settings, rng=rng)
    flush = first(rankings, Order.MEMORY)
    if flush is not None and is_pressed:
        text = f"under memory pressure ({memory.percent:.2f}% used), {_retention(flush)}"
        return _choice(flush, ChoiceRule.MEMORY_PRESSURE, text)
    replayed = first(rankings, Order.RETAINED)
    if replayed is not None and replayed.stats.logs_retained_bytes // MIB >= settings.log_target_replay_size_mb:
        return _choice(replayed, ChoiceRule.REPLAY_SIZE, _retention(replayed))
    best = first(rankings, Order.SCORE)
    gain = best if best is not None and adjusted_score(best.stats, settings) > 0 else None
    data = first(rankings, Order.DATA)
    if data is not None and data.stats.data_retained_bytes <= max(0, settings.data_gc_min_size_mb * MIB):
        data = None
    if data is not None and (gain is None or rng.random() <= settings.data_gc_prioritization_prob):
        return _choice(data, ChoiceRule.FREE_DATA, f"{data.stats.data_retained_bytes} bytes on disk")
    if gain is not None:
        op, score = _in_turn(rankings, settings, last_served or {})
        return _choice(op, ChoiceRule.READ_GAIN, f"perf score={score:.6f}", score)
    return Choice(op_name=None, rule=ChoiceRule.NOTHING_TO_GAIN, reason="no ops with positive improvement")


def passed_over(rankings: Sequence[Ranking], choice: Choice, *, count: int = 3) -> list[tuple[str, float]]:
    """Return the ops that could have run beside the one that was chosen, those with the best scores first."""
    others = ((op.name, score) for score, op in by_score(rankings) if op.name != choice.op_name)
    return list(islice(others, count))


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


def _retention(op: OpView) -> str:
    return f"{op.stats.logs_retained_bytes} bytes log retention, and flush {op.stats.ram_anchored_bytes} bytes memory"


def _in_turn(
    rankings: Sequence[Ranking], settings: SchedulerSettings, last_served: Mapping[str, int]
) -> tuple[OpView, float]:
    """Return the op of the table served longest ago, of those less than one step of priority below the best score, and
    its score.
    """
    scored = by_score(rankings)
    score, op = next(scored)
    # The hair keeps an op exactly one step below out of the band, whatever the rounding.
    floor = score / settings.maintenance_op_multiplier * (1 + 1e-9)
    served = last_served.get(op.table, _NEVER)
    for other_score, other in scored:
        # The first table that was never served has the best score of those.
        if served == _NEVER or other_score <= floor:
            break
        if (other_served := last_served.get(other.table, _NEVER)) < served:
            op, score, served = other, other_score, other_served
    return op, score


def _choice(op: OpView, rule: ChoiceRule, reason: str, score: float = 0.0) -> Choice:
    return Choice(op_name=op.name, rule=rule, reason=reason, score=score)
