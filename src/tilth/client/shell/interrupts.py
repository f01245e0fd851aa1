"""Ctrl-C in the shell: one ends what runs, two within a second leave.

Covers: counting them, sending one again that has not reached the program, leaving them to another program. Does not
cover: ending a statement (run.py).
Always holds: none is lost, also between a statement and the prompt behind it: asyncio, which runs the prompt, would
treat it as a cancelled prompt and go on; it does so only where Python's own handler is set.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tilth.base.clock import Clock

#: Two Ctrl-C within this time leave.
LEAVE_SECONDS = 1.0
#: Time that a statement has to end after a Ctrl-C, before it is sent again.
RESEND_SECONDS = 0.5


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
        self._resender: _Resender | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count signals inside; each raises KeyboardInterrupt, as ever."""
        with _handled_by(self._on_signal):
            yield

    def caught(self) -> None:
        """Note a KeyboardInterrupt that was caught. Raises Left at the second within a second."""
        if not self._is_counted:
            self._count()
        self._is_counted = False
        if self._leaves:
            raise Left

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Do what `reaching` does; one that is sent again does not count."""
        with reaching() as self._resender:
            yield

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        is_again = self._resender is not None and self._resender.pop_sent()
        if not (is_again and self._is_counted):
            self._count()
        self._is_counted = True
        raise KeyboardInterrupt

    def _count(self) -> None:
        now = self._clock.monotonic()
        self._leaves = self._leaves or now - self._last < LEAVE_SECONDS
        self._last = now


class _Resender:
    """Sends a Ctrl-C again for as long as the main thread stays inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_inside = True
        self._is_sent = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def pop_sent(self) -> bool:
        """Return whether a signal was sent again since the last call."""
        is_sent, self._is_sent = self._is_sent, False
        return is_sent

    def begin(self) -> int:
        """Return the descriptor that Python had for arriving signals before."""
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="tilth-interrupts", daemon=True).start()
        return before

    def end(self, before: int) -> None:
        try:
            with self._lock:
                self._is_inside = False
        finally:
            signal.set_wakeup_fd(before)
            # The thread reads the end.
            os.close(self._write)

    def _watch(self) -> None:
        with open(self._read, "rb", buffering=0) as arrived:
            while number := arrived.read(1):
                while number[0] == signal.SIGINT and not select.select([arrived], [], [], RESEND_SECONDS)[0]:
                    with self._lock:
                        if not self._is_inside:
                            break
                        self._is_sent = True
                        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    # Its own arrival.
                    arrived.read(1)


@contextmanager
def reaching() -> Iterator[_Resender | None]:
    """Send a Ctrl-C again while the main thread stays inside for longer than RESEND_SECONDS after it.

    Python raises it between two steps of a program: one that comes right before the program waits for a socket is
    raised when something arrives there, and one that comes while an object is freed is ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    resender = _Resender()
    before = resender.begin()
    try:
        yield resender
    finally:
        resender.end(before)


@contextmanager
def left_to_child() -> Iterator[None]:
    """Leave Ctrl-C to a program that has the terminal, such as an editor: it alone ends something there, and none is
    sent again.

    A handler of ours is not passed on to that program; ignoring the signal would be.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrivals = signal.set_wakeup_fd(-1)
    try:
        with _handled_by(lambda _signal, _frame: None):
            yield
    finally:
        signal.set_wakeup_fd(arrivals, warn_on_full_buffer=False)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGINT, handler)
    except ValueError:
        # This is not the main thread, which alone gets signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
