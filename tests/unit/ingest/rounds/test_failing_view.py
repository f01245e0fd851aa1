"""A view that fails: how rounds are done again, which messages are found, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ingest.decoding import kafka_of
from tilth.ingest import ViewError, read_config
from tilth.ingest.batch import Numbers
from tilth.ingest.errors import ViewFailedError
from tilth.ingest.policy.evaluation import (
    CLEAN_ROUNDS_MIN,
    KERNELS,
    UNFIT_ROUNDS_MAX,
    UNFIT_ROUNDS_MIN,
    CompiledViews,
    Evaluation,
    FailingViews,
)
from tilth.ingest.rounds.failing_view import TRIALS_MAX, run_failing_view, search
from tilth.ingest.rounds.keep import NO_NUMBERS
from tilth.ingest.rounds.round import Culprit, RoundJob
from tilth.ingest.rounds.write import Written
from tilth.ingest.views.plans import SqlPlan
from tilth.model.offset import OffsetRange
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple
from tilth.storage import TableLayout, local_folder
from tilth.testing import ManualClock

VIEW = "db.v"


# Evaluation of a round


def test_more_and_more_care_is_taken_until_there_is_one_message() -> None:
    failing = FailingViews()
    assert failing.evaluations == {}
    assert failing.record_failure(VIEW, messages=1000)
    assert failing.evaluations == {VIEW: Evaluation.GUARDED}
    assert failing.bounded(1000) == 1000
    assert failing.record_failure(VIEW, messages=1000)
    assert failing.evaluations == {VIEW: Evaluation.SEARCHED}
    for wanted in (500, 250, 125, 62, 31, 15, 7, 3, 1):
        assert failing.record_failure(VIEW, messages=failing.bounded(1000))
        assert failing.bounded(1000) == wanted
    assert not failing.record_failure(VIEW, messages=1)


def test_trust_comes_back_step_by_step() -> None:
    failing = FailingViews()
    for _ in range(4):
        failing.record_failure(VIEW, messages=failing.bounded(1000))
    assert failing.bounded(1000) == 250
    for size in (250, 500):
        for _ in range(CLEAN_ROUNDS_MIN):
            assert failing.bounded(1000) == size
            failing.record_commit(refusing=[])
    assert failing.bounded(1000) == 1000
    assert failing.evaluations == {VIEW: Evaluation.SEARCHED}
    for _ in range(CLEAN_ROUNDS_MIN):
        failing.record_commit(refusing=[])
    assert failing.evaluations == {}


def test_care_lasts_while_messages_are_refused_and_other_views_do_not_matter() -> None:
    failing = FailingViews()
    failing.record_failure(VIEW, messages=10)
    for _ in range(CLEAN_ROUNDS_MIN - 1):
        failing.record_commit(refusing=["db.other"])
    failing.record_commit(refusing=[VIEW])
    for _ in range(CLEAN_ROUNDS_MIN - 1):
        failing.record_commit(refusing=[])
    assert failing.evaluations == {VIEW: Evaluation.GUARDED}
    failing.record_commit(refusing=[])
    assert failing.evaluations == {}


# Searching


@given(st.integers(1, 5000), st.data())
def test_a_search_names_exactly_the_messages_that_fail_alone(total: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, total - 1), min_size=1, max_size=4))
    trials = 0

    def fails(start: int, end: int) -> str | None:
        nonlocal trials
        trials += 1
        first = next((number for number in range(start, end) if number in bad), None)
        return None if first is None else f"message {first}"

    found = search(ManualClock(), fails, total=total, why="all")
    assert trials <= TRIALS_MAX
    assert found == {number: "all" if total == 1 else f"message {number}" for number in sorted(bad)}


def test_a_search_gives_up_where_messages_fail_only_together() -> None:
    assert search(ManualClock(), lambda start, end: "sum" if end - start > 60 else None, total=100, why="sum") is None


def test_a_search_is_bounded_in_trials_and_in_time() -> None:
    clock, trials = ManualClock(), 0

    def fails(start: int, end: int) -> str:
        nonlocal trials
        trials += 1
        return "always"

    assert search(clock, fails, total=1_000_000, why="always") is None
    assert trials <= TRIALS_MAX
    trials = 0

    def slow(start: int, end: int) -> str:
        clock.advance(20)
        return fails(start, end)

    assert search(clock, slow, total=1_000_000, why="always") is None
    assert trials == 2


# The order of trials

LAYOUT = TableLayout(
    folder=local_folder("/nowhere"), schema=Schema(columns=(Column(id=1, name="v", type=Simple(Kind.INT64)),))
)
PLAN = SqlPlan(view=VIEW, target="t", text="", projection=(), needed=("a",))


def job(care: Evaluation, total: int = 100) -> RoundJob:
    kafka = kafka_of({"a": Kind.INT64})
    return RoundJob(
        config=read_config(kafka),
        schema=kafka.schema,
        name="k",
        defaults={},
        plans=(PLAN,),
        layouts={"t": LAYOUT},
        dead_letters=None,
        txn=1,
        splits=((OffsetRange(topic="t", partition=0, start=1000, end=1000 + total),),),
        failing={VIEW: care},
    )


@dataclass
class FakeTrials:
    """A view that fails on some messages, of which probes see some."""

    bad: set[int]
    #: Seen before rows are made, and seen in rows; None: rows are not made of one message each.
    before: set[int] = field(default_factory=set)
    guarded: set[int] | None = None
    #: `True`: it fails whatever the messages.
    is_hopeless: bool = False
    #: Number of messages from which on it fails, whatever they are.
    together: int = 1 << 60
    #: Number of messages whose reason is found, at most.
    reasons_max: int = 3
    written: list[set[int]] = field(default_factory=list)

    def find_failing(self) -> list[Culprit]:
        return [Culprit(number=number, step=-1) for number in sorted(self.before)]

    def find_reasons(self, found: Sequence[Culprit]) -> dict[int, str]:
        return {each.number: f"why {each.number}" for each in found[: self.reasons_max]}

    def check(self, *, numbers: range | None = None, excluded: Numbers = NO_NUMBERS) -> str | None:
        given = set(range(100) if numbers is None else numbers) - set(excluded.tolist())
        if self.is_hopeless or len(given) >= self.together:
            return "hopeless"
        failing = sorted(given & self.bad)
        return f"fails on {failing[0]}" if failing else None

    def write_guarded(self, *, excluded: Numbers) -> Written | None:
        if self.guarded is None:
            return None
        assert set(excluded.tolist()) == self.before
        self.written.append(self.before | self.guarded)
        return Written(culprits=tuple(Culprit(number=number, step=1) for number in sorted(self.guarded)))

    def write(self, *, excluded: Numbers) -> Written:
        if self.check(excluded=excluded):
            raise ViewFailedError.of({VIEW: "written"})
        self.written.append(set(excluded.tolist()))
        return Written()


def run(trials: FakeTrials, care: Evaluation) -> dict[int, str]:
    written = run_failing_view(ManualClock(), trials, job(care), PLAN)
    return {each.number: each.reason for each in written.culprits}


def test_rows_of_one_message_are_guarded_and_nothing_is_searched() -> None:
    trials = FakeTrials(bad={3, 7}, guarded={3, 7})
    assert run(trials, Evaluation.GUARDED) == {3: "column `v`: why 3", 7: "column `v`: why 7"}
    assert trials.written == [{3, 7}]


def test_others_are_searched_and_what_probes_see_needs_no_search() -> None:
    trials = FakeTrials(bad={1, 3, 50}, before={1, 3})
    assert run(trials, Evaluation.GUARDED) == {1: "why 1", 3: "why 3", 50: "fails on 50"}
    assert trials.written == [{1, 3, 50}]


def test_a_second_failure_is_searched_whatever_the_rows_are_made_of() -> None:
    trials = FakeTrials(bad={9}, guarded=set())
    assert run(trials, Evaluation.SEARCHED) == {9: "fails on 9"}
    assert trials.written == [{9}]


def test_nothing_is_left_out_where_nothing_fails() -> None:
    trials = FakeTrials(bad=set())
    assert run(trials, Evaluation.SEARCHED) == {}
    assert trials.written == [set()]


def test_messages_without_a_reason_of_their_own_are_told_by_one_of_the_same_step() -> None:
    trials = FakeTrials(bad=set(), guarded={4, 5, 6, 7})
    reasons = run(trials, Evaluation.GUARDED)
    assert reasons[6] == "column `v`: why 6"
    assert reasons[7] == "column `v`: it cannot be computed, like that of t/0@1004: why 4"


def test_no_message_is_blamed_for_what_fails_only_together_or_on_nothing() -> None:
    with pytest.raises(ViewFailedError) as together:
        run(FakeTrials(bad=set(), together=80), Evaluation.SEARCHED)
    assert together.value.facts == {VIEW: "hopeless"}
    with pytest.raises(ViewError, match="whatever the messages say"):
        run(FakeTrials(bad=set(), is_hopeless=True), Evaluation.SEARCHED)


# Views with kernels


def test_a_view_with_unfit_rows_is_left_to_spark_for_longer_each_time() -> None:
    views = CompiledViews({VIEW: "", "db.other": "rand has no kernel"})
    assert views.choices(()) == {VIEW: KERNELS, "db.other": "Spark: rand has no kernel"}
    assert views.choices([VIEW])[VIEW] == "Spark: it has failed lately"
    rounds = []
    for _ in range(14):
        views.record_unfit(VIEW, "NaN")
        assert views.choices(())[VIEW].startswith("Spark: its rows had NaN; kernels again after ")
        rounds.append(0)
        while views.choices(())[VIEW] != KERNELS:
            views.record_commit()
            rounds[-1] += 1
    assert rounds[:3] == [UNFIT_ROUNDS_MIN, 2 * UNFIT_ROUNDS_MIN, 4 * UNFIT_ROUNDS_MIN]
    assert rounds[-1] == UNFIT_ROUNDS_MAX
    for _ in range(2 * UNFIT_ROUNDS_MAX):
        views.record_commit()
    assert views.record_unfit(VIEW, "NaN") == UNFIT_ROUNDS_MIN
