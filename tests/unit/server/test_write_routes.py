"""Routes of writes from outside, over an engine in this process, without a socket: under a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.outside_world import OutsideWorld
from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import InvalidInputError
from tilth.client.errors import ServerError
from tilth.client.http import Connection
from tilth.model.outside_write import WriteRequest, WrittenFiles
from tilth.model.wire import ErrorAnswer
from tilth.server import ServerSettings, build_app

TABLE = "(a BIGINT NOT NULL, `b.c` STRING) ENGINE = MergeTree ORDER BY a"


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(tmp_path, table=TABLE)


@pytest.fixture
def client(world: OutsideWorld) -> Iterator[httpx.Client]:
    context = replace(context_of(FakeRooms(), ServerSettings(body_bytes_max=100_000)), statements=world.engine)
    with client_of(build_app(context)) as client:
        yield client


@pytest.fixture
def connection(client: httpx.Client) -> Iterator[Connection]:
    with Connection("http://tilth.test", transport=client._transport) as connection:
        yield connection


def test_a_write_from_begin_to_commit(world: OutsideWorld, connection: Connection) -> None:
    opened = connection.begin_write("default", "t", WriteRequest(columns=("a", "b.c"), tasks=8))
    facts = world.write(opened, [{"a": 1, "b.c": "x"}])
    connection.renew_write(opened.id)
    files = WrittenFiles(txn=opened.txn, parts=facts.parts, tasks=1)
    outcome = connection.commit_write(opened.id, files)
    assert outcome.rows == 1
    assert connection.commit_write(opened.id, files) == outcome
    assert world.values("b.c") == ["x"]
    with pytest.raises(ServerError) as refused:
        connection.abort_write(opened.id, "no")
    assert refused.value.code == "WRITE_LANDED"
    [line] = [row for row in world.rows("SELECT kind, rows_written FROM system.query_log") if row[0] == "CommitWrite"][
        :1
    ]
    assert line == ("CommitWrite", 1)


def test_a_write_that_is_aborted(world: OutsideWorld, connection: Connection) -> None:
    opened = connection.begin_write("default", "t", WriteRequest(columns=("a",), tasks=8))
    connection.abort_write(opened.id, "the job failed: ä/&?")
    with pytest.raises(ServerError, match=r"the job failed: ä/&\?") as refused:
        connection.renew_write(opened.id)
    assert refused.value.code == "WRITE_ENDED"


def test_settings_of_the_session_count(connection: Connection) -> None:
    connection.settings = {"readonly": "1"}
    with pytest.raises(ServerError) as refused:
        connection.begin_write("default", "t", WriteRequest(columns=("a",)))
    assert refused.value.code == "READONLY_SETTING"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/writes/default/t", b"", 400, "BAD_BODY"),
        ("/v1/writes/default/t", b"\xc1", 400, "BAD_BODY"),
        ("/v1/writes/default/t", msgspec.msgpack.encode({"columns": 7}), 400, "BAD_BODY"),
        (
            "/v1/writes/default/t",
            msgspec.msgpack.encode({"columns": ["ÿ"]}),
            400,
            "UNKNOWN_COLUMN",
        ),
        ("/v1/writes/default/t", b"x" * 100_001, 413, "BODY_TOO_LARGE"),
        ("/v1/writes/default/u", msgspec.msgpack.encode({"columns": ["a"]}), 404, "TABLE_NOT_FOUND"),
        ("/v1/writers/x/commit", b"{}", 400, "BAD_BODY"),
        ("/v1/writers/x/commit", msgspec.msgpack.encode({"txn": 1, "parts": [], "tasks": 1}), 404, "WRITE_UNKNOWN"),
        ("/v1/writers/x/commit", msgspec.msgpack.encode({"txn": -1, "parts": [], "tasks": 1}), 400, "BAD_BODY"),
        ("/v1/writers/x/commit", msgspec.msgpack.encode({"txn": 1, "parts": [{}], "tasks": 1}), 400, "BAD_BODY"),
        ("/v1/writers/x", b"", 404, "WRITE_UNKNOWN"),
    ],
)
def test_requests_that_are_wrong(client: httpx.Client, path: str, body: bytes, status: int, code: str) -> None:
    response = client.post(path, content=body)
    assert (response.status_code, msgspec.json.decode(response.content, type=ErrorAnswer).error.code) == (status, code)


def test_names_that_are_no_text(connection: Connection) -> None:
    for request in (WriteRequest(columns=("\ud800",)), WriteRequest(columns=("a",), label="\ud800")):
        with pytest.raises(InvalidInputError, match="not text"):
            connection.begin_write("default", "t", request)
    with pytest.raises(InvalidInputError, match="not text"):
        connection.begin_write("\ud800", "t", WriteRequest(columns=("a",)))
    with pytest.raises(ServerError) as refused:
        connection.begin_write("default", "t", WriteRequest(columns=("a",), label="x" * 1001))
    assert refused.value.code == "BAD_BODY"


def test_a_get_changes_nothing(client: httpx.Client) -> None:
    assert client.get("/v1/writes/default/t").status_code == 405
    assert client.get("/v1/writers/x/commit").status_code == 405
