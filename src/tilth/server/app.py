"""The HTTP API: routes, and nothing that a route does.

Always holds: no GET changes anything. origin.py refuses requests of other sites.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Protocol, TypeVar

import anyio
import anyio.to_thread
import msgspec
import pyarrow as pa
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.base.pressure import MemoryBudget, MemoryShare
from tilth.base.threads import Completion, completing
from tilth.base.units import KIB
from tilth.console.files import console_files, console_page
from tilth.control.running import Origin
from tilth.formats import Format, accepted_format, answer_format, body_format, body_types
from tilth.maintenance import ManagerStatus
from tilth.model.wire import Health, Summary
from tilth.query.results.answer import Answer
from tilth.server.bodies import (
    BodyLimits,
    ReceivedBody,
    encoding_of,
    first_pieces,
    receive,
    receive_rest,
    too_large,
    without_begin,
)
from tilth.server.calls import Calls, calls_route
from tilth.server.count import Counted
from tilth.server.maintenance_page import maintenance_html, maintenance_text
from tilth.server.origin import PROTECTION, Guard, admission
from tilth.server.reader_routes import OutsideReading, ReaderRoutes
from tilth.server.routing import Answering, App, Endpoint
from tilth.server.settings import ServerSettings
from tilth.server.stats import HttpCounters
from tilth.server.streaming import RowsResponse, drop_answer
from tilth.server.threads import CallThreads
from tilth.server.watch import Watches, read_watch
from tilth.server.write_routes import OutsideWriting, WriteRoutes
from tilth.statements.inserts.arrow_streams import read_rows
from tilth.statements.inserts.bodies.heads import InsertHead, read_head, route_head
from tilth.statements.inserts.bodies.streamed import is_cut
from tilth.warehouse.remote.errors import BadBodyError

#: Not a session setting, though it travels like one.
DATABASE = "database"
#: Threads for what must answer while statements keep all of theirs busy.
SHORT_CALLS_MAX = 8
#: Threads for health, readiness and metrics, whose requests end within a second even if other components hang.
STATUS_CALLS_MAX = 32
#: Bodies up to this size are always read: KILL QUERY is one.
FREE_BODY_BYTES = 64 * KIB
#: INSERTs with a body up to this size are prepared in turn: an INSERT costs less than a thread.
SHORT_BODY_BYTES = 64 * KIB
#: Time after which the connection of a statement's client is watched.
UNWATCHED_SECONDS = 0.05
#: An answer up to this size is sent as a whole, without a thread for each of its pieces.
WHOLE_BYTES_MAX = 64 * KIB
#: Headers are for short texts; the body of a JSON answer has all of it.
HEADER_MESSAGE_CHARACTERS_MAX = 2_000
HEADER_NOTICE_CHARACTERS_MAX = 300
HEADER_NOTICES_MAX = 10
QUERY_ID_HEADER = "X-Tilth-Query-Id"
SUMMARY_HEADER = "X-Tilth-Summary"
#: The number of rows in that header where nobody knows it yet.
_ROWS_TO_COME = -1
#: The beginning of most statements that add a few rows.
_INSERT = re.compile(r"\s*INSERT\s", re.IGNORECASE)
#: HTTP methods of the API; the metrics count all others together.
METHODS = ("GET", "HEAD", "POST", "DELETE")

_log = Log("server")

_FRONT_PAGE = f"""Tilth {version("tilth")}, self-maintaining real-time tables for Spark

POST /v1/sql                      a statement as the body's text; the form of the answer by Accept
POST /v1/watch                    answers of statements that are repeated, as server-sent events
POST /v1/insert/{{db}}/{{table}}      rows as NDJSON, CSV or an Arrow stream
POST /v1/snapshot/{{db}}/{{table}}    a pinned snapshot for a reader with its own Spark session
POST /v1/snapshots                the same of several tables, as of one time
POST /v1/changes/{{db}}/{{table}}     a reader of changes; /v1/feeds/{{id}} renews it, /changes has them
POST /v1/readers/{{id}}             renews that reader's lease; DELETE ends it
POST /v1/writes/{{db}}/{{table}}      begins a write of a client with its own Spark session
POST /v1/writers/{{id}}             renews it, /commit names its files; DELETE aborts it
POST /v1/worker/{{call}}            calls of workers in other processes, with the service token
GET  /v1/health                   the components and their states, the services that fail
GET  /v1/ready                    whether statements work
GET  /                            the console, in a browser
GET  /metrics                     Prometheus
GET  /maintenance-manager         a page about maintenance: what runs, ran and is weighed; `?raw` as text

In a shell: tilth sql --url THIS_ADDRESS
"""

T = TypeVar("T")


class Statements(OutsideWriting, Protocol):
    """SQL engine, as the routes use it."""

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer: ...

    def run_insert(
        self,
        text: str,
        *,
        database: str,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer],
    ) -> Answer | None:
        """Run a statement that should be a small INSERT. `on_complete` gets the answer where None is returned."""

    def insert_text(
        self,
        database: str,
        table: str,
        *,
        input_format: str,
        data: bytes,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        """Add rows in one of the formats of INSERT .. FORMAT. `on_complete` gets the answer where None is returned."""

    def insert_arrow(
        self,
        database: str,
        table: str,
        data: Callable[[int], pa.Table],
        *,
        settings: Mapping[str, str],
        origin: Origin,
        on_complete: Completion[Answer] | None = None,
    ) -> Answer | None:
        """Add rows; `data` reads them and checks that they take at most its argument, in bytes. The rest: as above."""

    def insert_body(
        self,
        head: InsertHead,
        pieces: Iterator[bytes],
        *,
        bytes_max: int,
        database: str = "default",
        settings: Mapping[str, str],
        origin: Origin,
    ) -> Answer:
        """Add the rows of a body that is still coming in, up to so many bytes; see statements/inserts/bodies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """Everything behind the API."""

    clock: Clock
    statements: Statements
    snapshots: OutsideReading
    health: Callable[[], Health]
    #: Same as `health`, and well only while statements work.
    ready: Callable[[], Health]
    #: Background services that fail, and why.
    failed_services: Callable[[], dict[str, str]]
    #: Prometheus' text format.
    metrics: Callable[[], bytes]
    maintenance: Callable[[], ManagerStatus]
    ids: IdSource
    settings: ServerSettings = field(default_factory=ServerSettings)
    #: Host, as `--listen` names it.
    listen_host: str = "127.0.0.1"
    #: The name of this machine.
    machine_name: str = "localhost"
    #: Counters of requests; hand them to the metrics, too.
    counters: HttpCounters = field(default_factory=HttpCounters)
    #: Calls that workers may make.
    calls: Calls = field(default_factory=Calls)


def build_app(context: AppContext) -> Starlette:
    """Build the ASGI application."""
    api = _Api(context)
    routes = [
        api.route("/v1/sql", api.sql, "POST"),
        api.route("/v1/insert/{database}/{table}", api.insert, "POST"),
        *(api.route(path, handler, *methods) for path, handler, methods in api.readers.handlers()),
        api.route("/v1/watch", api.watch, "POST"),
        api.route("/v1/health", api.health, "GET", "HEAD"),
        api.route("/v1/ready", api.ready, "GET", "HEAD"),
        api.route("/metrics", api.metrics, "GET", "HEAD"),
        api.route("/maintenance-manager", api.maintenance, "GET", "HEAD"),
        api.route("/", api.front_page, "GET", "HEAD"),
        *(api.route(path, handler, *methods) for path, handler, methods in api.writes.handlers()),
        console_files(),
        calls_route(context.calls),
    ]
    settings = context.settings
    welcome = admission(
        context.listen_host, context.machine_name, hosts=settings.allowed_hosts, origins=settings.allowed_origins
    )
    middleware = [
        # This layer answers what the others raise, and adds these headers to every answer.
        Middleware(Answering, ids=context.ids, headers=PROTECTION),
        Middleware(Counted, clock=context.clock, counters=context.counters, methods=METHODS),
        Middleware(Guard, admission=welcome, ids=context.ids),
    ]
    if settings.allowed_origins:
        # Answers preflight requests of these pages, and lets them read the answers.
        shared = Middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=METHODS,
            allow_headers=("Accept", "Content-Type"),
            expose_headers=(QUERY_ID_HEADER, SUMMARY_HEADER),
        )
        middleware.append(shared)
    return App(routes=routes, middleware=[*middleware, Middleware(Answering, ids=context.ids)])


class _Api:
    """Handlers of the routes. The event loop only reads and writes; calls to the rooms run in threads."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        # The engine has slots for statements and refuses what is too much.
        self._long_calls = CapacityLimiter(math.inf)
        self._bodies = MemoryBudget(
            context.settings.insert_memory,
            free=FREE_BODY_BYTES,
            what="the bodies of requests",
            setting="server.insert-memory",
        )
        self._threads = CallThreads("tilth-call")
        self._short_calls = CapacityLimiter(SHORT_CALLS_MAX)
        self._status_calls = CapacityLimiter(STATUS_CALLS_MAX)
        self.readers = ReaderRoutes(context.snapshots, self, lambda request: _origin(request).shown)
        self.writes = WriteRoutes(context.statements, self, _origin)
        self._watches = Watches(context.clock, context.ids, self._watched)

    def route(self, path: str, handler: Callable[[Request], Awaitable[Response]], *methods: str) -> Route:
        route = Route(path, Endpoint(path, handler), methods=list(methods))
        # Starlette adds HEAD to every GET; a HEAD that pins a snapshot would have nobody to unpin it.
        route.methods = set(methods)
        return route

    async def sql(self, request: Request) -> Response:
        """Run the statement in the body, one statement in UTF-8.

        `?database=` is the database of names without one; every other parameter is a session setting. The form of the
        answer follows `Accept`, or the statement's `FORMAT` if it has one; the headers `X-Tilth-Query-Id` and
        `X-Tilth-Summary` (JSON in ASCII) come with every form.
        """
        settings = dict(request.query_params)
        database = settings.pop(DATABASE, "default")
        accept = request.headers.get("accept", "")
        origin = _origin(request)

        with self._bodies.share() as share:
            body = await receive(request, origin, share, self._limits(is_streamed=True))
            head = None if body.is_whole else read_head(body.begin)
            if head is not None:
                return await self._stream(request, origin, share, body, head, settings, database=database)
            text = _text(await receive_rest(request, body, share, self._context.settings.body_bytes_max))
            statements = self._context.statements

            def answered(answer: Answer) -> Response:
                form = answer_format(answer.output_format) if answer.output_format else accepted_format(accept)
                return _answer(answer, form, origin)

            def run(on_complete: Completion[Response] | None) -> Response | None:
                if on_complete is None:
                    return answered(
                        statements.run(text, database=database, settings=settings, origin=origin, streams=True)
                    )
                answer = statements.run_insert(
                    text,
                    database=database,
                    settings=settings,
                    origin=origin,
                    on_complete=lambda get: on_complete(lambda: answered(get())),
                )
                return None if answer is None else answered(answer)

            is_short = len(text) <= SHORT_BODY_BYTES and _INSERT.match(text) is not None
            return await self._run_statement(request, origin, share, run, is_short=is_short)

    async def watch(self, request: Request) -> Response:
        """Repeat statements, and send their answers as server-sent events until the client leaves.

        The body is `{"statements": {"name": "SELECT .."}, "every": 2, "database": "default"}`: up to 32 statements that
        only read, repeated after so many seconds, less often where they take long. Event `rows` has `name`, `columns`
        and `rows` of an answer that is new or has changed, `error` has `name` and `error`, `time` has `now_ms`, the
        time of the server. Watched statements are not in `system.query_log`.
        """
        with self._bodies.share() as share:
            body = await receive(request, _origin(request), share, self._limits(is_streamed=False))
            wanted = read_watch(body.begin)
        return self._watches.open(wanted, _origin(request))

    async def insert(self, request: Request) -> Response:
        """Add the rows in the body to a table; they are readable once the answer is there. Small inserts that come at
        about the same time may share a commit; each is answered for itself.

        The body's `Content-Type` is `application/x-ndjson` (also `application/json`: one object, or one a line),
        `text/csv` (no line of names, columns in the table's order; with names: `text/csv; header=present`) or
        `application/vnd.apache.arrow.stream`; its `Content-Encoding` may be `gzip` or `zstd`. Parameters
        are session settings; `?insertion_label=` is a name for these rows: sent again, they are not stored again.
        A body above `insert.spark-above`, unpacked, is streamed to the table's storage, and Spark tasks read its rows.
        """
        settings = dict(request.query_params)
        database, table = request.path_params["database"], request.path_params["table"]
        form, encoding = _body_format(request.headers.get("content-type", "application/x-ndjson")), encoding_of(request)
        accept = request.headers.get("accept", "")
        statements, origin = self._context.statements, _origin(request)
        limits = self._limits(is_streamed=is_cut(form))
        above = limits.streamed_from or limits.held_max

        with self._bodies.share() as share:
            body = await receive(request, origin, share, limits)

            def answered(answer: Answer) -> Response:
                return _answer(answer, accepted_format(accept), origin)

            def run(on_complete: Completion[Response] | None) -> Response | None:
                settle: Completion[Answer] | None = completing(on_complete, lambda get: answered(get()))
                pieces = body.unpacked(encoding)
                begin, is_whole = first_pieces(pieces, above, share.grow_to)
                if not is_whole and not limits.streamed_from:
                    raise too_large(len(begin), above)
                if not is_whole:
                    answer: Answer | None = statements.insert_body(
                        route_head(database, table, form),
                        chain((begin,), pieces),
                        bytes_max=self._context.settings.streamed_bytes_max,
                        settings=settings,
                        origin=origin,
                    )
                elif form.is_arrow:
                    rows = partial(_arrow, begin)
                    answer = statements.insert_arrow(
                        database, table, rows, settings=settings, origin=origin, on_complete=settle
                    )
                else:
                    answer = statements.insert_text(
                        database,
                        table,
                        input_format=form.name,
                        data=begin,
                        settings=settings,
                        origin=origin,
                        on_complete=settle,
                    )
                return None if answer is None else answered(answer)

            is_short = body.is_whole and len(body.begin) <= SHORT_BODY_BYTES
            return await self._run_statement(request, origin, share, run, body, is_short=is_short)

    async def health(self, request: Request) -> Response:
        """The components, each `ok` or what is wrong with it; 200 when all are well, else 503 with the same body.

        `failed_services` names the background services that fail, and why; they change no status, because statements
        work nevertheless.
        """
        # Both calls run concurrently: each may use its full time limit.
        health, failed = await asyncio.gather(
            self._run_status(self._context.health), self._run_status(self._context.failed_services)
        )
        return _healthy(msgspec.structs.replace(health, failed_services=failed))

    async def ready(self, request: Request) -> Response:
        """200 while statements work: the catalog is open, Spark answers and has run a first query. Otherwise 503 with
        the same body as `/v1/health`. For load balancers, and for who waits for a start.
        """
        return _healthy(await self._run_status(self._context.ready))

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text format; see metrics.md."""
        text = await self._run_status(self._context.metrics)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def maintenance(self, request: Request) -> Response:
        """The maintenance manager: what runs, what ran last, and every op as it was weighed last; `?raw` gives text."""
        status, now_ms = await self.run_short(self._context.maintenance), self._context.clock.now_ms()
        if "raw" in request.query_params:
            return PlainTextResponse(maintenance_text(status, now_ms))
        return HTMLResponse(maintenance_html(status, now_ms))

    async def front_page(self, request: Request) -> Response:
        """The console for browsers, an overview of the routes as text for everybody else."""
        if "text/html" in request.headers.get("accept", ""):
            return console_page()
        return PlainTextResponse(_FRONT_PAGE, headers={"Vary": "Accept"})

    def _watched(self, text: str, database: str, settings: Mapping[str, str], origin: Origin) -> Answer:
        return self._context.statements.run(text, database=database, settings=settings, origin=origin)

    async def _stream(
        self,
        request: Request,
        origin: Origin,
        share: MemoryShare,
        body: ReceivedBody,
        head: InsertHead,
        settings: Mapping[str, str],
        *,
        database: str,
    ) -> Response:
        accept, pieces = request.headers.get("accept", ""), without_begin(body.pieces(), head.size)

        def run(_: Completion[Response] | None) -> Response:
            answer = self._context.statements.insert_body(
                head,
                pieces,
                bytes_max=self._context.settings.streamed_bytes_max,
                database=database,
                settings=settings,
                origin=origin,
            )
            return _answer(answer, accepted_format(accept), origin)

        return await self._run_statement(request, origin, share, run, body)

    async def _run_statement(
        self,
        request: Request,
        origin: Origin,
        share: MemoryShare,
        act: Callable[[Completion[Response] | None], Response | None],
        body: ReceivedBody | None = None,
        *,
        is_short: bool = False,
    ) -> Response:
        """Run it in a thread; a short one may complete after it returned, by its argument. A client that closes its
        connection cancels a statement that takes longer than `UNWATCHED_SECONDS`. The thread may consume the rest of a
        body, and detects itself that the client leaves before the end of the body; it uses the share to its end, also
        where this request is cancelled.
        """

        def run() -> Response:
            with share.in_use():
                response = act(None)
            assert response is not None
            return response

        async def watch() -> None:
            if body is not None:
                await body.over.wait()
            while (await request.receive())["type"] != "http.disconnect":
                pass
            origin.cancel("its client, which closed the connection")

        watching: list[asyncio.Task[None]] = []
        # Most statements end before a task that watches would have begun.
        timer = asyncio.get_running_loop().call_later(
            UNWATCHED_SECONDS, lambda: watching.append(asyncio.create_task(watch()))
        )
        try:
            if is_short:
                # Its bytes are reserved until this request has its answer.
                return await self._threads.run_short(act, drop=drop_answer)
            if body is None or body.is_whole:
                return await self._threads.run(run, drop=drop_answer)
            # Its thread calls back for the pieces of the body.
            return await anyio.to_thread.run_sync(run, limiter=self._long_calls)
        finally:
            timer.cancel()
            for task in watching:
                task.cancel()

    async def run_long(self, act: Callable[[], T]) -> T:
        """Run it in a thread that nobody else waits for."""
        return await self._threads.run(act)

    async def _run_status(self, act: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(act, limiter=self._status_calls)

    async def run_short(self, act: Callable[[], T]) -> T:
        """Run it in one of the threads for calls that take no time."""
        return await anyio.to_thread.run_sync(act, limiter=self._short_calls)

    async def read_body(self, request: Request, decode: Callable[[bytes], T]) -> T:
        """Return what `decode` makes of the body; raises as it does, and as `receive`."""
        with self._bodies.share() as share:
            body = await receive(request, _origin(request), share, self._limits(is_streamed=False))
            return decode(body.begin)

    def _limits(self, *, is_streamed: bool) -> BodyLimits:
        settings = self._context.settings
        if not is_streamed:
            return BodyLimits(held_max=settings.body_bytes_max)
        return BodyLimits(
            held_max=settings.body_bytes_max,
            streamed_from=settings.spark_above,
            streamed_max=settings.streamed_bytes_max,
        )


def _healthy(health: Health) -> Response:
    status = 200 if health.status == "ok" else 503
    return Response(msgspec.json.encode(health), status_code=status, media_type="application/json")


def _origin(request: Request) -> Origin:
    client = request.client
    if client is None:
        return Origin()
    headers = request.headers
    return Origin(client.host, str(client.port), headers.get("user-agent", ""), headers.get(tracing.TRACE_HEADER, ""))


def _answer(answer: Answer, form: Format, origin: Origin) -> Response:
    """Make the first piece here, so that an error in it still becomes an answer of its own."""
    stream = answer.stream
    summary = answer.summary()
    if stream is not None:
        summary = msgspec.structs.replace(summary, rows=_ROWS_TO_COME)
    headers = {QUERY_ID_HEADER: answer.query_id, SUMMARY_HEADER: _header(summary)}
    if stream is not None:

        def at_the_end() -> Summary:
            return msgspec.structs.replace(summary, rows=stream.rows)

        try:
            pieces = form.encode_batches(stream.schema, stream, answer.columns, at_the_end)
            first = next(pieces, b"")
        except Exception as error:
            stream.close(error if isinstance(error, TilthError) else None)
            raise
        return RowsResponse(first, pieces, stream, origin, media_type=form.media_type, headers=headers)
    pieces = form.encode(answer.table, answer.columns, summary)
    first, is_whole = first_pieces(pieces, WHOLE_BYTES_MAX, lambda _: None)
    if is_whole:
        return Response(first, media_type=form.media_type, headers=headers)
    return StreamingResponse(filter(None, chain((first,), pieces)), media_type=form.media_type, headers=headers)


def _header(summary: Summary) -> str:
    """Encode as JSON in ASCII, which is all that every header can carry."""
    fields = msgspec.structs.asdict(summary)
    if len(summary.message) > HEADER_MESSAGE_CHARACTERS_MAX:
        fields["message"] = summary.message[:HEADER_MESSAGE_CHARACTERS_MAX] + "…"
    fields["notices"] = [notice[:HEADER_NOTICE_CHARACTERS_MAX] for notice in summary.notices[:HEADER_NOTICES_MAX]]
    return json.dumps(fields)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadBodyError("the statement is not UTF-8 text", position=error.start) from error


def _body_format(content_type: str) -> Format:
    """The format of rows with this Content-Type."""
    found = body_format(content_type)
    if found is None:
        raise BadBodyError(
            "rows of this content type are not supported",
            content_type=content_type.partition(";")[0].strip().lower(),
            hint=f"send one of {', '.join(body_types())}",
        )
    return found


def _arrow(body: bytes, bytes_max: int) -> pa.Table:
    try:
        return read_rows(body, bytes_max)
    except (pa.ArrowException, OSError) as error:
        raise BadBodyError("the body is not an Arrow stream", reason=error) from error
