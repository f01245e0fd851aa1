"""Requests that no library would send, byte by byte: heads, trailers and chunks without an end."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.acceptance.test_http_server import started
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.server.protocol import HEAD_BYTES_MAX

pytestmark = pytest.mark.acceptance

SECONDS_MAX = 20.0
POST = b"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = POST + b"Content-Length: 8\r\n\r\nSELECT 1"


@pytest.fixture(scope="module")
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture(scope="module")
def address(rooms: FakeRooms) -> Iterator[tuple[str, int]]:
    server = started(context_of(rooms))
    host, _, port = server.url.removeprefix("http://").partition(":")
    yield host, int(port)
    server.stop()


@pytest.fixture
def connection(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=SECONDS_MAX) as made:
        yield made


def answer_of(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def sent_until_closed(connection: socket.socket, piece: bytes, bytes_max: int) -> int:
    """Bytes that the server accepted before it closed the connection."""
    sent = 0
    try:
        while sent < bytes_max:
            sent += connection.send(piece)
    except (ConnectionError, TimeoutError):
        pass
    return sent


ENDLESS = {
    "path": (b"GET /", b"a" * 1000),
    "name of a header": (POST, b"a" * 1000),
    "value of a header": (POST + b"X-Long: ", b"a" * 1000),
    "number of headers": (POST, b"X-Many: a\r\n" * 100),
    "trailer": (CHUNKED + b"8\r\nSELECT 1\r\n0\r\n", b"X-Many: a\r\n" * 100),
    "extension of a chunk": (CHUNKED + b"8;a=", b"a" * 1000),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_cut_off(connection: socket.socket, what: str) -> None:
    begin, more = ENDLESS[what]
    connection.sendall(begin)
    limit = 100 * HEAD_BYTES_MAX
    assert sent_until_closed(connection, more, limit) < limit
    answer = answer_of(connection)
    assert not answer or answer.startswith(b"HTTP/1.1 400"), answer


def test_a_head_up_to_the_limit_is_read_in_pieces_of_any_size(address: tuple[str, int]) -> None:
    fill = b"X-Fill: " + b"a" * (HEAD_BYTES_MAX - 2_000) + b"\r\n"
    request = POST + b"Connection: close\r\n" + fill + b"Content-Length: 8\r\n\r\nSELECT 1"
    for size in (977, len(request)):
        with socket.create_connection(address, timeout=SECONDS_MAX) as connection:
            for start in range(0, len(request), size):
                connection.sendall(request[start : start + size])
            assert answer_of(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [1, 77])
def test_a_trailer_that_comes_late_is_no_header_of_its_request(
    connection: socket.socket, rooms: FakeRooms, size: int
) -> None:
    trailer_of(connection, rooms, size)


def test_a_trailer_is_no_header_of_its_request(connection: socket.socket, rooms: FakeRooms) -> None:
    """It is there before anybody has read a header."""
    trailer_of(connection, rooms, 1 << 16)


def trailer_of(connection: socket.socket, rooms: FakeRooms, size: int) -> None:
    """Send a request with trailers in pieces of this size, and check that nobody has heeded them."""
    rooms.calls.clear()
    body = b"8\r\nSELECT 1\r\n0\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nAccept: text/csv\r\n\r\n"
    request = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    for start in range(0, len(request), size):
        connection.sendall(request[start : start + size])
    answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"application/json" in answer
    assert rooms.calls == [("run", "SELECT 1", "default", {})]


def test_requests_that_are_sent_at_once_are_answered_in_order(connection: socket.socket, rooms: FakeRooms) -> None:
    rooms.calls.clear()
    unknown = b"GET /unknown HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    connection.sendall(GOOD + GOOD + unknown)
    answer = answer_of(connection)
    found = [answer.find(line) for line in (b"HTTP/1.1 200", b"HTTP/1.1 404")]
    assert found[0] == 0 < found[1]
    assert answer.count(b"HTTP/1.1 200") == 2
    assert len(rooms.calls) == 2


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        POST + b"Content-Length: 8\r\nContent-Length: 9\r\n\r\nSELECT 1",
        POST + b"Content-Length: 8\r\nTransfer-Encoding: chunked\r\n\r\nSELECT 1",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + b"Bad Name: 1\r\n\r\n",
        POST + b"X-Bad: a\x00b\r\n\r\n",
        POST + b" folded: 1\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_runs_nothing(
    connection: socket.socket, rooms: FakeRooms, request_bytes: bytes
) -> None:
    rooms.calls.clear()
    connection.sendall(request_bytes)
    answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert not rooms.calls
