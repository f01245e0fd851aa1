"""The routes of readers with a Spark session of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import msgspec
import pytest

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.client.http import Connection
from tilth.model.wire import ErrorAnswer
from tilth.server import build_app


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture
def client(rooms: FakeRooms) -> Iterator[httpx.Client]:
    with client_of(build_app(context_of(rooms))) as client:
        yield client


def test_snapshots_of_several_tables(client: httpx.Client, rooms: FakeRooms) -> None:
    connection = Connection("http://tilth.test", transport=client._transport)
    [first, missing] = connection.pin_together([("shop", "a`b"), ("nope", "t")])
    assert first is not None
    assert (first[0].table.name, first[1].id, first[2], missing) == ("a`b", "r1", "/data", None)
    assert rooms.calls == [("pin_together", [("shop", "a`b"), ("nope", "t")])]


@pytest.mark.parametrize("body", [b"", b"{}", b'[["a"]]', b"[[1, 2]]", b'["ab"]', b"\xff"])
def test_a_body_that_names_no_tables_is_refused(client: httpx.Client, rooms: FakeRooms, body: bytes) -> None:
    response = client.post("/v1/snapshots", content=body)
    error = msgspec.json.decode(response.content, type=ErrorAnswer).error
    assert (response.status_code, error.code, rooms.calls) == (400, "BAD_REQUEST", [])


def test_a_reader_of_changes(client: httpx.Client, rooms: FakeRooms) -> None:
    connection = Connection("http://tilth.test", transport=client._transport)
    opened = connection.open_feed("shop", "a`b", name="r 1", hold_ms=60_000, version=-1)
    assert (opened.lease.id, opened.table.name, opened.position, opened.newest) == ("r1", "a`b", 3, 4)
    assert connection.renew_feed("r1", hold_ms=60_000) == 7
    assert connection.renew_feed("r1", hold_ms=60_000, version=5) == 7
    assert connection.feed_changes("r1", -1, 4).root == "/data"
    assert [call for call in rooms.calls if call[0] != "pin"] == [
        ("open_feed", "shop", "a`b", "r 1", 60_000, -1, None),
        ("newest", "r1", 60_000),
        ("advance", "r1", 5, 60_000),
        ("newest", "r1", 60_000),
        ("changes", "r1", -1, 4),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/changes/d/t?name=r",
        "/v1/changes/d/t?name=r&hold_ms=0",
        "/v1/changes/d/t?name=r&hold_ms=1&version=-2",
        "/v1/changes/d/t?name=r&hold_ms=1&version=soon",
        "/v1/feeds/r1?hold_ms=",
        "/v1/feeds/r1?hold_ms=1&version=-1",
        "/v1/feeds/r1/changes?start=1",
        "/v1/feeds/r1/changes?start=1&end=9999999999999999999",
    ],
)
def test_parameters_of_readers_that_are_no_numbers_are_refused(
    client: httpx.Client, rooms: FakeRooms, path: str
) -> None:
    response = client.post(path)
    error = msgspec.json.decode(response.content, type=ErrorAnswer).error
    assert (response.status_code, error.code, rooms.calls) == (400, "BAD_REQUEST", [])
