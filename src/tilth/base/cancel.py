"""Ending work that somebody waits for, from another thread.

Covers: the request to end, its reason, who is asked to end. Does not cover: who decides (sql/running.py), how a Spark
job ends (warehouse/worker.py). Always holds: the first reason stays; work that begins after the request is asked to end
at once; nobody is called under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from tilth.base.errors import TilthError


class Stoppable(Protocol):
    """Something that a thread waits for."""

    @property
    def id(self) -> str: ...

    def cancel(self) -> None:
        """Ask it to end; whoever waits for it goes on when it has ended."""

    def abandon(self) -> None:
        """Let whoever waits for it go on now, though it has not ended."""


class Cancellation:
    """The way to end one statement; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._error: TilthError | None = None
        self._work: Stoppable | None = None

    @property
    def error(self) -> TilthError | None:
        """Why the statement must end; None: it need not."""
        return self._error

    @property
    def work_id(self) -> str:
        """The id of what the statement waits for now; empty: for nothing that could be ended."""
        work = self._work
        return work.id if work is not None else ""

    def cancel(self, error: TilthError) -> bool:
        """Ask for the end; the statement raises `error`. False if somebody has asked before."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error
            work = self._work
        if work is not None:
            work.cancel()
        return True

    def abandon(self) -> None:
        """Let the thread of a cancelled statement go on, whatever it waits for."""
        with self._lock:
            work = self._work if self._error is not None else None
        if work is not None:
            work.abandon()

    def raise_if_cancelled(self) -> None:
        """Raise the reason, if there is one."""
        if self._error is not None:
            raise self._error

    def hand_over(self, work: Stoppable | None) -> None:
        """From now on, `cancel` and `abandon` reach this work, which outlives the thread that began it."""
        with self._lock:
            self._work = work
            is_cancelled = self._error is not None
        if is_cancelled and work is not None:
            work.cancel()

    @contextmanager
    def waiting_for(self, work: Stoppable) -> Iterator[None]:
        """Inside, `cancel` and `abandon` reach the work; the reason is raised in the place of what the work raises."""
        self.hand_over(work)
        try:
            yield
        except TilthError as error:
            if self._error is not None:
                raise self._error from error
            raise
        finally:
            self.hand_over(None)


#: That of the statement which this thread runs.
current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def working_under(cancellation: Cancellation | None) -> Iterator[None]:
    """Inside, what this thread waits for ends when this is cancelled; None: never, for work that others share."""
    token = current.set(cancellation)
    try:
        yield
    finally:
        current.reset(token)
