"""Routes of readers with a Spark session of their own: snapshots of several tables, changes of a table.

Covers: the bodies and the answers. Does not cover: what is pinned (query/snapshots/pins.py), which changes there are
(query/snapshots/feeds.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tilth.model.change_feed import ChangeSet, FeedStart
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.server.errors import BadRequestError

T = TypeVar("T")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
Handler = Callable[[Request], Awaitable[Response]]


class OutsideFeeds(Protocol):
    """Readers of changes, as these routes use them."""

    def open(
        self,
        database: str,
        table: str,
        *,
        name: str,
        hold_ms: int,
        version: int | None = None,
        as_of_ms: int | None = None,
        client: str = "",
    ) -> FeedStart: ...

    def newest(self, lease_id: str, hold_ms: int) -> int: ...

    def advance(self, lease_id: str, version: int, hold_ms: int) -> None: ...

    def changes(self, lease_id: str, start: int, end: int) -> ChangeSet: ...


class OutsideReading(Protocol):
    """Snapshots and pins for readers that bring a Spark session of their own."""

    def pin(
        self,
        database: str,
        table: str,
        as_of_ms: int | None = None,
        *,
        version: int | None = None,
        client: str = "",
    ) -> tuple[Snapshot, ReaderLease, str]:
        """Pin a snapshot; return it, the lease that keeps its files, and the root below which they are."""

    def renew(self, lease_id: str) -> None: ...

    def close(self, lease_id: str) -> None: ...

    def pin_together(
        self, names: Sequence[tuple[str, str]], *, client: str = ""
    ) -> list[tuple[Snapshot, ReaderLease, str] | None]: ...

    @property
    def feeds(self) -> OutsideFeeds: ...


class RequestAccess(Protocol):
    """Access of a route to its request and to the threads of the rooms."""

    async def read_body(self, request: Request, decode: Callable[[bytes], T]) -> T: ...

    async def run_short(self, act: Callable[[], T]) -> T: ...


class ReaderRoutes:
    """Handlers of the routes."""

    def __init__(self, snapshots: OutsideReading, requests: RequestAccess, client_of: Callable[[Request], str]) -> None:
        """`client_of`: the client as tables name it."""
        self._snapshots = snapshots
        self._requests = requests
        self._client_of = client_of

    def handlers(self) -> list[tuple[str, Handler, tuple[str, ...]]]:
        """Return path, handler and methods of each route."""
        return [
            ("/v1/snapshot/{database}/{table}", self.snapshot, ("POST",)),
            ("/v1/readers/{id}", self.reader, ("POST", "DELETE")),
            ("/v1/snapshots", self.together, ("POST",)),
            ("/v1/changes/{database}/{table}", self.open_feed, ("POST",)),
            ("/v1/feeds/{id}", self.feed, ("POST",)),
            ("/v1/feeds/{id}/changes", self.changes, ("POST",)),
        ]

    async def snapshot(self, request: Request) -> Response:
        """Pin a snapshot for a reader with a Spark session of its own, as `tilth.read` does.

        It is the newest, or with `?as_of_ms=` (milliseconds since 1970) or `?version=` the table as it was then. The
        answer is MessagePack: the snapshot, the lease that keeps its files until it expires, and the folder below which
        they are.
        """
        as_of_ms = _number(request, "as_of_ms", "a number of milliseconds since 1970")
        version = _number(request, "version", "the number of a version")
        database, table = request.path_params["database"], request.path_params["table"]

        def run() -> Response:
            pinned = self._snapshots.pin(database, table, as_of_ms, version=version, client=self._client_of(request))
            return _packed(pinned)

        return await self._requests.run_short(run)

    async def reader(self, request: Request) -> Response:
        """POST renews the lease of a pinned snapshot, DELETE ends it; both answer 204 without a body."""
        snapshots = self._snapshots
        act = snapshots.close if request.method == "DELETE" else snapshots.renew
        await self._requests.run_short(lambda: act(request.path_params["id"]))
        return Response(status_code=204)

    async def together(self, request: Request) -> Response:
        """Pin snapshots of several tables as of one time, as `tilth.sql` does.

        The body is JSON, a list of pairs of database and table. The answer is MessagePack: for each of them, in this
        order, what `POST /v1/snapshot/{database}/{table}` answers, or nil where there is no such table.
        """
        names = await self._requests.read_body(request, _read_names)
        client = self._client_of(request)
        return await self._requests.run_short(lambda: _packed(self._snapshots.pin_together(names, client=client)))

    async def open_feed(self, request: Request) -> Response:
        """Open a reader of a table's changes by name, as a stream of Spark does. The former reader of that name has
        lost its hold.

        `?name=` is the name, `?hold_ms=` how long the changes are held without a sign of life. The changes are those
        after `?version=` (-1: the whole table, then its changes), those of versions since `?as_of_ms=`, or those after
        now. The answer, a `FeedStart` in MessagePack, has the lease, the table, the position and the newest version.
        """
        path, given = request.path_params, request.query_params
        version, as_of_ms = _whole(given, "version", least=-1), _whole(given, "as_of_ms")
        hold_ms, client = _hold(given), self._client_of(request)

        def run() -> Response:
            return _packed(
                self._snapshots.feeds.open(
                    path["database"],
                    path["table"],
                    name=given.get("name", ""),
                    hold_ms=hold_ms,
                    version=version,
                    as_of_ms=as_of_ms,
                    client=client,
                )
            )

        return await self._requests.run_short(run)

    async def feed(self, request: Request) -> Response:
        """A sign of life of a reader of changes: the answer is the table's newest version, in MessagePack. With
        `?version=` the changes up to this version are held no more.
        """
        lease_id, given = request.path_params["id"], request.query_params
        version, hold_ms = _whole(given, "version"), _hold(given)

        def run() -> Response:
            if version is not None:
                self._snapshots.feeds.advance(lease_id, version, hold_ms)
            return _packed(self._snapshots.feeds.newest(lease_id, hold_ms))

        return await self._requests.run_short(run)

    async def changes(self, request: Request) -> Response:
        """Return the changes after the version `?start=` up to `?end=`, a `ChangeSet` in MessagePack: parts that
        brought rows, lost them or changed them, by version; the rows are read from the files.
        """
        given = request.query_params
        start, end = _whole(given, "start", least=-1), _whole(given, "end")
        if start is None or end is None:
            raise BadRequestError("changes are from a version to another one", hint="send ?start=1&end=2")
        feeds, lease_id = self._snapshots.feeds, request.path_params["id"]
        return await self._requests.run_short(lambda: _packed(feeds.changes(lease_id, start, end)))


def _number(request: Request, name: str, what: str) -> int | None:
    text = request.query_params.get(name)
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise BadRequestError(f"{name} is not {what}", **{name: text})
    return None if text is None else int(text)


def _whole(given: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    """Raises BadRequestError."""
    text = given.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise BadRequestError("the parameter is not a whole number", **{name: text}, least=least)
    return int(text)


def _hold(given: Mapping[str, str]) -> int:
    found = _whole(given, "hold_ms", least=1)
    if found is None:
        raise BadRequestError("a reader says for how long it is held", hint="send ?hold_ms=3600000")
    return found


def _read_names(body: bytes) -> list[tuple[str, str]]:
    """Raises BadRequestError."""
    try:
        return msgspec.json.decode(body, type=list[tuple[str, str]])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequestError(reason=error, hint='send [["database", "table"]]') from error


# Any value that MessagePack can carry.
def _packed(answer: object) -> Response:
    return Response(msgspec.msgpack.encode(answer), media_type="application/msgpack")
