"""Evaluation of a computed view that has failed lately: find the messages on which the view fails, and write the rows
of the others.

Covers: the order of trials, the reasons of the messages that are found, and the search by halves for views whose rows
are made of several messages. Does not cover: the trials (spark.py), views whose rows are made of one message each
(views/probe.py).
Always holds: what is written is the view's rows of all messages but those that are named; a message is named only
where the view fails on it alone, or its own row cannot be computed or stored; the number of trials of a search and
their time are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from tilth.base.clock import Clock
from tilth.ingest.batch import Numbers
from tilth.ingest.errors import ViewError, ViewFailedError
from tilth.ingest.policy.evaluation import Evaluation
from tilth.ingest.rounds.keep import NO_NUMBERS
from tilth.ingest.rounds.round import Culprit, RoundJob
from tilth.ingest.rounds.write import CULPRITS_MAX, Written, too_many
from tilth.ingest.views.plans import SqlPlan

#: Trials of one search; a Spark job each. One message among a million takes forty.
TRIALS_MAX = 128
SEARCH_SECONDS_MAX = 30.0


def search(clock: Clock, fails: Callable[[int, int], str | None], *, total: int, why: str) -> dict[int, str] | None:
    """Return the numbers, below `total`, of the messages that make the view fail alone, with the reasons.

    `fails(start, end)` returns why the view fails on the messages with these numbers; None: it does not. It is known to
    fail on all of them, for the reason `why`. None if messages make it fail only together, or are too many.
    """
    deadline = clock.monotonic() + SEARCH_SECONDS_MAX
    found: dict[int, str] = {}
    trials = 0
    waiting = [(0, total, why)]
    while waiting:
        start, end, reason = waiting.pop()
        if end - start == 1:
            found[start] = reason
            continue
        trials += 2
        if trials > TRIALS_MAX or clock.monotonic() > deadline:
            return None
        middle = (start + end) // 2
        halves = [(first, last, fails(first, last)) for first, last in ((start, middle), (middle, end))]
        failing = [(first, last, reason) for first, last, reason in halves if reason is not None]
        if not failing:
            return None
        waiting += failing
    return dict(sorted(found.items()))


class Trials(Protocol):
    """One view over the rows that the round has kept. `excluded`: numbers of messages that are left out."""

    def find_failing(self) -> list[Culprit]:
        """Return the messages on which one of the expressions fails that are computed alone before the view's rows are
        made; an expression that cannot be computed alone finds none.
        """

    def check(self, *, numbers: range | None = None, excluded: Numbers = NO_NUMBERS) -> str | None:
        """Return why the view fails on the messages with these numbers (None: on all); None: it does not."""

    def find_reasons(self, found: Sequence[Culprit]) -> dict[int, str]:
        """Return by number the reason why rows of these messages cannot be computed; only some of them, if they are
        many.
        """

    def write_guarded(self, *, excluded: Numbers) -> Written | None:
        """Write what can be written; None: the view's rows are not made of one message each.

        Raises ViewFailedError.
        """

    def write(self, *, excluded: Numbers) -> Written:
        """Write the view's rows. Raises ViewFailedError."""


def run_failing_view(clock: Clock, trials: Trials, job: RoundJob, plan: SqlPlan) -> Written:
    """Write the view's rows; return what was written, and the messages on which the view fails, with reasons.

    Raises ViewFailedError if the round must be done in another way, ViewError if no message is to blame.
    """
    found = trials.find_failing()
    _check_many(plan, found)
    if job.failing[plan.view] is Evaluation.GUARDED:
        guarded = trials.write_guarded(excluded=_numbers(found))
        if guarded is not None:
            return msgspec.structs.replace(guarded, culprits=_explain(trials, job, plan, [*found, *guarded.culprits]))
    why = trials.check(excluded=_numbers(found))
    if why is not None:
        found = [*found, *_search_culprits(clock, trials, job, plan, found, why)]
        why = trials.check(excluded=_numbers(found))
        if why is not None:
            raise ViewFailedError.of({plan.view: why})
    _check_many(plan, found)
    return msgspec.structs.replace(trials.write(excluded=_numbers(found)), culprits=_explain(trials, job, plan, found))


def _search_culprits(
    clock: Clock, trials: Trials, job: RoundJob, plan: SqlPlan, known: Sequence[Culprit], why: str
) -> list[Culprit]:
    nothing = trials.check(numbers=range(0))
    if nothing is not None:
        hint = "DROP VIEW it, and create it again with a SELECT that can be computed; offsets are kept"
        raise ViewError("the view fails whatever the messages say", view=plan.view, why=nothing, hint=hint)
    excluded = _numbers(known)

    def fails(start: int, end: int) -> str | None:
        return trials.check(numbers=range(start, end), excluded=excluded)

    found = search(clock, fails, total=job.numbers.total, why=why)
    if found is None:
        raise ViewFailedError.of({plan.view: why})
    return [Culprit(number=number, reason=reason) for number, reason in found.items()]


def _explain(trials: Trials, job: RoundJob, plan: SqlPlan, found: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Add a reason to each culprit, in which the column stands first if it is known."""
    columns = job.layouts[plan.target].schema.names
    reasons = trials.find_reasons([each for each in found if not each.reason])
    #: Example by step: a message with a known reason, whose reason stands for messages without one.
    examples: dict[int, Culprit] = {}
    for each in found:
        if each.number in reasons:
            examples.setdefault(each.step, each)
    explained = []
    for each in found:
        why = each.reason or reasons.get(each.number, "")
        example = examples.get(each.step)
        if not why and example is not None:
            topic, partition, offset = job.numbers.position(example.number)
            why = f"it cannot be computed, like that of {topic}/{partition}@{offset}: {reasons[example.number]}"
        name = f"column `{columns[each.step - 1]}`: " if 0 < each.step <= len(columns) else ""
        explained.append(msgspec.structs.replace(each, reason=f"{name}{why or 'it cannot be computed'}"))
    return tuple(explained)


def _numbers(found: Sequence[Culprit]) -> Numbers:
    return np.array(sorted(each.number for each in found), np.int64)


def _check_many(plan: SqlPlan, found: Sequence[Culprit]) -> None:
    if len(found) > CULPRITS_MAX:
        raise too_many(plan, found)
