"""The statements under way: who sent them, what they wait for, how they are ended.

Covers: slots, the time limit, cancelling, what `system.processes` shows. Does not cover: the order of slots (slots.py),
Spark's part (warehouse). Always holds: a statement is listed from its arrival until its answer is complete; a
cancelled query answers `GRACE_SECONDS` and a second later at most, even while Spark plans it, which nothing interrupts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilth.base import tracing
from tilth.base.cancel import Cancellation, current
from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, InvalidInputError, UnavailableError
from tilth.base.logs import Log
from tilth.control.slots import Client, Queue, SlotBoard

#: Maximum wait of a cancelled statement for the end of its task.
GRACE_SECONDS = 2.0
#: Interval between checks of time limits.
CHECK_SECONDS = 0.25
#: Default number of slots of each queue.
DEFAULT_SLOTS = {
    Queue.QUERY: 16,
    Queue.CHANGE: 4,
    Queue.INSERT: 128,
    Queue.CONTROL: 32,
    Queue.WATCH: 16,
    Queue.APART: 2,
}
#: Tasks of other statements than queries in the warehouse of queries: checks, defaults, keys, INSERT .. SELECT.
OTHER_TASKS = DEFAULT_SLOTS[Queue.CONTROL] + DEFAULT_SLOTS[Queue.CHANGE] + DEFAULT_SLOTS[Queue.INSERT]
STATEMENTS_MAX = 1000
#: `system.processes`, and so a condition of KILL QUERY, sees only the beginning and end of a longer statement.
RUNNING_TEXT_MAX = 1 << 17
#: Maximum length in lists for people.
LISTED_TEXT_MAX = 1_000
#: A longer text is cut: a client chooses its own name.
SHOWN_CHARACTERS_MAX = 120

_log = Log("sql")


class NodeStoppingError(UnavailableError):
    """the node is stopping"""

    code = "NODE_STOPPING"


@dataclass(frozen=True, slots=True)
class Origin:
    """Sender of a statement, and the way to end it."""

    #: Host and port; empty: it comes from this process.
    host: str = ""
    port: str = ""
    #: The client's name, where it gave one.
    name: str = ""
    #: Its span in the client, as W3C's header `traceparent` has it; empty: none.
    trace: str = ""
    cancellation: Cancellation = field(default_factory=Cancellation)

    def cancel(self, by: str, **facts: str) -> None:
        """End the statement; `by` says who wanted it."""
        hint = "nothing was applied; send it again if it is still needed"
        self.cancellation.cancel(
            ConflictError.coded("QUERY_WAS_CANCELLED", "the query was cancelled", **facts, by=by, hint=hint)
        )

    @property
    def client(self) -> Client:
        return (self.host, self.port)

    @property
    def address(self) -> str:
        if not self.host:
            return ""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address, with the client's name in parentheses, for tables that name readers."""
        name = "".join(letter for letter in self.name if letter.isprintable())
        return (f"{self.address} ({name})" if name else self.address)[:SHOWN_CHARACTERS_MAX]


@dataclass(slots=True, kw_only=True)
class Running:
    """A statement under way."""

    query_id: str
    #: Redacted.
    text: str
    database: str
    origin: Origin
    started_ms: int
    #: Start on the monotonic clock.
    started: float
    #: Empty until the statement has been parsed.
    kind: str = ""
    #: None until it has been parsed.
    queue: Queue | None = None
    #: 0: no limit.
    seconds_max: float = 0.0
    #: Time of the cancellation; 0: there was none.
    cancelled: float = 0.0
    #: Reason why it was sent to Spark again; empty: it was not.
    sent_again: str = ""
    #: Its span; one that does nothing while traces are off.
    span: tracing.Span = tracing.NO_SPAN


def sending_id(query_id: str, *, is_again: bool) -> str:
    """Return the id of one sending of a statement's query: a worker that was given up may still call under the former
    one.
    """
    return f"{query_id}-again" if is_again else query_id


class _SlotWait:
    """Wait of a statement for its slot."""

    def __init__(self, query_id: str) -> None:
        self._is_over = threading.Event()
        self.id = query_id

    def cancel(self) -> None:
        self._is_over.set()

    abandon = cancel

    def wait(self) -> None:
        self._is_over.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLimits:
    """Statements of this server at once."""

    #: Running statements, by queue.
    slots: Mapping[Queue, int] = field(default_factory=lambda: DEFAULT_SLOTS)
    #: Statements that wait for a slot, in each queue.
    statements_max: int = STATEMENTS_MAX


class RunningStatements:
    """All statements of this server; from any thread."""

    def __init__(
        self, clock: Clock, limits: StatementLimits, *, check_others: Callable[[], None] = lambda: None
    ) -> None:
        """`check_others` is called as often as time limits are checked, and may cancel statements."""
        self._clock = clock
        self._check_others = check_others
        self._board = SlotBoard(limits.slots, waiting_max=limits.statements_max)
        self._slot_waits: dict[str, _SlotWait] = {}
        self._running: dict[str, Running] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tilth-time-limits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CHECK_SECONDS + 1)

    def add(self, running: Running) -> None:
        with self._lock:
            self._running[running.query_id] = running
            # A node that stops takes nothing more.
            is_stopping = self._stopping.is_set()
        if is_stopping:
            running.origin.cancellation.cancel(NodeStoppingError(query_id=running.query_id, hint=_STOPPING_HINT))

    def remove(self, query_id: str) -> None:
        """Remove the statement; others may have its slot."""
        with self._lock:
            self._running.pop(query_id, None)
        self.leave(query_id)

    def enter(self, running: Running, queue: Queue) -> None:
        """Wait for a slot; `remove` releases it. Raises RetryError (TOO_MANY_STATEMENTS), and why the statement was
        cancelled.
        """
        cancellation, query_id = running.origin.cancellation, running.query_id
        running.queue = queue
        cancellation.raise_if_cancelled()
        slot_wait = _SlotWait(query_id)
        with self._lock:
            if self._board.arrive(query_id, queue, running.origin.client):
                return
            self._slot_waits[query_id] = slot_wait
        with cancellation.waiting_for(slot_wait):
            slot_wait.wait()
        cancellation.raise_if_cancelled()

    def move(self, query_id: str, queue: Queue) -> None:
        """Release the statement's slot and wait for one of another queue. Raises as `enter`."""
        with self._lock:
            running = self._running[query_id]
        self.leave(query_id)
        self.enter(running, queue)

    def leave(self, query_id: str) -> None:
        """Release the slot, or the position in the queue. Does nothing for a statement that has neither."""
        with self._lock:
            self._slot_waits.pop(query_id, None)
            slot_waits = [self._slot_waits.pop(granted) for granted in self._board.leave(query_id)]
        for slot_wait in slot_waits:
            slot_wait.cancel()

    def list(self) -> list[tuple[Running, int | None]]:
        """Statements in the order of their arrival, each with how many are ahead of it, None for those that run."""
        with self._lock:
            ahead = self._board.ahead()
            return [(running, ahead.get(running.query_id)) for running in self._running.values()]

    def current(self) -> Running | None:
        """Return the statement that this thread works for; None: it works for none, or for several."""
        cancellation = current.get()
        with self._lock:
            found = self._running.values() if cancellation is not None else ()
            return next((each for each in found if each.origin.cancellation is cancellation), None)

    def cancellation_of(self, query_id: str) -> Cancellation:
        with self._lock:
            return self._running[query_id].origin.cancellation

    def cancel(self, query_id: str, *, by: str) -> bool:
        """Cancel the statement; False if it is not there. `by` says who wanted it."""
        with self._lock:
            running = self._running.get(query_id)
        if running is None:
            return False
        running.origin.cancel(by, query_id=query_id)
        return True

    def cancel_all(self) -> None:
        """Cancel all statements, and those that still come: the node stops."""
        self._stopping.set()
        with self._lock:
            statements = list(self._running.values())
        for running in statements:
            error = NodeStoppingError(query_id=running.query_id, hint=_STOPPING_HINT)
            running.origin.cancellation.cancel(error)
            running.origin.cancellation.abandon()

    def check_limits(self) -> None:
        """Cancel statements that run too long; let others pass one that does not end. The thread calls it."""
        self._check_others()
        now = self._clock.monotonic()
        with self._lock:
            statements = list(self._running.values())
        for running in statements:
            cancellation = running.origin.cancellation
            if running.seconds_max and now - running.started > running.seconds_max and cancellation.error is None:
                cancellation.cancel(_too_long(running))
            if cancellation.error is None:
                continue
            if not running.cancelled:
                running.cancelled = now
                _log.info("statement_cancelled", cause_id=running.query_id, reason=cancellation.error)
            elif now - running.cancelled > GRACE_SECONDS:
                cancellation.abandon()

    def _watch(self) -> None:
        while not self._clock.wait(self._stopping, CHECK_SECONDS):
            try:
                self.check_limits()
            except BaseException as error:
                _log.error("time_limits_not_checked", error=error)


_STOPPING_HINT = "send it again when the node is back"


def _too_long(running: Running) -> InvalidInputError:
    hint = (
        "make the statement read or compute less, or write SETTINGS max_execution_time = seconds at its end (0: none)"
    )
    return InvalidInputError.coded(
        "TIMEOUT_EXCEEDED",
        "the query ran longer than max_execution_time",
        query_id=running.query_id,
        seconds_max=f"{running.seconds_max:g}",
        hint=hint,
    )
