"""Routes of writes whose files are written by a client's own Spark.

Covers: begin, signs of life, commit, abort, as MessagePack. Does not cover: what a write is (model/outside_write.py),
what is checked (statements/inserts/outside.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tilth.control.running import Origin
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.warehouse.remote.errors import BadBodyError

T = TypeVar("T")


class OutsideWriting(Protocol):
    """SQL engine, as these routes use it."""

    def begin_write(
        self, database: str, table: str, request: WriteRequest, *, settings: Mapping[str, str], origin: Origin
    ) -> OpenWrite: ...

    def commit_write(self, write_id: str, files: WrittenFiles, *, origin: Origin) -> WriteOutcome: ...

    def renew_write(self, write_id: str) -> None: ...

    def abort_write(self, write_id: str, reason: str) -> None: ...


class Requests(Protocol):
    """Access of a route to its request and to the threads of the rooms."""

    async def read_body(self, request: Request, decode: Callable[[bytes], T]) -> T: ...

    async def run_long(self, act: Callable[[], T]) -> T: ...

    async def run_short(self, act: Callable[[], T]) -> T: ...


class WriteRoutes:
    """Handlers of the routes."""

    def __init__(self, statements: OutsideWriting, requests: Requests, origin_of: Callable[[Request], Origin]) -> None:
        self._statements = statements
        self._requests = requests
        self._origin_of = origin_of

    def handlers(self) -> list[tuple[str, Callable[[Request], Awaitable[Response]], tuple[str, ...]]]:
        """Return path, handler and methods of each route."""
        return [
            ("/v1/writes/{database}/{table}", self.begin_write, ("POST",)),
            ("/v1/writers/{id}/commit", self.commit_write, ("POST",)),
            ("/v1/writers/{id}", self.writer, ("POST", "DELETE")),
        ]

    async def begin_write(self, request: Request) -> Response:
        """Begin a write whose files are written by a client's own Spark, as `tilth.write` does.

        The body, a `WriteRequest` in MessagePack, names the columns of the rows; parameters are session settings. The
        answer, an `OpenWrite`, has the id of the write, its transaction, the table's definition and root, and the
        values of missing columns. A write that is not renewed for the time in the answer is aborted.
        """
        settings, path = dict(request.query_params), request.path_params
        wanted = await self._requests.read_body(request, lambda body: _decoded(body, WriteRequest))
        origin = self._origin_of(request)

        def run() -> Response:
            begun = self._statements.begin_write(
                path["database"], path["table"], wanted, settings=settings, origin=origin
            )
            return _packed(begun)

        return await self._requests.run_long(run)

    async def commit_write(self, request: Request) -> Response:
        """Commit a write: the body, `WrittenFiles` in MessagePack, has the facts of all its files, which become the
        table's at once. Sent again, it answers the same; a connection that is closed does not stop it.
        """
        write_id, origin = request.path_params["id"], self._origin_of(request)
        files = await self._requests.read_body(request, lambda body: _decoded(body, WrittenFiles))
        return await self._requests.run_long(
            lambda: _packed(self._statements.commit_write(write_id, files, origin=origin))
        )

    async def writer(self, request: Request) -> Response:
        """POST is a sign of life of a write, DELETE aborts it, `?reason=` says why; both answer 204 without a body."""
        write_id, reason = request.path_params["id"], request.query_params.get("reason", "")
        if request.method == "DELETE":
            await self._requests.run_short(lambda: self._statements.abort_write(write_id, reason))
        else:
            await self._requests.run_short(lambda: self._statements.renew_write(write_id))
        return Response(status_code=204)


def _packed(answer: msgspec.Struct) -> Response:
    return Response(msgspec.msgpack.encode(answer), media_type="application/msgpack")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadBodyError("the body is not what this path reads", type=kind.__name__, reason=error) from error
