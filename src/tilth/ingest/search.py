"""Searches for the messages on which a view fails, by trying it on fewer and fewer of them. Pure but for the trials.

Covers: views whose rows are made of several messages, where nothing else shows which one is to blame. Does not cover:
trying (spark.py), views whose rows are made of one message each (probe.py).
Always holds: a message that is named has made the view fail alone; the number of trials and their time are bounded.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.clock import Clock

#: Trials of one search; a Spark job each. One message among a million takes forty.
TRIALS_MAX = 128
SEARCH_SECONDS_MAX = 30.0


def search(clock: Clock, fails: Callable[[int, int], str | None], *, total: int, why: str) -> dict[int, str] | None:
    """The numbers of the messages, below `total`, that make the view fail alone, with the reasons.

    `fails(start, end)` says why the view fails on the messages with these numbers; None: it does not. On all of them it
    is known to fail, and `why`. None is returned where they make it fail only together, or are too many to be found.
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
