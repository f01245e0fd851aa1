"""Slots of rewrites, and the merges that may use the last one. For the manager's thread and its runs.

Covers: the slots that the write warehouse gives to merges, mutations and compactions of deltas; the slot that is kept
for small merges while rows come in. Does not cover: the order of merges (policy), tasks at a worker (warehouse).
Always holds: what would only wait behind others at the warehouse is not started, so that what is most urgent when a
slot is free gets it, and the other threads of maintenance stay free for flushes and collecting.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.base.clock import Clock
from tilth.base.units import MIB
from tilth.model.part import PartEvent

#: A merge of so many bytes takes a few seconds: new parts do not pile up behind it.
LAST_SLOT_BYTES = 64 * MIB
#: Rows come in as long as the last new part is younger.
INGESTING_MS = 60_000


def merge_bytes_max(*, slots: int, running: int, is_ingesting: bool) -> int | None:
    """Return how large the next merge may be; None: as the table allows. Pure."""
    is_last = 1 < slots <= running + 1
    return LAST_SLOT_BYTES if is_last and is_ingesting else None


class RewriteSlots:
    """Slots for rewrites of one manager."""

    def __init__(self, clock: Clock, *, slots: Callable[[], int], running: Callable[[], int]) -> None:
        """`slots`: as many as there are now, workers come and go; `running`: rewrites under way."""
        self._clock = clock
        self._slots = slots
        self._running = running
        self._new_part_ms = 0

    def observe(self, event: PartEvent) -> None:
        """A line of the part log."""
        if event.event == "new":
            self._new_part_ms = max(self._new_part_ms, event.at_ms)

    def is_free(self) -> bool:
        """True if another rewrite would run at once."""
        return self._running() < self._slots()

    def merge_bytes_max(self) -> int | None:
        """Return how large the next merge may be; None: as its table allows."""
        is_ingesting = self._clock.now_ms() - self._new_part_ms < INGESTING_MS
        return merge_bytes_max(slots=self._slots(), running=self._running(), is_ingesting=is_ingesting)
