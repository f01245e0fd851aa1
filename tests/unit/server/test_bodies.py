"""Bodies of requests as the application gets them: in messages, of which the last may never come."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import anyio
import pyarrow as pa
import pytest

from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.units import KIB
from tilth.server import ServerSettings, build_app

ROW = b'{"a": 1}\n'
LARGE = ROW * 20_000


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


def post(
    rooms: FakeRooms,
    path: str,
    pieces: Sequence[bytes],
    headers: dict[str, str] | None = None,
    *,
    is_left: bool = False,
    settings: ServerSettings | None = None,
) -> tuple[int, bytes]:
    """Send a body in messages; `is_left`: the client closes the connection instead of the last one."""
    app = build_app(context_of(rooms, settings or ServerSettings(spark_above=64 * KIB, body_bytes_max=1 << 20)))
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.disconnect"} if is_left else {"type": "http.request", "body": b""})
    sent: list[dict[str, Any]] = []
    given = {"host": "localhost", **(headers or {})}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 5),
        "server": ("localhost", 7411),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    anyio.run(app, scope, receive, send)
    status = next(each["status"] for each in sent if each["type"] == "http.response.start")
    return status, b"".join(each.get("body", b"") for each in sent)


def pieces_of(body: bytes, size: int = 10_000) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("encoding", "pack"), [("", bytes), ("gzip", gzip.compress), ("zstd", pa.Codec("zstd").compress)]
)
@pytest.mark.parametrize("body", [ROW, LARGE])
def test_a_large_body_is_streamed_and_a_small_one_is_not(
    rooms: FakeRooms, encoding: str, pack: Any, body: bytes
) -> None:
    headers = {"content-encoding": encoding} if encoding else {}
    status, _ = post(rooms, "/v1/insert/shop/orders", pieces_of(bytes(pack(body)), 7000), headers)
    assert status == 200
    [call] = rooms.calls
    if body is ROW:
        assert call == ("insert_text", "shop", "orders", "JSONEachRow", ROW, {})
    else:
        head = call[1]
        assert (call[0], call[3], call[4]) == ("insert_body", LARGE, ServerSettings().streamed_bytes_max)
        assert (getattr(head, "text", ""), getattr(head, "size", 1)) == (
            "INSERT INTO shop.orders FORMAT JSONEachRow",
            0,
        )


def test_rows_behind_a_statement_are_streamed(rooms: FakeRooms) -> None:
    head = b"-- rows\nINSERT INTO orders (a, `\xc3\xa9`) SETTINGS insertion_label = 'x' FORMAT jsonlines\n"
    status, _ = post(rooms, "/v1/sql", pieces_of(head + LARGE))
    assert status == 200
    [(name, found, database, rows, _, settings)] = rooms.calls
    assert (name, database, rows, settings) == ("insert_body", "default", LARGE, {})
    assert (found.columns, found.settings, found.format.name) == (  # type: ignore[attr-defined]  # an InsertHead
        ("a", "é"),
        (("insertion_label", "x"),),
        "JSONEachRow",
    )


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT '" + b"x" * 100_000 + b"'",
        b"INSERT INTO t VALUES " + b"(1)," * 50_000 + b"(2)",
        b"INSERT INTO t FORMAT RawBLOB " + b"x" * 100_000,
        b"INSERT INTO t FORMAT Nope\n" + b"x" * 100_000,
        b"/*" + b"x" * 100_000 + b"*/ SELECT 1",
    ],
)
def test_other_large_statements_are_read_as_a_whole(rooms: FakeRooms, text: bytes) -> None:
    assert post(rooms, "/v1/sql", pieces_of(text))[0] == 200
    assert rooms.calls == [("run", text.decode(), "default", {})]


@pytest.mark.parametrize("path", ["/v1/insert/shop/t", "/v1/sql"])
def test_a_client_that_leaves_within_the_body(rooms: FakeRooms, path: str) -> None:
    head = b"" if "insert" in path else b"INSERT INTO t FORMAT JSONEachRow "
    status, body = post(rooms, path, pieces_of(head + LARGE), is_left=True)
    # The statement is cancelled while it takes the pieces, so nothing has been done.
    assert (status, rooms.calls, b"QUERY_WAS_CANCELLED" in body) == (409, [], True)
    status, _ = post(rooms, path, pieces_of(head + ROW), is_left=True)
    assert (status, rooms.calls) == (400, [])


@pytest.mark.parametrize(
    ("encoding", "body", "text"),
    [
        ("br", ROW, b"encoding=br"),
        ("gzip", b"nonsense", b"Content-Encoding"),
        ("gzip", gzip.compress(LARGE)[:-20], b"Content-Encoding"),
        ("zstd", ROW, b"Content-Encoding"),
    ],
)
def test_what_is_not_compressed_as_it_says(rooms: FakeRooms, encoding: str, body: bytes, text: bytes) -> None:
    status, answer = post(rooms, "/v1/insert/shop/t", pieces_of(body), {"content-encoding": encoding})
    assert (status, b"BAD_BODY" in answer, text in answer) == (400, True, True)


def test_a_body_that_is_known_to_be_too_large_is_not_read(rooms: FakeRooms) -> None:
    settings = ServerSettings(spark_above=64 * KIB, body_bytes_max=1 << 20, streamed_bytes_max=1 << 21)
    length = {"content-length": str((1 << 21) + 1)}
    for path in ("/v1/insert/shop/t", "/v1/sql"):
        assert post(rooms, path, [], length, settings=settings)[0] == 413
    # A statement that is not streamed has the limit of those that are held.
    text = b"SELECT '" + b"x" * (1 << 20) + b"'"
    assert post(rooms, "/v1/sql", pieces_of(text), settings=settings)[0] == 413
    assert rooms.calls == []
