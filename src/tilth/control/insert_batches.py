"""Small inserts that come at about the same time: one set of files and one commit for all of them.

Covers: which inserts share a batch, who waits, who stores the batch. Does not cover: storing
(statements/inserts/insert.py).
Always holds: one thread stores the batches of a table, one after the other, while the next one gathers; every insert
gets its own answer, once, also when its batch fails and when the server stops. An insert that is cancelled before its
batch is being stored is not stored; later its answer is that of its batch, and if that lasts long, the outcome is
unknown.

    idle --first insert--> gathering --time is over, or full--> storing --others came--> gathering
     ^                                                             |
     +---------------------------------------nobody has come-------+
"""

from __future__ import annotations

import copy
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Generic, TypeVar

import pyarrow as pa

from tilth.base.cancel import current, working_under
from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.base.metrics import counter
from tilth.base.threads import CachedThreadPool
from tilth.catalog import LabelTakenError, TooManyPartsError
from tilth.model.table import TableDef

#: Interval at which a thread that gathers checks whether its batch is full.
POLL_SECONDS = 0.005
#: Maximum wait of a stopping server for inserts under way.
STOP_SECONDS_MAX = 30.0
#: Maximum wait of a cancelled insert for the commit of its batch, which may have begun.
SETTLE_SECONDS = 2.0
_STOPPING_HINT = "nothing was stored; try again at another server"
_log = Log("sql")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInsert:
    """An INSERT whose rows have been read and fit the table."""

    query_id: str
    #: Definition when the rows were read.
    table: TableDef
    #: Rows in the table's columns, perhaps followed by `_op`.
    rows: pa.Table
    #: Empty: it has none.
    label: str = ""
    #: `True` if it is too large for a batch.
    is_large: bool = False
    #: Copies of its files that it requires; 0: as many as the table's setting.
    quorum: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of an insert for the batch that it joins; the strictest in the batch counts."""

    wait_seconds: float
    bytes_max: int
    rows_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedInsert(Generic[T]):
    """An insert as it is offered to the batch of its table."""

    payload: T
    rows: int
    bytes: int
    #: Writes and commits inserts of one table and one shape together; what it raises refuses them all.
    store: Callable[[Sequence[T]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An insert that waits for its batch."""

    id: int
    rows: int
    bytes: int
    #: Only inserts of one shape share files.
    shape: object
    #: The second of two inserts with one label must see the outcome of the first.
    label: str
    limits: BatchLimits
    #: Arrival time on the monotonic clock.
    arrived: float


@dataclass(slots=True)
class Gathering:
    """The inserts of one table that wait for their batch. Pure: which of them share it, and when it begins."""

    waiting: deque[Waiting] = field(default_factory=deque)

    def seconds_left(self, now: float) -> float:
        """Seconds until the next batch begins; 0: waiting gains nothing."""
        batch = self._next_batch()
        if len(batch) < len(self.waiting) or _is_full(batch):
            return 0.0
        return max(0.0, min(each.arrived + each.limits.wait_seconds for each in batch) - now)

    def begin_batch(self) -> list[Waiting]:
        """Remove and return the next batch, which is stored now."""
        batch = self._next_batch()
        for _ in batch:
            self.waiting.popleft()
        return batch

    def _next_batch(self) -> list[Waiting]:
        """The longest run from the front whose inserts may share files, up to a full batch."""
        batch: list[Waiting] = []
        labels: set[str] = set()
        rows = size = 0
        rows_max = bytes_max = math.inf
        for insert in self.waiting:
            if batch and (insert.shape != batch[0].shape or rows >= rows_max or size >= bytes_max):
                break
            if insert.label in labels:
                break
            if insert.label:
                labels.add(insert.label)
            batch.append(insert)
            rows, size = rows + insert.rows, size + insert.bytes
            rows_max, bytes_max = min(rows_max, insert.limits.rows_max), min(bytes_max, insert.limits.bytes_max)
        return batch


def is_ones_fault(error: TilthError) -> bool:
    """Return whether one insert alone may be why its batch was refused: each is then stored without the others."""
    return isinstance(error, LabelTakenError | TooManyPartsError) or error.kind is ErrorKind.INVALID


def _is_full(batch: Sequence[Waiting]) -> bool:
    return sum(each.rows for each in batch) >= min(each.limits.rows_max for each in batch) or sum(
        each.bytes for each in batch
    ) >= min(each.limits.bytes_max for each in batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertStats:
    """Counts of INSERTs since the start, by outcome."""

    batched: int = counter("tilth_inserts_grouped_total", "INSERTs that shared a commit, or might have.")
    batches: int = counter("tilth_insert_groups_total", "Commits of such INSERTs.")
    streamed: int = counter(
        "tilth_inserts_streamed_total", "INSERTs whose body went into a file and was written by Spark tasks."
    )
    streamed_bytes: int = counter("tilth_inserts_streamed_bytes_total", "Bytes of such bodies, unpacked.")
    memory_rejections: int = counter(
        "tilth_leader_memory_pressure_rejections_total", "Writes that were refused because memory was scarce."
    )


class _Ticket(Generic[T]):
    """One insert, until it has its answer."""

    id = ""

    def __init__(
        self,
        insert: Waiting,
        offered: OfferedInsert[T],
        answer: Callable[[TilthError | None], None],
        cancel: Callable[[_Ticket[T]], None],
    ) -> None:
        self.insert = insert
        self.offered = offered
        #: Cancellation of its statement.
        self.cancellation = current.get()
        #: It has its answer, or is about to get it.
        self.is_answered = threading.Event()
        self.is_started = False
        self.is_cancelled = False
        #: Error of its own, where its batch was stored one by one.
        self.error: TilthError | None = None
        self._answer = answer
        self._cancel = cancel
        self._lock = threading.Lock()

    def answer(self, error: TilthError | None) -> None:
        """Give the answer, unless it was given before."""
        with self._lock:
            if self.is_answered.is_set():
                return
            self.is_answered.set()
        if self.cancellation is not None:
            self.cancellation.let_go(self)
        self._answer(error)

    def cancel_error(self) -> TilthError | None:
        """Reason why its statement was cancelled."""
        return None if self.cancellation is None else self.cancellation.error

    def cancel(self) -> None:
        self._cancel(self)

    def abandon(self) -> None:
        """Does nothing: `SETTLE_SECONDS` bounds the wait."""


class InsertBatches(Generic[T]):
    """Joins inserts of all tables into batches; any number of threads may call it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads = CachedThreadPool("tilth-insert-batch")
        self._ids = count()
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        #: Tables whose inserts are gathered or stored; each has a thread.
        self._tables: dict[str, Gathering] = {}
        self._tickets: dict[int, _Ticket[T]] = {}
        self._unanswered = 0
        self._is_stopping = False
        self._inserts = self._batches = 0
        self._streamed = self._streamed_bytes = 0

    def add(self, table: str, offered: OfferedInsert[T], *, shape: object, label: str, limits: BatchLimits) -> None:
        """Return when the insert is committed; raises what refused it, why its statement was cancelled before it was
        stored, and UnknownOutcomeError (INSERT_OUTCOME_UNKNOWN).
        """
        answered, errors = threading.Event(), list[TilthError]()

        def note(error: TilthError | None) -> None:
            if error is not None:
                errors.append(error)
            answered.set()

        self.offer(table, offered, shape=shape, label=label, limits=limits, answer=note)
        answered.wait()
        for error in errors:
            raise error

    def offer(
        self,
        table: str,
        offered: OfferedInsert[T],
        *,
        shape: object,
        label: str,
        limits: BatchLimits,
        answer: Callable[[TilthError | None], None],
    ) -> None:
        """Add the insert to a batch. `answer` gets None when it is committed, or what `add` raises, on another thread;
        one that gets an error may wait as long as it likes. Raises UnavailableError when the server stops.
        """
        insert = Waiting(
            id=next(self._ids),
            rows=offered.rows,
            bytes=offered.bytes,
            shape=shape,
            label=label,
            limits=limits,
            arrived=self._clock.monotonic(),
        )
        ticket = _Ticket(insert, offered, partial(self._give, answer), partial(self._cancel, table))
        if ticket.cancellation is not None:
            ticket.cancellation.hand_over(ticket)
        with self._lock:
            is_refused, is_cancelled = self._is_stopping, ticket.is_cancelled
            self._unanswered += not is_refused
            is_first = not (is_refused or is_cancelled) and self._register(table, ticket)
        if is_refused:
            if ticket.cancellation is not None:
                ticket.cancellation.let_go(ticket)
            raise UnavailableError("the server is stopping", hint=_STOPPING_HINT)
        if is_cancelled:
            ticket.answer(ticket.cancel_error())
        elif is_first:
            self._start(lambda: self._store_all(table))

    def start_alone(self, job: Callable[[], None]) -> None:
        """Run a job that stores an insert which joins no batch, and answers it, on a thread of its own."""
        with self._lock:
            if self._is_stopping:
                raise UnavailableError("the server is stopping", hint=_STOPPING_HINT)
            self._unanswered += 1
        self._start(lambda: self._run_alone(job))

    def stats(self) -> InsertStats:
        with self._lock:
            return InsertStats(
                batched=self._inserts,
                batches=self._batches,
                streamed=self._streamed,
                streamed_bytes=self._streamed_bytes,
            )

    def count_streamed(self, size: int) -> None:
        """Count an INSERT that is too large for every batch, whose body has so many bytes."""
        with self._lock:
            self._streamed += 1
            self._streamed_bytes += size

    def stop(self) -> None:
        """Accept no more inserts, and wait until the accepted ones are answered."""
        with self._quiet:
            self._is_stopping = True
            self._quiet.wait_for(lambda: not self._unanswered, STOP_SECONDS_MAX)

    def _register(self, table: str, ticket: _Ticket[T]) -> bool:
        """Let the insert wait for its batch; return whether its table needs a thread. Hold the lock."""
        is_first = table not in self._tables
        self._tables.setdefault(table, Gathering()).waiting.append(ticket.insert)
        self._tickets[ticket.insert.id] = ticket
        return is_first

    def _start(self, job: Callable[[], None]) -> None:
        """Run the job on another thread, or on this one where the system has no thread left."""
        try:
            self._threads.start(job)
        except RuntimeError:
            # The rows are those of others too: whichever statement is cancelled, they are stored.
            with working_under(None):
                job()

    def _store_all(self, table: str) -> None:
        """Store batches of the table until nobody waits."""
        while batch := self._next_batch(table):
            try:
                error = self._store_batch(batch)
            # Any error, as a panic of a library in Rust, may come after the commit; all who wait get an answer.
            except BaseException as broken:
                error = UnknownOutcomeError(
                    "the storing of this batch of inserts was interrupted",
                    reason=f"{type(broken).__name__}: {broken}",
                    hint="check whether the rows are there before you send them again",
                )
                _log.error("insert_batch_interrupted", inserts=len(batch), error=broken)
            with self._lock:
                is_last = not self._tables[table].waiting
                for ticket in batch:
                    del self._tickets[ticket.insert.id]
            if is_last:
                self._answer_all(batch, error)
            else:
                # The next batch need not wait for the answers of this one.
                self._start(partial(self._answer_all, batch, error))

    def _next_batch(self, table: str) -> list[_Ticket[T]]:
        """Wait for the next batch and begin it; none: nobody waits, and the table has no thread any more."""
        while True:
            with self._lock:
                gathering = self._tables[table]
                if not gathering.waiting:
                    del self._tables[table]
                    return []
                left = gathering.seconds_left(self._clock.monotonic())
                if self._is_stopping or not left:
                    batch = [self._tickets[insert.id] for insert in gathering.begin_batch()]
                    for ticket in batch:
                        ticket.is_started = True
                    self._inserts += len(batch)
                    self._batches += 1
                    return batch
            self._clock.sleep(min(left, POLL_SECONDS))

    def _store_batch(self, batch: Sequence[_Ticket[T]]) -> TilthError | None:
        """Return the error that refused all of them; None: each ticket has its own answer."""
        error = self._try(batch)
        if error is None or len(batch) == 1 or not is_ones_fault(error):
            return error
        for ticket in batch:
            ticket.error = self._try([ticket])
        return None

    def _try(self, batch: Sequence[_Ticket[T]]) -> TilthError | None:
        try:
            batch[0].offered.store([ticket.offered.payload for ticket in batch])
        except TilthError as error:
            return error
        # A defect must reach all who wait, not only the one who met it.
        except Exception as error:
            _log.error("insert_batch_failed", inserts=len(batch), error=error)
            return TilthError(f"a defect of Tilth: {type(error).__name__}: {error}")
        return None

    def _answer_all(self, batch: Sequence[_Ticket[T]], batch_error: TilthError | None) -> None:
        for ticket in batch:
            error = ticket.error or batch_error
            if error is not None:
                # Each has an exception of its own: a raised one is changed by whoever raises it.
                own = copy.copy(error)
                own.__cause__ = error
                error = own
            ticket.answer(error)

    def _give(self, answer: Callable[[TilthError | None], None], error: TilthError | None) -> None:
        """Give an answer; an error on a thread of its own, for the insert may be tried again."""

        if error is None:
            self._run_alone(lambda: answer(None))
        else:
            self._start(lambda: self._run_alone(lambda: answer(error)))

    def _run_alone(self, job: Callable[[], None]) -> None:
        """Run what answers one insert, whatever becomes of it."""
        try:
            job()
        # Others get their answers all the same.
        except BaseException as broken:
            _log.error("insert_not_answered", error=broken)
        with self._quiet:
            self._unanswered -= 1
            if not self._unanswered:
                self._quiet.notify_all()

    def _cancel(self, table: str, ticket: _Ticket[T]) -> None:
        """Forget the insert, unless its batch is being stored: then the outcome of the batch is its own."""
        with self._lock:
            ticket.is_cancelled = True
            is_waiting = not ticket.is_started and ticket.insert.id in self._tickets
            if is_waiting:
                self._tables[table].waiting.remove(ticket.insert)
                del self._tickets[ticket.insert.id]
        if is_waiting:
            ticket.answer(ticket.cancel_error())
        elif ticket.is_started:
            self._start(lambda: self._settle(ticket))

    def _settle(self, ticket: _Ticket[T]) -> None:
        """Wait for the outcome of a batch, for a while."""
        if self._clock.wait(ticket.is_answered, SETTLE_SECONDS):
            return
        hint = "check whether the rows are there before you send them again; with an insertion_label, "
        ticket.answer(
            UnknownOutcomeError.coded(
                "INSERT_OUTCOME_UNKNOWN",
                "the insert was cancelled while its rows were being stored; it is not known whether they are in",
                reason=ticket.cancel_error() or "",
                hint=f"{hint}sending them again is always safe",
            )
        )
