"""Small inserts that come at about the same time: one set of files and one commit for all of them.

Covers: which inserts share a batch, who waits, who stores the batch. Does not cover: storing
(statements/inserts/insert.py).
Always holds: the thread of the first insert of a batch waits for the others and starts the storing of all; one batch of
a table is stored at a time, on a thread of its own, while the next one gathers; every insert gets its own answer, also
when its batch fails and when the server stops. An insert that is cancelled before its batch is being stored is not
stored; later its answer is that of its batch, and if that lasts long, the outcome is unknown.

    idle --first insert--> gathering --time is over, or full--> working --done, others came--> gathering
     ^                                                             |
     +-----------------------------------------------done, nobody--+
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

import pyarrow as pa

from tilth.base.cancel import current, raise_if_cancelled, reaching
from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.base.metrics import counter
from tilth.base.threads import CachedThreadPool
from tilth.catalog import LabelTakenError, TooManyPartsError
from tilth.model.table import TableDef

#: Interval at which a leader checks whether its batch is full.
POLL_SECONDS = 0.005
#: Maximum wait of a stopping server for inserts under way.
STOP_SECONDS_MAX = 30.0
#: Maximum wait of a cancelled insert for the commit of its batch, which may have begun.
SETTLE_SECONDS = 2.0
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
    """The inserts of one table that wait. Pure: who leads and what is taken."""

    waiting: deque[Waiting] = field(default_factory=deque)
    is_working: bool = False

    def arrive(self, insert: Waiting) -> bool:
        """Return true if the new insert leads the next batch."""
        self.waiting.append(insert)
        return not self.is_working and len(self.waiting) == 1

    def seconds_left(self, now: float) -> float:
        """Seconds that the leader still waits; 0: waiting gains nothing."""
        batch = self._next_batch()
        if len(batch) < len(self.waiting) or _is_full(batch):
            return 0.0
        return max(0.0, min(each.arrived + each.limits.wait_seconds for each in batch) - now)

    def begin_batch(self) -> list[Waiting]:
        """Remove and return the next batch, which is stored now; the leader's insert is the first in it."""
        assert not self.is_working
        batch = self._next_batch()
        for _ in batch:
            self.waiting.popleft()
        self.is_working = True
        return batch

    def done(self) -> int | None:
        """End the batch; return the insert that leads the next one, if there is one."""
        self.is_working = False
        return self.waiting[0].id if self.waiting else None

    def withdraw(self, insert: Waiting) -> int | None:
        """Remove an insert; return the one that leads instead, if it led and others wait."""
        has_led = not self.is_working and self.waiting[0] is insert
        self.waiting.remove(insert)
        return self.waiting[0].id if has_led and self.waiting else None

    def _next_batch(self) -> list[Waiting]:
        """The longest run from the front whose inserts may share files, up to a full batch."""
        batch: list[Waiting] = []
        for insert in self.waiting:
            fits = not batch or (insert.shape == batch[0].shape and not _is_full(batch))
            if not fits or (insert.label and any(each.label == insert.label for each in batch)):
                break
            batch.append(insert)
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
    """One insert with its bringer, who sleeps until it leads, is answered or is cancelled."""

    id = ""

    def __init__(self, insert: Waiting, offered: OfferedInsert[T]) -> None:
        self.insert = insert
        self.offered = offered
        #: Something of the following has changed.
        self.changed = threading.Event()
        self.is_leading = False
        self.is_started = False
        self.is_cancelled = False
        self.answered = threading.Event()
        self.error: TilthError | None = None

    def answer(self) -> None:
        self.answered.set()
        self.changed.set()

    def cancel(self) -> None:
        self.is_cancelled = True
        self.changed.set()

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
        self._tables: dict[str, Gathering] = {}
        self._tickets: dict[int, _Ticket[T]] = {}
        self._is_stopping = False
        self._inserts = self._batches = 0
        self._streamed = self._streamed_bytes = 0

    def add(self, table: str, offered: OfferedInsert[T], *, shape: object, label: str, limits: BatchLimits) -> None:
        """Return when the insert is committed; raises what refused it, why its statement was cancelled before it was
        stored, and UnknownOutcomeError (INSERT_OUTCOME_UNKNOWN).
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
        ticket = _Ticket(insert, offered)
        with self._lock:
            if self._is_stopping:
                raise UnavailableError("the server is stopping", hint="nothing was stored; try again at another server")
            self._tickets[insert.id] = ticket
            ticket.is_leading = self._tables.setdefault(table, Gathering()).arrive(insert)
        if ticket.is_leading:
            ticket.changed.set()
        with reaching(ticket):
            try:
                self._wait(table, ticket)
            except BaseException:
                self._withdraw(table, ticket)
                raise
        if ticket.error is not None:
            # Each has an exception of its own: a raised one is changed by whoever raises it.
            raise copy.copy(ticket.error) from ticket.error

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
            self._quiet.wait_for(lambda: not self._tickets, STOP_SECONDS_MAX)

    def _wait(self, table: str, ticket: _Ticket[T]) -> None:
        """Wait until the insert is answered; lead its batch when it is the first one that waits."""
        while not ticket.answered.is_set():
            ticket.changed.wait()
            ticket.changed.clear()
            if ticket.is_cancelled:
                if self._withdraw(table, ticket):
                    raise_if_cancelled()
                if not self._clock.wait(ticket.answered, SETTLE_SECONDS):
                    hint = "check whether the rows are there before you send them again; with an insertion_label, "
                    why = self._why_cancelled()
                    raise UnknownOutcomeError.coded(
                        "INSERT_OUTCOME_UNKNOWN",
                        "the insert was cancelled while its rows were being stored; "
                        "it is not known whether they are in",
                        reason=why,
                        hint=f"{hint}sending them again is always safe",
                    )
            elif ticket.is_leading and not ticket.is_started:
                self._lead(table, ticket)

    def _why_cancelled(self) -> str:
        cancellation = current.get()
        return "" if cancellation is None or cancellation.error is None else str(cancellation.error)

    def _withdraw(self, table: str, ticket: _Ticket[T]) -> bool:
        """Forget the insert, unless its batch is being stored or done; return whether it was forgotten."""
        with self._quiet:
            if ticket.is_started or ticket.insert.id not in self._tickets:
                return False
            gathering = self._tables[table]
            self._appoint(table, gathering.withdraw(ticket.insert))
            del self._tickets[ticket.insert.id]
            self._quiet.notify_all()
            return True

    def _appoint(self, table: str, leader: int | None) -> None:
        """Name the next leader; None: nobody leads now. Hold the lock."""
        if leader is not None:
            self._tickets[leader].is_leading = True
            self._tickets[leader].changed.set()
        elif not self._tables[table].waiting and not self._tables[table].is_working:
            del self._tables[table]

    def _lead(self, table: str, ticket: _Ticket[T]) -> None:
        """Wait for others, and start the storing of all."""
        self._gather(table, ticket)
        with self._lock:
            if ticket.is_cancelled:
                # Its thread sees that next, and another one leads.
                return
            batch = [self._tickets[insert.id] for insert in self._tables[table].begin_batch()]
            for each in batch:
                each.is_started = True
            self._inserts += len(batch)
            self._batches += 1
        # The rows are those of others too: whichever statement is cancelled, the batch is stored.
        try:
            self._threads.start(lambda: self._run(table, batch))
        except RuntimeError:
            # The system has no thread left.
            self._run(table, batch)

    def _run(self, table: str, batch: Sequence[_Ticket[T]]) -> None:
        error: TilthError | None = None
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
        finally:
            self._answer(table, batch, error)

    def _gather(self, table: str, ticket: _Ticket[T]) -> None:
        while not ticket.is_cancelled:
            with self._lock:
                left = self._tables[table].seconds_left(self._clock.monotonic())
                if self._is_stopping or not left:
                    return
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

    def _answer(self, table: str, batch: Sequence[_Ticket[T]], error: TilthError | None) -> None:
        with self._quiet:
            next_leader = self._tables[table].done()
            for ticket in batch:
                ticket.error = ticket.error or error
                del self._tickets[ticket.insert.id]
                ticket.answer()
            self._appoint(table, next_leader)
            self._quiet.notify_all()
