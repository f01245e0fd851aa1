"""Clients of small statements in a process of their own, with as little work of their own as possible.

    python -m bench.insert_clients URL CLIENTS SECONDS FORM TABLE

`FORM`: `arrow` or `json`, INSERTs of ROWS rows into a table of `hot_inserts`; `sql`, the statement `TABLE`. Each client
has a connection and sends its next request when the last one is answered. Bodies are made before the clock starts.
Prints one JSON object: answers, seconds, p50 and p99 in milliseconds, processor seconds of this process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

ROWS = 100
#: Number of different bodies, which clients send in turn.
BODIES = 200
_ACTIONS = ("view", "click", "cart", "buy")
_BODY_TYPES = {"arrow": "application/vnd.apache.arrow.stream", "json": "application/x-ndjson", "sql": "application/sql"}


def rows_of(number: int, draw: np.random.Generator) -> pa.Table:
    """The rows of one INSERT; `number` makes their ids its own."""
    return pa.table(
        {
            "id": np.arange(number * ROWS, (number + 1) * ROWS),
            "user_id": draw.integers(0, 10**6, ROWS),
            "price": draw.random(ROWS),
            "action": pa.array(_ACTIONS).take(pa.array(draw.integers(0, len(_ACTIONS), ROWS))),
            "ts": pa.array(np.full(ROWS, 1_760_000_000_000_000 + number), pa.timestamp("us", tz="UTC")),
        }
    )


def body_of(rows: pa.Table, form: str) -> bytes:
    """The rows as the body of an INSERT."""
    if form == "json":
        listed = rows.set_column(4, "ts", rows["ts"].cast(pa.string())).to_pylist()
        return "\n".join(json.dumps(row, separators=(",", ":")) for row in listed).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


class Client(asyncio.Protocol):
    """One connection, which sends one request after the other until the time is over."""

    def __init__(self, requests: list[bytes], first: int, end: float, times: list[float]) -> None:
        self._requests = requests
        self._next = first
        self._end = end
        self._times = times
        self._received = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        if not self._received.endswith(b"0\r\n\r\n") and not _is_whole(head, body):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self._close(RuntimeError(self._received[:2_000].decode(errors="replace")))
            return
        now = time.perf_counter()
        self._times.append(now - self._sent)
        self._received = b""
        if now < self._end:
            self._send()
        else:
            self._close(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._close(error or RuntimeError("the connection was closed"))

    def _send(self) -> None:
        assert self._transport is not None
        self._next += 1
        self._sent = time.perf_counter()
        self._transport.write(self._requests[self._next % len(self._requests)])

    def _close(self, error: Exception | None) -> None:
        if not self.is_over.done():
            if error is None:
                self.is_over.set_result(None)
            else:
                self.is_over.set_exception(error)
        assert self._transport is not None
        self._transport.close()


def _is_whole(head: bytes, body: bytes) -> bool:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return False


def requests_of(url: str, form: str, table: str) -> list[bytes]:
    """Whole requests, head and body."""
    draw = np.random.default_rng(7)
    path = "/v1/sql" if form == "sql" else f"/v1/insert/default/{table}"
    bodies = [table.encode()] if form == "sql" else [body_of(rows_of(n, draw), form) for n in range(BODIES)]
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAccept: application/json\r\n"
    head += f"Content-Type: {_BODY_TYPES[form]}\r\nContent-Length: "
    return [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]


async def send_all(url: str, clients: int, seconds: float, form: str, table: str) -> dict[str, float]:
    """Run the clients and return what they measured; raises the error of the first that failed."""
    requests, times = requests_of(url, form, table), list[float]()
    address = urlsplit(url)
    loop, began, used = asyncio.get_running_loop(), time.perf_counter(), time.process_time()
    made = [
        loop.create_connection(
            lambda first=number * 7: Client(requests, first, began + seconds, times), address.hostname, address.port
        )
        for number in range(clients)
    ]
    connections = await asyncio.gather(*made)
    await asyncio.gather(*(client.is_over for _, client in connections))
    passed = time.perf_counter() - began
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return {
        "answers": len(times),
        "seconds": passed,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "cpu_seconds": time.process_time() - used,
    }


def main() -> None:
    url, clients, seconds, form, table = sys.argv[1:]
    print(json.dumps(asyncio.run(send_all(url, int(clients), float(seconds), form, table))))


if __name__ == "__main__":
    main()
