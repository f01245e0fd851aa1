"""Small inserts that come at about the same time: one set of files and one commit for all of them.

Covers: who waits for whom, and who does the work. Does not cover: what the work is (inserts.py).
Always holds: no thread of its own: of those that brought inserts the first one of a group does the work of all; one
group of a table is at work at a time, and meanwhile the next one gathers; every insert gets its own answer, also when
its group fails and when the server stops.

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

from tilth.base.cancel import working_under
from tilth.base.clock import Clock
from tilth.base.errors import ErrorKind, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.catalog import LabelTakenError, TooManyPartsError
from tilth.model.table import TableDef

#: Whoever waits for others looks so often whether there are enough.
LOOK_SECONDS = 0.005
#: How long a server that stops waits for inserts under way.
STOP_SECONDS_MAX = 30.0
_log = Log("sql")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInsert:
    """An INSERT whose rows have been read and fit the table."""

    query_id: str
    #: As it was when the rows were read.
    table: TableDef
    #: In the table's columns, perhaps with `_op` behind them.
    rows: pa.Table
    #: Empty: it has none.
    label: str = ""
    #: Too large to be one of a group.
    is_large: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What an insert says of the group that it joins; the strictest in the group counts."""

    wait_seconds: float
    bytes_max: int
    rows_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An insert that waits for its group."""

    id: int
    rows: int
    bytes: int
    #: Only inserts of one shape share files.
    shape: object
    #: Of two inserts with one label the second must see what became of the first.
    label: str
    limits: GroupLimits
    #: On the steady clock.
    arrived: float


@dataclass(slots=True)
class Gathering:
    """The inserts of one table that wait. Pure: who leads and what is taken."""

    waiting: deque[Waiting] = field(default_factory=deque)
    is_working: bool = False

    def arrive(self, insert: Waiting) -> bool:
        """True: whoever brought it leads the next group."""
        self.waiting.append(insert)
        return not self.is_working and len(self.waiting) == 1

    def seconds_left(self, now: float) -> float:
        """How long the leader still waits; 0: nothing is won by waiting."""
        group = self._group()
        if len(group) < len(self.waiting) or _is_full(group):
            return 0.0
        return max(0.0, min(each.arrived + each.limits.wait_seconds for each in group) - now)

    def take(self) -> list[Waiting]:
        """The group, which is now worked on; the leader's insert is the first in it."""
        assert not self.is_working
        group = self._group()
        for _ in group:
            self.waiting.popleft()
        self.is_working = True
        return group

    def done(self) -> int | None:
        """The work is done; the insert whose bringer leads the next group, if there is one."""
        self.is_working = False
        return self.waiting[0].id if self.waiting else None

    def _group(self) -> list[Waiting]:
        """The longest run from the front whose inserts may share files, with which the group becomes full at most."""
        group: list[Waiting] = []
        for insert in self.waiting:
            fits = not group or (insert.shape == group[0].shape and not _is_full(group))
            if not fits or (insert.label and any(each.label == insert.label for each in group)):
                break
            group.append(insert)
        return group


def is_ones_fault(error: TilthError) -> bool:
    """Whether one insert alone may be why its group was refused: then each is to be tried without the others."""
    return isinstance(error, LabelTakenError | TooManyPartsError) or error.kind is ErrorKind.INVALID


def _is_full(group: Sequence[Waiting]) -> bool:
    return sum(each.rows for each in group) >= min(each.limits.rows_max for each in group) or sum(
        each.bytes for each in group
    ) >= min(each.limits.bytes_max for each in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertStats:
    """What became of INSERTs since the start."""

    #: That were one of a group.
    grouped: int = 0
    groups: int = 0
    #: Refused because memory was scarce: `leader_memory_pressure_rejections`.
    memory_rejections: int = 0


class _Ticket(Generic[T]):
    """One insert with its bringer, who sleeps until it leads or is answered."""

    def __init__(self, insert: Waiting, payload: T) -> None:
        self.insert = insert
        self.payload = payload
        self.turn = threading.Event()
        self.is_leading = False
        self.is_answered = False
        self.error: TilthError | None = None


class InsertGroups(Generic[T]):
    """Joins inserts of all tables into groups; any number of threads may call it."""

    def __init__(self, clock: Clock, store: Callable[[Sequence[T]], None]) -> None:
        """`store` writes and commits inserts of one table and one shape together; what it raises refuses them all."""
        self._clock = clock
        self._store = store
        self._ids = count()
        self._lock = threading.Lock()
        self._quiet = threading.Condition(self._lock)
        self._tables: dict[str, Gathering] = {}
        self._tickets: dict[int, _Ticket[T]] = {}
        self._is_stopping = False
        self._inserts = self._groups = 0

    def add(
        self, table: str, payload: T, *, rows: int, size: int, shape: object, label: str, limits: GroupLimits
    ) -> None:
        """Returns when the insert is committed; raises what refused it."""
        insert = Waiting(
            id=next(self._ids),
            rows=rows,
            bytes=size,
            shape=shape,
            label=label,
            limits=limits,
            arrived=self._clock.monotonic(),
        )
        ticket = _Ticket(insert, payload)
        with self._lock:
            if self._is_stopping:
                raise UnavailableError("the server is stopping", hint="nothing was stored; try again at another server")
            self._tickets[insert.id] = ticket
            ticket.is_leading = self._tables.setdefault(table, Gathering()).arrive(insert)
        if not ticket.is_leading:
            ticket.turn.wait()
        if ticket.is_leading:
            self._lead(table)
        assert ticket.is_answered
        if ticket.error is not None:
            # Each has an exception of its own: a raised one is changed by whoever raises it.
            raise copy.copy(ticket.error) from ticket.error

    def stats(self) -> InsertStats:
        with self._lock:
            return InsertStats(grouped=self._inserts, groups=self._groups)

    def stop(self) -> None:
        """Takes no more inserts, and waits until those that were taken are answered."""
        with self._quiet:
            self._is_stopping = True
            self._quiet.wait_for(lambda: not self._tickets, STOP_SECONDS_MAX)

    def _lead(self, table: str) -> None:
        """Waits for others, does the work of all, answers them, and says who leads next."""
        group: list[_Ticket[T]] = []
        error: TilthError | None = UnknownOutcomeError(
            "the work of this group of inserts was broken off", hint="look whether the rows are there"
        )
        try:
            try:
                self._gather(table)
            finally:
                group = self._take(table)
            # The rows are those of others too: when the leader's statement is cancelled, the group's work goes on.
            with working_under(None):
                error = self._stored(group)
        finally:
            self._answer(table, group, error)

    def _gather(self, table: str) -> None:
        while True:
            with self._lock:
                left = self._tables[table].seconds_left(self._clock.monotonic())
                if self._is_stopping or not left:
                    return
            self._clock.sleep(min(left, LOOK_SECONDS))

    def _take(self, table: str) -> list[_Ticket[T]]:
        with self._lock:
            group = [self._tickets[insert.id] for insert in self._tables[table].take()]
            self._inserts += len(group)
            self._groups += 1
        return group

    def _stored(self, group: Sequence[_Ticket[T]]) -> TilthError | None:
        """What refused all of them; None: each ticket has its own answer."""
        error = self._try([ticket.payload for ticket in group])
        if error is None or len(group) == 1 or not is_ones_fault(error):
            return error
        for ticket in group:
            ticket.error = self._try([ticket.payload])
        return None

    def _try(self, payloads: Sequence[T]) -> TilthError | None:
        try:
            self._store(payloads)
        except TilthError as error:
            return error
        # A defect must be told to all who wait, not only to the one who met it.
        except Exception as error:
            _log.error("insert_group_failed", inserts=len(payloads), error=error)
            return TilthError(f"a defect of Tilth: {type(error).__name__}: {error}")
        return None

    def _answer(self, table: str, group: Sequence[_Ticket[T]], error: TilthError | None) -> None:
        with self._quiet:
            gathering = self._tables[table]
            next_leader = gathering.done()
            for ticket in group:
                ticket.error = ticket.error or error
                ticket.is_answered = True
                del self._tickets[ticket.insert.id]
                ticket.turn.set()
            if next_leader is None:
                del self._tables[table]
            else:
                leader = self._tickets[next_leader]
                leader.is_leading = True
                leader.turn.set()
            self._quiet.notify_all()
