"""A connection to a Tilth server: statements in, Arrow out."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx
import msgspec
import pyarrow as pa

from tilth.base.errors import ErrorKind, TilthError, UnavailableError
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.wire import ErrorAnswer, Health, Summary

if TYPE_CHECKING:
    import pandas
    import polars

DEFAULT_URL = "http://127.0.0.1:7411"
CONNECT_SECONDS_MAX = 5.0
ARROW = "application/vnd.apache.arrow.stream"


class ServerUnreachableError(UnavailableError):
    """the Tilth server does not answer"""

    code = "SERVER_UNREACHABLE"


class ServerError(TilthError):
    """the server refused the call"""

    def __init__(self, answer: ErrorAnswer) -> None:
        body = answer.error
        super().__init__(body.message, hint=body.hint)
        #: As the server tells it, for programs.
        self.kind = ErrorKind(body.kind)  # type: ignore[misc]  # the server's kind, not this class's
        self.code = body.code  # type: ignore[misc]  # likewise
        #: Under which the server's log tells the story.
        self.id = body.id


class Result:
    """What a statement gave."""

    def __init__(self, table: pa.Table, summary: Summary) -> None:
        self._table = table
        self.summary = summary

    def arrow(self) -> pa.Table:
        return self._table

    def pandas(self) -> pandas.DataFrame:
        return self._table.to_pandas()

    def polars(self) -> polars.DataFrame:
        import polars

        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    @property
    def rows(self) -> list[tuple[Any, ...]]:  # Any: a cell is whatever the column's type is in Python
        """The rows as tuples of Python values."""
        columns = [column.to_pylist() for column in self._table.columns]
        return list(zip(*columns, strict=True))

    @property
    def names(self) -> list[str]:
        return list(self._table.column_names)

    def __repr__(self) -> str:
        return f"Result({self._table.num_rows} rows of {', '.join(self.names)})" if self.names else f"Result({self.summary.message})"


class Connection:
    """Talks to one server; may be used by several threads."""

    def __init__(self, url: str = DEFAULT_URL, *, database: str = "default", timeout_seconds: float | None = None) -> None:
        self.url = url.rstrip("/")
        self.database = database
        timeout = httpx.Timeout(timeout_seconds, connect=CONNECT_SECONDS_MAX)
        self._http = httpx.Client(base_url=self.url, timeout=timeout, trust_env=False)

    def sql(self, text: str, settings: Mapping[str, str] | None = None) -> Result:
        """Runs one statement. Raises ServerError, or ServerUnreachableError naming the address."""
        parameters = {"database": self.database, **(settings or {})}
        response = self._call("POST", "/v1/sql", content=text.encode(), params=parameters, headers={"Accept": ARROW})
        return _result(response)

    def insert(self, table: str, rows: pa.Table) -> Result:
        """Adds the rows of an Arrow table; they are readable when this returns."""
        database, _, name = table.rpartition(".")
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        path = f"/v1/insert/{database or self.database}/{name}"
        headers = {"Accept": ARROW, "Content-Type": ARROW}
        return _result(self._call("POST", path, content=sink.getvalue(), headers=headers))

    def health(self) -> Health:
        """How the server's components are; also when some of them are down."""
        response = self._send("GET", "/v1/health")
        return msgspec.json.decode(response.content, type=Health)

    def metrics(self) -> str:
        """Prometheus' text."""
        return self._call("GET", "/metrics").text

    def raw(self, text: str, *, accept: str) -> bytes:
        """Runs one statement and returns the answer's body in the asked form."""
        response = self._call(
            "POST", "/v1/sql", content=text.encode(), params={"database": self.database}, headers={"Accept": accept}
        )
        return response.content

    def pin(self, database: str, table: str, as_of_ms: int | None) -> tuple[Snapshot, ReaderLease, str]:
        """A snapshot, the lease that keeps its files until it is renewed no more, and the root of the files."""
        parameters = {} if as_of_ms is None else {"as_of_ms": str(as_of_ms)}
        response = self._call("GET", f"/v1/snapshot/{database}/{table}", params=parameters)
        return msgspec.msgpack.decode(response.content, type=tuple[Snapshot, ReaderLease, str])

    def renew(self, lease_id: str) -> None:
        """Keeps the files of a pinned snapshot for another while."""
        self._call("POST", f"/v1/readers/{lease_id}")

    def unpin(self, lease_id: str) -> None:
        """Lets the files of a pinned snapshot go."""
        self._call("DELETE", f"/v1/readers/{lease_id}")

    def wait_ready(self, seconds: float) -> None:
        """Returns once the server answers and all its components are well; raises ServerUnreachableError."""
        deadline = time.monotonic() + seconds  # noqa: TID251  # a client has no clock handed in
        while True:
            try:
                if self.health().status == "ok":
                    return
            except ServerUnreachableError:
                pass
            if time.monotonic() > deadline:  # noqa: TID251
                raise ServerUnreachableError(url=self.url, seconds=seconds)
            time.sleep(0.05)  # noqa: TID251

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
        if response.is_success:
            return response
        try:
            answer = msgspec.json.decode(response.content, type=ErrorAnswer)
        except msgspec.MsgspecError as error:
            raise UnavailableError(
                "something that is no Tilth server answers here",
                url=self.url,
                status=response.status_code,
                hint="check the address and the port",
            ) from error
        raise ServerError(answer)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:  # Any: httpx's own options
        try:
            return self._http.request(method, path, **options)
        except httpx.TimeoutException as error:
            raise ServerUnreachableError("the Tilth server took too long", url=self.url) from error
        except httpx.HTTPError as error:
            hint = "is `tilth serve` running, and is this its address?"
            raise ServerUnreachableError(url=self.url, reason=error, hint=hint) from error


def connect(url: str = DEFAULT_URL, *, database: str = "default", timeout_seconds: float | None = None) -> Connection:
    """A connection to the server at this address. Nothing is sent before the first call."""
    return Connection(url, database=database, timeout_seconds=timeout_seconds)


def _result(response: httpx.Response) -> Result:
    summary = msgspec.json.decode(response.headers["X-Tilth-Summary"], type=Summary)
    with pa.ipc.open_stream(io.BytesIO(response.content)) as reader:
        return Result(reader.read_all(), summary)
