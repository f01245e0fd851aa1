"""Watched statements: what is sent, how often they run, and what ends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pytest
from starlette.applications import Starlette

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import ConflictError
from tilth.model.wire import ColumnInfo
from tilth.query.results.answer import Answer
from tilth.server import build_app, watch
from tilth.server.watch import SECONDS_MIN, STATEMENTS_MAX, read_watch
from tilth.testing.clock import ManualClock

SECONDS_MAX = 120
#: Interval of the tests in seconds: shorter than users may have it.
EVERY = 0.01

# An event: its kind and its data. Any: JSON.
Event = tuple[str, Any]


def watched(
    app: Starlette, body: object, enough: Callable[[list[Event]], bool], *, pages: int = 1
) -> list[list[Event]]:
    """Events of each page until every one has enough; then all of them leave."""
    found: list[list[Event]] = [[] for _ in range(pages)]

    async def page(number: int, everybody: anyio.Event) -> None:
        requests = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await everybody.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
                assert (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
                return
            kind, data = message["body"].decode().removesuffix("\n\n").split("\n")
            found[number].append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
            if all(map(enough, found)):
                everybody.set()

        headers = [(b"host", b"tilth.test"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/watch", "headers": headers, "query_string": b""}
        await app({**scope, "client": ("10.0.0.1", 5)}, receive, send)

    async def run() -> None:
        everybody = anyio.Event()
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as group:
                for number in range(pages):
                    group.start_soon(page, number, everybody)

    anyio.run(run)
    return found


def answers(*values: int) -> Callable[[], Answer]:
    """Answers with these values, one after the other; the last one for ever."""
    rest = list(values)

    def answer() -> Answer:
        value = rest.pop(0) if len(rest) > 1 else rest[0]
        return Answer(query_id="q", columns=[ColumnInfo("a", "bigint")], table=pa.table({"a": [value]}), elapsed_ms=1.0)

    return answer


class Rooms(FakeRooms):
    """Rooms whose answers change, and take `seconds` by the clock."""

    def __init__(self, answer: Callable[[], Answer], *, clock: Clock | None = None, seconds: float = 0.0) -> None:
        super().__init__()
        self._next, self._seconds = answer, seconds
        self.clock = clock or ManualClock()

    def _answered(self, *call: object) -> Answer:
        self.answer = self._next()
        if self._seconds:
            self.clock.sleep(self._seconds)
        return super()._answered(*call)


def app_of(rooms: Rooms) -> Starlette:
    return build_app(replace(context_of(rooms), clock=rooms.clock))


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SECONDS_MIN", EVERY)


def rows_of(events: list[Event]) -> list[Any]:
    return [data["rows"] for kind, data in events if kind == "rows"]


@pytest.mark.usefixtures("short_intervals")
def test_an_answer_is_sent_at_once_and_again_when_it_has_changed() -> None:
    rooms = Rooms(answers(1, 1, 2), clock=SystemClock())
    [events] = watched(
        app_of(rooms), {"statements": {"n": "SELECT 1"}, "every": EVERY}, lambda found: len(rows_of(found)) == 2
    )
    assert rows_of(events) == [[[1]], [[2]]]
    assert ("rows", {"name": "n", "columns": [{"name": "a", "type": "bigint"}], "rows": [[1]]}) in events
    assert any(kind == "time" and data["now_ms"] >= 0 for kind, data in events)
    settings = {"readonly": "1", "log_queries": "0", "max_execution_time": "30", "max_result_bytes": "16777216"}
    assert rooms.calls[0] == ("run", "SELECT 1", "default", settings)


@pytest.mark.usefixtures("short_intervals")
def test_pages_that_watch_one_statement_share_its_answers() -> None:
    rooms = Rooms(answers(7))
    body = {"statements": {"n": "SELECT 1"}, "every": EVERY}
    found = watched(app_of(rooms), body, lambda events: len(events) > 3 and bool(rows_of(events)), pages=5)
    assert [rows_of(events) for events in found] == [[[[7]]]] * 5
    assert len(rooms.calls) == 1, "the clock stands still"


@pytest.mark.usefixtures("short_intervals")
def test_a_slow_statement_runs_less_often() -> None:
    rooms = Rooms(answers(1, 2), seconds=1.0)
    [events] = watched(
        app_of(rooms),
        {"statements": {"n": "SELECT 1"}, "every": EVERY},
        lambda found: len(found) > 4 and bool(rows_of(found)),
    )
    assert rows_of(events) == [[[1]]], "40 seconds between two runs of a second"


@pytest.mark.usefixtures("short_intervals")
def test_an_error_is_an_event_and_the_others_go_on() -> None:
    rooms = Rooms(answers(1))
    rooms.error = ConflictError("no", hint="do this", table="t")
    [events] = watched(
        app_of(rooms), {"statements": {"n": "X", "m": "Y"}, "every": EVERY}, lambda found: len(found) > 3
    )
    failed = {data["name"]: data["error"] for kind, data in events if kind == "error"}
    assert failed.keys() == {"n", "m"}
    assert (failed["n"]["code"], failed["n"]["hint"], failed["n"]["id"]) == ("CONFLICT", "do this", "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"statements": {}}',
        b'{"statements": {"a": 1}}',
        b'{"statements": {"a": "SELECT 1"}, "every": 0.1}',
        b'{"statements": {"a": "SELECT 1"}, "other": 1}',
        json.dumps({"statements": {str(each): "SELECT 1" for each in range(STATEMENTS_MAX + 1)}}).encode(),
        b'{"statements": {"a": "\xff"}}',
    ],
)
def test_a_wrong_request_is_refused(body: bytes) -> None:
    with client_of(build_app(context_of(FakeRooms()))) as client:
        response: httpx.Response = client.post("/v1/watch", content=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "BAD_REQUEST")


def test_the_shortest_interval_is_possible() -> None:
    assert read_watch(b'{"statements": {"a": "SELECT 1"}, "every": 0.5}').every == SECONDS_MIN
