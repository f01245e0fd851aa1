"""Blows drawn from a seed, struck together and mended.

Always holds: what was struck is mended, also when the run is broken off; two blows of a round have different targets.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from tools.jepsen.harm import Blow

#: Probabilities of one, two and three blows in a round.
TOGETHER = (0.15, 0.55, 0.3)
#: Latest begin of a blow, in seconds after the round's.
BEGIN_SECONDS_MAX = 0.8
#: Number of blows that may last longer among which one does.
LASTING_ONE_OF = 25
LASTING_SECONDS = (20.0, 90.0)


@dataclass(frozen=True, slots=True)
class Strike:
    """A blow of a round, with its times in seconds after the round's begin."""

    blow: Blow
    begin: float
    end: float


def draw_round(blows: Sequence[Blow], rng: random.Random, *, seconds_max: float) -> list[Strike]:
    """Return blows that overlap, on different targets."""
    [count] = rng.choices((1, 2, 3), TOGETHER)
    strikes: list[Strike] = []
    left = list(blows)
    while left and len(strikes) < count:
        [blow] = rng.choices(left, [each.weight for each in left])
        left = [each for each in left if each.target != blow.target]
        least, most = blow.seconds
        seconds = least * (max(most, least) / least) ** rng.random()
        if blow.may_last and rng.randrange(LASTING_ONE_OF) == 0:
            seconds = rng.uniform(*LASTING_SECONDS)
        begin = rng.uniform(0.0, BEGIN_SECONDS_MAX)
        strikes.append(Strike(blow, begin, begin + min(seconds, seconds_max)))
    return strikes


def perform(strikes: Sequence[Strike], note: Callable[[str], None]) -> None:
    """Strike and mend each blow at its times; return when all are mended.

    Each blow has a thread of its own: a process that is killed while its disk hangs ends only when the disk is mended.
    """
    began = time.monotonic()
    is_over = threading.Event()

    def wait_until(seconds: float) -> bool:
        return is_over.wait(max(0.0, began + seconds - time.monotonic()))

    def run(each: Strike) -> None:
        if wait_until(each.begin):
            return
        try:
            note(f"struck: {each.blow.name}, {each.end - each.begin:.1f} s")
            each.blow.strike()
            wait_until(each.end)
        except BaseException:
            is_over.set()
            raise
        finally:
            each.blow.mend()
            note(f"mended: {each.blow.name}")

    with ThreadPoolExecutor(max(1, len(strikes))) as pool:
        running = [pool.submit(run, each) for each in strikes]
        try:
            wait(running)
        finally:
            is_over.set()
    for each in running:
        each.result()
