"""Answers of statements that are repeated while a page is open, as server-sent events.

Covers: reading the request, repeating the statements, sending what has changed. Does not cover: what the statements do,
pages (tilth.console).
Always holds: only statements that read are repeated (`readonly`); pages that watch one statement share its answers,
so that it goes on when the page that started it leaves; a statement is under way at most once, and rests after each run
until it was under way for `SHARE_OF_TIME` of the time, for `SLOW_SECONDS_MAX` at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnavailableError
from tilth.base.ids import IdSource
from tilth.control.running import Origin
from tilth.formats import json_cells
from tilth.query.results.answer import Answer
from tilth.server.errors import BadRequestError, error_body, logged_error

STATEMENTS_MAX = 32
#: Requests that watch at the same time.
WATCHES_MAX = 100
SECONDS_MIN, SECONDS_MAX = 0.5, 3600.0
#: Share of the time for which a statement is under way, its wait for a thread included: slow ones, and all of them
#: while many wait, are repeated less often.
SHARE_OF_TIME = 1 / 40
#: Longest rest that follows from it, in seconds.
SLOW_SECONDS_MAX = 60.0
#: Retention time of answers that nobody watches any more.
FORGET_SECONDS = 120.0
#: Threads that run watched statements.
THREADS = 4
#: Settings of every watched statement.
SETTINGS: Mapping[str, str] = {
    "readonly": "1",
    "log_queries": "0",
    "max_execution_time": "30",
    "max_result_bytes": str(16 << 20),
}

# Runs a statement in a database for a sender.
Run = Callable[[str, str, Mapping[str, str], Origin], Answer]


class Write(Protocol):
    """Writes an event to a client."""

    async def __call__(self, kind: str, *data: bytes) -> None:
        """`data`: the pieces of its data."""


class WatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of the request."""

    #: Statements by names that the events carry.
    statements: dict[str, str]
    #: Interval of the answers in seconds.
    every: float = 2.0
    #: Database of names without one.
    database: str = "default"


def read_watch(body: bytes) -> WatchRequest:
    """Read the body; raises BadRequestError."""
    try:
        request = msgspec.json.decode(body, type=WatchRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        hint = 'send {"statements": {"name": "SELECT .."}, "every": 2}'
        raise BadRequestError(reason=error, hint=hint) from error
    if not 0 < len(request.statements) <= STATEMENTS_MAX:
        raise BadRequestError("watch at least one statement, and not too many", allowed=STATEMENTS_MAX)
    if not SECONDS_MIN <= request.every <= SECONDS_MAX:
        raise BadRequestError(
            "this interval is not possible", every=request.every, allowed=f"{SECONDS_MIN} to {SECONDS_MAX}"
        )
    return request


@dataclass(slots=True)
class _Watched:
    """The newest answer to one statement, for all who watch it."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    #: Event without the name: its type, and the fields of its data.
    event: str = ""
    data: bytes = b""
    #: Start of the last run, earliest start of the next one, last request for it; in seconds of the steady clock.
    started: float = float("-inf")
    not_before: float = float("-inf")
    wanted: float = 0.0


class Watches:
    """All requests that watch, on one event loop."""

    def __init__(self, clock: Clock, ids: IdSource, run: Run) -> None:
        self._clock = clock
        self._ids = ids
        self._run = run
        self._threads = CapacityLimiter(THREADS)
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._open = 0

    def open(self, request: WatchRequest, origin: Origin) -> Response:
        """Return an answer that goes on until its client leaves; raises UnavailableError if there are too many."""
        if self._open >= WATCHES_MAX:
            hint = "close pages that are open elsewhere"
            raise UnavailableError.coded(
                "TOO_MANY_WATCHES", "too many pages watch this server", open=self._open, hint=hint
            )
        return _Events(self, request, origin)

    async def send_all(self, request: WatchRequest, origin: Origin, write: Write) -> None:
        """Write events until it is cancelled: statements' answers that have changed, the time at each interval."""
        self._open += 1
        try:
            async with anyio.create_task_group() as group:
                for name, text in request.statements.items():
                    group.start_soon(self._repeat, name, text, request, origin, write)
                while True:
                    self._forget()
                    await write("time", b'{"now_ms":%d}' % self._clock.now_ms())
                    await anyio.sleep(request.every)
        finally:
            self._open -= 1

    async def _repeat(self, name: str, text: str, request: WatchRequest, origin: Origin, write: Write) -> None:
        head = b'{"name":' + msgspec.json.encode(name) + b","
        sent = b""
        while True:
            watched = await self._newest(text, request, origin)
            if watched.data != sent:
                sent = watched.data
                await write(watched.event, head, sent)
            await anyio.sleep(max(request.every, watched.not_before - self._clock.monotonic()))

    async def _newest(self, text: str, request: WatchRequest, origin: Origin) -> _Watched:
        """Return the answer, about as old as the interval at most where the statement is fast."""
        watched = self._watched.setdefault((request.database, text), _Watched())
        async with watched.lock:
            watched.wanted = now = self._clock.monotonic()
            if now >= max(watched.not_before, watched.started + request.every / 2):
                watched.event, watched.data = await anyio.to_thread.run_sync(
                    self._answer, text, request.database, origin, limiter=self._threads
                )
                done = self._clock.monotonic()
                watched.started = now
                watched.not_before = done + min(SLOW_SECONDS_MAX, (done - now) / SHARE_OF_TIME)
        return watched

    def _answer(self, text: str, database: str, origin: Origin) -> tuple[str, bytes]:
        try:
            # Repeated all the time: no line of the query log, and no trace.
            own = Origin(origin.host, origin.port, origin.name, tracing.UNTRACED)
            answer = self._run(text, database, SETTINGS, own)
            rows = [
                row for batch in answer.table.to_batches() for row in zip(*map(json_cells, batch.columns), strict=True)
            ]
            return "rows", msgspec.json.encode({"columns": answer.columns, "rows": rows})[1:]
        except TilthError as error:
            # Without an id of its own, as the same error is no news.
            return "error", msgspec.json.encode({"error": error_body(error, "")})[1:]
        except Exception as error:
            return "error", msgspec.json.encode({"error": logged_error(error, self._ids)})[1:]

    def _forget(self) -> None:
        now = self._clock.monotonic()
        gone = [
            key for key, each in self._watched.items() if now - each.wanted > FORGET_SECONDS and not each.lock.locked()
        ]
        for key in gone:
            del self._watched[key]


class _Events(Response):
    """Server-sent events, until the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, watches: Watches, request: WatchRequest, origin: Origin) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._watches, self._request, self._origin = watches, request, origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        lock = anyio.Lock()

        async def write(kind: str, *data: bytes) -> None:
            # A client that does not read holds up one event; the others wait as answers that all pages share.
            async with lock:
                await send({"type": "http.response.body", "body": _event(kind, *data), "more_body": True})

        async with anyio.create_task_group() as group:
            group.start_soon(self._watches.send_all, self._request, self._origin, write)
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()


def _event(kind: str, *data: bytes) -> bytes:
    return b"".join((b"event: ", kind.encode(), b"\ndata: ", *data, b"\n\n"))
