"""The choice from orders that are kept is the choice from all ops sorted anew: docs/policies/scheduling.md#choice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilth.base.memory import MemoryReading
from tilth.base.rand import new_rng
from tilth.base.units import MIB
from tilth.maintenance.kinds import Choice, ChoiceRule, IoUsage, OpStats, OpView
from tilth.maintenance.manager.ranking import Ranking, adjusted_score
from tilth.maintenance.manager.scheduler import choose, is_flush_due, passed_over
from tilth.maintenance.settings import SchedulerSettings

SETTINGS = SchedulerSettings(log_target_replay_size_mb=1)
#: Few values, so that many ops are equal; names in which bytes and characters have their own orders.
NAMES = [
    "MERGE(d.a)",
    "MERGE(d.b)",
    "MERGE(d.é)",
    "FLUSH(d.a)",
    "FLUSH(d.\U0001f600)",
    "PART_GC(d.\ufffd)",
    "LOG_GC(d.b)",
]
STATS = st.builds(
    OpStats,
    is_runnable=st.booleans(),
    io=st.sampled_from(IoUsage),
    ram_anchored_bytes=st.sampled_from([0, 1, 2]),
    logs_retained_bytes=st.sampled_from([0, 0, 0, 1, MIB]),
    data_retained_bytes=st.sampled_from([0, 0, 1, 2]),
    perf_improvement=st.sampled_from([-1.0, 0.0, 0.5, 0.52, 1.0]),
    workload_score=st.sampled_from([0.0, 0.02]),
    priority=st.sampled_from([-9, 0, 1]),
)
CHANGES = st.lists(st.tuples(st.sampled_from(NAMES), st.none() | STATS), max_size=20)


def chosen(ops: list[OpView], memory: MemoryReading, served: dict[str, int], seed: int) -> Choice:
    """The rules, word for word, over ops in the order of their names."""
    rng = new_rng(seed)
    ops = sorted((op for op in ops if op.stats.is_runnable), key=lambda op: op.name.encode())
    low = [op for op in ops if op.stats.io is IoUsage.LOW and op.stats.logs_retained_bytes > 0]
    if low:
        return _choice(max(low, key=lambda op: op.stats.logs_retained_bytes), ChoiceRule.FREE_LOG)
    is_pressed = is_flush_due(memory, settings=SETTINGS, rng=rng)
    retained = [op for op in ops if _retained(op) > (0, 0)]
    freeing = [op for op in retained if op.stats.ram_anchored_bytes > 0]
    if is_pressed and freeing:
        return _choice(max(freeing, key=_retained), ChoiceRule.MEMORY_PRESSURE)
    if retained and max(retained, key=_retained).stats.logs_retained_bytes >= MIB:
        return _choice(max(retained, key=_retained), ChoiceRule.REPLAY_SIZE)
    best = max(ops, key=_score, default=None)
    gain = best if best is not None and _score(best) > 0 else None
    data = [op for op in ops if op.stats.data_retained_bytes > 0]
    if data and (gain is None or rng.random() <= SETTINGS.data_gc_prioritization_prob):
        return _choice(max(data, key=lambda op: op.stats.data_retained_bytes), ChoiceRule.FREE_DATA)
    if gain is None:
        return Choice(op_name=None, rule=ChoiceRule.NOTHING_TO_GAIN, reason="")
    band = [op for op in ops if _score(op) > _score(gain) / 1.1 * (1 + 1e-9)]
    op = min((gain, *band), key=lambda op: (served.get(op.table, -1), -_score(op)))
    return _choice(op, ChoiceRule.READ_GAIN, _score(op))


def _score(op: OpView) -> float:
    return adjusted_score(op.stats, SETTINGS)


def _retained(op: OpView) -> tuple[int, int]:
    return op.stats.logs_retained_bytes, op.stats.ram_anchored_bytes


def _choice(op: OpView, rule: ChoiceRule, score: float = 0.0) -> Choice:
    return Choice(op_name=op.name, rule=rule, reason="", score=score)


@given(
    changes=CHANGES,
    used=st.sampled_from([10, 65, 90]),
    served=st.dictionaries(st.sampled_from(["a", "b", "é", "\U0001f600"]), st.integers(0, 3)),
    seed=st.integers(0, 5),
)
def test_orders_that_are_kept_choose_as_ops_that_are_sorted_anew(
    changes: list[tuple[str, OpStats | None]], used: int, served: dict[str, int], seed: int
) -> None:
    rankings = [Ranking(SETTINGS), Ranking(SETTINGS)]
    there: dict[str, OpView] = {}
    for name, stats in changes:
        ranking = rankings[name.startswith("MERGE")]
        if stats is None:
            ranking.drop(name)
            there.pop(name, None)
        else:
            there[name] = OpView(name=name, table=name[name.index(".") + 1 : -1], stats=stats)
            ranking.put(there[name])
        memory = MemoryReading(used=used, hard=100)
        choice = choose(
            rankings, free_workers=1, memory=memory, settings=SETTINGS, rng=new_rng(seed), last_served=served
        )
        expected = chosen(list(there.values()), memory, served, seed)
        assert (choice.op_name, choice.rule, choice.score) == (expected.op_name, expected.rule, expected.score)
        runnable = [op for op in there.values() if op.stats.is_runnable]
        assert sum(map(len, rankings)) == len(runnable)
        others = sorted((-_score(op), op.name) for op in runnable if op.name != choice.op_name)
        assert passed_over(rankings, choice) == [(name, -score) for score, name in others[:3]]
