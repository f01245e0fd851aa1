"""Time of what is done again and again is added up, and that of others is not."""

from __future__ import annotations

from collections.abc import Iterator

from tilth.ingest.rounds.timed import Stopwatch, Timed
from tilth.testing.clock import ManualClock


def test_time_of_a_source_is_its_own() -> None:
    clock = ManualClock()

    def source() -> Iterator[int]:
        for number in range(3):
            clock.advance(2.0)
            yield number

    timed = Timed(clock, source())
    for _ in timed:
        clock.advance(100.0)
    assert timed.seconds == 6.0


def test_a_stopwatch_adds_up_also_what_fails() -> None:
    clock = ManualClock()
    watch = Stopwatch(clock)
    for _ in range(2):
        try:
            with watch.running():
                clock.advance(1.5)
                raise ValueError
        except ValueError:
            clock.advance(10.0)
    assert watch.seconds == 3.0
