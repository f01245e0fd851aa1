"""Operations of a run with their times and outcomes.

Covers: recording them from many threads, in memory and as lines of JSON. Does not cover: judging them (checkers.py).
Always holds: an operation is recorded before it is sent, so that one which never ended is known.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO


class Outcome(StrEnum):
    """Result of an operation, as far as its client knows."""

    OK = "ok"
    #: It has not happened, and will not.
    REFUSED = "refused"
    #: It may have happened, or happen yet.
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Op:
    """One operation of one client."""

    #: `insert`, `upsert`, `delete`, ..
    kind: str
    table: str = ""
    #: The server to which it was sent.
    server: str = ""
    client: str = ""
    round: int = 0
    #: Rows that an INSERT brings, or keys that a statement writes.
    keys: tuple[int, ...] = ()
    #: The value that it writes; it grows with each operation of a client.
    number: int = 0
    #: By the clock of the harness, in seconds.
    invoked: float = 0.0
    #: None while it runs.
    completed: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    #: Short text for people: the statement or what was read.
    about: str = ""

    def was_settled(self, at: float | None) -> bool:
        """Return whether it had ended with a known outcome at that time; None: in the end."""
        if self.outcome is Outcome.UNKNOWN or self.completed is None:
            return False
        return at is None or self.completed < at


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that the harness did."""

    at: float
    round: int
    what: str


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which acknowledged commits may have been lost, for a database without its tail took over."""

    start: float
    end: float

    def covers(self, op: Op) -> bool:
        return op.completed is not None and self.start <= op.completed and op.invoked <= self.end


@dataclass(slots=True)
class History:
    """All operations and events of a run; lines of JSON go to the file as they end."""

    path: Path
    ops: list[Op] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    round: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _file: IO[str] | None = None

    def invoke(self, op: Op) -> Op:
        op.invoked, op.round = time.monotonic(), self.round
        with self._lock:
            self.ops.append(op)
        return op

    def complete(self, op: Op, outcome: Outcome, error: str = "") -> None:
        op.outcome, op.error = outcome, error
        op.completed = time.monotonic()
        line = {
            "at": round(op.invoked, 3),
            "seconds": round(op.completed - op.invoked, 3),
            "round": op.round,
            "kind": op.kind,
            "table": op.table,
            "client": op.client,
            "server": op.server,
            "number": op.number,
            "keys": op.keys[:8],
            "outcome": outcome.value,
            "error": error[:300],
            "about": op.about[:200],
        }
        self._write(line)

    def note(self, what: str) -> None:
        event = Event(at=time.monotonic(), round=self.round, what=what)
        with self._lock:
            self.events.append(event)
        self._write({"at": round(event.at, 3), "round": event.round, "event": what})

    def of(self, *kinds: str, table: str = "") -> list[Op]:
        """Return a copy of the operations of these kinds."""
        with self._lock:
            ops = [*self.ops]
        return [op for op in ops if op.kind in kinds and (not table or op.table == table)]

    def recent(self, since: float) -> list[Op]:
        """Return the operations that were sent from then on."""
        found = []
        with self._lock:
            for op in reversed(self.ops):
                # They are appended in order but for moments.
                if op.invoked < since - 1.0:
                    break
                if op.invoked >= since:
                    found.append(op)
        return found[::-1]

    def lines_around(self, number: int) -> list[str]:
        """Return the blows of a round and of the one before, and what went wrong meanwhile, for a failure."""
        found = []
        for text in self.path.read_text().splitlines():
            line = json.loads(text)
            is_near = line["round"] in {number - 1, number}
            if is_near and "event" in line:
                found.append(f"{line['at']} {line['event']}")
            elif is_near and line["outcome"] != Outcome.OK and line["kind"] != "probe":
                names = ("at", "seconds", "kind", "table", "client", "server", "number", "outcome", "error")
                found.append(" ".join(str(line[name]) for name in names))
        return found

    @contextmanager
    def open(self) -> Iterator[History]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w") as self._file:
            yield self
        self._file = None

    def _write(self, line: dict[str, object]) -> None:
        with self._lock:
            if self._file is not None and not self._file.closed:
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()
