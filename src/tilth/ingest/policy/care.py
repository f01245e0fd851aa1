"""Care of the next rounds after a view has failed. Pure.

    trusted --failed--> GUARDED --failed--> SEARCHED --failed--> SEARCHED, half as many messages, down to one
       ^                   |                    |
       +-------- CLEAN_ROUNDS_MIN rounds in a row without a refused message: twice as many, then trusted

Trusted: rows are computed and written as they come; a view that fails spoils the round, which is done again. GUARDED:
where each row of the view is made of one message, a row that cannot be computed is seen and left out with its message;
other views as SEARCHED. SEARCHED: the view is computed without writing first; where it fails, the messages that it
fails on are searched for.

Covers: these states, and the size of rounds. Does not cover: finding messages (rounds/careful.py, views/probe.py).
Always holds: a round that was given up is done again in another way, until there is one message and no other way.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum

#: Number of rounds in a row without a refused message before the next step towards trust.
CLEAN_ROUNDS_MIN = 10


class Care(IntEnum):
    """Degree of care with the rows of a view that is not trusted."""

    GUARDED = 1
    SEARCHED = 2


class FailingViews:
    """The views of one consumer that have failed lately."""

    def __init__(self) -> None:
        self._care: dict[str, Care] = {}
        self._clean_rounds = 0
        self._messages_max: int | None = None

    @property
    def care(self) -> dict[str, Care]:
        """Return the care by view; trusted views are not in it."""
        return dict(self._care)

    def bounded(self, budget: int) -> int:
        """Return how many messages the next round may read, at most `budget`."""
        if self._messages_max is not None and self._messages_max >= budget:
            self._messages_max = None
        return budget if self._messages_max is None else self._messages_max

    def failed(self, view: str, *, messages: int) -> bool:
        """A round of so many messages was given up because of a view; False: there is no other way to do it."""
        care = self._care.get(view)
        self._clean_rounds = 0
        if care is not Care.SEARCHED:
            self._care[view] = Care.GUARDED if care is None else Care.SEARCHED
            return True
        if messages <= 1:
            return False
        self._messages_max = messages // 2
        return True

    def committed(self, *, refusing: Collection[str]) -> None:
        """A round became true; these views have refused messages."""
        is_clean = self._care.keys().isdisjoint(refusing)
        self._clean_rounds = self._clean_rounds + 1 if is_clean else 0
        if self._clean_rounds < CLEAN_ROUNDS_MIN:
            return
        self._clean_rounds = 0
        if self._messages_max is not None:
            self._messages_max *= 2
        else:
            self._care.clear()
