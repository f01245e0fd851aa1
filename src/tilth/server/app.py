"""The HTTP API: routes, and nothing that a route does.

    POST /v1/sql                      a statement as the body's text; the form of the answer by Accept
    POST /v1/insert/{db}/{table}      rows as NDJSON, CSV or an Arrow stream
    GET  /v1/snapshot/{db}/{table}    a pinned snapshot for a reader with its own Spark session
    POST /v1/readers/{id}             renews that reader's lease;  DELETE ends it
    GET  /v1/health                   components and how they are
    GET  /metrics                     Prometheus
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tilth.base.errors import InvalidInputError
from tilth.base.ids import IdSource
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.wire import Health, Summary
from tilth.server.errors import error_response
from tilth.server.formats import Format, accepted_format, encode, named_format
from tilth.sql import Answer

#: Not a session setting, though it travels like one.
DATABASE = "database"


class BadBodyError(InvalidInputError):
    """the body of the request cannot be read"""

    code = "BAD_BODY"


class Statements(Protocol):
    """What the doors need of the SQL engine."""

    def run(self, text: str, *, database: str, settings: dict[str, str]) -> Answer: ...

    def insert_text(self, database: str, table: str, *, input_format: str, data: bytes) -> Answer: ...

    def insert_arrow(self, database: str, table: str, data: pa.Table) -> Answer: ...


class Snapshots(Protocol):
    """What the doors need for readers that bring a Spark session of their own."""

    def pin(self, database: str, table: str, as_of_ms: int | None) -> tuple[Snapshot, ReaderLease, str]:
        """A snapshot, the lease that keeps its files, and the root below which they are."""

    def renew(self, lease_id: str) -> None: ...

    def close(self, lease_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Everything behind the API."""

    statements: Statements
    snapshots: Snapshots
    health: Callable[[], Health]
    #: Prometheus' text format.
    metrics: Callable[[], bytes]
    ids: IdSource


def build_app(doors: Doors) -> Starlette:
    """The ASGI application."""

    async def guarded(act: Callable[[], Awaitable[Response]]) -> Response:
        try:
            return await act()
        except Exception as error:
            return error_response(error, doors.ids)

    def route(handler: Callable[[Doors, Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await guarded(lambda: handler(doors, request))

        return endpoint

    return Starlette(
        routes=[
            Route("/v1/sql", route(_sql), methods=["POST"]),
            Route("/v1/insert/{database}/{table}", route(_insert), methods=["POST"]),
            Route("/v1/snapshot/{database}/{table}", route(_snapshot), methods=["GET"]),
            Route("/v1/readers/{id}", route(_reader), methods=["POST", "DELETE"]),
            Route("/v1/health", route(_health), methods=["GET"]),
            Route("/metrics", route(_metrics), methods=["GET"]),
            Route("/", route(_front_page), methods=["GET"]),
        ]
    )


async def _sql(doors: Doors, request: Request) -> Response:
    text = _text(await request.body())
    settings = dict(request.query_params)
    database = settings.pop(DATABASE, "default")
    answer = await run_in_threadpool(doors.statements.run, text, database=database, settings=settings)
    form = named_format(answer.output_format) if answer.output_format else _accepted(request)
    return _answered(answer, form)


async def _insert(doors: Doors, request: Request) -> Response:
    database, table = request.path_params["database"], request.path_params["table"]
    body = await request.body()
    media_type = request.headers.get("content-type", Format.NDJSON).split(";")[0].strip().lower()
    match media_type:
        case Format.ARROW:
            answer = await run_in_threadpool(doors.statements.insert_arrow, database, table, _arrow(body))
        case Format.NDJSON | Format.JSON:
            answer = await run_in_threadpool(
                doors.statements.insert_text, database, table, input_format="JSONEachRow", data=body
            )
        case Format.CSV:
            answer = await run_in_threadpool(
                doors.statements.insert_text, database, table, input_format="CSV", data=body
            )
        case _:
            raise BadBodyError(
                "rows of this content type are not read",
                content_type=media_type,
                hint=f"send {Format.NDJSON.value}, {Format.CSV.value} or {Format.ARROW.value}",
            )
    return _answered(answer, _accepted(request))


async def _snapshot(doors: Doors, request: Request) -> Response:
    as_of = request.query_params.get("as_of_ms")
    if as_of is not None and not as_of.isdecimal():
        raise BadBodyError("as_of_ms is not a number of milliseconds", as_of_ms=as_of)
    snapshot, lease, root = await run_in_threadpool(
        doors.snapshots.pin,
        request.path_params["database"],
        request.path_params["table"],
        None if as_of is None else int(as_of),
    )
    content = msgspec.msgpack.encode((snapshot, lease, root))
    return Response(content, media_type="application/msgpack")


async def _reader(doors: Doors, request: Request) -> Response:
    act = doors.snapshots.close if request.method == "DELETE" else doors.snapshots.renew
    await run_in_threadpool(act, request.path_params["id"])
    return Response(status_code=204)


async def _health(doors: Doors, request: Request) -> Response:
    health = await run_in_threadpool(doors.health)
    status = 200 if health.status == "ok" else 503
    return Response(msgspec.json.encode(health), status_code=status, media_type="application/json")


async def _metrics(doors: Doors, request: Request) -> Response:
    return Response(await run_in_threadpool(doors.metrics), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _front_page(doors: Doors, request: Request) -> Response:
    return PlainTextResponse(__doc__ or "")


def _answered(answer: Answer, form: Format) -> Response:
    summary = Summary(
        query_id=answer.query_id, elapsed_ms=answer.elapsed_ms, rows=answer.table.num_rows, message=answer.message
    )
    headers = {
        "X-Tilth-Query-Id": answer.query_id,
        "X-Tilth-Summary": msgspec.json.encode(summary).decode("ascii", "replace"),
    }
    body = encode(answer.table, answer.columns, summary, form)
    if form is Format.JSON:
        return Response(b"".join(body), media_type=form.value, headers=headers)
    return StreamingResponse(body, media_type=form.value, headers=headers)


def _accepted(request: Request) -> Format:
    return accepted_format(request.headers.get("accept", ""))


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadBodyError("the statement is not UTF-8 text", position=error.start) from error


def _arrow(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(io.BytesIO(body)) as reader:
            return reader.read_all()
    except pa.ArrowInvalid as error:
        raise BadBodyError("the body is no Arrow stream", reason=error) from error
