"""Incarnations of a database: a process follows the history that it finds, opens the next one in it, or refuses it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilth.catalog.kv.incarnation import (
    EPOCHS_MAX,
    VERSION_BITS,
    FoundHistory,
    HistoryVerdict,
    Incarnation,
    KnownHistory,
    judge,
    next_number,
)
from tilth.catalog.kv.postgres_introduction import Incarnations

FIRST = Incarnation(number=1, token="a", system=7, timeline=1)
SECOND = Incarnation(number=2, token="b", system=7, timeline=2)


def found(stored: Incarnation | None, *, timeline: int | None = None, version: int = 100) -> FoundHistory:
    """Return the facts that a connection reads; `timeline` is that of the system where it is not the stored one."""
    kept = stored or FIRST
    return FoundHistory(stored=stored, system=kept.system, timeline=timeline or kept.timeline, version=version)


@pytest.mark.parametrize(
    ("known", "history", "verdict"),
    [
        (KnownHistory(), found(None), HistoryVerdict.OPEN),
        (KnownHistory(), found(FIRST), HistoryVerdict.FOLLOW),
        (KnownHistory(incarnation=FIRST, version=100), found(FIRST), HistoryVerdict.FOLLOW),
        # A standby was promoted, and nobody has opened its history yet.
        (KnownHistory(incarnation=FIRST, version=100), found(FIRST, timeline=2), HistoryVerdict.OPEN),
        # Another process has opened it.
        (KnownHistory(incarnation=FIRST, version=100), found(SECOND, version=50), HistoryVerdict.FOLLOW),
        # The former primary is back.
        (KnownHistory(incarnation=SECOND), found(FIRST, version=200), HistoryVerdict.REFUSE),
        # Two histories that diverged have the same number.
        (KnownHistory(incarnation=SECOND), found(replace(SECOND, token="c")), HistoryVerdict.OPEN),
        # The database was restored to an earlier state, without commits of this process.
        (KnownHistory(incarnation=FIRST, version=101), found(FIRST), HistoryVerdict.OPEN),
    ],
)
def test_which_history_is_followed(known: KnownHistory, history: FoundHistory, verdict: HistoryVerdict) -> None:
    assert judge(known, history) is verdict


def test_the_number_of_a_new_one_is_above_all_that_the_process_and_the_database_know() -> None:
    third = replace(SECOND, number=3)
    assert next_number(KnownHistory(), found(None)) == 1
    assert next_number(KnownHistory(incarnation=third), found(FIRST)) == 4
    assert next_number(KnownHistory(incarnation=FIRST), found(third)) == 4


def test_versions_and_epochs_of_one_lie_above_all_of_the_one_before() -> None:
    assert (FIRST.version_floor, FIRST.epoch_floor) == (0, 0)
    third = replace(SECOND, number=3)
    assert third.version_floor - SECOND.version_floor == 1 << VERSION_BITS
    assert SECOND.version_floor >= 1 << VERSION_BITS
    assert (SECOND.epoch_floor, third.epoch_floor) == (EPOCHS_MAX, 2 * EPOCHS_MAX)


def test_a_process_never_goes_back_and_forgets_the_versions_of_the_history_before() -> None:
    known = Incarnations()
    assert known.follow(FIRST) is None
    assert known.record(100, FIRST)
    assert known.record(99, FIRST)
    assert known.known == KnownHistory(incarnation=FIRST, version=100)
    assert known.follow(SECOND) == FIRST
    assert known.known == KnownHistory(incarnation=SECOND)
    # The late answer to a connection that was introduced before.
    assert known.follow(FIRST) is None
    assert known.now == SECOND


def test_a_commit_of_the_history_before_has_not_landed() -> None:
    """The commit went to the former primary, and is lost with the end of its log."""
    known = Incarnations()
    known.follow(FIRST)
    known.follow(SECOND)
    assert not known.record(101, FIRST)
    assert known.known == KnownHistory(incarnation=SECOND)
