"""Slots and queues of statements. Pure: statements arrive and leave, and it names those that run next.

Covers: queues with slots of their own, fairness among clients. Does not cover: waiting (running.py), Spark's slots
(warehouse/tasks/state.py). Always holds: a queue never has more statements than slots; a slot is free only where nobody
waits for it; a client gets its second slot after every other client that waited has had its first one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tilth.base.errors import RetryError


class Queue(StrEnum):
    """Statements that share slots."""

    #: SELECT over tables of rows.
    QUERY = "query"
    #: INSERT .. SELECT, DELETE, UPDATE: Spark computes what they write.
    CHANGE = "change"
    #: INSERT of rows that come with it.
    INSERT = "insert"
    #: Definitions and switches: CREATE, DROP, ALTER, SYSTEM, OPTIMIZE, ...
    CONTROL = "control"
    #: Statements that must not wait for others: KILL, SHOW, DESCRIBE, system tables.
    WATCH = "watch"
    #: Queries over system tables that may take long, each in its own process.
    APART = "apart"


#: Sender: the host, then its connection.
Client = tuple[str, ...]


@dataclass(slots=True)
class _Line:
    """Statements of one client in the order of their arrival, or the lines of its connections, which are served by
    turns.
    """

    members: OrderedDict[str, _Line] = field(default_factory=OrderedDict)

    def add(self, path: tuple[str, ...]) -> None:
        if path:
            self.members.setdefault(path[0], _Line()).add(path[1:])

    def remove(self, path: tuple[str, ...]) -> None:
        inner = self.members[path[0]]
        if len(path) > 1:
            inner.remove(path[1:])
        if not inner.members:
            del self.members[path[0]]

    def pop(self) -> str:
        """Remove the next statement, and let its client wait behind the others."""
        name, inner = next(iter(self.members.items()))
        if not inner.members:
            del self.members[name]
            return name
        statement = inner.pop()
        if inner.members:
            self.members.move_to_end(name)
        else:
            del self.members[name]
        return statement

    def copy(self) -> _Line:
        return _Line(OrderedDict((name, inner.copy()) for name, inner in self.members.items()))

    def in_order(self) -> Iterator[str]:
        """Yield the statements in the order in which they get their slots."""
        line = self.copy()
        while line.members:
            yield line.pop()


class SlotBoard:
    """Statements that run and that wait. Not thread-safe: its owner has a lock."""

    def __init__(self, slots: Mapping[Queue, int], *, waiting_max: int) -> None:
        """`waiting_max`: of each queue; more are refused."""
        self._slots = dict(slots)
        self._waiting_max = waiting_max
        self._running: dict[str, Queue] = {}
        self._counts = dict.fromkeys(Queue, 0)
        self._waiting: dict[str, tuple[Queue, tuple[str, ...]]] = {}
        self._lines = {queue: _Line() for queue in self._slots}

    def arrive(self, statement: str, queue: Queue, client: Client) -> bool:
        """True if the statement has a slot, False if it waits for one. Raises RetryError (TOO_MANY_STATEMENTS)."""
        assert statement not in self._running, statement
        assert statement not in self._waiting, statement
        if self._counts[queue] < self._slots[queue]:
            self._run(statement, queue)
            return True
        waiting = sum(other is queue for other, _ in self._waiting.values())
        if waiting >= self._waiting_max:
            hint = "send it again soon; system.processes shows what runs, and server.statements-max is the limit"
            raise RetryError.coded(
                "TOO_MANY_STATEMENTS",
                "too many statements wait for a slot",
                queue=queue.value,
                waiting=waiting,
                hint=hint,
            )
        # A client's name begins with a sign of its own, so that no statement's id is taken for one.
        path = (*(f"@{part}" for part in client), statement)
        self._waiting[statement] = (queue, path)
        self._lines[queue].add(path)
        return False

    def leave(self, statement: str) -> list[str]:
        """The statement has ended, or waits no longer. Returns those that have a slot from now on.

        Does nothing for a statement that is not here.
        """
        waited = self._waiting.pop(statement, None)
        if waited is not None:
            queue, path = waited
            self._lines[queue].remove(path)
            return []
        if statement not in self._running:
            return []
        queue = self._running.pop(statement)
        self._counts[queue] -= 1
        granted: list[str] = []
        while self._lines[queue].members and self._counts[queue] < self._slots[queue]:
            chosen = self._lines[queue].pop()
            del self._waiting[chosen]
            self._run(chosen, queue)
            granted.append(chosen)
        return granted

    def ahead(self) -> dict[str, int]:
        """Return the number of statements before each one that waits."""
        return {one: ahead for line in self._lines.values() for ahead, one in enumerate(line.in_order())}

    def running(self, queue: Queue) -> int:
        return self._counts[queue]

    def _run(self, statement: str, queue: Queue) -> None:
        self._running[statement] = queue
        self._counts[queue] += 1
