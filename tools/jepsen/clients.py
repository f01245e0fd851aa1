"""Clients: threads that run one workload each, against servers drawn from the seed, and record it.

Covers: INSERTs, upserts and deletes, updates, reads of current and past versions, reads of system tables. Does not
cover: definitions (definitions.py), messages (messages.py).
Always holds: no statement is sent twice; each read is compared with the history at once, so that a fault is found in
the round in which it shows.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tilth
from tilth import Result
from tilth.base.errors import ErrorKind, TilthError
from tilth.client.http import Connection
from tools.jepsen.checkers import Faults, Hosting, PastRead, Sighting, check_keys, check_set, check_updates
from tools.jepsen.harm import load_factor
from tools.jepsen.history import History, Op, Outcome
from tools.jepsen.tables import UPDATED_IDS, VIEW_KEYS

#: Time limit of an answer on a machine without other load.
ANSWER_SECONDS_MAX = 20.0
#: Upper bound of that time limit where it grows with the load of the machine.
ANSWER_SECONDS_MOST = 60.0
PAUSE_SECONDS = 0.15
STOP_SECONDS_MAX = 90.0
ROWS = 4
KEYS = 30
#: Distance of the first ids of two clients' INSERTs.
CLIENT_IDS = 10_000_000
#: Number of updates among which one changes all rows.
ALL_EACH = 20
#: Most versions that are read again and again.
PINNED_MAX = 12
#: Kinds of errors that no blow excuses: the statement or stored data is wrong.
_DEFECTS = (ErrorKind.INVALID, ErrorKind.CORRUPT, ErrorKind.INTERNAL, ErrorKind.NOT_FOUND)
#: Kinds of errors with an unknown outcome; after INTERNAL, which is a defect, the statement may have committed.
_OPEN = (ErrorKind.UNKNOWN_OUTCOME, ErrorKind.INTERNAL)
#: Codes of errors about a version that the table keeps no longer.
_PAST_IS_OVER = ("INVALID_SNAPSHOT", "UNKNOWN_VERSION")


@dataclass(slots=True)
class Seen:
    """Results of reads that are compared at the end of the run."""

    past: list[PastRead] = field(default_factory=list)
    growing: list[Sighting] = field(default_factory=list)
    hostings: list[Hosting] = field(default_factory=list)


@dataclass
class Client:
    """One thread, with a connection to each server."""

    name: str
    history: History
    urls: Mapping[str, str]
    rng: random.Random
    step: Callable[[Client], None]
    pause_seconds: float = PAUSE_SECONDS
    #: Number of statements sent.
    count: int = 0
    faults: Faults = field(default_factory=Faults)
    over: threading.Event = field(default_factory=threading.Event)
    _connections: dict[str, Connection] = field(default_factory=dict)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        seconds = min(ANSWER_SECONDS_MOST, ANSWER_SECONDS_MAX * load_factor())
        self._connections = {name: tilth.connect(url, timeout_seconds=seconds) for name, url in self.urls.items()}
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the running statement; one that does not end is a fault."""
        self.over.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS_MAX)
            if self._thread.is_alive():
                self.faults.found(f"{self.name} waits for an answer without end")
        for connection in self._connections.values():
            connection.close()

    def _run(self) -> None:
        while not self.over.wait(self.pause_seconds):
            try:
                self.step(self)
            # The error is a fault of the run, in which the other clients go on.
            except Exception as error:
                self.faults.found(f"{self.name}: {type(error).__name__}: {error}")
                return

    def any_server(self) -> str:
        return self.rng.choice(sorted(self.urls))

    def send(self, op: Op, statement: str, *, excused: Sequence[str] = ()) -> Result | None:
        """Return the answer, or None after an error; error codes in `excused` are no faults."""
        op.client = self.name
        op.server = op.server or self.any_server()
        op.about = op.about or statement
        self.history.invoke(op)
        try:
            result = self._connections[op.server].sql(statement)
        except TilthError as error:
            self.history.complete(op, outcome_of(error), f"{error.code}: {error}")
            if error.kind in _DEFECTS and error.code not in excused:
                self.faults.found(f"{op.kind} of {op.table} at {op.server} in round {op.round}: {error.code}: {error}")
            return None
        self.history.complete(op, Outcome.OK)
        return result


def outcome_of(error: TilthError) -> Outcome:
    return Outcome.UNKNOWN if error.kind in _OPEN else Outcome.REFUSED


# --- writers ---------------------------------------------------------------------------------------------------------


def inserting(number: int) -> Callable[[Client], None]:
    """Return the step of the client with this number: an INSERT of a few rows without a label."""

    def step(client: Client) -> None:
        first = number * CLIENT_IDS + client.count * ROWS
        op = Op(
            kind="insert",
            table="d.s" if client.count % 2 else "d.s2",
            keys=tuple(range(first, first + ROWS)),
            number=client.count,
        )
        client.count += 1
        rows = ", ".join(f"({id_}, {op.number})" for id_ in op.keys)
        client.send(op, f"INSERT INTO {op.table} (id, op) VALUES {rows}")

    return step


def upsert(client: Client) -> None:
    """Upsert a few keys; now and then delete rows up to a number instead."""
    client.count += 1
    n = client.count
    if n % 5 == 0:
        keys = (client.rng.randrange(KEYS), client.rng.randrange(KEYS))
        op = Op(kind="delete", table="d.u", keys=keys, number=n)
        client.send(op, f"DELETE FROM d.u WHERE k IN {keys} AND n <= {n}")
        return
    first = client.rng.randrange(KEYS - ROWS)
    op = Op(kind="upsert", table="d.u", keys=tuple(range(first, first + ROWS)), number=n)
    rows = ", ".join(f"({key}, {n}, {-n})" for key in op.keys)
    client.send(op, f"INSERT INTO d.u (k, n, m) VALUES {rows}")


def update(client: Client) -> None:
    """Update two columns of one row, now and then of all rows."""
    client.count += 1
    n = client.count
    is_all = n % ALL_EACH == 0
    keys = tuple(range(UPDATED_IDS)) if is_all else (n % UPDATED_IDS,)
    where = "" if is_all else f"id = {keys[0]} AND "
    op = Op(kind="update", table="d.c", keys=keys, number=n)
    client.send(op, f"UPDATE d.c SET a = {n}, b = {-n} WHERE {where}a < {n}")


# --- readers ---------------------------------------------------------------------------------------------------------


class Reader:
    """Reads of current versions, each compared with the operations acknowledged before it began."""

    def __init__(self, sent: Callable[[], int]) -> None:
        """`sent` returns the number of messages that were sent."""
        self._sent = sent
        self._steps = (self._set, self._keys, self._messages, self._updates, self._set, self._view)

    def step(self, client: Client) -> None:
        client.count += 1
        self._steps[client.count % len(self._steps)](client)

    def _set(self, client: Client) -> None:
        table = "d.s" if client.count % 2 else "d.s2"
        op = Op(kind="read", table=table)
        result = client.send(op, f"SELECT id FROM {table}")
        if result is not None:
            rows = Counter(result.arrow().column("id").to_pylist())
            inserts = client.history.of("insert", table=table)
            self._judge(client, op, check_set(inserts, rows, at=op.invoked, windows=client.history.windows))

    def _keys(self, client: Client) -> None:
        op = Op(kind="read", table="d.u")
        result = client.send(op, "SELECT k, n, m FROM d.u")
        if result is not None:
            found = keyed(result.rows)
            writes = client.history.of("upsert", "delete", table="d.u")
            self._judge(client, op, check_keys(writes, found, at=op.invoked, windows=client.history.windows))

    def _updates(self, client: Client) -> None:
        op = Op(kind="read", table="d.c")
        result = client.send(op, "SELECT id, a, b FROM d.c")
        if result is not None:
            rows = [(int(id_), int(a), int(b)) for id_, a, b in result.rows]
            updates, windows = client.history.of("update"), client.history.windows
            self._judge(client, op, check_updates(updates, rows, UPDATED_IDS, at=op.invoked, windows=windows))

    def _messages(self, client: Client) -> None:
        op = Op(kind="read", table="d.t")
        result = client.send(op, "SELECT count(*), count(DISTINCT id), count_if(v <> concat('value ', id)) FROM d.t")
        if result is not None:
            rows, distinct, torn = result.rows[0]
            faults = Faults(twice=rows - distinct, torn=torn, wrong=int(rows > self._sent()))
            if not faults.is_none:
                faults.about.append(f"d.t: {rows} rows of {distinct} messages, {torn} torn, {self._sent()} sent")
            self._judge(client, op, faults)

    def _view(self, client: Client) -> None:
        op = Op(kind="read", table="d.q")
        result = client.send(op, f"SELECT count(*), count(DISTINCT k), count_if(id % {VIEW_KEYS} <> k) FROM d.q")
        if result is not None:
            rows, distinct, torn = result.rows[0]
            faults = Faults(twice=rows - distinct, torn=torn)
            if not faults.is_none:
                faults.about.append(f"d.q: {rows} rows of {distinct} keys, {torn} torn")
            self._judge(client, op, faults)

    def _judge(self, client: Client, op: Op, faults: Faults) -> None:
        faults.about = [f"round {op.round}, read of {op.table} at {op.server}: {each}" for each in faults.about]
        client.faults.add(faults)


_CONTENT = {
    "d.s": "SELECT count(*), sum(id), sum(op) FROM d.s",
    "d.u": "SELECT count(*), sum(k * 1000003 + n), sum(m) FROM d.u",
}


class PastReader:
    """Reads of past versions, again and again on all servers, for as long as the table keeps them."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._pinned: list[tuple[str, int]] = []

    def step(self, client: Client) -> None:
        client.count += 1
        if client.count % 4 == 1 or not self._pinned:
            self._pin(client)
            return
        table, version = client.rng.choice(self._pinned)
        op = Op(kind="past", table=table, number=version)
        result = client.send(op, f"{_CONTENT[table]} VERSION AS OF {version}", excused=_PAST_IS_OVER)
        if result is None:
            if any(code in op.error for code in _PAST_IS_OVER):
                self._pinned.remove((table, version))
            return
        self._seen.past.append(
            PastRead(table=table, version=version, content=str(result.rows[0]), server=op.server, at=op.invoked)
        )

    def _pin(self, client: Client) -> None:
        table = client.rng.choice(sorted(_CONTENT))
        op = Op(kind="pin", table=table)
        result = client.send(op, f"SELECT version FROM system.tables WHERE database = 'd' AND name = '{table[2:]}'")
        if result is not None and result.rows:
            self._pinned = [*self._pinned, (table, int(result.rows[0][0]))][-PINNED_MAX:]


class Probe:
    """Reads of system tables: leases, versions of tables, counts of consumed messages."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._consumed = 0

    def step(self, client: Client) -> None:
        self._leases(client)
        self._versions(client)
        self._consumption(client)

    def _leases(self, client: Client) -> None:
        op = Op(kind="probe", table="system.leases")
        result = client.send(op, "SELECT name, holder, epoch FROM system.leases")
        for name, holder, epoch in () if result is None else result.rows:
            if holder:
                self._seen.hostings.append(Hosting(thing=name, epoch=epoch, holder=holder, at=op.invoked))
            self._saw(op, f"epoch of {name}", epoch)

    def _versions(self, client: Client) -> None:
        op = Op(kind="probe", table="system.tables")
        result = client.send(op, "SELECT name, version FROM system.tables WHERE database = 'd' AND version IS NOT NULL")
        for name, version in () if result is None else result.rows:
            self._saw(op, f"version of {name}", version)

    def _consumption(self, client: Client) -> None:
        op = Op(kind="probe", table="system.ingest_ledger")
        result = client.send(op, "SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'k'")
        if result is None:
            return
        total = int(result.rows[0][0] or 0)
        self._saw(op, "messages of k", total)
        if total > self._consumed:
            self._consumed = total
            more = client.history.invoke(Op(kind="consume", number=total, server=op.server, client=client.name))
            client.history.complete(more, Outcome.OK)

    def _saw(self, op: Op, thing: str, number: int) -> None:
        ended = op.completed if op.completed is not None else op.invoked
        self._seen.growing.append(Sighting(thing=thing, number=number, began=op.invoked, ended=ended, server=op.server))


def keyed(rows: Sequence[Sequence[int]]) -> dict[int, list[tuple[int, int]]]:
    """Return the numbers `(n, m)` of rows `(key, n, m)` by key."""
    found: dict[int, list[tuple[int, int]]] = {}
    for key, n, m in rows:
        found.setdefault(int(key), []).append((int(n), int(m)))
    return found
