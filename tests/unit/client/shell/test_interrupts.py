"""Ctrl-C: how many, how soon after each other, and in which way they come."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from tilth.client.shell.interrupts import LEAVE_SECONDS, Interrupts, Left
from tilth.testing.clock import ManualClock


def raised(interrupts: Interrupts) -> None:
    """A signal that is caught."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupts.caught()


def test_two_within_a_second_leave_be_they_signals_or_keys() -> None:
    clock = ManualClock()
    for first in (raised, Interrupts.caught):
        for second in (raised, Interrupts.caught):
            interrupts = Interrupts(clock)
            with interrupts.watched():
                first(interrupts)
                clock.advance(LEAVE_SECONDS + 0.1)
                second(interrupts)
                clock.advance(LEAVE_SECONDS - 0.1)
                with pytest.raises(Left):
                    first(interrupts)


def test_one_that_comes_while_another_is_handled_counts() -> None:
    interrupts = Interrupts(ManualClock())
    with interrupts.watched():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(Left):
            interrupts.caught()


def test_the_handler_before_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(ManualClock()).watched():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
