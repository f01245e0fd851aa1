"""A connection to a Tilth server: statements in, Arrow out."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import httpx
import msgspec
import pyarrow as pa

from tilth.base.errors import ErrorKind, InvalidInputError, TilthError, UnavailableError
from tilth.base.installed import require
from tilth.client.errors import (
    AnswerLostError,
    BadUrlError,
    ServerError,
    ServerUnreachableError,
)
from tilth.client.frames import arrow_table
from tilth.client.out_of_range_times import python_values, readable
from tilth.client.servers import Failover
from tilth.client.settings import DEFAULT_URL, URL_VARIABLE
from tilth.model.change_feed import ChangeSet, FeedStart
from tilth.model.lease import ReaderLease
from tilth.model.outside_write import OpenWrite, WriteOutcome, WriteRequest, WrittenFiles
from tilth.model.snapshot import Snapshot
from tilth.model.wire import ErrorAnswer, ErrorBody, Health, Summary

if TYPE_CHECKING:
    import pandas
    import polars

CONNECT_SECONDS_MAX = 5.0
READY_POLL_SECONDS = 0.05
#: Batches of an INSERT are of this size, or of one row.
BATCH_BYTES = 4 << 20
ARROW = "application/vnd.apache.arrow.stream"
LOST_HINT = "check the table, or system.query_log, before you send it again"
CHECK_HINT = "check that `tilth serve` runs and that this is its address"


class Result:
    """Result of a statement."""

    def __init__(self, table: pa.Table, summary: Summary) -> None:
        self._table = table
        self.summary = summary

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table

    def pandas(self) -> pandas.DataFrame:
        """Return a pandas frame; a column with times of years that Python does not know has texts.

        Raises UnavailableError (NOT_INSTALLED) without pandas.
        """
        require(("pandas",), extra="pandas", purpose="Result.pandas")
        return readable(self._table).to_pandas()

    def polars(self) -> polars.DataFrame:
        """Return a Polars frame; a column with times of years that Python does not know has texts.

        Raises UnavailableError (NOT_INSTALLED) without Polars.
        """
        require(("polars",), extra="polars", purpose="Result.polars")
        import polars

        frame = polars.from_arrow(readable(self._table))
        assert isinstance(frame, polars.DataFrame)
        return frame

    @property
    def rows(self) -> list[tuple[Any, ...]]:  # Any: a cell is whatever the column's type is in Python
        """Return tuples of Python values; times of years that Python does not know are texts: `+10000-01-01`."""
        columns = [python_values(column) for column in self._table.columns]
        return list(zip(*columns, strict=True))

    @property
    def names(self) -> list[str]:
        return list(self._table.column_names)

    def __repr__(self) -> str:
        if not self.names:
            return f"Result({'; '.join((self.summary.message, *self.summary.notices))})"
        return f"Result({self._table.num_rows} rows of {', '.join(self.names)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that is still coming in."""

    media_type: str
    summary: Summary
    #: The body, piece by piece.
    pieces: Iterator[bytes]


class Rows:
    """The rows of an answer that is still coming in, as Arrow batches, once."""

    def __init__(self, reply: Reply) -> None:
        """Raises AnswerLostError if the answer is no Arrow; iterating does, too, if it was cut off."""
        self._summary = reply.summary
        with _whole(reply.summary.query_id):
            self._reader = pa.ipc.open_stream(_Source(reply.pieces))
        self._count = 0

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def summary(self) -> Summary:
        """Outcome of the statement; `rows` counts those that were received."""
        return msgspec.structs.replace(self._summary, rows=self._count)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            with _whole(self._summary.query_id):
                batch = next(self._reader, None)
            if batch is None:
                return
            self._count += batch.num_rows
            yield batch


class _Source(io.RawIOBase):
    """The pieces of a body as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer if the body ends before."""
        parts = [self._left]
        have = len(self._left)
        while size < 0 or have < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            have += len(piece)
        data = b"".join(parts)
        cut = len(data) if size < 0 else size
        self._left = data[cut:]
        return data[:cut]


class Connection:
    """Talks to one server; may be used by several threads."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        database: str = "default",
        timeout_seconds: float | None = None,
        transport: httpx.BaseTransport | None = None,
        token: str = "",
    ) -> None:
        """`url`: of a server, or of several of one catalog with commas between, of which the next one is called if
        one does not answer. `token`: sent with every call as `Authorization: Bearer`, for a proxy that checks it. The
        transport is for tests. Raises BadUrlError, InvalidInputError for a token that no header can carry.
        """
        urls = [(each if "://" in each else f"http://{each}").rstrip("/") for each in url.split(",")]
        self.database = database
        #: Settings of SET, sent with every statement.
        self.settings: dict[str, str] = {}
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS_MAX)
        for each in urls:
            _check_url(each)
        self._urls = urls
        self._transport = transport
        self._failover = Failover(urls, transport or httpx.HTTPTransport(trust_env=False))
        # Names the reader in tables of a server that list readers.
        headers = {"User-Agent": f"tilth-python pid {os.getpid()} on {socket.gethostname()}"}
        self._token = token
        if token:
            headers["Authorization"] = f"Bearer {_checked_token(token)}"
        self._http = httpx.Client(
            base_url=urls[0], timeout=timeout, trust_env=False, transport=self._failover, headers=headers
        )

    @property
    def url(self) -> str:
        """The server that was called last; before the first call the first one."""
        return self._failover.last_url

    def sql(self, text: str, settings: Mapping[str, str] | None = None) -> Result:
        """Run one statement. Raises ServerError, ServerUnreachableError naming the address, or AnswerLostError."""
        with self.stream(text, settings) as rows:
            table = pa.Table.from_batches(list(rows), rows.schema)
            return Result(table, rows.summary)

    @contextmanager
    def stream(self, text: str, settings: Mapping[str, str] | None = None) -> Iterator[Rows]:
        """Run one statement; the rows come batch by batch, while the server still computes others:

            with connection.stream("SELECT * FROM t") as rows:
                for batch in rows: ...

        Leaving early cancels the statement. Raises as `sql` does, also while rows are iterated: then the result
        is incomplete.
        """
        with self.request(text, accept=ARROW, settings=settings) as reply:
            if reply.media_type != ARROW:
                hint = "leave FORMAT out, or use request()"
                raise InvalidInputError.coded(
                    "FORMAT_IN_STATEMENT",
                    "the result of the statement's FORMAT is not a table",
                    media_type=reply.media_type,
                    hint=hint,
                )
            yield Rows(reply)

    @contextmanager
    def request(self, text: str, *, accept: str, settings: Mapping[str, str] | None = None) -> Iterator[Reply]:
        """Run one statement; the answer comes piece by piece, in the requested media type or in that of its FORMAT."""
        try:
            content = text.encode()
        except UnicodeEncodeError as error:
            # A terminal passes on bytes that are no characters.
            hint = "write it in UTF-8"
            raise InvalidInputError.coded(
                "BAD_STATEMENT_TEXT", "the statement is not text", position=error.start, hint=hint
            ) from error
        sent = self._http.stream(
            "POST",
            "/v1/sql",
            content=content,
            params={**self.settings, **(settings or {}), "database": self.database},
            headers={"Accept": accept},
        )
        with self._translated(), sent as response:
            if not response.is_success:
                response.read()
            self._check(response)
            media_type = response.headers.get("Content-Type", "").split(";")[0].strip()
            summary = self._summary(response)
            self.settings |= summary.connection_settings
            yield Reply(media_type=media_type, summary=summary, pieces=self._pieces(response, summary.query_id))

    def _pieces(self, response: httpx.Response, query_id: str) -> Iterator[bytes]:
        """Yield the body; where the server broke it off, its reason is raised."""
        try:
            yield from response.iter_bytes()
        except httpx.RemoteProtocolError as error:
            raise self._why_broken(query_id, error) from error

    def _why_broken(self, query_id: str, error: Exception) -> TilthError:
        hint = "the rows received are not the whole result; send the query again"
        lost = AnswerLostError("the answer broke off", url=self.url, query_id=query_id, reason=error, hint=hint)
        safe_id = query_id.replace("'", "")
        # The error has no text if `audit.literals` hides it.
        condition = f"query_id = '{safe_id}' AND error_code IS NOT NULL"
        question = f"SELECT error_code, coalesce(error, error_code) FROM system.query_log WHERE {condition}"
        try:
            # A call of its own: a query through `sql` would query its own failure if it breaks off, too.
            content = self._call("POST", "/v1/sql", content=question.encode(), headers={"Accept": ARROW}).content
            found = Result(table_of(content), Summary(query_id="", elapsed_ms=0.0, rows=0)).rows
        except TilthError:
            return lost
        if not found:
            return lost
        code, message = found[0]
        body = ErrorBody(code=code, kind=ErrorKind.INTERNAL.value, message=message, hint=hint, id=query_id)
        return ServerError(ErrorAnswer(body))

    # Any: an object of one of several libraries.
    def insert(self, table: str, rows: Any, settings: Mapping[str, str] | None = None) -> Result:
        """Add rows, columns found by name: an Arrow table, a pandas, Polars or Spark DataFrame, a list of dicts.

        They are readable when this returns. With an `insertion_label` among the settings they are stored once, however
        often they are sent. Raises InvalidInputError for what holds no rows.
        """
        sent = arrow_table(rows)
        sink = io.BytesIO()
        # A large INSERT is read batch by batch.
        rows_max = max(1, BATCH_BYTES * sent.num_rows // max(1, sent.nbytes))
        with pa.ipc.new_stream(sink, sent.schema) as writer:
            writer.write_table(sent, max_chunksize=rows_max)
        return self.insert_body(table, sink.getvalue(), media_type=ARROW, settings=settings)

    def insert_body(
        self,
        table: str,
        body: bytes | Iterable[bytes],
        *,
        media_type: str,
        encoding: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> Result:
        """Add rows as the HTTP API takes them: NDJSON, CSV or an Arrow stream, by their media type.

        `body`: the rows, or pieces of them, which are sent as they come and may be of any size together; `encoding`:
        `gzip` or `zstd`, if they are compressed. They are readable when this returns; where it raises, none is stored.
        """
        database, _, name = table.rpartition(".")
        headers = {"Accept": ARROW, "Content-Type": media_type} | ({"Content-Encoding": encoding} if encoding else {})
        response = self._call(
            "POST",
            f"/v1/insert/{_segment(database or self.database)}/{_segment(name)}",
            content=body,
            params={**self.settings, **(settings or {})},
            headers=headers,
        )
        return Result(table_of(response.content), self._summary(response))

    def health(self) -> Health:
        """Return the state of the server's components, also when some of them are down. With the services that fail."""
        return self._get_health("/v1/health")

    def ready(self) -> Health:
        """Return whether statements work; if not, what is missing is among the components."""
        return self._get_health("/v1/ready")

    def _get_health(self, path: str) -> Health:
        response = self._send("GET", path)
        try:
            return msgspec.json.decode(response.content, type=Health)
        except msgspec.MsgspecError as error:
            self._check(response)
            raise self._not_tilth(response) from error

    def metrics(self) -> str:
        return self._call("GET", "/metrics").text

    def pin(
        self, database: str, table: str, as_of_ms: int | None = None, *, version: int | None = None
    ) -> tuple[Snapshot, ReaderLease, str]:
        """A snapshot, the lease that keeps its files until it is renewed no more, and the root of the files.

        The newest, or as of a time in milliseconds since 1970, or of a version.
        """
        given = {"as_of_ms": as_of_ms, "version": version}
        parameters = {name: str(value) for name, value in given.items() if value is not None}
        path = f"/v1/snapshot/{_segment(database)}/{_segment(table)}"
        response = self._call("POST", path, params=parameters)
        return msgspec.msgpack.decode(response.content, type=tuple[Snapshot, ReaderLease, str])

    def pin_together(self, tables: Sequence[tuple[str, str]]) -> list[tuple[Snapshot, ReaderLease, str] | None]:
        """Pin each of these tables, by database and name, as `pin` does, all as of one time; None: no such table."""
        content = msgspec.json.encode(tables)
        response = self._call("POST", "/v1/snapshots", content=content, headers={"Content-Type": "application/json"})
        return msgspec.msgpack.decode(response.content, type=list[tuple[Snapshot, ReaderLease, str] | None])

    def open_feed(
        self,
        database: str,
        table: str,
        *,
        name: str,
        hold_ms: int,
        version: int | None = None,
        as_of_ms: int | None = None,
    ) -> FeedStart:
        """Open a reader of a table's changes by name; `docs/reference/http.md` says more."""
        given = {"name": name, "hold_ms": hold_ms, "version": version, "as_of_ms": as_of_ms}
        parameters = {key: str(value) for key, value in given.items() if value is not None}
        response = self._call("POST", f"/v1/changes/{_segment(database)}/{_segment(table)}", params=parameters)
        return msgspec.msgpack.decode(response.content, type=FeedStart)

    def renew_feed(self, lease_id: str, *, hold_ms: int, version: int | None = None) -> int:
        """Hold the changes of a reader, those after the version if one is given; return the table's newest version."""
        given = {"hold_ms": str(hold_ms)} | ({} if version is None else {"version": str(version)})
        response = self._call("POST", f"/v1/feeds/{_segment(lease_id)}", params=given)
        return msgspec.msgpack.decode(response.content, type=int)

    def feed_changes(self, lease_id: str, start: int, end: int) -> ChangeSet:
        """Return the changes after a version up to another one."""
        given = {"start": str(start), "end": str(end)}
        response = self._call("POST", f"/v1/feeds/{_segment(lease_id)}/changes", params=given)
        return msgspec.msgpack.decode(response.content, type=ChangeSet)

    def renew(self, lease_id: str) -> None:
        """Extend the time for which the files of a pinned snapshot are kept."""
        self._call("POST", f"/v1/readers/{_segment(lease_id)}")

    def unpin(self, lease_id: str) -> None:
        """Release the files of a pinned snapshot."""
        self._call("DELETE", f"/v1/readers/{_segment(lease_id)}")

    def begin_write(self, database: str, table: str, request: WriteRequest) -> OpenWrite:
        """Begin a write whose files the caller's tasks write. Raises InvalidInputError for names that are not text."""
        try:
            content, path = msgspec.msgpack.encode(request), f"/v1/writes/{_segment(database)}/{_segment(table)}"
        except UnicodeEncodeError as error:
            raise InvalidInputError("a name is not text", position=error.start, hint="write it in UTF-8") from error
        response = self._call("POST", path, content=content, params=self.settings)
        return msgspec.msgpack.decode(response.content, type=OpenWrite)

    def renew_write(self, write_id: str) -> None:
        """Keep a write open. Raises ServerError with why it has ended."""
        self._call("POST", f"/v1/writers/{_segment(write_id)}")

    def commit_write(self, write_id: str, files: WrittenFiles) -> WriteOutcome:
        """Commit the files of a write; after a lost answer the same call may be sent again."""
        response = self._call("POST", f"/v1/writers/{_segment(write_id)}/commit", content=msgspec.msgpack.encode(files))
        return msgspec.msgpack.decode(response.content, type=WriteOutcome)

    def abort_write(self, write_id: str, reason: str) -> None:
        """End a write without its rows. Raises ServerError (WRITE_LANDED) for one that has landed."""
        self._call("DELETE", f"/v1/writers/{_segment(write_id)}", params={"reason": reason[:200]})

    def wait_ready(self, seconds: float) -> None:
        """Return once the server answers and statements work; raises ServerUnreachableError.

        That error names the components that are not.
        """
        deadline = time.monotonic() + seconds  # noqa: TID251  # a client has no clock handed in
        while True:
            try:
                health = self.ready()
                if health.status == "ok":
                    return
                last = ", ".join(f"{name}: {state}" for name, state in health.components.items() if state != "ok")
            except (ServerUnreachableError, AnswerLostError) as error:
                last = error.message
            if time.monotonic() > deadline:  # noqa: TID251
                raise ServerUnreachableError("the Tilth server is not ready", url=self.url, last=last, hint=CHECK_HINT)
            time.sleep(READY_POLL_SECONDS)  # noqa: TID251

    def beside(self, *, timeout_seconds: float) -> Connection:
        """Return a second connection to the same servers, the one that was called last first; close it, too.

        For what must not wait for this one's statements, and not have its settings.
        """
        first = self.url
        urls = [first, *(url for url in self._urls if url != first)]
        return Connection(
            ",".join(urls),
            database=self.database,
            timeout_seconds=timeout_seconds,
            transport=self._transport,
            token=self._token,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:  # Any: httpx's own options
        response = self._send(method, path, **options)
        self._check(response)
        return response

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:  # Any: httpx's own options
        with self._translated():
            return self._http.request(method, path, **options)

    def _check(self, response: httpx.Response) -> None:
        """Raises what the server refused with."""
        if response.is_success:
            return
        try:
            answer = msgspec.json.decode(response.content, type=ErrorAnswer)
        except msgspec.MsgspecError as error:
            raise self._not_tilth(response) from error
        raise ServerError(answer)

    def _summary(self, response: httpx.Response) -> Summary:
        try:
            return msgspec.json.decode(response.headers.get("X-Tilth-Summary", ""), type=Summary)
        except msgspec.MsgspecError as error:
            raise self._not_tilth(response) from error

    def _not_tilth(self, response: httpx.Response) -> TilthError:
        return UnavailableError.coded(
            "NOT_A_TILTH_SERVER",
            "the server at this address is not a Tilth server",
            url=self.url,
            status=response.status_code,
            hint="check the address and the port",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Convert errors of the network to ours, distinguished by whether the server can have seen the statement."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.PoolTimeout) as error:
            raise ServerUnreachableError(url=self.url, reason=error, hint=CHECK_HINT) from error
        except httpx.TimeoutException as error:
            raise AnswerLostError("the Tilth server did not answer in time", url=self.url, hint=LOST_HINT) from error
        except httpx.HTTPError as error:
            raise AnswerLostError(url=self.url, reason=error, hint=LOST_HINT) from error


def _check_url(url: str) -> None:
    """Raises BadUrlError."""
    hint = "write it as http://127.0.0.1:7411, several with commas between"
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadUrlError(url=url, reason=error, hint=hint) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadUrlError(url=url, hint=hint)


def connect(
    url: str | None = None, *, database: str = "default", timeout_seconds: float | None = None, token: str = ""
) -> Connection:
    """Connect to the server at this address; none: that of the environment variable TILTH_URL, or of this machine.

    `token`: for a proxy in front of the server that checks it. Nothing is sent before the first call.
    """
    url = url or default_url()
    return Connection(url, database=database, timeout_seconds=timeout_seconds, token=token)


def default_url() -> str:
    """Return the address of the environment variable TILTH_URL, or of this machine."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def _segment(name: str) -> str:
    return quote(name, safe="")


def _checked_token(token: str) -> str:
    """Return the token; the error does not repeat it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInputError("a token has printable characters of ASCII only, and no space")
    return token


def table_of(body: bytes) -> pa.Table:
    """Read a whole answer. Raises AnswerLostError where it is no Arrow, or not whole."""
    with _whole(), pa.ipc.open_stream(io.BytesIO(body)) as reader:
        return reader.read_all()


@contextmanager
def _whole(query_id: str = "") -> Iterator[None]:
    """Convert errors of Arrow, as where a proxy has cut an answer off without an error of the network."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise AnswerLostError("the answer broke off", query_id=query_id, reason=error, hint=LOST_HINT) from error
