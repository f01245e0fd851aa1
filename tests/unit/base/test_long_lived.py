"""Full collections visit what has come since the last one, and find garbage among the rest."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tilth.base import long_lived
from tilth.base.long_lived import LongLived


class Thing:
    """One that refers to itself, so that only a collection releases it."""

    def __init__(self) -> None:
        self.itself = self


class PlainThing:
    """One without a cycle."""


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongLived]:
    """Those of a process in which few objects are many."""
    monkeypatch.setattr(long_lived, "ALIVE_MAX", 10)
    gc.collect()
    yield LongLived()
    gc.unfreeze()
    gc.collect()


def tended(objects: LongLived, *, count: int) -> list[Thing]:
    """Return so many things that were set aside."""
    things = [Thing() for _ in range(count)]
    gc.collect()
    objects.tend()
    return things


def test_what_is_set_aside_is_visited_no_more_and_released_by_its_references(objects: LongLived) -> None:
    objects.tend()
    things, plain = tended(objects, count=50), PlainThing()
    tended(objects, count=50)
    kept, released = weakref.ref(things[0]), weakref.ref(plain)
    assert not any(each is things[0] for each in gc.get_objects())
    del things, plain
    gc.collect()
    assert kept() is not None
    assert released() is None


def test_garbage_is_found_when_the_objects_have_doubled(objects: LongLived, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.came(1)
    objects.tend()
    known = gc.get_freeze_count()
    gone = weakref.ref(tended(objects, count=50)[0])
    tended(objects, count=50)
    assert gone() is not None
    monkeypatch.setattr(long_lived, "GROWN_MIN", 1)
    things = tended(objects, count=2 * known)
    assert gone() is None
    # All objects are known now: as many again may come.
    again = weakref.ref(tended(objects, count=50)[0])
    tended(objects, count=50)
    assert again() is not None
    assert len(things) == 2 * known


def test_objects_of_things_that_came_are_no_growth(objects: LongLived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lived, "GROWN_MIN", 1)
    objects.came(1)
    objects.tend()
    gone = weakref.ref(tended(objects, count=50)[0])
    for _ in range(4):
        objects.came(1)
        tended(objects, count=gc.get_freeze_count() // 2)
    assert gone() is not None


def test_garbage_is_found_when_a_quarter_of_the_things_is_gone(
    objects: LongLived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_lived, "GONE_MIN", 3)
    things = tended(objects, count=50)
    objects.came(50)
    gone = weakref.ref(things.pop())
    for _ in range(9):
        objects.went()
        objects.tend()
    assert gone() is not None
    objects.went()
    objects.tend()
    assert gone() is None
    assert gc.get_freeze_count() > 0


def test_few_objects_are_left_alone(objects: LongLived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lived, "ALIVE_MAX", 10**9)
    gc.unfreeze()
    objects.tend()
    assert gc.get_freeze_count() == 0
