"""Small INSERTs into a memory table: alone, from many clients, beside clients that SELECT.

Clients run in a process of their own (insert_clients.py). The processor time of the server for one INSERT is printed
beside the times: on a machine that others use too it says more than they do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import psutil
from rich.table import Table

from bench.hot_node import HotNode
from bench.insert_clients import ROWS, rows_of
from bench.rivals import Kit

INSERTS = 10_000
#: At either end, for the comparison of both.
EDGE = 1_000
WARM = 50
CLIENTS = 100
READERS = 20
SECONDS = 15.0
#: Time for readers to begin before INSERTs are measured, and to go on after them.
MARGIN_SECONDS = 3.0
SYNCS = 300
SELECT = "SELECT count(*), max(price) FROM {table} WHERE user_id = 4711"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What some clients measured, and what the server used meanwhile."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu_seconds: float

    def row(self, name: str) -> tuple[str, ...]:
        cpu_ms = self.server_cpu_seconds / self.answers * 1000
        return name, f"{self.answers / self.seconds:,.0f}", f"{self.p50_ms:.1f}", f"{self.p99_ms:.1f}", f"{cpu_ms:.2f}"


def run(node: HotNode, _: Kit, __: bool) -> tuple[dict[str, float], list[Table]]:
    """The figures, and tables of times."""
    times = alone(node)
    measured = times[WARM:]
    table = Table("inserts", "p50 ms", "p99 ms", "max ms", title=f"INSERT of {ROWS} rows, one after the other")
    for name, some in (("all", measured), ("first", measured[:EDGE]), ("last", measured[-EDGE:])):
        p50, p99 = np.percentile(some, [50, 99])
        table.add_row(f"{name} {len(some):,}", f"{p50:.1f}", f"{p99:.1f}", f"{max(some):.1f}")
    many = Table("clients", "INSERT/s", "p50 ms", "p99 ms", "server CPU ms", title=f"INSERTs of {ROWS} rows")
    arrow, objects = sent(node, "many_arrow", "arrow", CLIENTS), sent(node, "many_json", "json", CLIENTS)
    with readers(node, "small"):
        beside = sent(node, "beside", "arrow", 1)
    many.add_row(*arrow.row(f"{CLIENTS}, Arrow"))
    many.add_row(*objects.row(f"{CLIENTS}, JSONEachRow"))
    many.add_row(*beside.row(f"1, Arrow, beside {READERS} that SELECT"))
    syncs = sync_ms(str(node.process.data))
    many.add_row("one write and fsync of a new file", f"{1000 / syncs:,.0f}", f"{syncs:.2f}", "", "")
    figures = {
        "insert100_p50_ms": float(np.median(measured)),
        "insert100_p99_ms": float(np.percentile(measured, 99)),
        "insert100_last_over_first": float(np.median(measured[-EDGE:]) / np.median(measured[:EDGE])),
        "inserts_s_100_clients": arrow.answers / arrow.seconds,
        "inserts_s_100_clients_json": objects.answers / objects.seconds,
        "insert_beside_readers_p50_ms": beside.p50_ms,
        "disk_sync_ms": syncs,
    }
    return figures, [table, many]


def make(node: HotNode, table: str) -> None:
    node.sql(
        f"CREATE TABLE {table} (id BIGINT, user_id BIGINT, price DOUBLE, action STRING, ts TIMESTAMP) "
        "ENGINE = MergeTree ORDER BY (user_id, id) SETTINGS memory_buffer = 1"
    )


def alone(node: HotNode) -> list[float]:
    """Milliseconds of INSERTs through the Python client, one after the other."""
    make(node, "small")
    draw = np.random.default_rng(7)
    times: list[float] = []
    for number in range(WARM + INSERTS):
        rows = rows_of(number, draw)
        began = time.perf_counter()
        node.process.connection.insert("small", rows)
        times.append((time.perf_counter() - began) * 1000)
    check(node, "small", WARM + INSERTS)
    return times


def sent(node: HotNode, table: str, form: str, clients: int) -> Pass:
    """INSERTs of clients that send all the time, into a table of their own."""
    make(node, table)
    server = psutil.Process(node.process.pid)
    before = server.cpu_times()
    found = _answers(_clients(node, clients, SECONDS, form, table))
    after = server.cpu_times()
    check(node, table, int(found["answers"]))
    return Pass(
        answers=int(found["answers"]),
        seconds=found["seconds"],
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        server_cpu_seconds=after.user + after.system - before.user - before.system,
    )


@contextmanager
def readers(node: HotNode, table: str) -> Iterator[None]:
    """Clients that SELECT all the time."""
    process = _clients(node, READERS, SECONDS + 2 * MARGIN_SECONDS, "sql", SELECT.format(table=table))
    time.sleep(MARGIN_SECONDS)
    try:
        yield
    finally:
        if not _answers(process)["answers"]:
            raise SystemExit("no SELECT was answered")


def check(node: HotNode, table: str, inserts: int) -> None:
    """Each INSERT that was answered is there once."""
    found = node.value(f"SELECT count(*) FROM {table}")
    if found != inserts * ROWS:
        raise SystemExit(f"rows are missing or there twice: {found} of {inserts * ROWS} in {table}")


def sync_ms(folder: str) -> float:
    """Milliseconds that this disk needs for a small new file, its name and its bytes."""
    times = []
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        for number in range(SYNCS):
            began = time.perf_counter()
            file = os.open(f"{inside}/{number}", os.O_CREAT | os.O_WRONLY)
            os.write(file, bytes(4096))
            os.fsync(file)
            os.close(file)
            times.append((time.perf_counter() - began) * 1000)
    return float(np.median(times))


def _clients(node: HotNode, clients: int, seconds: float, form: str, table: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.insert_clients", node.process.url, str(clients), str(seconds), form, table]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _answers(process: subprocess.Popen[str]) -> dict[str, float]:
    text, _ = process.communicate()
    if process.returncode:
        raise SystemExit("the clients have failed")
    answers: dict[str, float] = json.loads(text)
    return answers
