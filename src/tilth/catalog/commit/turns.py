"""Turns: whoever was refused too often, because others were faster, commits to a table alone.

Covers: who has the turn at which table, and waiting for it. Does not cover: when a turn is taken (whoever tries again),
what is committed. Always holds: a turn ends with its transaction, or by itself after `TURN_SECONDS`, so that nobody
waits for one who hangs; it only makes others wait: the commit's preconditions keep the data right, with or without it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilth.base.clock import Clock

#: A commit of rows that is refused so often takes the turn at its table.
TRIES_BESIDE = 5
#: After so long without a commit of its holder a turn is over.
TURN_SECONDS = 30.0


@dataclass(slots=True)
class _Turn:
    txn: int
    until: float
    over: threading.Event = field(default_factory=threading.Event)


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
