"""Ctrl-C in the shell: one ends what runs, two within a second leave.

Covers: counting them. Does not cover: ending a statement (run.py).
Always holds: none is lost, also between a statement and the prompt behind it: asyncio, which runs the prompt, would
take it for a cancelled prompt and go on; it does so only where Python's own handler is set.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tilth.base.clock import Clock

#: Two Ctrl-C within this time leave.
LEAVE_SECONDS = 1.0


class Left(Exception):  # noqa: N818  # no error: the user wants to leave
    """The user leaves."""


class Interrupts:
    """Counts Ctrl-C, which come as signals while something runs and as keys at the prompt."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = float("-inf")
        self._leaves = False
        #: `True` if the signal that is being handled was counted.
        self._is_counted = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count signals inside; each raises KeyboardInterrupt, as ever."""
        try:
            before = signal.signal(signal.SIGINT, self._on_signal)
        except ValueError:
            # This is not the main thread, which alone gets signals.
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def caught(self) -> None:
        """Note a KeyboardInterrupt that was caught. Raises Left at the second within a second."""
        if not self._is_counted:
            self._count()
        self._is_counted = False
        if self._leaves:
            raise Left

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        self._count()
        self._is_counted = True
        raise KeyboardInterrupt

    def _count(self) -> None:
        now = self._clock.monotonic()
        self._leaves = self._leaves or now - self._last < LEAVE_SECONDS
        self._last = now
