"""Ctrl-C: how many, how soon after each other, and in which way they come."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress

import pytest

from tilth.client.shell import interrupts as interrupts_module
from tilth.client.shell.interrupts import LEAVE_SECONDS, Interrupts, Left, left_to_child, reaching
from tilth.testing.clock import ManualClock

SECONDS_MAX = 20.0


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


def press_and_wait() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(SECONDS_MAX)


def swallow_one_and_wait() -> None:
    """Python ignores one that is raised while an object is freed."""
    with suppress(KeyboardInterrupt):
        press_and_wait()
    threading.Event().wait(SECONDS_MAX)
    pytest.fail("none came again")


def test_one_that_was_swallowed_is_sent_again_and_counts_once() -> None:
    interrupts = Interrupts(ManualClock())
    before = signal.getsignal(signal.SIGINT)
    with interrupts.watched(), interrupts.reaching(), pytest.raises(KeyboardInterrupt):
        swallow_one_and_wait()
    interrupts.caught()
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_two_that_reach_the_program_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts_module, "RESEND_SECONDS", SECONDS_MAX)
    interrupts = Interrupts(ManualClock())
    with interrupts.watched(), interrupts.reaching():
        for _ in range(2):
            with suppress(KeyboardInterrupt):
                press_and_wait()
        with pytest.raises(Left):
            interrupts.caught()


def test_what_ends_in_time_gets_no_second_one_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts_module, "RESEND_SECONDS", SECONDS_MAX)
    with Interrupts(ManualClock()).watched(), reaching(), pytest.raises(KeyboardInterrupt):
        press_and_wait()
    # Threads of earlier tests may still be ending.
    for thread in [each for each in threading.enumerate() if each.name == "tilth-interrupts"]:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def test_one_that_was_left_to_a_child_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts_module, "RESEND_SECONDS", 0.05)
    with Interrupts(ManualClock()).watched(), reaching():
        with left_to_child():
            os.kill(os.getpid(), signal.SIGINT)
        assert not threading.Event().wait(0.2)
        with pytest.raises(KeyboardInterrupt):
            press_and_wait()
