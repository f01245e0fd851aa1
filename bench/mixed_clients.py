"""Many clients that mix everything: does a node stay answerable, truthful and bounded?

    python -m bench.mixed_clients [--clients 200] [--minutes 10] [--work DIR] [--seed 1]

Each client sends one statement after the other, with a pause of a second on average between two: INSERTs (JSON, CSV,
Arrow, VALUES), SELECTs of one key, large results that are read to the end or abandoned, and absurd queries: cross
joins, exploding sequences, regular expressions that backtrack, huge sorts, nesting without end; they end by
`max_execution_time` or by the KILL QUERY of an operator, who checks every few seconds. At a third of the time
Spark's JVM is stopped (SIGSTOP), at two thirds one is killed (SIGKILL).

Each minute a line of what the node uses is printed; in the end a table of statements by kind and outcome, one of
latencies, and the figures: seconds until queries worked again by themselves after each blow, defects, and whether the
rows of each acknowledged INSERT are there exactly once and those of all others at most once. The exit code is 1 where a
figure misses its target.

Covers: a node of its own and its clients on one machine. Does not cover: Kafka and long runs (tools/soak.py), speed of
anything (the other benchmarks). Always holds: only processes below the node that was started here are stopped or
killed, and all of them end.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
from rich.table import Table

import tilth
from bench.report import Figure, print_report
from tilth.base.errors import ErrorKind, TilthError
from tilth.client import Connection
from tilth.client.errors import AnswerLostError
from tools.node_process import NodeProcess
from tools.node_watch import file_sizes, processes_below, resident

MIB = 1 << 20
PAUSE_SECONDS = 1.0
SAMPLE_SECONDS = 60.0
OPERATOR_SECONDS = 4.0
#: Age from which on the operator kills an absurd query.
ABSURD_SECONDS_MAX = 8
#: Time limit that the absurd query itself sets.
LIMIT_SECONDS = 12
BIG_ROWS = 3_000_000
BIG_READ_ROWS = 400_000
ROWS_PER_INSERT_MAX = 20
#: A client gives up an answer after so long; that is wrong.
ANSWER_SECONDS_MAX = 300.0
PROBE_SECONDS_MAX = 10
#: 30 s until a silent JVM is considered hung, and a start of Spark on a machine that is busy.
BACK_SECONDS_MAX = 180.0
#: Shown where it never came back.
NEVER_SECONDS = 9999.0
QUIET_SECONDS_MAX = 90.0
#: Bounds of the growth of a node over the load.
THREADS_MORE_MAX = 60
FILES_MORE_MAX = 120
NODE_MIB_MORE_MAX = 1500
JOIN_SECONDS_MAX = ANSWER_SECONDS_MAX + 60

STATEMENTS = (
    "CREATE DATABASE mixed",
    """CREATE TABLE mixed.events (batch BIGINT, n INT, s STRING) ENGINE = MergeTree ORDER BY (batch, n)
        SETTINGS memory_buffer = 1,
        old_parts_lifetime = 30, tablet_history_max_age_sec = 30, ttl_for_trash_items = 30""",
    "CREATE TABLE mixed.big (id BIGINT, g INT, s STRING) ENGINE = MergeTree ORDER BY id",
    f"INSERT INTO mixed.big SELECT id, id % 1000, repeat(CAST(id AS STRING), 12) FROM range({BIG_ROWS})",
)
#: Each has a word of its own, by which the operator finds it.
ABSURD = {
    "cross join": "SELECT count(*) AS absurd FROM range(3000000) a, range(3000000) b WHERE a.id * b.id % 7 = 3",
    "self join": "SELECT sum(a.id * b.id) AS absurd FROM mixed.big a JOIN mixed.big b ON a.g <> b.g",
    "explosion": "SELECT sum(x) AS absurd FROM (SELECT explode(sequence(1, 20000000)) AS x FROM range(10000))",
    "backtracking": "SELECT count(*) AS absurd FROM range(9000000) WHERE concat(repeat('a', 30), id) RLIKE '^(a|aa)+$'",
    "sort": "SELECT id AS absurd, repeat(CAST(id AS STRING), 20) AS s FROM range(40000000) ORDER BY s DESC, id",
    "windows": "SELECT max(r) AS absurd FROM (SELECT row_number() OVER (ORDER BY s DESC, id) AS r FROM mixed.big)",
    "nesting": f"SELECT {'(' * 3000}1{')' * 3000} AS absurd",
    "long list": f"SELECT count(*) AS absurd FROM mixed.big WHERE id IN ({', '.join(map(str, range(20000)))})",
    "system join": "SELECT count(*) AS absurd FROM system.settings a, system.settings b, system.settings c, "
    "system.settings d WHERE a.name < d.value",
    "wide": f"SELECT {', '.join(f'sum(id * {number})' for number in range(1500))}, 1 AS absurd FROM mixed.big",
}
OPERATOR = f"KILL QUERY WHERE query LIKE '%absurd%' AND elapsed > {ABSURD_SECONDS_MAX} AND kind = 'Query'"
#: Weights by which a client draws its next action.
WEIGHTS = {
    "insert json": 12,
    "insert csv": 8,
    "insert arrow": 10,
    "insert values": 10,
    "point select": 30,
    "system select": 10,
    "big read": 3,
    "big abandoned": 5,
    "absurd": 12,
}
SAMPLE_COLUMNS = "minute statements errors node MiB  jvm MiB others MiB threads files results result MiB temp MiB spark"


@dataclass(slots=True)
class StatementCounters:
    """Outcomes and durations of the statements; any thread adds to them."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: Kinds of wrong results, each with an example.
    wrong: dict[str, str] = field(default_factory=dict)
    wrong_count: int = 0
    #: When the newest of those that were answered well was sent, by kind.
    newest_ok: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, outcome: str, seconds: float) -> None:
        with self._lock:
            self.outcomes[kind, outcome] += 1
            self.seconds[kind].append(seconds)
            if outcome == "ok":
                sent = time.monotonic() - seconds
                self.newest_ok[kind] = max(sent, self.newest_ok.get(kind, 0.0))

    def add_wrong(self, kind: str, what: str, example: object) -> None:
        with self._lock:
            self.wrong_count += 1
            self.wrong.setdefault(f"{kind}: {what}", str(example)[:400])

    def counts(self) -> tuple[int, int]:
        """Statements, and those of them that failed."""
        with self._lock:
            total = sum(self.outcomes.values())
            return total, total - sum(count for (_, outcome), count in self.outcomes.items() if outcome == "ok")


@dataclass(slots=True)
class Batches:
    """The rows that clients tried to insert, by the batch's number."""

    rows: dict[int, int] = field(default_factory=dict)
    #: `ok`, `refused`: the node reports that nothing was stored; `unknown`.
    fates: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self, rows: int) -> int:
        with self._lock:
            batch = len(self.rows)
            self.rows[batch], self.fates[batch] = rows, "unknown"
            return batch


def is_defect(error: TilthError) -> bool:
    """Return whether an error is a defect: the node's own fault, or no answer for too long."""
    if isinstance(error, AnswerLostError):
        return "did not answer in time" in error.message
    return error.code in ("INTERNAL_ERROR", "TASK_FAILED", "NOT_A_TILTH_SERVER")


class Client:
    """One of many, on a thread and a connection of its own."""

    def __init__(
        self, url: str, counters: StatementCounters, batches: Batches, is_over: threading.Event, seed: int
    ) -> None:
        self._url = url
        self._connection = tilth.connect(url, timeout_seconds=ANSWER_SECONDS_MAX)
        self._http = httpx.Client(base_url=url, timeout=ANSWER_SECONDS_MAX, trust_env=False)
        self._counters = counters
        self._batches = batches
        self._is_over = is_over
        self._rng = random.Random(seed)  # one for each client, by the seed of the run
        self.thread = threading.Thread(target=self._run, name=f"client-{seed}", daemon=True)

    def _run(self) -> None:
        acts: dict[str, Callable[[], None]] = {
            "insert json": lambda: self._insert(self._json),
            "insert csv": lambda: self._insert(self._csv),
            "insert arrow": lambda: self._insert(self._arrow),
            "insert values": lambda: self._insert(self._values),
            "point select": self._point,
            "system select": self._system,
            "big read": self._big_read,
            "big abandoned": self._big_abandoned,
            "absurd": self._absurd,
        }
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        with self._connection, self._http:
            while not self._is_over.wait(self._rng.expovariate(1 / PAUSE_SECONDS)):
                (kind,) = self._rng.choices(kinds, weights)
                self._do(kind, acts[kind])

    def _do(self, kind: str, act: Callable[[], None]) -> None:
        started, outcome = time.monotonic(), "ok"
        try:
            act()
        except TilthError as error:
            outcome = error.code
            if is_defect(error):
                self._counters.add_wrong(kind, error.code, error)
        # Whatever else a client meets is a fault of the node or of its client; the run goes on.
        except Exception as error:
            outcome = type(error).__name__
            self._counters.add_wrong(kind, outcome, error)
        self._counters.add(kind, outcome, time.monotonic() - started)

    def _insert(self, send: Callable[[int, int], None]) -> None:
        rows = self._rng.randint(1, ROWS_PER_INSERT_MAX)
        batch = self._batches.new(rows)
        try:
            send(batch, rows)
        except TilthError as error:
            self._batches.fates[batch] = "unknown" if error.kind is ErrorKind.UNKNOWN_OUTCOME else "refused"
            raise
        self._batches.fates[batch] = "ok"

    def _arrow(self, batch: int, rows: int) -> None:
        table = pa.table({"batch": [batch] * rows, "n": list(range(rows)), "s": [f"arrow {batch}"] * rows})
        self._connection.insert("mixed.events", table)

    def _values(self, batch: int, rows: int) -> None:
        values = ", ".join(f"({batch}, {number}, 'values')" for number in range(rows))
        self._connection.sql(f"INSERT INTO mixed.events VALUES {values}")

    def _csv(self, batch: int, rows: int) -> None:
        lines = "\n".join(f'{batch},{number},"c,s,v"' for number in range(rows))
        self._connection.sql(f"INSERT INTO mixed.events FORMAT CSV\n{lines}")

    def _json(self, batch: int, rows: int) -> None:
        lines = "\n".join(f'{{"batch": {batch}, "n": {number}, "s": "json"}}' for number in range(rows))
        self._connection.sql(f"INSERT INTO mixed.events FORMAT JSONEachRow\n{lines}")

    def _point(self) -> None:
        key = self._rng.randrange(BIG_ROWS)
        rows = self._connection.sql(f"SELECT s FROM mixed.big WHERE id = {key}").rows
        if rows != [(str(key) * 12,)]:
            self._counters.add_wrong("point select", "wrong rows", f"{key}: {rows}")

    def _system(self) -> None:
        text = "SELECT count(*) FROM system.parts WHERE database = 'mixed' AND active"
        self._connection.sql(self._rng.choice([text, "SHOW PROCESSLIST", "SELECT * FROM system.bg_threads"]))

    def _big_read(self) -> None:
        start = self._rng.randrange(BIG_ROWS - BIG_READ_ROWS)
        between = f"id >= {start} AND id < {start + BIG_READ_ROWS}"
        with self._connection.stream(f"SELECT * FROM mixed.big WHERE {between} ORDER BY id") as rows:
            seen = sum(batch.num_rows for batch in rows)
        if seen != BIG_READ_ROWS:
            self._counters.add_wrong("big read", "wrong rows", seen)

    def _big_abandoned(self) -> None:
        """Read a few batches with pauses, and abandon the rest."""
        with self._connection.stream("SELECT * FROM mixed.big") as rows:
            for number, _ in enumerate(rows):
                if number == 3:
                    return
                self._is_over.wait(self._rng.random())

    def _absurd(self) -> None:
        name = self._rng.choice(list(ABSURD))
        # Some with a limit of their own, the others are the operator's.
        limit = f" SETTINGS max_execution_time = {LIMIT_SECONDS}" if self._rng.random() < 0.5 else ""
        with self._connection.stream(ABSURD[name] + limit) as rows:
            for _ in rows:
                if self._is_over.is_set():
                    return


@dataclass(slots=True, kw_only=True)
class Sample:
    """The node at one moment, seen from outside."""

    minute: float
    node_bytes: int
    jvm_bytes: int
    others_bytes: int
    threads: int
    files: int
    results: int
    results_bytes: int
    temp_bytes: int

    def line(self, counters: StatementCounters, spark: str) -> str:
        statements, errors = counters.counts()
        return (
            f"{self.minute:6.1f} {statements:10} {errors:6} {self.node_bytes / MIB:8.0f} {self.jvm_bytes / MIB:8.0f} "
            f"{self.others_bytes / MIB:10.0f} {self.threads:7} {self.files:5} {self.results:7} "
            f"{self.results_bytes / MIB:10.1f} {self.temp_bytes / MIB:8.1f} {spark}"
        )


def sampled(node: NodeProcess, started: float) -> Sample:
    process = psutil.Process(node.pid)
    jvms, others = processes_below(node.pid)
    spark = node.data / "spark"
    results = file_sizes(*spark.glob("result-*"))
    return Sample(
        minute=(time.monotonic() - started) / 60,
        node_bytes=resident([process]),
        jvm_bytes=resident(jvms),
        others_bytes=resident(others),
        threads=process.num_threads(),
        files=process.num_fds(),
        results=len(results),
        results_bytes=sum(results),
        temp_bytes=sum(file_sizes(spark)) - sum(results),
    )


class Blow:
    """A signal for Spark's JVM, and the time until queries succeed again by themselves."""

    def __init__(self, node: NodeProcess, connection: Connection, counters: StatementCounters, what: str) -> None:
        self.what = what
        self.seconds = math.inf
        self._node = node
        self._connection = connection
        self._counters = counters

    def strike(self) -> None:
        """Returns when a query was answered by another JVM, or after `BACK_SECONDS_MAX`."""
        before = self._jvm()
        if before is None:
            # It is being started; a blow needs something to hit.
            deadline = time.monotonic() + BACK_SECONDS_MAX
            while before is None and time.monotonic() < deadline:
                time.sleep(1)
                before = self._jvm()
        if before is None:
            return
        (before.suspend if self.what == "SIGSTOP" else before.kill)()
        started = time.monotonic()
        while time.monotonic() - started < BACK_SECONDS_MAX:
            jvm = self._jvm()
            if jvm is not None and jvm.pid != before.pid and self._answers(started):
                self.seconds = time.monotonic() - started
                return
            time.sleep(0.5)

    def _jvm(self) -> psutil.Process | None:
        jvms = processes_below(self._node.pid)[0]
        return jvms[0] if jvms else None

    def _answers(self, since: float) -> bool:
        """A client's SELECT that was sent since then, or one of our own."""
        if self._counters.newest_ok.get("point select", 0.0) > since:
            return True
        probe = f"SELECT count(*) FROM mixed.big WHERE id < 10 SETTINGS max_execution_time = {PROBE_SECONDS_MAX}"
        with suppress(TilthError):
            return self._connection.sql(probe).rows == [(10,)]
        return False


class Load:
    """The clients, the operator, the blows and the samples of one run."""

    def __init__(self, node: NodeProcess, *, clients: int, minutes: float, seed: int) -> None:
        self.counters = StatementCounters()
        self.batches = Batches()
        self.samples: list[Sample] = []
        self._node = node
        self._seconds = minutes * 60
        self._is_over = threading.Event()
        self._has_ended = threading.Event()
        self._clients = [
            Client(node.url, self.counters, self.batches, self._is_over, seed * 1_000_000 + number)
            for number in range(clients)
        ]
        self._connection = tilth.connect(node.url, timeout_seconds=ANSWER_SECONDS_MAX)
        self.blows = [Blow(node, self._connection, self.counters, what) for what in ("SIGSTOP", "SIGKILL")]

    def run(self) -> bool:
        """Run the load, and return whether all clients ended."""
        started = time.monotonic()
        print(SAMPLE_COLUMNS, flush=True)
        self._sample(started)
        others = [threading.Thread(target=act, daemon=True) for act in (self._operate, self._strike)]
        for thread in (*others, *(client.thread for client in self._clients)):
            thread.start()
        due = started
        while (left := started + self._seconds - time.monotonic()) > 0:
            due += SAMPLE_SECONDS
            time.sleep(min(left, max(0.0, due - time.monotonic())))
            self._sample(started)
        # A blow that was struck late is waited for.
        others[1].join(BACK_SECONDS_MAX)
        self._is_over.set()
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        for client in self._clients:
            client.thread.join(max(0.0, deadline - time.monotonic()))
        # The operator stays to the end: some queries end by nobody else.
        self._has_ended.set()
        others[0].join(OPERATOR_SECONDS + ANSWER_SECONDS_MAX)
        return not any(client.thread.is_alive() for client in self._clients)

    def _sample(self, started: float) -> None:
        sample = sampled(self._node, started)
        self.samples.append(sample)
        try:
            spark = self._connection.health().components.get("spark", "")
        except TilthError as error:
            spark = str(error)
            self.counters.add_wrong("health", error.code, error)
        print(sample.line(self.counters, spark[:60]), flush=True)

    def _operate(self) -> None:
        with tilth.connect(self._node.url, timeout_seconds=ANSWER_SECONDS_MAX) as connection:
            while not self._has_ended.wait(OPERATOR_SECONDS):
                started, outcome = time.monotonic(), "ok"
                try:
                    connection.sql(OPERATOR)
                except TilthError as error:
                    outcome = error.code
                    self.counters.add_wrong("kill query", error.code, error)
                self.counters.add("kill query", outcome, time.monotonic() - started)

    def _strike(self) -> None:
        started = time.monotonic()
        for number, blow in enumerate(self.blows, start=1):
            at = started + self._seconds * number / (len(self.blows) + 1)
            if self._is_over.wait(max(0.0, at - time.monotonic())):
                return
            print(f"       {blow.what} to the JVM", flush=True)
            blow.strike()
            print(f"       back after {blow.seconds:.1f} s", flush=True)


def quiet(node: NodeProcess, before: Sample, started: float) -> Sample:
    """The node after the load, when it has come to rest, or after `QUIET_SECONDS_MAX`."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while True:
        sample = sampled(node, started)
        is_quiet = not sample.results and sample.threads <= before.threads + THREADS_MORE_MAX
        if (is_quiet and sample.files <= before.files + FILES_MORE_MAX) or time.monotonic() > deadline:
            return sample
        time.sleep(1)


def checked(node: NodeProcess, batches: Batches) -> dict[str, int]:
    """Return the number of batches with wrong rows, by the kind of error."""
    text = "SELECT batch, count(*), count(DISTINCT n) FROM mixed.events GROUP BY batch"
    stored = {batch: (rows, distinct) for batch, rows, distinct in node.connection.sql(text).rows}
    lost = twice = torn = lied = 0
    for batch, rows in batches.rows.items():
        found, distinct = stored.pop(batch, (0, 0))
        lost += batches.fates[batch] == "ok" and distinct < rows
        twice += found > distinct
        torn += 0 < distinct < rows
        lied += batches.fates[batch] == "refused" and found > 0
    return {"lost": lost, "twice": twice, "torn": torn, "refused but stored": lied, "of nobody": len(stored)}


def report(load: Load, last: Sample, wrong_rows: dict[str, int], *, has_ended: bool) -> bool:
    """Prints everything; whether all is well."""
    counters, first = load.counters, load.samples[0]
    outcomes = Table("kind", "outcome", "statements", title="statements by kind and outcome")
    for (kind, outcome), count in sorted(counters.outcomes.items()):
        outcomes.add_row(kind, outcome, str(count))
    latencies = Table("kind", "statements", "p50 s", "p99 s", "max s", title="seconds by kind")
    for kind, seconds in sorted(counters.seconds.items()):
        ordered = sorted(seconds)
        p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
        latencies.add_row(kind, str(len(ordered)), f"{p50:.3f}", f"{p99:.3f}", f"{ordered[-1]:.3f}")
    defects = Table("what", "example", title="what must not be")
    for what, example in sorted(counters.wrong.items()):
        defects.add_row(what, example)
    fates = Counter(load.batches.fates.values())

    def at_most(name: str, value: float, unit: str, target: float | None) -> Figure:
        return Figure(name=name, value=value, unit=unit, target=target, higher_is_better=False)

    figures = [
        at_most("statements", counters.counts()[0], "", None),
        *(
            at_most(f"back after {blow.what}", min(blow.seconds, NEVER_SECONDS), "s", BACK_SECONDS_MAX)
            for blow in load.blows
        ),
        at_most("defects", counters.wrong_count, "", 0),
        at_most("clients without an answer", 0 if has_ended else 1, "", 0),
        *(at_most(f"INSERTs {fate}", fates[fate], "", None) for fate in ("ok", "refused", "unknown")),
        *(at_most(f"INSERTs {what}", count, "", 0) for what, count in wrong_rows.items()),
        at_most("result files left", last.results, "", 0),
        at_most("threads more", last.threads - first.threads, "", THREADS_MORE_MAX),
        at_most("open files more", last.files - first.files, "", FILES_MORE_MAX),
        at_most("node memory more", (last.node_bytes - first.node_bytes) / MIB, "MiB", NODE_MIB_MORE_MAX),
        at_most("most result files", max(each.results_bytes for each in load.samples) / MIB, "MiB", None),
    ]
    print_report("mixed_clients", figures, [outcomes, latencies, *([defects] if counters.wrong else [])])
    return all(figure.is_met for figure in figures)


def run(folder: Path, *, clients: int, minutes: float, seed: int) -> bool:
    """Starts the node, runs the load, checks; whether all is well."""
    node = NodeProcess(folder / "node")
    try:
        node.start()
        node.wait_ready()
        for statement in STATEMENTS:
            node.connection.sql(statement)
        started = time.monotonic()
        load = Load(node, clients=clients, minutes=minutes, seed=seed)
        has_ended = load.run()
        last = quiet(node, load.samples[0], started)
        print(last.line(load.counters, "quiet"), flush=True)
        return report(load, last, checked(node, load.batches), has_ended=has_ended)
    finally:
        node.stop()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.mixed_clients", description="Many clients, two blows.")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="where the node's folder is kept; a temporary folder if not given")
    arguments = parser.parse_args()
    folder = arguments.work or Path(tempfile.mkdtemp(prefix="tilth-mixed-"))
    try:
        is_well = run(folder, clients=arguments.clients, minutes=arguments.minutes, seed=arguments.seed)
    finally:
        if arguments.work is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if is_well else 1)


if __name__ == "__main__":
    main()
