"""Objects that live long: full collections of cyclic garbage leave them out.

A full collection visits every object of the process and stops all its threads: half a second where 5,000 tables are
maintained. What is old enough to be visited by them only is set aside before they come.

Covers: the collector of this process. Does not cover: imports (importing.py).
Always holds: what reference counts release is released as ever. Cycles of garbage among objects that were set aside are
searched for when these have doubled, and when a quarter of the things that came are gone.
"""

from __future__ import annotations

import gc

#: Objects that are not young from which on they are set aside: to visit so many takes about 10 ms.
ALIVE_MAX = 20_000
#: Minimum of new objects for which those that were set aside are counted.
GROWN_MIN = 200_000
#: Things gone from which on their garbage is searched for, and the same as a part of those that are left.
GONE_MIN = 100
GONE_SHARE = 4


class LongLived:
    """Things of many objects each that seldom go, and the objects that were set aside. For one thread, and one in a
    process, as its collector is.
    """

    def __init__(self) -> None:
        #: Things that are there, and those that have gone since the last search for garbage.
        self._count = self._gone = 0
        #: True if things have come since the last call of `freeze`.
        self._have_come = False
        #: Number of objects set aside that are known to stay, and of those set aside since, some of which have gone.
        self._known = self._added = 0

    def add(self, count: int) -> None:
        """Note new things: their objects are no garbage."""
        self._count += count
        self._have_come = self._have_come or count > 0

    def remove(self) -> None:
        """Note that one is gone, with cycles among its objects."""
        self._count -= 1
        self._gone += 1

    def freeze(self) -> None:
        """Set aside what is alive, if it is much; to be called now and then."""
        if self._gone >= max(GONE_MIN, self._count // GONE_SHARE):
            self._search()
        alive = _count_alive()
        if alive <= ALIVE_MAX:
            return
        # No collection comes first, because most is no garbage.
        gc.freeze()
        if self._have_come:
            self._have_come = False
            self._known += alive
            return
        self._added += alive
        if self._added > max(GROWN_MIN, self._known):
            self._check_growth()

    def _check_growth(self) -> None:
        """Search for garbage if the objects have doubled; to count them takes a while."""
        count = gc.get_freeze_count()
        if count > self._known + max(GROWN_MIN, self._known):
            self._search()
        else:
            self._known, self._added = min(self._known, count), max(0, count - self._known)

    def _search(self) -> None:
        """Visit all objects, and set aside those that are alive."""
        gc.unfreeze()
        gc.collect()
        self._known, self._added, self._gone = _count_alive(), 0, 0
        gc.freeze()


def _count_alive() -> int:
    """Return the number of objects that a full collection visits, without young ones."""
    return len(gc.get_objects(generation=2))
