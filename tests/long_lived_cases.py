"""Cases of `tilth.base.long_lived`, each for a process of its own: the collector is one for a process, whose objects in
a test run are millions.

    python -m tests.long_lived_cases CASE
"""

from __future__ import annotations

import gc
import sys
import weakref

from tilth.base import long_lived
from tilth.base.long_lived import LongLived


class Thing:
    """One that refers to itself, so that only a collection releases it."""

    def __init__(self) -> None:
        self.itself = self


class PlainThing:
    """One without a cycle."""


def frozen(objects: LongLived, *, count: int) -> list[Thing]:
    """Return so many things that were set aside."""
    things = [Thing() for _ in range(count)]
    gc.collect()
    objects.freeze()
    return things


def what_is_set_aside_is_visited_no_more_and_released_by_its_references(objects: LongLived) -> None:
    objects.freeze()
    things, plain = frozen(objects, count=50), PlainThing()
    frozen(objects, count=50)
    kept, released = weakref.ref(things[0]), weakref.ref(plain)
    assert not any(each is things[0] for each in gc.get_objects())
    del things, plain
    gc.collect()
    assert kept() is not None
    assert released() is None


def garbage_is_found_when_the_objects_have_doubled(objects: LongLived) -> None:
    objects.add(1)
    objects.freeze()
    known = gc.get_freeze_count()
    gone = weakref.ref(frozen(objects, count=50)[0])
    frozen(objects, count=50)
    assert gone() is not None
    long_lived.GROWN_MIN = 1
    things = frozen(objects, count=2 * known)
    assert gone() is None
    # All objects are known now: as many again may come.
    again = weakref.ref(frozen(objects, count=50)[0])
    frozen(objects, count=50)
    assert again() is not None
    assert len(things) == 2 * known


def objects_of_things_that_came_are_no_growth(objects: LongLived) -> None:
    long_lived.GROWN_MIN = 1
    objects.add(1)
    objects.freeze()
    gone = weakref.ref(frozen(objects, count=50)[0])
    for _ in range(4):
        objects.add(1)
        frozen(objects, count=gc.get_freeze_count() // 2)
    assert gone() is not None


def garbage_is_found_when_a_quarter_of_the_things_is_gone(objects: LongLived) -> None:
    long_lived.GONE_MIN = 3
    things = frozen(objects, count=50)
    objects.add(50)
    gone = weakref.ref(things.pop())
    for _ in range(9):
        objects.remove()
        objects.freeze()
    assert gone() is not None
    objects.remove()
    objects.freeze()
    assert gone() is None
    assert gc.get_freeze_count() > 0


def few_objects_are_left_alone(objects: LongLived) -> None:
    long_lived.ALIVE_MAX = 10**9
    gc.unfreeze()
    objects.freeze()
    assert gc.get_freeze_count() == 0


CASES = {
    case.__name__: case
    for case in (
        what_is_set_aside_is_visited_no_more_and_released_by_its_references,
        garbage_is_found_when_the_objects_have_doubled,
        objects_of_things_that_came_are_no_growth,
        garbage_is_found_when_a_quarter_of_the_things_is_gone,
        few_objects_are_left_alone,
    )
}


def main() -> None:
    # In this process few objects are many.
    long_lived.ALIVE_MAX = 10
    gc.collect()
    CASES[sys.argv[1]](LongLived())


if __name__ == "__main__":
    main()
