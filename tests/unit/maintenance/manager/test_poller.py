"""Which tables a turn looks at: those that were woken or are due, each once, and no others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest

from tilth.maintenance.kinds import OpKind, OpStats
from tilth.maintenance.manager import poller
from tilth.maintenance.manager.poller import Poller
from tilth.maintenance.manager.ranking import by_score
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.settings import SchedulerSettings, WorkloadSettings
from tilth.maintenance.state import NEVER_MS, Failure
from tilth.maintenance.table.watch import TableWatch
from tilth.model.service import ServiceKind
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.testing.clock import ManualClock

SCHEMA = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))


@dataclass(eq=False)
class CountedOp:
    """Counts how often it is asked."""

    name: str
    due_ms: int = NEVER_MS
    asked: int = 0
    kind: OpKind = OpKind.MERGE
    service: ServiceKind = ServiceKind.MERGE
    error: Exception | None = None
    has_unknown: bool = False
    observed: OpStats | None = None
    poll_failure: Failure | None = None
    says: OpStats = field(default_factory=lambda: OpStats.idle("nothing"))

    def stats(self) -> OpStats:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.says


@dataclass
class Tables:
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.tables: dict[str, TableOps] = {}
        self.ops: dict[str, CountedOp] = {}
        self.woken: deque[str] = deque()
        self.poller = Poller(self.clock, WorkloadSettings(), SchedulerSettings(), self.tables.get, self.woken)

    def add(self, uuid: str, due_ms: int = NEVER_MS) -> CountedOp:
        watch = TableWatch(TableDef(uuid=uuid, database="d", name=uuid, schema=SCHEMA))
        op = self.ops[uuid] = CountedOp(uuid, due_ms)
        self.tables[uuid] = TableOps(watch, (op,))  # type: ignore[arg-type]  # what a look needs of an op
        watch.woken = self.woken.append
        self.woken.append(uuid)
        return op

    def poll(self) -> dict[str, int]:
        """How often each was asked in one turn, those that were."""
        before = {uuid: op.asked for uuid, op in self.ops.items()}
        self.poller.poll()
        return {uuid: op.asked - before[uuid] for uuid, op in self.ops.items() if op.asked > before[uuid]}


def test_a_turn_looks_at_what_is_new_woken_or_due_and_at_nothing_else() -> None:
    tables = Tables()
    now_ms = tables.clock.now_ms()
    for uuid in "abcdef":
        tables.add(uuid)
    tables.ops["c"].due_ms = now_ms + 500
    assert tables.poll() == dict.fromkeys("abcdef", 1)
    assert tables.poll() == {}
    tables.tables["b"].watch.is_woken = True
    tables.tables["b"].watch.is_woken = True
    assert tables.poll() == {"b": 1}
    tables.clock.advance(0.6)
    tables.ops["c"].due_ms = NEVER_MS
    assert tables.poll() == {"c": 1}
    tables.clock.advance(100_000)
    assert tables.poll() == {}


def test_what_is_due_at_once_again_is_looked_at_once_in_a_turn_and_no_time_is_kept_twice_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller, "TIMES_MIN", 4)
    tables = Tables()
    tables.add("a", due_ms=0)
    other = tables.add("b")
    for turn in range(1, 200):
        other.due_ms = tables.clock.now_ms() + 3_600_000
        tables.tables["b"].watch.is_woken = True
        assert tables.poll() == {"a": 1, "b": 1}
        assert other.asked == turn
        tables.clock.advance(1)
    assert len(tables.poller._due) < 20
    tables.clock.advance(3_600)
    assert tables.poll() == {"a": 1, "b": 1}


def test_a_table_that_cannot_be_looked_at_waits_behind_the_others_and_is_not_lost() -> None:
    tables = Tables()
    bad = tables.add("a")
    bad.error = ValueError("a defect")
    tables.add("b")
    with pytest.raises(ValueError, match="a defect"):
        tables.poll()
    with pytest.raises(ValueError, match="a defect"):
        tables.poll()
    assert tables.ops["b"].asked == 1
    bad.error = None
    assert tables.poll() == {"a": 1}


def test_a_table_that_is_gone_is_forgotten_and_a_clock_put_back_loses_none() -> None:
    tables = Tables()
    now_ms = tables.clock.now_ms()
    tables.add("a", due_ms=now_ms + 1_000)
    tables.add("b", due_ms=now_ms + 1_000)
    tables.poll()
    tables.poller.forget(tables.tables.pop("b"))
    tables.clock.advance(1)
    tables.poller._gather(tables.clock.now_ms())
    tables.tables["a"].watch.due_ms += 5_000
    assert tables.poll() == {}
    tables.clock.advance(5)
    assert tables.poll() == {"a": 1}


RUNNABLE = OpStats(is_runnable=True, perf_improvement=1.0)


def _names(tables: Tables) -> list[str]:
    return sorted(op.name for ranking in tables.poller.rankings(with_rewrites=True) for _, op in by_score([ranking]))


def test_an_op_that_could_run_is_there_until_it_cannot_or_its_table_is_gone() -> None:
    tables = Tables()
    for uuid in "abc":
        tables.add(uuid).says = RUNNABLE
    tables.poll()
    assert _names(tables) == ["a", "b", "c"]
    assert not len(tables.poller.rankings(with_rewrites=False)[0])
    tables.ops["a"].says = OpStats.idle("nothing")
    tables.tables["a"].watch.is_woken = True
    tables.poll()
    tables.poller.forget(tables.tables.pop("b"))
    assert _names(tables) == ["c"]


def test_tables_that_take_each_others_names_keep_their_ops() -> None:
    tables = Tables()
    for uuid in "ab":
        tables.add(uuid).says = RUNNABLE
    tables.poll()
    # `a` has got the name of `b`, which is polled later.
    tables.ops["a"].name = "b"
    tables.tables["a"].watch.is_woken = True
    tables.poll()
    assert _names(tables) == ["b"]
    found: object = tables.poller.found("b")
    assert found is tables.ops["a"]
    tables.poller.forget(tables.tables.pop("b"))
    assert _names(tables) == ["b"]
    tables.poller.forget(tables.tables.pop("a"))
    assert _names(tables) == []


def test_the_more_tables_could_run_the_less_often_each_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_AGAIN_MS_PER_TABLE", 1_000)
    tables = Tables()
    for uuid in "abcd":
        tables.add(uuid).says = RUNNABLE
    other = CountedOp("other", due_ms=tables.clock.now_ms() + 2_500)
    watch = tables.tables["d"].watch
    tables.tables["d"] = TableOps(watch, (tables.ops["d"], other))  # type: ignore[arg-type]  # as above
    tables.poll()
    polled = []
    for _ in range(6):
        tables.clock.advance(0.5)
        polled.append("".join(tables.poll()))
    # The due time of another op of the table is kept.
    assert polled == ["", "a", "", "b", "d", "c"]
