"""Clients that insert, upsert, update and ask without end, and say again what was not answered, for a chaos run.

Covers: what each says, what it must find, the errors that it met. Does not cover: what is struck (ha_chaos.py).
Always holds: a statement is said until it is answered, in words that make no difference when it had been done before;
an error of which saying it again does not help ends the client, and is the run's outcome.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import tilth
from tilth.base.errors import ErrorKind, TilthError
from tilth.client.errors import ServerError
from tilth.client.http import Connection

STATEMENTS = (
    "CREATE TABLE d.u (k BIGINT, n BIGINT, m BIGINT) ENGINE = MergeTree ORDER BY k UNIQUE KEY k",
    "CREATE TABLE d.c (id BIGINT, a BIGINT, b BIGINT) ENGINE = MergeTree ORDER BY id",
    "INSERT INTO d.c SELECT id, 0L, 0L FROM range(64)",
)
KEYS = 40
#: Rows of one upsert.
ROWS = 5
CHANGED_IDS = 64
#: Every so many updates one takes all rows.
ALL_EACH = 20
PAUSE_SECONDS = 0.1
AGAIN_SECONDS = 0.2
#: A statement that is not answered for so long in spite of all tries has found an error that a retry does not cure.
PATIENCE_SECONDS = 180.0
ANSWER_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 240.0
#: Of these nothing helps but other words.
_HOPELESS = (ErrorKind.INVALID, ErrorKind.CORRUPT, ErrorKind.INTERNAL, ErrorKind.NOT_FOUND)


@dataclass(slots=True)
class Client:
    """One thread with a connection to all servers."""

    name: str
    step: Callable[[Client], None]
    connection: Connection
    #: Steps that are over.
    done: int = 0
    #: By code: errors after which the same words were answered.
    cured: Counter[str] = field(default_factory=Counter)
    #: What was found that must not be, and errors that nothing cured.
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            while not self.over.wait(PAUSE_SECONDS):
                self.step(self)
                self.done += 1
        except Exception as error:  # the run's outcome, not the end of its other clients
            self.wrong.append(f"{self.name}, step {self.done}: {type(error).__name__}: {error}")

    def say(self, statement: str, settings: Mapping[str, str] | None = None) -> list[tuple[int, ...]]:
        """Return the rows of the answer. Raises what a retry does not cure."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        met: Counter[str] = Counter()
        while True:
            try:
                rows = self.connection.sql(statement, settings).rows
            except TilthError as error:
                met[error.code] += 1
                is_hopeless = isinstance(error, ServerError) and error.kind in _HOPELESS
                if is_hopeless or time.monotonic() > deadline:
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                self.cured += met
                return [tuple(row) for row in rows]

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(f"{self.name}, step {self.done}: {what}")


@dataclass(slots=True)
class Load:
    """What the clients have written, and what they found."""

    sent: Callable[[], int]
    clients: list[Client] = field(default_factory=list)
    _seen: int = 0

    def upsert(self, client: Client) -> None:
        """New rows for some keys; the label makes sure that they are written once."""
        number = client.done
        rows = ", ".join(f"({k}, {number}, {-number})" for k in _keys(number))
        client.say(f"INSERT INTO d.u VALUES {rows}", {"insertion_label": f"upsert-{number}"})

    def update(self, client: Client) -> None:
        """One row's two columns, now and then all rows', in a statement that may run twice, and late."""
        number = client.done + 1
        where = "" if number % ALL_EACH == 0 else f"id = {number % CHANGED_IDS} AND "
        client.say(f"UPDATE d.c SET a = {number}, b = {-number} WHERE {where}a < {number}")

    def query(self, client: Client) -> None:
        """Nothing is twice, nothing goes back, no half of a commit is seen."""
        ((rows, distinct),) = client.say("SELECT count(*), count(DISTINCT id) FROM d.t")
        client.expect(rows == distinct, f"{rows} rows of {distinct} messages")
        client.expect(self._seen <= rows <= self.sent(), f"{rows} rows, {self._seen} before, {self.sent()} sent")
        self._seen = rows
        ((keys, distinct, torn),) = client.say("SELECT count(*), count(DISTINCT k), count_if(n + m <> 0) FROM d.u")
        client.expect(keys == distinct and not torn, f"{keys} rows of {distinct} keys, {torn} torn")
        ((ids, torn),) = client.say("SELECT count(*), count_if(a + b <> 0) FROM d.c")
        client.expect(ids == CHANGED_IDS and not torn, f"{ids} rows, {torn} torn")

    def done(self) -> tuple[int, ...]:
        return tuple(client.done for client in self.clients)

    def check(self, client: Client) -> None:
        """Compare the tables with what was written, after the last step of all."""
        upserts, updates = (
            next(each.done for each in self.clients if each.name == name) for name in ("upsert", "update")
        )
        last = {k: number for number in range(upserts) for k in _keys(number)}
        found = client.say("SELECT k, n FROM d.u ORDER BY k")
        client.expect(found == sorted(last.items()), f"upserts: {found}, should be {sorted(last.items())}")
        values = dict.fromkeys(range(CHANGED_IDS), 0)
        for number in range(1, updates + 1):
            values |= dict.fromkeys(values, number) if number % ALL_EACH == 0 else {number % CHANGED_IDS: number}
        found = client.say("SELECT id, a FROM d.c ORDER BY id")
        client.expect(found == sorted(values.items()), f"updates: {found}, should be {sorted(values.items())}")

    @property
    def cured(self) -> Counter[str]:
        return sum((client.cured for client in self.clients), Counter())

    @property
    def wrong(self) -> list[str]:
        return [what for client in self.clients for what in client.wrong]


def _keys(number: int) -> range:
    first = number * ROWS % KEYS
    return range(first, first + ROWS)


@contextmanager
def loaded(urls: str, sent: Callable[[], int]) -> Iterator[Load]:
    """Run the clients until the end of the block; the tables are there."""
    load = Load(sent)
    for name, step in (("upsert", load.upsert), ("update", load.update), ("query", load.query)):
        load.clients.append(Client(name, step, tilth.connect(urls, timeout_seconds=ANSWER_SECONDS_MAX)))
    threads = [threading.Thread(target=client.run, name=client.name, daemon=True) for client in load.clients]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        for client in load.clients:
            client.over.set()
        for thread, client in zip(threads, load.clients, strict=True):
            thread.join(STOP_SECONDS_MAX)
            client.expect(not thread.is_alive(), "it waits for an answer without end")
            client.connection.close()
