"""Turns: whoever was refused too often, because others were faster, commits to a table alone.

Covers: who has the turn at which table, and waiting for it, in this process and in other servers. Does not cover: when
a turn is taken (whoever tries again), what is committed. Always holds: a turn ends with its transaction, or by itself
after `TURN_SECONDS`, so that nobody waits for one who hangs; it only makes others wait: the commit's preconditions keep
the data right, with or without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tilth.base.clock import Clock
from tilth.base.errors import RetryError, TilthError
from tilth.base.logs import Log
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.living import live_server
from tilth.catalog.records.nouns import TurnRecord
from tilth.catalog.records.small_commit import Plan, change, read, unchanged

#: A commit of rows that is refused so often takes the turn at its table.
TRIES_BESIDE = 5
#: A lock expires after this time without a commit of its holder.
TURN_SECONDS = 30.0
#: Interval at which another server's lock is checked.
LOOK_SECONDS = 0.02

_log = Log("catalog")


@dataclass(slots=True)
class _Turn:
    txn: int
    until: float
    over: threading.Event = field(default_factory=threading.Event)


class TurnTakenError(RetryError):
    """a commit of another server has the turn at the table"""

    code = "TURN_TAKEN"


class SharedTurns:
    """The turns at the tables, as all servers of the catalog see them: a record, which the commits of others read."""

    def __init__(self, clock: Clock, kv: KeyValue, *, server: Callable[[], str]) -> None:
        self._clock = clock
        self._kv = kv
        self._server = server
        self._lock = threading.Lock()
        #: Tables that this process has locked or waits to lock, by transaction.
        self._tables: dict[int, set[str]] = {}

    def take(self, table: str, txn: int) -> None:
        """Wait until no other server has the turn at the table, and take it."""
        with self._lock:
            self._tables.setdefault(txn, set()).add(table)
        key = pack(Space.TURN, table)

        def plan(view: ReadView) -> Plan[None]:
            self.check(view, [table], txn)
            until_ms = self._clock.now_ms() + int(TURN_SECONDS * 1000)
            turn = TurnRecord(txn=txn, server=self._server(), until_ms=until_ms)
            return Plan(
                result=None, preconditions=[unchanged(key, view.get(key))], puts={key: codec.TURNS.encode(turn)}
            )

        while True:
            try:
                return change(self._kv, self._clock, plan)
            except TurnTakenError:
                self._clock.sleep(LOOK_SECONDS)

    def check(self, view: ReadView, tables: Iterable[str], txn: int) -> None:
        """Raises TurnTakenError where another server's transaction has the turn at one of the tables."""
        for table in tables:
            turn = read(view, pack(Space.TURN, table), codec.TURNS)
            # Those of this process wait in `Turns`.
            is_others = turn is not None and turn.txn != txn and turn.server != self._server()
            if turn is None or not is_others or live_server(view, turn.server) is None:
                continue
            if self._clock.now_ms() < turn.until_ms:
                raise TurnTakenError(table=table, txn=turn.txn, server=turn.server)

    def end(self, txn: int) -> None:
        """End the turns of a transaction, if it has any; what cannot be ended ends by itself."""
        with self._lock:
            tables = self._tables.pop(txn, set())
        for table in tables:
            key = pack(Space.TURN, table)

            def plan(view: ReadView, key: bytes = key) -> Plan[None]:
                found = view.get(key)
                if found is None or codec.TURNS.decode(key, found.value).txn != txn:
                    return Plan(result=None)
                return Plan(result=None, preconditions=[unchanged(key, found)], deletes=[key])

            try:
                change(self._kv, self._clock, plan)
            except TilthError as error:
                _log.warning("turn_not_ended", cause_id=str(txn), table=table, reason=error)


class Turns:
    """The turns at the tables of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}

    def take(self, table: str, txn: int) -> None:
        """Wait until nobody else has the turn at the table, and take it; whoever has it has it for longer."""
        while (other := self._taken(table, txn)) is not None:
            self._await(table, other)

    def await_others(self, tables: Iterable[str], txn: int) -> None:
        """Wait until no other transaction has the turn at one of the tables."""
        for table in tables:
            while (turn := self._turns.get(table)) is not None and turn.txn != txn:
                self._await(table, turn)

    def end(self, txn: int) -> None:
        """End the turns of a transaction, if it has any."""
        if not self._turns:
            return
        with self._lock:
            for table in [table for table, turn in self._turns.items() if turn.txn == txn]:
                self._turns.pop(table).over.set()

    def _taken(self, table: str, txn: int) -> _Turn | None:
        """Return the turn that another transaction has; none: it has been taken."""
        with self._lock:
            turn = self._turns.get(table)
            if turn is not None and turn.txn != txn:
                return turn
            until = self._clock.monotonic() + TURN_SECONDS
            if turn is None:
                self._turns[table] = _Turn(txn, until)
            else:
                turn.until = until
            return None

    def _await(self, table: str, turn: _Turn) -> None:
        """Wait until it is over; end it where its time is."""
        while not turn.over.is_set() and (left := turn.until - self._clock.monotonic()) > 0:
            self._clock.wait(turn.over, left)
        with self._lock:
            # Whoever has it may have taken it for longer meanwhile.
            if self._turns.get(table) is turn and turn.until <= self._clock.monotonic():
                self._turns.pop(table).over.set()
