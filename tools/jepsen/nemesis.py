"""Blows drawn from a seed, struck together and mended.

Always holds: what was struck is mended, also when the run is broken off; two blows of a round have different targets.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.jepsen.harm import Blow

#: Probabilities of one, two and three blows in a round.
TOGETHER = (0.15, 0.55, 0.3)
#: Latest begin of a blow, in seconds after the round's.
BEGIN_SECONDS_MAX = 0.8
#: Of the blows that may last longer, one in this many does.
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
    """Strike and mend each blow at its times; return when all are mended."""
    steps = sorted(
        [(each.begin, 0, index) for index, each in enumerate(strikes)]
        + [(each.end, 1, index) for index, each in enumerate(strikes)]
    )
    began = time.monotonic()
    struck = set[int]()
    try:
        for at, is_end, index in steps:
            time.sleep(max(0.0, began + at - time.monotonic()))
            blow = strikes[index].blow
            if is_end:
                struck.discard(index)
                blow.mend()
                note(f"mended: {blow.name}")
            else:
                struck.add(index)
                note(f"struck: {blow.name}, {strikes[index].end - at:.1f} s")
                blow.strike()
    finally:
        for index in struck:
            strikes[index].blow.mend()
