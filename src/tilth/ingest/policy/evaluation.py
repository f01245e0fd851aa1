"""Evaluation of a view in the rounds after it has failed. Pure.

    trusted --failed--> GUARDED --failed--> SEARCHED --failed--> SEARCHED, half as many messages, down to one
       ^                   |                    |
       +-------- CLEAN_ROUNDS_MIN rounds in a row without a refused message: twice as many, then trusted

Trusted: rows are computed and written as they come; a view that fails spoils the round, which is done again. GUARDED:
where each row of the view is made of one message, a row that cannot be computed is seen and left out with its message;
other views as SEARCHED. SEARCHED: the view is computed without writing first; where it fails, the messages that it
fails on are searched for.

A view that has kernels is computed by them while it is trusted, until it has rows that they do not compute.

Covers: these states, what computes a view, and the size of rounds. Does not cover: finding messages
(rounds/failing_view.py, views/probe.py).
Always holds: a round that was given up is done again in another way, until there is one message and no other way.

Tests: tests/unit/ingest/rounds/test_failing_view.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

#: Number of rounds in a row without a refused message before the next step towards trust.
CLEAN_ROUNDS_MIN = 10
#: Rounds for which Spark computes a view whose kernels were unfit, the first time and at most.
UNFIT_ROUNDS_MIN, UNFIT_ROUNDS_MAX = 8, 4096
#: Choice of a view that Arrow kernels compute.
KERNELS = "kernels"


class Evaluation(IntEnum):
    """Way to evaluate the rows of a view that is not trusted."""

    GUARDED = 1
    SEARCHED = 2


@dataclass(slots=True)
class _Unfit:
    """History of a view whose kernels were unfit."""

    why: str
    #: Rounds by Spark that the last time has cost, and those of them that are left.
    rounds: int
    left: int
    #: Rounds by kernels since then.
    fit: int = 0


class CompiledViews:
    """Views of one consumer that compute, and the choice between kernels and Spark.

    Spark computes a view whose kernels were unfit for UNFIT_ROUNDS_MIN rounds, for twice as many each further time, and
    for half as many again after as many rounds by kernels.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """`reasons`: the reason why a view has no kernels by its name; empty: it has them."""
        self._reasons = reasons
        self._unfit: dict[str, _Unfit] = {}

    def choices(self, failing: Collection[str]) -> dict[str, str]:
        """Return what computes each view now: `KERNELS`, or Spark and the reason."""
        return {view: self._choice(view, failing) for view in self._reasons}

    def _choice(self, view: str, failing: Collection[str]) -> str:
        if self._reasons[view]:
            return f"Spark: {self._reasons[view]}"
        if view in failing:
            return "Spark: it has failed lately"
        unfit = self._unfit.get(view)
        if unfit is not None and unfit.left:
            return f"Spark: its rows had {unfit.why}; kernels again after {unfit.left} rounds"
        return KERNELS

    def record_unfit(self, view: str, why: str) -> int:
        """Record that a round was given up; return for how many rounds Spark computes the view."""
        before = self._unfit.get(view)
        rounds = UNFIT_ROUNDS_MIN if before is None else min(2 * before.rounds, UNFIT_ROUNDS_MAX)
        self._unfit[view] = _Unfit(why, rounds=rounds, left=rounds)
        return rounds

    def record_commit(self) -> None:
        for view, unfit in list(self._unfit.items()):
            if unfit.left:
                unfit.left -= 1
                continue
            unfit.fit += 1
            if unfit.fit < unfit.rounds:
                continue
            unfit.rounds, unfit.fit = unfit.rounds // 2, 0
            if unfit.rounds < UNFIT_ROUNDS_MIN:
                del self._unfit[view]


class FailingViews:
    """The views of one consumer that have failed lately."""

    def __init__(self) -> None:
        self._evaluations: dict[str, Evaluation] = {}
        self._clean_rounds = 0
        self._messages_max: int | None = None

    @property
    def evaluations(self) -> dict[str, Evaluation]:
        """Return the evaluation by view; trusted views are not in it."""
        return dict(self._evaluations)

    def bounded(self, budget: int) -> int:
        """Return how many messages the next round may read, at most `budget`."""
        if self._messages_max is not None and self._messages_max >= budget:
            self._messages_max = None
        return budget if self._messages_max is None else self._messages_max

    def record_failure(self, view: str, *, messages: int) -> bool:
        """Record that a round of so many messages was given up because of a view. Return False if there is no other way
        to evaluate it.
        """
        evaluation = self._evaluations.get(view)
        self._clean_rounds = 0
        if evaluation is not Evaluation.SEARCHED:
            self._evaluations[view] = Evaluation.GUARDED if evaluation is None else Evaluation.SEARCHED
            return True
        if messages <= 1:
            return False
        self._messages_max = messages // 2
        return True

    def record_commit(self, *, refusing: Collection[str]) -> None:
        """Record a committed round; these views have refused messages."""
        is_clean = self._evaluations.keys().isdisjoint(refusing)
        self._clean_rounds = self._clean_rounds + 1 if is_clean else 0
        if self._clean_rounds < CLEAN_ROUNDS_MIN:
            return
        self._clean_rounds = 0
        if self._messages_max is not None:
            self._messages_max *= 2
        else:
            self._evaluations.clear()
