"""Every route, and every way in which a request can be wrong, without a socket."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import httpx
import msgspec
import pyarrow as pa
import pytest

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import ONE, FakeRooms, context_of
from tilth.base.errors import (
    ConflictError,
    CorruptError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    NotFoundError,
    RetryError,
    TilthError,
    UnavailableError,
    UnknownOutcomeError,
)
from tilth.catalog import TableNotFoundError
from tilth.client.errors import ServerError
from tilth.model.error_numbers import NUMBERS, number_of
from tilth.model.lease import ReaderLease
from tilth.model.snapshot import Snapshot
from tilth.model.wire import ErrorAnswer, ErrorBody, Health, Summary
from tilth.query.results.answer import Answer
from tilth.server import AppContext, ServerSettings, build_app
from tilth.server.errors import STATUS
from tilth.server.stats import Answered
from tilth.warehouse import SparkRestartingError
from tools.make_docs import errors as all_errors

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture
def context(rooms: FakeRooms) -> AppContext:
    return context_of(rooms, ServerSettings(body_bytes_max=1024, statements_max=2))


@pytest.fixture
def client(context: AppContext) -> Iterator[httpx.Client]:
    with client_of(build_app(context)) as client:
        yield client


def error_of(content: bytes) -> ErrorBody:
    return msgspec.json.decode(content, type=ErrorAnswer).error


def test_a_statement_and_its_settings(client: httpx.Client, rooms: FakeRooms) -> None:
    response = client.post("/v1/sql?database=shop&max_result_bytes=5", content="SELECT 'ä'".encode())
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Tilth-Query-Id"] == "q1"
    assert response.json()["rows"] == [[1]]
    assert rooms.calls == [("run", "SELECT 'ä'", "shop", {"max_result_bytes": "5"})]


def test_the_default_database(client: httpx.Client, rooms: FakeRooms) -> None:
    client.post("/v1/sql", content=b"SELECT 1")
    assert rooms.calls == [("run", "SELECT 1", "default", {})]


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/csv", ARROW])
def test_the_form_follows_accept(client: httpx.Client, accept: str) -> None:
    response = client.post("/v1/sql", content=b"SELECT 1", headers={"Accept": accept})
    assert response.headers["Content-Type"].split(";")[0] == accept
    assert msgspec.json.decode(response.headers["X-Tilth-Summary"], type=Summary).rows == 1


def test_a_format_in_the_statement_wins(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=ONE, output_format="CSV")
    assert client.post("/v1/sql", content=b"..", headers={"Accept": ARROW}).content == b"1\n"
    rooms.answer = Answer(query_id="q", columns=[], table=ONE, output_format="CSVWithNames")
    assert client.post("/v1/sql", content=b"..", headers={"Accept": ARROW}).content == b'"a"\n1\n'
    rooms.answer = Answer(query_id="q", columns=[], table=ONE, output_format="Parquet")
    response = client.post("/v1/sql", content=b"..")
    assert (response.status_code, error_of(response.content).code) == (400, "UNKNOWN_OUTPUT_FORMAT")


@pytest.mark.parametrize("message", ["Tabelle angelegt: café", "日本 🎈\n\ttwo lines \x7f", "x" * 5000])
def test_any_message_survives_its_header(client: httpx.Client, rooms: FakeRooms, message: str) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({}), message=message)
    response = client.post("/v1/sql", content=b"..", headers={"Accept": ARROW})
    told = msgspec.json.decode(response.headers["X-Tilth-Summary"], type=Summary).message
    assert told == message if len(message) < 2000 else told == message[:2000] + "…"
    assert client.post("/v1/sql", content=b"..").json()["summary"]["message"] == message


def test_a_statement_that_is_no_text(client: httpx.Client, rooms: FakeRooms) -> None:
    response = client.post("/v1/sql", content=b"SELECT \xff")
    error = error_of(response.content)
    assert (response.status_code, error.code, rooms.calls) == (400, "BAD_BODY", [])
    assert "position=7" in error.message


@pytest.mark.parametrize(
    ("media_type", "name"),
    [
        ("application/x-ndjson", "JSONEachRow"),
        ("application/json; charset=utf-8", "JSON"),
        ("Text/CSV", "CSV"),
        ("text/csv; charset=utf-8; header=present", "CSVWithNames"),
        ("text/csv; header=absent", "CSV"),
        (None, "JSONEachRow"),
    ],
)
def test_rows_as_text(client: httpx.Client, rooms: FakeRooms, media_type: str | None, name: str) -> None:
    headers = {} if media_type is None else {"Content-Type": media_type}
    response = client.post("/v1/insert/shop/orders", content=b"\xff", headers=headers)
    assert response.status_code == 200
    assert rooms.calls == [("insert_text", "shop", "orders", name, b"\xff", {})]


def test_rows_as_arrow(client: httpx.Client, rooms: FakeRooms) -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, ONE.schema) as writer:
        writer.write_table(ONE)
    headers = {"Content-Type": ARROW}
    client.post("/v1/insert/shop/caf%C3%A9", content=sink.getvalue(), headers=headers)
    assert rooms.calls == [("insert_arrow", "shop", "café", [{"a": 1}], {})]
    for broken in (b"", b"nonsense", sink.getvalue()[:40]):
        response = client.post("/v1/insert/shop/t", content=broken, headers=headers)
        assert (response.status_code, error_of(response.content).code) == (400, "BAD_BODY")


def test_rows_of_an_unknown_type(client: httpx.Client, rooms: FakeRooms) -> None:
    response = client.post("/v1/insert/shop/t", content=b"x", headers={"Content-Type": "text/xml"})
    error = error_of(response.content)
    assert (response.status_code, error.code) == (400, "BAD_BODY")
    assert "text/csv" in error.hint
    assert rooms.calls == []


def test_rows_with_settings(client: httpx.Client, rooms: FakeRooms) -> None:
    client.post("/v1/insert/shop/t?max_insert_bytes=5", content=b"{}")
    assert rooms.calls == [("insert_text", "shop", "t", "JSONEachRow", b"{}", {"max_insert_bytes": "5"})]


def test_a_body_that_is_too_large(client: httpx.Client, rooms: FakeRooms) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 100] * 11

    for content in (b"x" * 1025, pieces()):
        response = client.post("/v1/sql", content=content)
        error = error_of(response.content)
        assert (response.status_code, error.code) == (413, "BODY_TOO_LARGE")
        assert "server.body-max" in error.hint
    assert client.post("/v1/sql", content=b"x" * 1024).status_code == 200
    assert len(rooms.calls) == 1


def test_a_snapshot_and_its_lease(client: httpx.Client, rooms: FakeRooms) -> None:
    response = client.post("/v1/snapshot/shop/orders?as_of_ms=7")
    snapshot, lease, root = msgspec.msgpack.decode(response.content, type=tuple[Snapshot, ReaderLease, str])
    assert (snapshot.table.name, lease.id, root) == ("orders", "r1", "/data")
    assert client.post("/v1/readers/r1").status_code == 204
    assert client.delete("/v1/readers/r1").status_code == 204
    assert rooms.calls == [("pin", "shop", "orders", 7), ("renew", "r1"), ("close", "r1")]
    for wrong in ("as_of_ms=yesterday", "version=-1", "version=v1"):
        response = client.post(f"/v1/snapshot/shop/orders?{wrong}")
        assert (response.status_code, error_of(response.content).code) == (400, "BAD_REQUEST")
    client.post("/v1/snapshot/shop/orders?version=3")
    assert rooms.calls[-1] == ("pin", "shop", "orders", None, 3)


def test_health_tells_by_its_status(client: httpx.Client, rooms: FakeRooms) -> None:
    assert client.get("/v1/health").status_code == 200
    rooms.health = Health(status="degraded", version="0", server="s", components={"spark": "gone"})
    response = client.get("/v1/health")
    assert (response.status_code, response.json()["components"]) == (503, {"spark": "gone"})


def test_metrics_and_the_front_page(client: httpx.Client) -> None:
    assert client.get("/metrics").text == "tilth_up 1.0\n"
    assert client.get("/").text.startswith("Tilth ")
    assert "POST /v1/sql" in client.get("/").text


def test_ready_is_another_question_than_health(client: httpx.Client, rooms: FakeRooms) -> None:
    assert client.get("/v1/ready").status_code == 200
    rooms.ready = Health(status="degraded", version="0", server="s", components={"statements": "Spark starts"})
    assert (client.get("/v1/health").status_code, client.get("/v1/ready").status_code) == (200, 503)
    assert client.get("/v1/ready").json()["components"]["statements"] == "Spark starts"


def test_health_names_services_that_fail_and_stays_well(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.failed_services = {"merge of db.t": "the disk is full"}
    response = client.get("/v1/health")
    assert (response.status_code, response.json()["failed_services"]) == (200, rooms.failed_services)


def test_an_error_has_the_number_that_clickhouse_gives_it(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.error = TableNotFoundError(table="d.t\udcff")
    response = client.post("/v1/sql", content="SELECT 1")
    assert response.headers["X-ClickHouse-Exception-Code"] == "60"
    error = error_of(response.content)
    assert (error.code, error.number) == ("TABLE_NOT_FOUND", 60)
    assert ServerError(ErrorAnswer(error)).number == 60


def test_every_number_belongs_to_a_code_of_ours() -> None:
    known = {one.code: one.error for one in all_errors()}
    assert NUMBERS.keys() <= known.keys()
    assert all(number_of(one) > 0 for one in known.values())
    of_kinds = (InvalidInputError, NotFoundError, UnknownOutcomeError, CorruptError, TilthError)
    assert [number_of(one) for one in of_kinds] == [36, 1002, 319, 246, 49]


def test_a_restart_of_spark_is_told_with_the_time_to_wait(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.error = SparkRestartingError(reason="the JVM hung", hint="retry the statement")
    response = client.post("/v1/sql", content="SELECT 1")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "SPARK_RESTARTING")
    assert response.headers["Retry-After"] == "5"


@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/health", "/maintenance-manager"])
def test_head_has_no_body(client: httpx.Client, path: str) -> None:
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/sql", {"POST"}),
        ("HEAD", "/v1/snapshot/a/b", {"POST"}),
        ("GET", "/v1/snapshot/a/b", {"POST"}),
        ("PUT", "/v1/readers/x", {"POST", "DELETE"}),
        ("POST", "/metrics", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method(client: httpx.Client, method: str, path: str, allowed: set[str]) -> None:
    response = client.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == allowed
    if method != "HEAD":
        assert error_of(response.content).code == "METHOD_NOT_ALLOWED"


def test_an_unknown_path(client: httpx.Client) -> None:
    response = client.get("/v2/nothing")
    error = error_of(response.content)
    assert (response.status_code, error.code, error.kind) == (404, "ROUTE_NOT_FOUND", "not_found")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInputError("no", hint="do it"), 400),
        (NotFoundError(), 404),
        (ConflictError(), 409),
        (FencedError(), 409),
        (RetryError(), 503),
        (UnavailableError(), 503),
        (UnknownOutcomeError(), 504),
        (CorruptError(), 500),
        (TilthError(), 500),
        (ValueError("oops"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_a_status_and_a_body(client: httpx.Client, rooms: FakeRooms, error: Exception, status: int) -> None:
    rooms.error = error
    response = client.post("/v1/sql", content=b"..")
    body = error_of(response.content)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    assert len(body.id) == 12
    assert ("Retry-After" in response.headers) == (status == 503)
    if isinstance(error, TilthError):
        assert (body.code, body.kind, body.message, body.hint) == (error.code, error.kind, error.message, error.hint)
        assert body.page == f"docs/errors/{error.code}.md"
    else:
        assert (body.code, body.kind) == ("INTERNAL_ERROR", "internal")
        assert "ValueError: oops" in body.message
        assert body.id in body.hint


def test_every_kind_has_a_status() -> None:
    assert set(STATUS) == set(ErrorKind)


def test_a_message_that_is_no_text_still_arrives(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.error = NotFoundError(file="\udcff.parquet")
    assert "?.parquet" in error_of(client.post("/v1/sql", content=b"..").content).message


def test_an_error_in_the_first_rows_is_an_answer_of_its_own(client: httpx.Client, rooms: FakeRooms) -> None:
    broken = pa.chunked_array(
        [pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))]
    )
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({"a": broken}))
    response = client.post("/v1/sql", content=b"..", headers={"Accept": "application/x-ndjson"})
    assert (response.status_code, error_of(response.content).code) == (500, "INTERNAL_ERROR")


def test_answers_are_counted_by_route(client: httpx.Client, context: AppContext) -> None:
    client.post("/v1/sql", content=b"..")
    client.post("/v1/insert/a/b", content=b"..")
    client.get("/nothing/7")
    client.request("BREW", "/v1/sql")
    stats = context.counters.stats()
    assert stats.requests == {
        Answered("POST", "/v1/sql", 200): 1,
        Answered("POST", "/v1/insert/{database}/{table}", 200): 1,
        Answered("GET", "-", 404): 1,
        Answered("-", "-", 405): 1,
    }
    assert sum(stats.durations["/v1/sql"].counts) == 1
    assert stats.running == 0


def test_json_answers_are_json(client: httpx.Client, rooms: FakeRooms) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({"a": [float("nan"), None]}))
    assert json.loads(client.post("/v1/sql", content=b"..").content)["rows"] == [["NaN"], [None]]
