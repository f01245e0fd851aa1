"""One way to wait for what other processes and threads do.

Always holds: a wait has an end, and says what it was for. A poll is mostly a query, which costs ten milliseconds of a
processor: the first ones come quickly, later ones more seldom. A poll of this process itself costs nothing, and begins
with `MOMENT`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Time limit of a wait on a crowded machine.
SECONDS_MAX = 180.0
#: Pauses between polls: the first, the longest, and the growth from each to the next.
_PAUSE_MIN, _PAUSE_MAX, _GROWTH = 0.05, 0.25, 1.2
#: First pause where a poll costs nothing.
MOMENT = 0.001


def wait_until(
    is_so: Callable[[], object],
    what: str | Callable[[], str] = "",
    *,
    seconds_max: float = SECONDS_MAX,
    first_pause: float = _PAUSE_MIN,
) -> float:
    """Return after how many seconds it was so. `what`: what is waited for, or a function that explains its absence."""
    began, pause = time.monotonic(), first_pause
    while not is_so():
        if time.monotonic() - began > seconds_max:
            raise AssertionError(f"waited in vain for {seconds_max:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause)
        pause = min(_PAUSE_MAX, pause * _GROWTH)
    return time.monotonic() - began
