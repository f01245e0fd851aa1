"""A connection against the real application over fake rooms, and against a network that fails; no socket."""

from __future__ import annotations

import io
import pickle

import httpx
import msgspec
import pyarrow as pa
import pytest

from tests.codes import WithCode
from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import ErrorKind, InvalidInputError, NotFoundError, UnavailableError, page_of
from tilth.client import AnswerLostError, Connection, ServerError, ServerUnreachableError
from tilth.client.errors import BadUrlError
from tilth.client.http import ARROW
from tilth.model.wire import ErrorAnswer, ErrorBody, Summary
from tilth.query.results.answer import Answer
from tilth.server import build_app


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture
def connection(rooms: FakeRooms) -> Connection:
    return Connection("http://tilth.test", database="shop", transport=AppTransport(build_app(context_of(rooms))))


def failing(error: Exception) -> Connection:
    def handle(request: httpx.Request) -> httpx.Response:
        raise error

    return Connection("http://tilth.test:1", transport=httpx.MockTransport(handle))


def answering(response: httpx.Response) -> Connection:
    return Connection("http://tilth.test:1", transport=httpx.MockTransport(lambda request: response))


def test_rows_in_each_form(connection: Connection, rooms: FakeRooms) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    rooms.answer = Answer(query_id="q", columns=[], table=table, message="café", elapsed_ms=3)
    result = connection.sql("SELECT 1", {"max_result_bytes": "9"})
    assert result.arrow() == table
    assert result.rows == [(1, "x"), (2, None)]
    assert result.names == ["a", "b"]
    assert result.pandas()["a"].tolist() == [1, 2]
    assert result.polars().height == 2
    assert (result.summary.query_id, result.summary.message, result.summary.rows) == ("q", "café", 2)
    assert repr(result) == "Result(2 rows of a, b)"
    assert rooms.calls == [("run", "SELECT 1", "shop", {"max_result_bytes": "9"})]


def test_a_statement_without_rows(connection: Connection, rooms: FakeRooms) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({}), message="table created: shop.t")
    result = connection.sql("CREATE ..")
    assert (result.rows, result.names, repr(result)) == ([], [], "Result(table created: shop.t)")


def test_the_database_of_the_connection_wins_over_a_setting_of_that_name(
    connection: Connection, rooms: FakeRooms
) -> None:
    connection.sql("SELECT 1", {"database": "other"})
    assert rooms.calls == [("run", "SELECT 1", "shop", {})]


def test_other_forms_come_in_pieces(connection: Connection) -> None:
    with connection.request("SELECT 1", accept="text/csv") as reply:
        assert (reply.media_type, b"".join(reply.pieces)) == ("text/csv", b'"a"\n1\n')


def test_a_format_in_the_statement_gives_no_table(connection: Connection, rooms: FakeRooms) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({"a": [1]}), output_format="CSV")
    with pytest.raises(InvalidInputError, check=WithCode("FORMAT_IN_STATEMENT"), match="text/csv"):
        connection.sql("SELECT 1 FORMAT CSV")


def test_rows_in(connection: Connection, rooms: FakeRooms) -> None:
    connection.insert("orders", pa.table({"a": [1]}))
    connection.insert("my db.größe", pa.table({"a": [2]}))
    assert rooms.calls[0] == ("insert_arrow", "shop", "orders", [{"a": 1}], {})
    assert rooms.calls[1][:3] == ("insert_arrow", "my db", "größe")


def test_rows_go_in_with_the_settings_of_the_connection_and_of_the_call(
    connection: Connection, rooms: FakeRooms
) -> None:
    connection.settings["max_insert_bytes"] = "9"
    connection.insert("orders", pa.table({"a": [1]}), {"insertion_label": "orders-1"})
    expected = {"max_insert_bytes": "9", "insertion_label": "orders-1"}
    assert rooms.calls == [("insert_arrow", "shop", "orders", [{"a": 1}], expected)]


def test_snapshots_health_and_metrics(connection: Connection, rooms: FakeRooms) -> None:
    snapshot, lease, root = connection.pin("shop", "orders", None)
    connection.renew(lease.id)
    connection.unpin(lease.id)
    assert (snapshot.table.name, root) == ("orders", "/data")
    assert connection.health().status == "ok"
    assert connection.metrics() == "tilth_up 1.0\n"
    connection.wait_ready(0)


def test_an_error_of_the_server(connection: Connection, rooms: FakeRooms) -> None:
    rooms.error = NotFoundError(table="shop.t", hint="SHOW TABLES lists them")
    with pytest.raises(ServerError) as raised:
        connection.sql("SELECT 1")
    error = raised.value
    assert (error.code, error.kind, error.hint) == ("NOT_FOUND", ErrorKind.NOT_FOUND, "SHOW TABLES lists them")
    assert error.message == "no such thing: table=shop.t"
    assert len(error.id) == 12
    assert error.page == "docs/errors/NOT_FOUND.md"
    assert str(error) == f"no such thing: table=shop.t (SHOW TABLES lists them) [NOT_FOUND, id {error.id}]"
    assert error._render_traceback_()[-1] == f"  id: {error.id}"
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.kind, again.id, str(again)) == (error.code, error.kind, error.id, str(error))


def test_a_kind_of_a_newer_server_is_no_failure() -> None:
    body = ErrorBody(code="NEW", kind="never_heard_of", message="m", hint="", id="i")
    assert ServerError(ErrorAnswer(body)).kind is ErrorKind.INTERNAL


@pytest.mark.parametrize(
    ("code", "sent", "shown"),
    [
        ("NEW", "https://docs.test/NEW", "https://docs.test/NEW"),
        ("NEW", "", page_of("NEW")),
        ("NEW", "\x1b[2Jdocs", page_of("NEW")),
        ("../../x", "", ""),
    ],
)
def test_the_page_of_an_error_is_the_one_that_the_server_names(code: str, sent: str, shown: str) -> None:
    body = ErrorBody(code=code, kind="invalid", message="m", hint="", id="i", page=sent)
    assert ServerError(ErrorAnswer(body)).page == shown


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")])
def test_nobody_there(error: Exception) -> None:
    with pytest.raises(ServerUnreachableError, match=r"url=http://tilth\.test:1") as raised:
        failing(error).sql("SELECT 1")
    assert "tilth serve" in raised.value.hint


@pytest.mark.parametrize(
    "error",
    [httpx.ReadError("reset"), httpx.RemoteProtocolError("gone"), httpx.ReadTimeout("slow"), httpx.WriteError("")],
)
def test_a_lost_answer_says_that_the_statement_may_have_been_applied(error: Exception) -> None:
    with pytest.raises(AnswerLostError, match=r"url=http://tilth\.test:1") as raised:
        failing(error).sql("INSERT ..")
    assert raised.value.kind is ErrorKind.UNKNOWN_OUTCOME
    assert "before you send it again" in raised.value.hint


@pytest.mark.parametrize(
    "response", [httpx.Response(404, text="nginx"), httpx.Response(200, text="<html>"), httpx.Response(502)]
)
def test_somebody_else_there(response: httpx.Response) -> None:
    with pytest.raises(UnavailableError, check=WithCode("NOT_A_TILTH_SERVER"), match="url="):
        answering(response).sql("SELECT 1")
    with pytest.raises(UnavailableError, check=WithCode("NOT_A_TILTH_SERVER"), match="url="):
        answering(response).health()


@pytest.mark.parametrize("size", [0, 3, 100, 1000, 50_000, -3])
def test_an_answer_that_ends_too_early_without_an_error_of_the_network(size: int) -> None:
    sink = io.BytesIO()
    table = pa.table({"a": range(10_000)})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    summary = msgspec.json.encode(Summary(query_id="q7", elapsed_ms=1.0, rows=-1)).decode()
    headers = {"Content-Type": ARROW, "X-Tilth-Summary": summary}
    response = httpx.Response(200, content=sink.getvalue()[:size], headers=headers)
    with pytest.raises(AnswerLostError, match="the answer broke off: query_id=q7") as raised:
        answering(response).sql("SELECT a FROM t")
    assert "before you send it again" in raised.value.hint
    with pytest.raises(AnswerLostError, match="the answer broke off"):
        answering(response).insert("t", table)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[::1", "http://x:port"])
def test_no_address(url: str) -> None:
    with pytest.raises(BadUrlError, match="url="):
        Connection(url)


def test_an_address_without_a_scheme() -> None:
    assert Connection("localhost:7411/").url == "http://localhost:7411"


def test_not_ready_in_time_names_what_is_not(connection: Connection, rooms: FakeRooms) -> None:
    from tilth.model.wire import Health

    rooms.health = Health(status="degraded", version="0", server="s", components={"catalog": "ok", "spark": "starting"})
    with pytest.raises(ServerUnreachableError, match="spark: starting"):
        connection.wait_ready(-1)
