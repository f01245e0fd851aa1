"""Operations of a run with their times and outcomes.

Covers: recording them from many threads, in memory and as lines of JSON. Does not cover: judging them (checkers.py).
Always holds: an operation is recorded before it is sent, so that the history also has those that never ended.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from tilth.base.hybrid import milliseconds
from tilth.model.txn import read_file_name

_SERVER_KILLED = re.compile(r"struck: server \w+ killed")


class Outcome(StrEnum):
    """Result of an operation by the answer that its client got."""

    OK = "ok"
    #: The operation has had no effect, and will have none.
    REFUSED = "refused"
    #: The operation may have taken effect, or may do so later.
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
    #: Ids of the rows of an INSERT, or keys that a statement writes.
    keys: tuple[int, ...] = ()
    #: Value that the operation writes; it grows with each operation of a client.
    number: int = 0
    #: Time at which it was sent, in seconds of the harness's monotonic clock.
    invoked: float = 0.0
    #: Time of the answer by the same clock; None while it runs.
    completed: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    #: Statement or other short text for people.
    about: str = ""

    def was_settled(self, at: float | None) -> bool:
        """Return whether it had ended with a known outcome by that time; `None` stands for the end of the run."""
        if self.outcome is Outcome.UNKNOWN or self.completed is None:
            return False
        return at is None or self.completed < at


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A blow, its mending, or another act of the harness."""

    at: float
    round: int
    what: str


@dataclass(frozen=True, slots=True)
class Window:
    """Time in which acknowledged commits may have been lost, because a standby without the end of the log took over."""

    start: float
    end: float

    def covers(self, op: Op) -> bool:
        return op.completed is not None and self.start <= op.completed and op.invoked <= self.end


def may_stay(name: str, windows: Sequence[Window], events: Sequence[Event]) -> bool:
    """Return whether a file was begun in a window in which a server was killed, too: nobody remembers its transaction
    then, and its rows may have been acknowledged.
    """
    file = read_file_name(name)
    if file is None:
        return False
    begun = milliseconds(file.txn) / 1000 - time.time() + time.monotonic()
    return any(
        window.start <= begun <= window.end
        and any(_SERVER_KILLED.search(each.what) and window.start <= each.at <= window.end for each in events)
        for window in windows
    )


@dataclass(slots=True)
class History:
    """All operations and events of a run; each is appended to the file as a line of JSON when it ends."""

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
        """Return the operations of these kinds, of one table if it is given."""
        with self._lock:
            ops = [*self.ops]
        return [op for op in ops if op.kind in kinds and (not table or op.table == table)]

    def recent(self, since: float) -> list[Op]:
        """Return the operations that were sent at this time or later."""
        found = []
        with self._lock:
            for op in reversed(self.ops):
                # Threads append operations up to moments later than they read the clock.
                if op.invoked < since - 1.0:
                    break
                if op.invoked >= since:
                    found.append(op)
        return found[::-1]

    def lines_around(self, number: int) -> list[str]:
        """Return the blows and the failed operations of a round and of the one before, as lines for people."""
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
