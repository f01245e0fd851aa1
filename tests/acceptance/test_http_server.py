"""A real HTTP server on a real socket over fake rooms: the command line, connections, a server that goes away."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from tests.codes import WithCode
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.clock import SystemClock
from tilth.base.errors import ErrorKind, NotFoundError, UnavailableError
from tilth.client import AnswerLostError, Connection, ServerUnreachableError, connect
from tilth.client.errors import ServerError
from tilth.client.exit_codes import EXIT_CODES
from tilth.control.running import Origin
from tilth.model.wire import Health
from tilth.query.results.answer import Answer
from tilth.server import AppContext, HttpServer, ServerSettings, build_app
from tools.node_process import free_port

pytestmark = pytest.mark.acceptance


class SlowRooms(FakeRooms):
    """Rooms in which every statement waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def _answered(self, *call: object) -> Answer:
        self.has_begun.set()
        assert self.may_end.wait(30)
        return super()._answered(*call)


def started(context: AppContext) -> HttpServer:
    server = HttpServer(SystemClock(), build_app(replace(context, listen_host="127.0.0.1")), host="127.0.0.1", port=0)
    server.start()
    return server


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture
def server(rooms: FakeRooms) -> Iterator[HttpServer]:
    server = started(context_of(rooms))
    yield server
    server.stop()


@pytest.fixture
def connection(server: HttpServer) -> Iterator[Connection]:
    with connect(server.url) as connection:
        yield connection


def tilth(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "tilth.client.cli", *arguments]
    return subprocess.run(command, input=given or "", capture_output=True, text=True, timeout=60, check=False)


def test_a_large_result_arrives_whole(connection: Connection, rooms: FakeRooms) -> None:
    table = pa.table({"n": pa.array(range(300_000), pa.int64()), "t": ["täxt"] * 300_000})
    rooms.answer = Answer(query_id="q", columns=[], table=table, message="größer")
    result = connection.sql("SELECT ..")
    assert result.arrow() == table
    assert result.summary.message == "größer"
    with connection.request("SELECT ..", accept="text/csv") as reply:
        pieces = list(reply.pieces)
    assert len(pieces) > 10
    assert b"".join(pieces).count(b"\n") == 300_001


def test_many_threads_share_a_connection(connection: Connection) -> None:
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(connection.sql("SELECT 1").rows[0][0])) for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 32


def test_health_answers_while_every_statement_is_busy() -> None:
    rooms = SlowRooms()
    server = started(context_of(rooms, ServerSettings(statements_max=1)))
    try:
        with connect(server.url) as connection:
            threads = [threading.Thread(target=connection.sql, args=("SELECT 1",)) for _ in range(3)]
            for thread in threads:
                thread.start()
            assert rooms.has_begun.wait(10)
            assert connection.health().status == "ok"
            assert "tilth_up" in connection.metrics()
            assert rooms.texts == []
            rooms.may_end.set()
            for thread in threads:
                thread.join(10)
            assert len(rooms.texts) == 3
    finally:
        rooms.may_end.set()
        server.stop()


class LeavingRooms(FakeRooms):
    """Rooms in which a statement ends when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.cancelled: list[str] = []

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        self.has_begun.set()
        for _ in range(300):
            if origin.cancellation.error is not None:
                self.cancelled.append(str(origin.cancellation.error))
                break
            time.sleep(0.05)
        return super().run(text, database=database, settings=settings, origin=origin)


def test_a_client_that_leaves_cancels_its_statement_and_one_that_stays_does_not() -> None:
    rooms = LeavingRooms()
    server = started(context_of(rooms))
    try:
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as leaving:
            head = f"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 8\r\n\r\nSELECT 1"
            leaving.sendall(head.encode())
            assert rooms.has_begun.wait(10)
            assert rooms.cancelled == []
        deadline = time.monotonic() + 10
        while not rooms.texts:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(rooms.cancelled) == 1
        assert "closed the connection" in rooms.cancelled[0]
    finally:
        server.stop()


def test_bodies_share_a_bound_and_small_statements_pass_beside_them(rooms: FakeRooms) -> None:
    server = started(context_of(rooms, ServerSettings(insert_memory=1_000_000)))
    try:
        port = int(server.url.rpartition(":")[2])
        head = f"POST /v1/insert/a/b HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 900000\r\n\r\n{{"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(head.encode())
            deadline = time.monotonic() + 10
            refused = httpx.post(f"{server.url}/v1/insert/a/b", content=b"{}" * 200_000, trust_env=False)
            while refused.status_code != 503:
                assert time.monotonic() < deadline, refused.text
                refused = httpx.post(f"{server.url}/v1/insert/a/b", content=b"{}" * 200_000, trust_env=False)
            assert refused.json()["error"]["code"] == "MEMORY_PRESSURE"
            assert refused.headers["Retry-After"] == "1"
            assert httpx.post(f"{server.url}/v1/sql", content=b"KILL QUERY 'q'", trust_env=False).status_code == 200
    finally:
        server.stop()


def test_a_body_that_is_too_large_is_refused_over_a_socket(rooms: FakeRooms) -> None:
    server = started(context_of(rooms, ServerSettings(body_bytes_max=1024)))
    try:
        response = httpx.post(f"{server.url}/v1/sql", content=b"x" * 4_000_000, trust_env=False)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")
    finally:
        server.stop()


def test_answers_are_not_held_back_by_the_network(server: HttpServer) -> None:
    """asyncio turns Nagle's algorithm off, which costs 40 ms an answer, only where it sees that the socket is TCP."""
    assert server._socket.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken(server: HttpServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(UnavailableError, check=WithCode("ADDRESS_IN_USE"), match=str(port)):
        HttpServer(SystemClock(), build_app(context_of(FakeRooms())), host="127.0.0.1", port=port)


def test_a_server_that_goes_away_before_its_answer() -> None:
    """The statement may have been applied, and the error says so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            accepted, _ = listener.accept()
            accepted.recv(65536)
            accepted.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with connect(f"http://127.0.0.1:{listener.getsockname()[1]}") as connection:
            with pytest.raises(AnswerLostError, match=r"127\.0\.0\.1"):
                connection.sql("INSERT ..")
        thread.join(10)


def test_nobody_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with connect(url) as connection, pytest.raises(ServerUnreachableError, match=url):
        connection.sql("SELECT 1")
    result = tilth("sql", "--url", url, "-c", "SELECT 1")
    assert result.returncode == EXIT_CODES[ErrorKind.UNAVAILABLE]
    assert f"SERVER_UNREACHABLE the Tilth server does not answer: url={url}" in result.stderr
    assert "check that `tilth serve` runs" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert tilth("status", "--url", url).returncode == 1


def test_statements_by_option_file_and_standard_input(server: HttpServer, rooms: FakeRooms, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("\ufeff-- ä\nSELECT ';';\nUSE shop; SELECT 2")
    assert tilth("sql", "--url", server.url, "-c", "SELECT 1; SELECT 2;").returncode == 0
    assert tilth("sql", "--url", server.url, "-f", str(script)).returncode == 0
    result = tilth("sql", "--url", server.url, "--format", "csv", given="SELECT 3")
    assert (result.returncode, result.stdout, result.stderr) == (0, '"a"\n1\n', "")
    assert rooms.texts == ["SELECT 1", "SELECT 2", "SELECT ';'", "USE shop", "SELECT 2", "SELECT 3"]
    assert rooms.calls[4][2] == "shop"


def test_an_error_ends_a_script_with_the_code_of_its_kind(server: HttpServer, rooms: FakeRooms, tmp_path: Path) -> None:
    rooms.error = NotFoundError(table="t", hint="SHOW TABLES lists them")
    result = tilth("sql", "--url", server.url, "-c", "SELECT 1; SELECT 2")
    assert (result.returncode, result.stdout) == (EXIT_CODES[ErrorKind.NOT_FOUND], "")
    assert "NOT_FOUND no such thing: table=t" in result.stderr
    assert rooms.texts == ["SELECT 1"]
    no_text = tmp_path / "script.sql"
    no_text.write_bytes(b"SELECT \xff")
    result = tilth("sql", "--url", server.url, "-f", str(no_text))
    assert (result.returncode, "BAD_SCRIPT" in result.stderr) == (EXIT_CODES[ErrorKind.INVALID], True)


def test_a_reader_that_leaves_early_is_no_traceback(server: HttpServer, rooms: FakeRooms) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({"n": list(range(300_000))}))
    command = f"{sys.executable} -m tilth.client.cli sql --url {server.url} --format csv -c 'SELECT 1' | head -1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr) == ('"n"\n', "")


def test_status_by_exit_code(server: HttpServer, rooms: FakeRooms) -> None:
    result = tilth("status", "--url", server.url)
    assert (result.returncode, "catalog: ok" in result.stdout) == (0, True)
    rooms.health = Health(status="degraded", version="0", server="s", components={"spark": "gone"})
    result = tilth("status", "--url", server.url)
    assert (result.returncode, "spark: gone" in result.stdout) == (1, True)
    rooms.health = Health(status="degraded", version="0", server="s", components={"spark": "no \x1b[2Jjava"})
    result = tilth("status", "--url", server.url)
    assert (result.returncode, "spark: no \\x1b[2Jjava" in result.stdout) == (1, True)


def answered(server: HttpServer, *lines: str, body: str = "DROP TABLE t") -> str:
    """What the server says to a request that is sent letter by letter as a browser sends it."""
    port = int(server.url.rpartition(":")[2])
    text = "\r\n".join([*lines, f"Content-Length: {len(body)}", "Connection: close", "", body])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def test_pages_of_other_origins_are_refused_and_programs_are_not(server: HttpServer, rooms: FakeRooms) -> None:
    port = server.url.rpartition(":")[2]
    form = "Content-Type: application/x-www-form-urlencoded"
    own = f"Host: 127.0.0.1:{port}"
    refused = [
        # A form of another site, a fetch without questions, a sandboxed frame, DNS rebinding, a request without a host.
        ("POST /v1/sql HTTP/1.1", own, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site", form),
        ("POST /v1/sql HTTP/1.1", own, "Origin: http://evil.example", "Content-Type: text/plain;charset=UTF-8"),
        ("POST /v1/sql HTTP/1.1", own, "Origin: null", "Content-Type: text/plain"),
        ("POST /v1/sql HTTP/1.1", f"Host: evil.example:{port}", f"Origin: http://evil.example:{port}", form),
        ("POST /v1/sql HTTP/1.1", own, f"Origin: http://127.0.0.1:{port}", "Content-Type: text/plain"),
        ("POST /v1/sql HTTP/1.0", "Content-Type: application/sql"),
        ("GET /metrics HTTP/1.1", f"Host: evil.example:{port}"),
        ("POST /v1/snapshot/a/b HTTP/1.1", own, "Origin: http://evil.example", form),
        ("DELETE /v1/readers/r1 HTTP/1.1", own, "Origin: http://evil.example"),
    ]
    for lines in refused:
        said = answered(server, *lines)
        assert said.startswith("HTTP/1.1 403 "), (lines, said)
        assert "_REFUSED" in said
    assert rooms.calls == []
    # curl --data
    assert answered(server, "POST /v1/sql HTTP/1.1", own, "User-Agent: curl/8.5.0", form).startswith("HTTP/1.1 200 ")
    page = (f"Host: localhost:{port}", f"Origin: http://localhost:{port}", "Content-Type: application/sql")
    assert answered(server, "POST /v1/sql HTTP/1.1", *page).startswith("HTTP/1.1 200 ")
    assert rooms.texts == ["DROP TABLE t", "DROP TABLE t"]


def pieces(count: int) -> Iterator[bytes]:
    yield from [b'{"a": 1}\n' * (1 << 16)] * count


def test_a_large_body_passes_while_it_comes_in(connection: Connection, rooms: FakeRooms) -> None:
    connection.insert_body("shop.t", pieces(40), media_type="application/x-ndjson")
    [call] = rooms.calls
    assert (call[0], call[3]) == ("insert_body", b"".join(pieces(40)))


def test_an_error_before_the_end_of_a_large_body_reaches_the_client(connection: Connection, rooms: FakeRooms) -> None:
    class Refusing(FakeRooms):
        def insert_body(self, *given: object, **options: object) -> Answer:
            raise NotFoundError("no such table", table="shop.t")

    server = started(context_of(Refusing()))
    with connect(server.url) as own, pytest.raises(ServerError, match="no such table"):
        own.insert_body("shop.t", pieces(200), media_type="application/x-ndjson")
    server.stop()


def test_a_client_that_leaves_within_a_large_body_cancels_its_insert(server: HttpServer, rooms: FakeRooms) -> None:
    def leaving() -> Iterator[bytes]:
        yield from pieces(40)
        raise KeyboardInterrupt

    with connect(server.url) as own, pytest.raises(KeyboardInterrupt):
        own.insert_body("shop.t", leaving(), media_type="application/x-ndjson")
    with connect(server.url) as own:
        own.sql("SELECT 1")
    assert [call[0] for call in rooms.calls] == ["run"]
