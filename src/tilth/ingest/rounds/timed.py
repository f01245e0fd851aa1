"""Durations of the phases of a task, which alternate with each batch of rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilth.base.clock import Clock

T = TypeVar("T")


class Timed(Iterator[T]):
    """An iterator that adds up how long its source took."""

    def __init__(self, clock: Clock, source: Iterator[T]) -> None:
        self._clock = clock
        self._source = source
        self.seconds = 0.0

    def __next__(self) -> T:
        started = self._clock.monotonic()
        try:
            return next(self._source)
        finally:
            self.seconds += self._clock.monotonic() - started

    def close(self) -> None:
        """End a generator at once, as `yield from` does when its reader stops early."""
        if isinstance(self._source, Generator):
            self._source.close()


class Stopwatch:
    """Adds up the durations of a phase that is repeated."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        started = self._clock.monotonic()
        try:
            yield
        finally:
            self.seconds += self._clock.monotonic() - started
