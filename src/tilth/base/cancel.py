"""Ending work that somebody waits for, from another thread.

Covers: the request to end, its reason, what is stopped. Does not cover: who decides (control/running.py), how a Spark
job ends (warehouse/worker/embedded.py). Always holds: the first reason stays; work that begins after the request is
ended at once; nobody is called under the lock.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, Protocol, TypeVar

from tilth.base.clock import Clock
from tilth.base.errors import TilthError, as_exception

#: Seconds after which a wait checks again whether it was cancelled.
POLL_SECONDS = 0.25

T = TypeVar("T")
S = TypeVar("S")


class Stoppable(Protocol):
    """Something that a thread waits for."""

    @property
    def id(self) -> str: ...

    def cancel(self) -> None:
        """Request the end; callers that wait continue when it has ended."""

    def abandon(self) -> None:
        """Let callers that wait continue now, though it has not ended."""


class Cancellation:
    """The way to end one statement; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._error: TilthError | None = None
        #: Operations that the statement waits for, by start of the wait.
        self._works: list[Stoppable] = []

    @property
    def error(self) -> TilthError | None:
        """Reason why the statement must end; None: it need not."""
        return self._error

    @property
    def work_id(self) -> str:
        """Id of the work that the statement waits for now; empty: none that could be ended."""
        with self._lock:
            return next((work.id for work in reversed(self._works) if work.id), "")

    def cancel(self, error: TilthError) -> bool:
        """Request the end; the statement raises `error`. Return False if it was requested before."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error
            works = list(self._works)
        for work in works:
            work.cancel()
        return True

    def abandon(self) -> None:
        """Let the thread of a cancelled statement go on, whatever it waits for."""
        with self._lock:
            works = list(self._works) if self._error is not None else []
        for work in works:
            work.abandon()

    def raise_if_cancelled(self) -> None:
        """Raise the reason, if there is one."""
        if self._error is not None:
            raise self._error

    def hand_over(self, work: Stoppable) -> None:
        """Add a work that `cancel` and `abandon` reach too, until `let_go`."""
        with self._lock:
            self._works.append(work)
            is_cancelled = self._error is not None
        if is_cancelled:
            work.cancel()

    def let_go(self, work: Stoppable) -> None:
        """Stop reaching this work. Does nothing for work that was not handed over."""
        with self._lock:
            self._works = [other for other in self._works if other is not work]

    @contextmanager
    def waiting_for(self, work: Stoppable) -> Iterator[None]:
        """Let `cancel` and `abandon` reach the work inside; their reason is raised instead of the work's error."""
        self.hand_over(work)
        try:
            yield
        except TilthError as error:
            if self._error is not None:
                raise self._error from error
            raise
        finally:
            self.let_go(work)


#: Cancellation of the statement that this thread runs.
current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def working_under(cancellation: Cancellation | None) -> Iterator[None]:
    """End what this thread waits for inside when the cancellation is cancelled; None: never, for work that others
    share.
    """
    token = current.set(cancellation)
    try:
        yield
    finally:
        current.reset(token)


def raise_if_cancelled() -> None:
    """Raise why the statement of this thread was cancelled, if it was."""
    cancellation = current.get()
    if cancellation is not None:
        cancellation.raise_if_cancelled()


def pause(clock: Clock, seconds: float) -> None:
    """Wait; raises soon why the statement of this thread was cancelled."""
    deadline = clock.monotonic() + seconds
    raise_if_cancelled()
    while (left := deadline - clock.monotonic()) > 0:
        clock.sleep(min(left, POLL_SECONDS))
        raise_if_cancelled()


@contextmanager
def reaching(work: Stoppable) -> Iterator[None]:
    """Let the end of this thread's statement reach the work inside; the work's own error is raised."""
    cancellation = current.get()
    if cancellation is None:
        yield
        return
    cancellation.hand_over(work)
    try:
        yield
    finally:
        cancellation.let_go(work)


def carry(act: Callable[[S], T]) -> Callable[[S], T]:
    """Return the function so that it runs for this thread's statement on other threads."""
    cancellation = current.get()

    def acting(given: S) -> T:
        with working_under(cancellation):
            return act(given)

    return acting


def apart(act: Callable[[], T], *, name: str, hint: str) -> T:
    """Run `act` on a thread of its own and return or raise what it does, so that a cancelled statement need not wait
    for an end that does not come. Work without a statement runs on this thread. `hint` describes what a cancelled run
    leaves.
    """
    cancellation = current.get()
    if cancellation is None:
        return act()
    cancellation.raise_if_cancelled()
    work = _Apart(carry(lambda _: act()))
    try:
        with cancellation.waiting_for(work):
            threading.Thread(target=work.run, name=f"tilth-{name}", daemon=True).start()
            return work.outcome()
    except TilthError as error:
        if error is not cancellation.error:
            raise
        hinted = copy.copy(error)
        hinted.hint = hint
        raise hinted from error


class _Apart(Generic[T]):
    """Work on a thread of its own. What it waits for is cancelled beside it, by the same cancellation."""

    id = ""

    def __init__(self, act: Callable[[None], T]) -> None:
        self._act = act
        self._ended = threading.Event()
        self._results: list[T] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._results.append(self._act(None))
        # Whatever it was, it is raised by who waits.
        except BaseException as error:
            self._error = as_exception(error)
        self._ended.set()

    def cancel(self) -> None:
        """Do nothing: the work checks for it."""

    def abandon(self) -> None:
        self._ended.set()

    def outcome(self) -> T:
        self._ended.wait()
        if self._error is not None:
            raise self._error
        if not self._results:
            raise TilthError("nobody waits for the work any more")
        return self._results[0]
