"""Failures wait ever longer, switches end by themselves, and news are told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.catalog_world import World
from tilth.base.errors import (
    ConflictError,
    CorruptError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    RetryError,
    UnavailableError,
    UnknownOutcomeError,
)
from tilth.base.retry import Retry
from tilth.maintenance.manager import feed
from tilth.maintenance.manager.feed import PartFeed
from tilth.maintenance.state import ServiceWork, failed_again, is_failure, is_on, newest, rule_of, service_status
from tilth.model.service import ServiceKind, ServiceState, Switch, SwitchState
from tilth.storage import PartFileNotFoundError

BROKEN = UnavailableError("r")


@pytest.mark.parametrize(
    ("error", "rule", "waits"),
    [
        (RetryError(), Retry.BACK_OFF, [1, 2, 4]),
        (UnavailableError(), Retry.BACK_OFF, [1, 2, 4]),
        (ConflictError(), Retry.CHOOSE_ANEW, [1, 1, 1]),
        (NotFoundError(), Retry.CHOOSE_ANEW, [1, 1, 1]),
        (FencedError(), Retry.STOP, [1, 1, 1]),
        (UnknownOutcomeError(), Retry.RESOLVE, [1, 1, 1]),
        (InvalidInputError(), Retry.WAIT_LONG, [60, 60, 60]),
        (CorruptError(), Retry.WAIT_LONG, [60, 60, 60]),
        (ZeroDivisionError(), Retry.WAIT_LONG, [60, 60, 60]),
        # A part that is in the catalog without its file would be chosen again.
        (PartFileNotFoundError(), Retry.WAIT_LONG, [60, 60, 60]),
    ],
)
def test_the_rule_of_all_background_services(error: Exception, rule: Retry, waits: list[int]) -> None:
    assert rule_of(error) is rule
    assert is_failure(error) == (rule in (Retry.BACK_OFF, Retry.WAIT_LONG))
    failure = None
    for seconds in waits:
        at_ms = 0 if failure is None else failure.until_ms
        failure = failed_again(failure, error, now_ms=at_ms, about="p")
        assert failure.until_ms - at_ms == seconds * 1000
    assert failure is not None
    assert failure.reason == f"p: {error}"
    assert failure.count == (3 if is_failure(error) else 1)


def test_the_wait_doubles_up_to_a_bound() -> None:
    failure = failed_again(None, BROKEN, now_ms=0)
    waits = []
    for _ in range(12):
        waits.append(failure.until_ms - failure.at_ms)
        # One that comes before the wait is over was begun before: it adds nothing up.
        assert failed_again(failure, BROKEN, now_ms=failure.until_ms - 1).count == failure.count
        failure = failed_again(failure, BROKEN, now_ms=failure.until_ms)
    assert waits[:4] == [1000, 2000, 4000, 8000]
    assert waits[-1] == 256_000
    assert failure.count == 13
    assert newest([]) is None
    later = failed_again(None, BROKEN, now_ms=failure.at_ms + 1)
    assert newest([failure, later]) == later
    long = failed_again(failure, CorruptError(), now_ms=failure.until_ms)
    assert long.until_ms - long.at_ms == 256_000


def test_a_switch_may_end_by_itself() -> None:
    assert is_on(None, now_ms=5)
    stopped = Switch(table="t", service=ServiceKind.GC, state=SwitchState.STOPPED, since_ms=1)
    assert not is_on(stopped, now_ms=5)
    paused = Switch(table="t", service=ServiceKind.GC, state=SwitchState.STOPPED, since_ms=1, until_ms=5)
    assert not is_on(paused, now_ms=4)
    assert is_on(paused, now_ms=5)


def test_the_state_of_a_service_is_the_first_that_holds() -> None:
    failure = failed_again(None, BROKEN, now_ms=0)
    work = ServiceWork(
        running=1, waiting=1, failure=failure, running_reason="runs", waiting_reason="waits", idle_reason="idles"
    )
    stopped = Switch(table="t", service=ServiceKind.GC, state=SwitchState.STOPPED, since_ms=1)
    assert service_status(stopped, work, now_ms=5)[:2] == (ServiceState.STOPPED, "stopped by the user")
    assert service_status(None, work, now_ms=5) == (ServiceState.RUNNING, "runs", failure)
    work = replace(work, running=0)
    assert service_status(None, work, now_ms=5)[0] is ServiceState.FAILED
    work = replace(work, failure=None)
    assert service_status(None, work, now_ms=5) == (ServiceState.WAITING, "waits", None)
    work = replace(work, waiting=0)
    assert service_status(None, work, now_ms=5) == (ServiceState.IDLE, "idles", None)


def test_many_events_are_read_and_reported_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "READ_EVENTS", 2)
    monkeypatch.setattr(feed, "NEWS_EVENTS", 3)
    world = World()
    news = PartFeed(world.catalog)
    for round_ in range(2):
        for number in range(7):
            world.insert(f"p{round_}{number}")
            world.clock.advance(0.001)
        found: list[str] = []
        calls = 0
        while not calls or news.is_behind:
            events, is_all = news.news(world.clock.now_ms())
            assert len(events) <= 3
            assert is_all
            assert news.has_begun is (round_ > 0 or not news.is_behind)
            found += [event.part.split("_")[0] for event in events]
            calls += 1
        assert found == [f"p{round_}{number}" for number in range(7)]
        assert calls > 3
    # The oldest are not reported where there are too many; the first answer says so.
    monkeypatch.setattr(feed, "EVENTS_MAX", 4)
    world.clock.advance(60)
    for number in range(6):
        world.insert(f"q{number}")
        world.clock.advance(0.001)
    answers = [news.news(world.clock.now_ms())]
    while news.is_behind:
        answers.append(news.news(world.clock.now_ms()))
    found = [event.part.split("_")[0] for events, _ in answers for event in events]
    assert found == ["q2", "q3", "q4", "q5"]
    assert [is_all for events, is_all in answers if events] == [False, True]


def test_each_event_is_reported_once_even_if_it_lands_late() -> None:
    world = World()
    feed = PartFeed(world.catalog)
    world.insert("a", "b")
    events, is_all = feed.news(world.clock.now_ms())
    assert (len(events), is_all) == (2, True)
    assert feed.news(world.clock.now_ms()) == ([], True)
    world.insert("a")
    assert len(feed.news(world.clock.now_ms())[0]) == 1
    world.clock.advance(10)
    world.insert("a")
    assert len(feed.news(world.clock.now_ms())[0]) == 1
    # Made ready before the last one, landed after it.
    world.clock.set_now_ms(world.clock.now_ms() - 500)
    world.insert("c")
    world.clock.advance(1)
    assert [event.part.split("_")[0] for event in feed.news(world.clock.now_ms())[0]] == ["c"]
